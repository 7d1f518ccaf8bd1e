"""What a client's watch has seen, and the request that goes on from there. No I/O.

A watch gives each status change and log line once, even if the daemon sends it twice. After a lost
connection the client repeats the watch from where it stands, and the daemon first sends the status
of each job.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from ...storage.jobs.job_views import LogLine, StatusChange, log_lines
from ...storage.jobs.jobs import JobStatus
from ..messages import JobChanged, JobLogged, JobsChanged, JobSummary, ListJobs, WatchJobs
from .requests import summary_view

PARTS_MAX = 10_000
"""Unread parts above which the watch pauses until they are read."""

FINISHED_MAX = 50_000
"""Ended jobs that a watch of all jobs remembers, to give each end once."""

PROBE_IDS_MAX = 1_000
"""Most jobs that one probe asks for."""

_SHOWN_MAX = 10
_NOT_FINAL = [status for status in JobStatus if not status.is_final]

Part = StatusChange | LogLine
News = JobChanged | JobsChanged | JobLogged


class WatchProgress:
    """The state of one watch. ``ids`` None stands for all jobs, for ever.

    ``is_final_only``: only final statuses are wanted. ``is_gathered``: the daemon sends changes
    together.
    """

    def __init__(
        self,
        ids: Sequence[int] | None,
        *,
        log: bool,
        is_final_only: bool = False,
        is_gathered: bool = False,
    ) -> None:
        self.is_final_only = is_final_only
        self._is_gathered = is_gathered
        self._is_of_all = ids is None
        self._log = log
        self._remaining: dict[int, None] = dict.fromkeys(ids or ())
        self._statuses: dict[int, JobStatus] = {}
        self._finished: dict[int, JobStatus] = {}
        self._serials: dict[int, int] = {}
        self._id_max = 0
        self._parts: collections.deque[Part] = collections.deque()

    @property
    def is_complete(self) -> bool:
        """Whether every job asked for has ended."""
        return not self._is_of_all and not self._remaining

    @property
    def waiting_count(self) -> int:
        """How many parts wait to be read."""
        return len(self._parts)

    def message(self) -> WatchJobs:
        """The request that goes on from here."""
        if self._is_of_all:
            # These jobs may be final by now; their final statuses are still wanted.
            ids = None
            after = {id_: self._serials.get(id_, 0) for id_ in self._statuses}
        else:
            ids = list(self._remaining)
            after = {id_: self._serials[id_] for id_ in ids if id_ in self._serials}
        return WatchJobs(
            ids=ids,
            log=self._log,
            log_after=after,
            is_final_only=self.is_final_only,
            is_gathered=self._is_gathered,
        )

    def probe(self) -> ListJobs:
        """A cheap request whose reply shows whether the watch still lives (`differs`)."""
        if self._is_of_all:
            # A watch gives no job that ended before it began.
            return ListJobs(after=self._id_max, limit=1, statuses=_NOT_FINAL)
        ids = list(self._remaining)[:PROBE_IDS_MAX]
        return ListJobs(ids=ids, limit=PROBE_IDS_MAX)

    def differs(self, rows: Iterable[JobSummary]) -> bool:
        """Whether ``rows`` hold a status that a living watch would have sent before."""
        told = (row for row in rows if row.status.is_final or not self.is_final_only)
        return any(self._status(row.id) != row.status for row in told)

    def note(self, rows: Iterable[JobSummary]) -> None:
        """Take in the statuses that a probe has shown."""
        for row in rows:
            if row.status.is_final:
                self._add_change(row)
            elif row.id in self._remaining:
                self._statuses[row.id] = row.status

    def take(self) -> Part | None:
        """The next part; None if there is none yet."""
        return self._parts.popleft() if self._parts else None

    def add(self, message: News) -> bool:
        """Take in what the daemon sent; False if nothing of it was new."""
        match message:
            case JobChanged():
                return self._add_change(message.job)
            case JobsChanged():
                new = [self._add_change(job) for job in message.jobs]
                return any(new)
            case JobLogged():
                return self._add_lines(message)

    def missing(self) -> str:
        """The jobs that have not ended, for people: ``3 (running), 7 (queued) and 5 more``."""
        shown = [
            f"{id_} ({self._statuses.get(id_, 'not heard of')})"
            for id_ in list(self._remaining)[:_SHOWN_MAX]
        ]
        more = len(self._remaining) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    def _status(self, id_: int) -> JobStatus | None:
        return self._statuses.get(id_) or self._finished.get(id_)

    def _add_change(self, job: JobSummary) -> bool:
        previous = self._status(job.id)
        if job.status == previous:
            return False
        self._id_max = max(self._id_max, job.id)
        self._parts.append(
            StatusChange(job_id=job.id, status=job.status, previous=previous, job=summary_view(job))
        )
        if job.status.is_final:
            self._statuses.pop(job.id, None)
            self._remaining.pop(job.id, None)
            self._finished[job.id] = job.status
            self._forget_oldest()
        else:
            self._statuses[job.id] = job.status
        return True

    def _add_lines(self, message: JobLogged) -> bool:
        seen = self._serials.get(message.id, 0)
        new = [entry for entry in message.entries if entry[0] > seen]
        if not new:
            return False
        self._serials[message.id] = new[-1][0]
        self._parts.extend(log_lines(message.id, message.op_index, new))
        return True

    def _forget_oldest(self) -> None:
        if self._is_of_all and len(self._finished) > FINISHED_MAX:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            self._serials.pop(oldest, None)
