"""What users may read of the queue: listings, whole jobs, and watches. Changes nothing."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, settings
from ...storage.jobs import job_bounds, jobs, listing
from ...storage.queue_files import job_files, output_files
from ...transport import messages
from .job_classes import row_of
from .job_rows import Phase, Row
from .job_search import JobSearch, is_wanted
from .job_table import JobTable
from .subscriptions import Watch, WatchList

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from structlog.typing import FilteringBoundLogger

    from ...transport.envelopes import Envelope
    from ...transport.messages import JobSummary
    from ..durable.ledger import Ledger
    from ..runtime.works import Work

_APPENDED_ENTRIES_MAX = 10_000

GAP_SECONDS = 5.0
"""How long the reader waits for log entries that are missing before others."""


class _Appended(msgspec.Struct, frozen=True):
    """A log entry that came after the newest state of its job."""

    op_index: int
    entry: jobs.LogEntry


_CHANGEABLE = (Phase.STARTING, Phase.HANDED_OVER)
_STATUS_NUMBERS = {status: number for number, status in enumerate(jobs.JobStatus)}


class JobWaits:
    """Clients that wait for changes of jobs: none, unless a package brings such waits."""

    def changed(self, job_id: int) -> None:
        """Something about the job is another than before, or may be."""

    def stop(self, key: tuple[bytes, int]) -> None:
        """End the wait of this peer with this number without a reply, if it is open."""

    def stop_all_of(self, peer: bytes) -> None:
        """End the waits of a peer that is gone."""


class QueueReader:
    """Answers from the table, the ledger and the archive."""

    def __init__(
        self,
        table: JobTable,
        ledger: Ledger,
        log: FilteringBoundLogger,
        gather: Callable[[], None],
        begin: Callable[[Work], None],
    ) -> None:
        """``gather``: have `WatchList.send_gathered` called soon. ``begin``: do this in slices."""
        self._log = log
        self.watches = WatchList(gather)
        self.waits = JobWaits()
        """A package that answers such waits puts its own here."""
        self._table = table
        self._ledger = ledger
        self.search = JobSearch(table, ledger.directory, self._archived_summary, begin)
        self._appended: dict[int, deque[_Appended]] = {}
        self._gaps: dict[int, float] = {}
        self.unreadable: dict[int, str] = {}
        """Damaged archived jobs, each with what is wrong."""

    def rows(self, message: messages.ListJobs) -> messages.JobRows:
        """One page of a listing; `UnknownJobError` for an id that does not exist."""
        limit = max(1, min(message.limit, settings.LIST_PAGE_ROWS))
        if message.ids is not None:
            if len(message.ids) > settings.LIST_PAGE_ROWS:
                text = f"ids: expected at most {settings.LIST_PAGE_ROWS}, got {len(message.ids)}"
                raise errors.BadRequestError(text)
            known = [self._summary(job_id) for job_id in message.ids]
            return messages.JobRows(rows=list(filter(is_wanted(message), known)))
        if message.archived or message.newest_first or message.wanted is not None:
            return self.search.page(message, limit)
        page, has_more = self._table.page(
            after=message.after, limit=limit, statuses=message.statuses
        )
        return messages.JobRows(
            rows=[row.as_summary() for row in page],
            next_after=page[-1].id if has_more else None,
        )

    def versions(self, message: messages.ListJobVersions) -> messages.JobVersions:
        """One page of the live jobs with their versions."""
        mark = self._table.mark
        if message.known_mark == mark:
            return messages.JobVersions(ids=[], versions=[], mark=mark)
        limit = min(message.rows_max or settings.VERSIONS_PAGE_ROWS, settings.VERSIONS_PAGE_ROWS)
        page, has_more = self._table.page(after=message.after, limit=limit, statuses=None)
        ids = [row.id for row in page]
        versions = [self._version(row) for row in page] if message.has_versions else []
        return messages.JobVersions(
            ids=ids, versions=versions, next_after=ids[-1] if has_more else None, mark=mark
        )

    def _version(self, row: Row) -> int:
        """Another number whenever the job has changed; 0: it can change at any time."""
        if row.phase in _CHANGEABLE or self._ledger.is_staged(row.id):
            return 0
        # Each state of its file has another serial. The table alone knows whether it waits for
        # another job.
        return (row.serial + 1) * len(_STATUS_NUMBERS) + _STATUS_NUMBERS[row.status]

    def document(self, job_id: int) -> messages.JobDocument:
        """The whole job, with the log entries that came after its newest state."""
        row = self._table.find(job_id)
        if row is None:
            archived, job = self._archived(job_id)
            summary = listing.in_listing(listing.job_summary(job))
            body = _sendable(archived, f"job-{job_id} in the archive")
            return messages.JobDocument(
                id=job_id,
                body=body,
                archived=True,
                summary=summary,
                output_removed=self._is_output_removed(job_id),
            )
        if job_id in self._appended or row.status is jobs.JobStatus.WAITING:
            body = jobs.encode_job(self._job_of(row)[0])
        else:
            body = self._body(job_id)
        body = _sendable(body, f"job-{job_id} in the queue directory")
        is_removed = row.status.is_final and self._is_output_removed(job_id)
        return messages.JobDocument(
            id=job_id, body=body, summary=row.summary, output_removed=is_removed
        )

    def _is_output_removed(self, job_id: int) -> bool:
        return output_files.is_removed(self._ledger.directory.places, job_id)

    def dependencies(self) -> messages.DependenciesListed:
        """Which jobs wait for which, in the form of the chained-jobs document."""
        found: dict[int, list[tuple[str, list[str]]]] = {}
        for row in self._table.in_phase(Phase.PENDING):
            for target, wanted in row.depends:
                other = self._table.find(target)
                if other is not None and not other.status.is_final:
                    entry = (",".join(wanted) or "any", [f"job/{row.id}"])
                    found.setdefault(target, []).append(entry)
        rows = [
            messages.LockRow(name=f"job/{target}", mode=None, owners=[], pending=pending)
            for target, pending in sorted(found.items())
        ]
        return messages.DependenciesListed(rows=rows)

    def watch(self, envelope: Envelope, message: messages.WatchJobs) -> Work:
        """Send each job as it is now, and its changes; yields between slices of all jobs.

        Raises `BusyError` if too many watches are open.
        """
        if message.ids is None:
            yield from self._watch_all(envelope, message)
            return None
        summaries = [self._summary(job_id) for job_id in dict.fromkeys(message.ids)]
        remaining = {summary.id for summary in summaries if not summary.status.is_final}
        after = {each.id: message.log_after.get(each.id, 0) for each in summaries}
        watch = _watch(envelope, message, remaining, after)
        for summary in summaries:
            self._send_as_it_is(watch, summary)
        watch.send_gathered()
        self.watches.open(watch)
        return None

    def _watch_all(self, envelope: Envelope, message: messages.WatchJobs) -> Work:
        """Of a long queue, all at once would be large, and take long.

        The watch is open from the first slice on: no change is missed.
        """
        watch = _watch(envelope, message, None, message.log_after)
        self.watches.open(watch)
        self._ledger.files.has_left_memory |= len(self._table) > settings.LIST_PAGE_ROWS
        limit = settings.WATCHED_WITH_LOG_AT_ONCE if message.log else settings.WATCHED_AT_ONCE
        after, is_more = 0, True
        while is_more and self.watches.is_open(watch):
            rows, is_more = self._table.page(after=after, limit=limit, statuses=None)
            try:
                self._begin(watch, rows, message.log_after)
            except errors.GangerError:
                # The client learns that there is no watch.
                self.watches.stop(*watch.key)
                raise
            if is_more:
                after = rows[-1].id
                yield
        watch.has_begun()
        return None

    def _begin(self, watch: Watch, rows: list[Row], known: Collection[int]) -> None:
        """Send each of these jobs that is not final, or of which the client knows."""
        for row in rows:
            is_wanted = row.id in known and row.id not in watch.ended_meanwhile
            if is_wanted or not row.status.is_final:
                self._send_as_it_is(watch, row.as_summary())
        watch.send_gathered()

    def _send_as_it_is(self, watch: Watch, summary: JobSummary) -> None:
        """Send the job's log, if it is wanted, and its status."""
        if watch.wants_log:
            row = self._table.find(summary.id)
            if row is None:
                _send_log(watch, self._archived(summary.id)[1], math.inf)
            else:
                _send_log(watch, *self._job_of(row))
        if summary.status.is_final or not watch.is_final_only:
            watch.send_change(summary)

    def present(self, row: Row) -> jobs.Job:
        """The whole live job as it is now. Raises `StorageError`."""
        return self._job_of(row)[0]

    def followed(self, row: Row) -> tuple[jobs.Job, float]:
        """As `present`, and the serial up to which its log has no gaps."""
        return self._job_of(row)

    def changed(self, row: Row) -> None:
        """Send the job's new status to watches; clients that wait for a change are looked at."""
        self.watches.changed(row)
        self.waits.changed(row.id)

    def stop(self, peer: bytes, number: int) -> None:
        """End a watch of the peer, or its waiting for a change."""
        self.watches.stop(peer, number)
        self.waits.stop((peer, number))

    def stop_all_of(self, peer: bytes) -> None:
        """End all watches of a peer that is gone, and all that it waits for."""
        self.watches.stop_all_of(peer)
        self.waits.stop_all_of(peer)

    def archived(self, job_id: int) -> jobs.Job:
        """The whole archived job. Raises `UnknownJobError` or `StorageError`."""
        return self._archived(job_id)[1]

    def log_appended(self, message: messages.JobLogAppended) -> None:
        """Keep and send new log entries of a running job."""
        job_id, entries = message.job_id, message.entries
        row = self._table.find(job_id)
        if row is None or row.phase is not Phase.HANDED_OVER or not entries:
            return
        if row.status.is_final:
            # All log entries are sent before the final status.
            return
        kept = self._appended.setdefault(job_id, deque(maxlen=_APPENDED_ENTRIES_MAX))
        new = [_Appended(message.op_index, entry) for entry in entries]
        if kept and kept[-1].entry[0] >= entries[0][0]:
            # Repeated, perhaps with some that were lost before.
            known = {each.entry[0]: each for each in (*kept, *new)}
            kept.clear()
            new = [known[serial] for serial in sorted(known)]
        kept.extend(new)
        self.waits.changed(job_id)
        self.watches.logged(job_id, message.op_index, entries)
        if lacking := self.watches.lacking(job_id, entries[-1][0]):
            self._close_gap(row, lacking)
        elif self._gaps:
            self._gaps.pop(job_id, None)

    def _close_gap(self, row: Row, lacking: list[Watch]) -> None:
        """Look for entries that are missing before those that came: in the file, or soon to come.

        A process repeats what it has sent to a queue that was replaced. The rest is given up after
        a moment.
        """
        now = time.monotonic()
        since = self._gaps.setdefault(row.id, now)
        if since == now:
            self._send_logs(row, lacking)
        elif now - since >= GAP_SECONDS:
            del self._gaps[row.id]
            self._send_logs(row, lacking, is_all=True)

    def log_reaches(self, row: Row, log_serial: int) -> None:
        """Send watches the log entries that they lack: the job's state has all up to this serial.

        A watch lacks what the job's process logged while it had no connection to the daemon.
        """
        lacking = [] if row.status.is_final else self.watches.lacking(row.id, log_serial)
        if lacking:
            self._send_logs(row, lacking)

    def _send_logs(self, row: Row, lacking: list[Watch], *, is_all: bool = False) -> None:
        try:
            job, reliable = self._job_of(row)
        except errors.StorageError as error:
            self._log.error("log cannot be sent", job=row.id, error=error.text)
            return
        for watch in lacking:
            _send_log(watch, job, math.inf if is_all else reliable)

    def forget_appended(self, job_id: int, log_serial: int | None) -> None:
        """Drop the entries up to this serial (None: all): the job's state has them now."""
        kept = self._appended.get(job_id)
        while kept and (log_serial is None or kept[0].entry[0] <= log_serial):
            kept.popleft()
        if not kept:
            self._appended.pop(job_id, None)
            self._gaps.pop(job_id, None)

    def _body(self, job_id: int) -> bytes:
        body = self._ledger.files.body(job_id)
        if body is None:
            raise errors.StorageError(f"job {job_id} has no file")
        return body

    def _job_of(self, row: Row) -> tuple[jobs.Job, float]:
        """The job as it is now, and the serial up to which its log has no gaps."""
        try:
            job = jobs.decode_job(self._body(row.id))
        except errors.StorageError as error:
            raise errors.StorageError(f"job-{row.id}: {error.text}") from error
        appended = self._appended.get(row.id)
        if (
            row.phase is Phase.PENDING
            and not job.status.is_final
            and row.status is jobs.JobStatus.WAITING
        ):
            job.ops[job.next_index].status = jobs.JobStatus.WAITING
        if appended and _has_gap(job.last_log_serial, appended):
            self._take_log_of_file(job)
        reliable = math.inf if job.status.is_final else job.last_log_serial
        if appended is not None and len(appended) == _APPENDED_ENTRIES_MAX:
            # The oldest were dropped, and are not sent again.
            reliable = max(reliable, appended[0].entry[0])
        self.add_appended(job)
        return job, reliable

    def add_appended(self, job: jobs.Job) -> None:
        """Add the log entries that came after this state of the job."""
        last = job.last_log_serial
        for each in self._appended.get(job.id, ()):
            if each.entry[0] > last:
                job.ops[each.op_index].log.append(each.entry)

    def _take_log_of_file(self, job: jobs.Job) -> None:
        """Add the log entries that the job's process wrote into the file after this state."""
        try:
            data = self._ledger.files.read(job.id)
            on_disk = None if data is None else jobs.decode_job(data)
        except errors.StorageError:
            return
        if on_disk is not None and on_disk.serial == job.serial:
            for op, written in zip(job.ops, on_disk.ops, strict=False):
                op.log = written.log

    def _summary(self, job_id: int) -> messages.JobSummary:
        row = self._table.find(job_id)
        if row is not None:
            return row.as_summary()
        _, job = self._archived(job_id)
        return row_of(job, Phase.ENDED).as_summary(archived=True)

    def _archived_summary(self, job_id: int) -> JobSummary:
        return row_of(self.archived(job_id), Phase.ENDED).as_summary(archived=True)

    def _archived(self, job_id: int) -> tuple[bytes, jobs.Job]:
        """The archived file, and the job in it. An unreadable one is noted in ``unreadable``."""
        try:
            data = self._ledger.files.read_archived(job_id)
            if data is not None:
                return data, job_files.read_job(data, job_id)
        except errors.StorageError as error:
            text = f"job-{job_id} in the archive: {error.text}"
            if job_id not in self.unreadable:
                self._log.error("job file is quarantined", file=text)
            self.unreadable[job_id] = text
            raise errors.StorageError(text) from error
        raise errors.UnknownJobError(f"there is no job {job_id}")


def _has_gap(last: int, appended: deque[_Appended]) -> bool:
    """Whether serials are missing between ``last`` and the entries."""
    return appended[-1].entry[0] - last > sum(each.entry[0] > last for each in appended)


def _watch(
    envelope: Envelope,
    message: messages.WatchJobs,
    remaining: set[int] | None,
    log_after: Mapping[int, int],
) -> Watch:
    return Watch(
        envelope,
        remaining,
        log=message.log,
        is_final_only=message.is_final_only,
        log_serials=log_after if message.log else None,
        is_gathered=message.is_gathered,
    )


def _send_log(watch: Watch, job: jobs.Job, all_until: float) -> None:
    for index, op in enumerate(job.ops):
        watch.send_log(job.id, index, op.log, all_until)


def _sendable(body: bytes, place: str) -> bytes:
    """The text of a job, or of a shortened copy if a frame cannot hold it."""
    return body if len(body) <= settings.JOB_BYTES_MAX else job_bounds.shortened(body, place)
