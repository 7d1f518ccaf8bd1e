"""Which of the known jobs a list shows, in which order; how many there are of each kind. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
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

_LIVE: Final = (
    JobStatus.RUNNING,
    JobStatus.CANCELING,
    JobStatus.WAITING,
    JobStatus.QUEUED,
)
_FINAL: Final = tuple(status for status in JobStatus if status.is_final)
_TEXTS: Final = tuple(
    name
    for name, kind in listing.TYPES.items()
    if kind is str and (name == "reason" or "page" in listing.LISTED[name].shown)
)
"""The fields in which words are searched, besides the id."""

_texts: Final[Callable[[JobInfo], tuple[str, ...]]] = attrgetter(*_TEXTS)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows: jobs with one of the statuses and one of the outcomes, and all words.

    An empty collection stands for any.
    """

    statuses: Collection[str] = ()
    outcomes: Collection[str] = ()
    words: Collection[str] = ()
    """In small letters."""

    def among(self, jobs: Sequence[JobInfo]) -> Sequence[JobInfo]:
        """The jobs that the list shows."""
        if not (self.statuses or self.outcomes or self.words):
            return jobs
        return [job for job in jobs if self._has(job)]

    def _has(self, job: JobInfo) -> bool:
        if self.statuses and str(job.status) not in self.statuses:
            return False
        if self.outcomes and str(job.outcome) not in self.outcomes:
            return False
        if not self.words:
            return True
        text = f"{job.id} {' '.join(_texts(job))}".lower()
        return all(word in text for word in self.words)


def ordered(jobs: Iterable[JobInfo], sort: str, now: float) -> list[JobInfo]:
    """The jobs in this order of `SORTS`; those without a value come last."""
    name = sort.removeprefix("-")
    if name == ACTIVE:
        return _by_activity(jobs)
    value = _value_of(name, now)
    found = sorted(jobs, key=attrgetter("id"), reverse=True)
    known = [job for job in found if value(job) is not None]
    known.sort(key=value, reverse=sort.startswith("-"))
    return known + [job for job in found if value(job) is None]


def _by_activity(jobs: Iterable[JobInfo]) -> list[JobInfo]:
    jobs = list(jobs)
    # By identity: an enum's hash costs more than to look through all of them again.
    running, *waiting = ([job for job in jobs if job.status is status] for status in _LIVE)
    running.sort(key=lambda job: (job.started or 0.0, job.id), reverse=True)
    for part in waiting:
        part.sort(key=attrgetter("priority", "id"))
    ended = [job for job in jobs if job.status in _FINAL]
    ended.sort(key=lambda job: (job.ended or job.received or 0.0, job.id), reverse=True)
    return [*running, *itertools.chain(*waiting), *ended]


def _value_of(name: str, now: float) -> Callable[[JobInfo], Any]:
    if name == ELAPSED:
        return lambda job: None if job.started is None else (job.ended or now) - job.started
    if listing.TYPES[name] is str:
        # An empty text is no value.
        return lambda job: getattr(job, name).lower() or None
    return lambda job: getattr(job, name)


def counts(jobs: Iterable[JobInfo], field: str, kinds: Iterable[StrEnum]) -> dict[str, int]:
    """How many jobs there are with each of these values of a field."""
    values = list(map(attrgetter(field), jobs))
    return {str(kind): sum(value is kind for value in values) for kind in kinds}
