"""Which of the known jobs a list shows, in which order; how many there are of each kind. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from ..storage.jobs import listing
from ..storage.jobs.job_views import JobInfo
from ..storage.jobs.jobs import JobStatus

ACTIVE: Final = "active"
"""The usual order: what runs, what waits for its locks, what is queued, what ended last."""

ELAPSED: Final = "elapsed"
"""The order by how long jobs have run."""

SORTS: Final = (ACTIVE, ELAPSED, *listing.LISTED)
"""The orders; the name of a field is the order of its values, and a ``-`` before it turns it."""

_RANKS: Final = {
    JobStatus.RUNNING: 0,
    JobStatus.CANCELING: 1,
    JobStatus.WAITING: 2,
    JobStatus.QUEUED: 3,
}
_TEXTS: Final = tuple(
    name
    for name, kind in listing.TYPES.items()
    if kind is str and (name == "reason" or "page" in listing.LISTED[name].shown)
)
"""The fields in which words are searched, besides the id."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows: jobs with one of the statuses and one of the outcomes, and all words.

    An empty collection stands for any.
    """

    statuses: Collection[str] = ()
    outcomes: Collection[str] = ()
    words: Collection[str] = ()
    """In small letters."""

    def has(self, job: JobInfo) -> bool:
        """Whether the list shows this job."""
        if self.statuses and str(job.status) not in self.statuses:
            return False
        if self.outcomes and str(job.outcome) not in self.outcomes:
            return False
        if not self.words:
            return True
        text = " ".join([str(job.id), *(getattr(job, name) for name in _TEXTS)]).lower()
        return all(word in text for word in self.words)


def ordered(jobs: Iterable[JobInfo], sort: str, now: float) -> list[JobInfo]:
    """The jobs in this order of `SORTS`; those without a value come last."""
    name = sort.removeprefix("-")
    if name == ACTIVE:
        return sorted(jobs, key=_activity)
    value = _value_of(name, now)
    found = sorted(jobs, key=lambda job: job.id, reverse=True)
    known = [job for job in found if value(job) is not None]
    known.sort(key=value, reverse=sort.startswith("-"))
    return known + [job for job in found if value(job) is None]


def _activity(job: JobInfo) -> tuple[float, ...]:
    rank = _RANKS.get(job.status)
    if rank is None:
        return len(_RANKS), -(job.ended or job.received or 0.0), -job.id
    if job.status is JobStatus.RUNNING:
        return rank, -(job.started or 0.0), -job.id
    return rank, job.priority, job.id


def _value_of(name: str, now: float) -> Callable[[JobInfo], Any]:
    if name == ELAPSED:
        return lambda job: None if job.started is None else (job.ended or now) - job.started
    if listing.TYPES[name] is str:
        # An empty text is no value.
        return lambda job: getattr(job, name).lower() or None
    return lambda job: getattr(job, name)


def counts(jobs: Iterable[JobInfo], field: str, names: Iterable[str]) -> dict[str, int]:
    """How many jobs there are with each of these values of a field."""
    found = Counter(str(getattr(job, field)) for job in jobs)
    return {name: found[name] for name in names}
