"""The open watches of the queue, and the messages to each."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs import job_bounds
from ...transport.messages import JobChanged, JobLogged, JobsChanged, WatchEnded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...storage.jobs.jobs import LogEntry
    from ...transport.envelopes import Envelope
    from ...transport.messages import JobSummary
    from .job_rows import Row


class Watch:
    """One open watch: ``remaining`` are the jobs that are not final; None follows all.

    ``log_serials`` are the serials of the log entries that were sent last, by job. ``is_gathered``:
    changes wait for `send_gathered`, unless a log entry or too many others come.
    """

    def __init__(
        self,
        envelope: Envelope,
        remaining: set[int] | None,
        *,
        log: bool,
        is_final_only: bool = False,
        log_serials: Mapping[int, int] | None = None,
        is_gathered: bool = False,
    ) -> None:
        self.envelope = envelope
        self.remaining = remaining
        self.job_ids = frozenset(remaining or ())
        self.wants_log = log
        self.is_final_only = is_final_only
        self.is_gathered = is_gathered
        self._log_serials = dict(log_serials or {})
        self._gathered: list[JobSummary] = []
        self._is_beginning = remaining is None
        self.ended_meanwhile: set[int] = set()
        """Jobs whose end was sent while the first parts of a watch of all were being sent."""

    def log_serial(self, job_id: int) -> int:
        """Serial of the newest log entry of this job that was sent; 0: none."""
        return self._log_serials.get(job_id, 0)

    def send_log(
        self, job_id: int, op_index: int, entries: Sequence[LogEntry], all_until: float = 0
    ) -> None:
        """Send those of the entries that are new and follow on the last one.

        Where serials are missing, the rest waits for them; but not up to the serial
        ``all_until``, because there no other entry can come in between.
        """
        known = self.log_serial(job_id)
        new = []
        for entry in entries:
            if entry[0] > known:
                if entry[0] > all_until and entry[0] != known + 1:
                    break
                known = entry[0]
                new.append(entry)
        if new:
            self._log_serials[job_id] = known
            self.send_gathered()
            for part in job_bounds.log_parts(new):
                self.envelope.reply(JobLogged(id=job_id, op_index=op_index, entries=part))

    def send_change(self, summary: JobSummary) -> None:
        """Send how the job is now, at once or with what is gathered."""
        if self.is_gathered:
            self._gathered.append(summary)
            if len(self._gathered) >= settings.WATCH_GATHERED_MAX:
                self.send_gathered()
        else:
            self.envelope.reply(JobChanged(job=summary))
        if summary.status.is_final:
            self._log_serials.pop(summary.id, None)
            if self._is_beginning:
                self.ended_meanwhile.add(summary.id)

    def has_begun(self) -> None:
        """The first parts of a watch of all have been sent."""
        self._is_beginning = False
        self.ended_meanwhile.clear()

    def send_gathered(self) -> None:
        """Send the changes that wait."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self.envelope.reply(JobsChanged(jobs=gathered))

    @property
    def key(self) -> tuple[bytes, int]:
        """The client, and the number of its request."""
        return self.envelope.peer, self.envelope.number


class WatchList:
    """All open watches, found by job. ``gather``: have `send_gathered` called soon."""

    def __init__(self, gather: Callable[[], None]) -> None:
        self._gather = gather
        self._gathering: list[Watch] = []
        """Those with gathered changes, since `gather` was called."""
        self._watches: dict[tuple[bytes, int], Watch] = {}
        self._by_job: defaultdict[int, list[Watch]] = defaultdict(list)
        self._of_all: list[Watch] = []

    def __len__(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def open(self, watch: Watch) -> None:
        """Begin a watch; it replaces one of the same peer under the same number.

        A watch whose jobs are all final ends at once. `BusyError` if there are too many.
        """
        self._remove(watch.key)
        if len(self._watches) >= settings.WATCHERS_MAX:
            raise errors.BusyError(f"{settings.WATCHERS_MAX} watches are open already")
        if watch.remaining is not None and not watch.remaining:
            watch.envelope.reply(WatchEnded())
            return
        self._watches[watch.key] = watch
        if watch.remaining is None:
            self._of_all.append(watch)
        else:
            for job_id in watch.job_ids:
                self._by_job[job_id].append(watch)

    def is_open(self, watch: Watch) -> bool:
        """Whether no client has ended it."""
        return self._watches.get(watch.key) is watch

    def stop(self, peer: bytes, number: int) -> None:
        """End a watch of the peer."""
        self._remove((peer, number))

    def stop_all_of(self, peer: bytes) -> None:
        """End all watches of a peer that is gone."""
        for key in [key for key in self._watches if key[0] == peer]:
            self._remove(key)

    def changed(self, row: Row) -> None:
        """Send the change to those that follow the job; end watches whose last job is final."""
        if not self._watches:
            return
        summary = row.as_summary()
        is_final = row.status.is_final
        for watch in (*self._of_all, *self._by_job.get(row.id, ())):
            if watch.is_final_only and not is_final:
                continue
            watch.send_change(summary)
            if watch.is_gathered:
                self._await_others(watch)
            if watch.remaining is not None and is_final:
                watch.remaining.discard(row.id)
                if not watch.remaining:
                    watch.send_gathered()
                    watch.envelope.reply(WatchEnded())
                    self._remove(watch.key)

    def send_gathered(self) -> None:
        """Send the changes that wait, of all watches."""
        gathering, self._gathering = self._gathering, []
        for watch in gathering:
            watch.send_gathered()

    def _await_others(self, watch: Watch) -> None:
        if not self._gathering:
            self._gather()
        if watch not in self._gathering:
            self._gathering.append(watch)

    def logged(self, job_id: int, op_index: int, entries: list[LogEntry]) -> None:
        """Send log entries to those that follow the job's log."""
        for watch in self.lacking(job_id, entries[-1][0]):
            watch.send_log(job_id, op_index, entries)

    def lacking(self, job_id: int, log_serial: int) -> list[Watch]:
        """The watches that follow the job's log, and lack the entry with this serial."""
        if not self._watches:
            return []
        return [
            watch
            for watch in (*self._of_all, *self._by_job.get(job_id, ()))
            if watch.wants_log and watch.log_serial(job_id) < log_serial
        ]

    def _remove(self, key: tuple[bytes, int]) -> None:
        watch = self._watches.pop(key, None)
        if watch is None:
            return
        if watch in self._of_all:
            self._of_all.remove(watch)
        if watch in self._gathering:
            self._gathering.remove(watch)
        for job_id in watch.job_ids:
            self._by_job[job_id].remove(watch)
            if not self._by_job[job_id]:
                del self._by_job[job_id]
