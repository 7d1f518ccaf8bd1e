"""Answers queries for jobs: from rows in memory and the index of the archive, else from files."""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...storage import errors
from ...storage.ganeti.queries.jobs import ARCHIVE_FIELD, JOBS, JobRow
from ...storage.jobs import jobs, listing
from ..store.job_rows import Phase
from . import query_pages
from .job_state import JobState

if TYPE_CHECKING:
    from ...transport import messages
    from ...transport.messages import JobSummary
    from ..runtime.component import Runtime
    from ..store.job_rows import Row
    from ..store.job_store import JobStore


class JobQueries:
    """Answers queries, a page at a time. ``catch_up``: take in a newer state of a job's file."""

    def __init__(self, runtime: Runtime, store: JobStore, catch_up: Callable[[int], None]) -> None:
        self._runtime = runtime
        self._store = store
        self._catch_up = catch_up

    def page(self, message: messages.QueryJobs) -> messages.QueryAnswered:
        """One page of the answer. Raises `BadRequestError`, or `StorageError` of a named job."""
        asked = query_pages.checked(JOBS, message)
        fields = {*asked.fields, *asked.filter_fields}
        rows = _Rows(self._store, self._whole, _id_of(message.after), fields)
        return query_pages.answered(self._runtime, asked, rows, message.after)

    def state(self, row: Row) -> JobState:
        """The live job at this moment, for those who wait for a change. Raises `StorageError`."""
        if row.phase is Phase.HANDED_OVER:
            self._catch_up(row.id)
        job, log_until = self._store.reader.followed(row)
        return JobState(JobRow(row.id, job, known=_RowValues(row)), log_until)

    def _whole(self, row: Row) -> jobs.Job:
        if row.phase is Phase.HANDED_OVER:
            self._catch_up(row.id)
        return self._store.reader.present(row)


class _Rows(Mapping[int, JobRow]):
    """The jobs of the queue by id; lists those behind ``after``, and finds the others, too."""

    def __init__(
        self,
        store: JobStore,
        whole: Callable[[Row], jobs.Job],
        after: int,
        fields: set[str],
    ) -> None:
        """``fields``: those that are looked at; with `ARCHIVE_FIELD` archived jobs are listed."""
        self._store = store
        self._whole = whole
        self._after = after
        self._is_archive_listed = ARCHIVE_FIELD in fields
        self._fields = fields - _OF_NO_FILE
        self._listed: JobSummary | None = None
        """The archived job that was listed last, if the index has the fields."""

    def __iter__(self) -> Iterator[int]:
        live = self._store.table.ids_after(self._after)
        if not self._is_archive_listed:
            return live
        # An archived job may be in both places for a moment.
        return (job_id for job_id, _ in itertools.groupby(heapq.merge(live, self._archived_ids())))

    def _archived_ids(self) -> Iterator[int]:
        if not _FROM_SUMMARIES.keys() >= self._fields:
            yield from self._store.ledger.directory.archived_ids_after(self._after)
            return
        archive = self._store.reader.search.archive
        for _, job in archive.found(after=self._after, newest_first=False, is_whole=True):
            if job is not None:
                self._listed = job
                yield job.id

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, job_id: int) -> JobRow:
        """The job; `KeyError` if there is none, `StorageError` if its file is damaged."""
        row = self._store.table.find(job_id)
        if row is not None:
            return JobRow(job_id, known=_RowValues(row), read=lambda: self._whole(row))
        if (listed := self._listed) is not None and listed.id == job_id:
            # `KeyError`: the summary is that of several opcodes, or a part.
            with contextlib.suppress(KeyError):
                known = {name: _FROM_SUMMARIES[name](listed) for name in self._fields}
                read = functools.partial(self._store.reader.archived, job_id)
                return JobRow(job_id, is_archived=True, known=known, read=read)
        try:
            job = self._store.reader.archived(job_id)
        except errors.UnknownJobError as error:
            raise KeyError(job_id) from error
        return JobRow(job_id, job, is_archived=True)

    def get(self, job_id: int, default: Any = None) -> Any:  # noqa: ANN401 - as in `Mapping`
        """The job, for listings: a damaged one is left out; the log and the status name it."""
        try:
            return self[job_id]
        except (KeyError, errors.StorageError):
            return default


def _id_of(mark: str | None) -> int:
    """The id after which a page begins; the page itself refuses what is no mark."""
    return int(mark) if mark is not None and mark.isascii() and mark.isdecimal() else 0


def _stamp(seconds: float | None) -> jobs.Timestamp | None:
    """The time as the job's file has it: a float keeps microseconds."""
    if seconds is None:
        return None
    microseconds = round(seconds * 1_000_000)
    return microseconds // 1_000_000, microseconds % 1_000_000


def _summaries(row: Row | JobSummary) -> list[str]:
    """The summary of the only opcode; `KeyError` if there are several, or this is a part."""
    if ", " in row.summary or row.summary.endswith("..."):
        raise KeyError("summary")
    return [row.summary] if row.summary else []


def _shown(row: Row, name: str) -> object:
    """One of the values that jobs with the same parameters share; `KeyError` without."""
    return dict(row.whole_class.shown)[name]


def _outcome(row: Row) -> str | None:
    outcome = row.end.outcome
    return None if outcome is None else outcome.value


_FROM_ROWS: Mapping[str, Callable[[Row], Any]] = {
    "cause": lambda row: row.shown_ending.cause,
    "end_ts": lambda row: _stamp(row.ended),
    "name": lambda row: row.origin.name,
    "outcome": _outcome,
    "plan": lambda row: row.origin.plan,
    "priority": lambda row: row.priority,
    "reason_ended": lambda row: row.shown_ending.reason,
    "received_ts": lambda row: _stamp(row.received),
    "start_ts": lambda row: _stamp(row.started),
    "status": lambda row: row.status.value,
    "summary": _summaries,
    "user": lambda row: row.origin.user,
    **{name: functools.partial(_shown, name=name) for name in listing.OF_INPUTS},
}


_OF_NO_FILE: Final = frozenset({ARCHIVE_FIELD, "id"})


def _outcome_of(job: JobSummary) -> str | None:
    return None if job.outcome is None else job.outcome.value


_FROM_SUMMARIES: Mapping[str, Callable[[JobSummary], Any]] = {
    "end_ts": lambda job: _stamp(job.ended),
    "outcome": _outcome_of,
    "received_ts": lambda job: _stamp(job.received),
    "start_ts": lambda job: _stamp(job.started),
    "status": lambda job: job.status.value,
    "summary": _summaries,
    **{
        name: operator.attrgetter(name)
        for name in ("cause", "name", "plan", "priority", "reason_ended", "user")
    },
}
"""The fields that the index of the archive has. A text may be cut there, as in all listings."""


class _RowValues(Mapping[str, Any]):
    """The values of fields that need not be read from the job's file, made when asked for."""

    __slots__ = ("_row",)

    def __init__(self, row: Row) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of a field
        return _FROM_ROWS[name](self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(_FROM_ROWS)

    def __len__(self) -> int:
        return len(_FROM_ROWS)
