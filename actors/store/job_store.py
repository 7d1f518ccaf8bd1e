"""The store of the queue: its jobs in memory and on disk, their transitions and their ends.

The other parts of the queue change jobs through the store, which announces each change. A part
that must know of a transition made by another part registers a listener (`when_ended`,
`when_returned`, `settle_with`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, assert_never

from ...storage import errors, settings
from ...storage.disk import free_memory
from ...storage.jobs import job_bounds, job_ends, jobs, outcomes
from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import Ending, Outcome
from ...transport import messages
from ..durable.change_log import ChangeLog
from ..durable.ledger import Ledger
from ..runtime.addresses import LOCK_MANAGER, SCHEDULER
from .announcements import Announcements, finished
from .endings import Endings
from .job_rows import Phase
from .lazy_rows import LazyRows
from .queue_reader import QueueReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.log.cut import Cut
    from ...storage.log.journal import Journal
    from ...storage.log.segment_ahead import SegmentAhead
    from ...storage.queue_files.compaction import Compaction
    from ...storage.queue_files.job_files import QueueDirectory
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message, PendingEnd
    from ..runtime.component import Runtime
    from ..runtime.dispatcher import Alarm
    from ..runtime.idle_work import IdleWork
    from .job_rows import Row
    from .job_table import JobTable
    from .loaded import Loaded

    Listener = Callable[[Row], None]


_MENDED_NAMED_MAX = 10

_HURRY_FROM = 0.5
"""How full the newest segment is when the compactor works though messages wait."""


class JobStore:
    """The table of live jobs and their ledger: every part of the queue stands on it."""

    def __init__(
        self,
        runtime: Runtime,
        table: JobTable,
        directory: QueueDirectory,
        journal: Journal,
    ) -> None:
        self.table = table
        self.ledger = Ledger(
            directory,
            journal,
            self._compact_in_thread,
            self._make_in_thread,
            keeps_reserve=runtime.host.keeps_reserve,
        )
        self.ledger.files.when_mended = self._note_mended
        self.change_log = ChangeLog(self.ledger)
        self._work: IdleWork | None = None
        self.reader = QueueReader(table, self.ledger, runtime.log, self._gather, runtime.work)
        self.announcements = Announcements(runtime, table, self.ledger)
        self.endings = Endings(runtime, table, self.ledger.files.read_archived)
        self.unread = LazyRows()
        self.quarantined: list[str] = []
        """Files that could not be read when the daemon started."""

        self.output_dropped: dict[int, str] = {}
        """The jobs with a process that drops output, each with why."""

        self._runtime = runtime
        self._log = runtime.log
        self._secrets: dict[int, dict[int, dict[str, Any]]] = {}
        self._unsettled: list[int] = []
        self._is_retry_due = False
        self._retry: Alarm | None = None
        self._failed_retries = 0
        self._ended: list[Listener] = []
        self._returned: list[Listener] = []
        self._settlers: list[Listener] = []

    def _gather(self) -> None:
        """Changes wait for a watch: let others join them."""
        self._runtime.later(settings.WATCH_GATHER_SECONDS, messages.GatheredDue())

    def begin(self, loaded: Loaded) -> None:
        """Start with what the directory holds."""
        self.ledger.begin(loaded)
        self.quarantined = loaded.quarantined
        for name in self.quarantined:
            self._note_unreadable(name)
        if loaded.mended:
            self._note_mended(*loaded.mended)
        self.unread = loaded.unread
        self.unread.read_from(self.ledger.newest, self._note_unreadable)
        if self.ledger.is_read_only or self.ledger.segments.is_adopted:
            # Nothing was flushed: a loss of power may still undo what the journal does not have.
            for job_id, journaled in loaded.unflushed_finals.items():
                self._withhold_end(job_id, journaled)

    def _note_unreadable(self, name: str) -> None:
        self._log.error("job file is quarantined", file=name)

    def _note_mended(self, *ids: int) -> None:
        # After a loss of power there may be many.
        some = ids[:_MENDED_NAMED_MAX]
        text = "damaged job files are written anew from the journal"
        self._log.warning(text, jobs=some, count=len(ids))

    @property
    def has_unread_rows(self) -> bool:
        """Whether the start has left rows that the report of all jobs has yet to come to."""
        return self.unread.has_rows and not self.announcements.has_read_all

    # ------------------------------------------------------------ listeners

    def when_ended(self, listener: Listener) -> None:
        """Call ``listener`` with each job that has ended, when no process writes its file."""
        self._ended.append(listener)

    def when_returned(self, listener: Listener) -> None:
        """Call ``listener`` with each job that had a process and is pending again."""
        self._returned.append(listener)

    def settle_with(self, listener: Listener) -> None:
        """Call ``listener`` with each unsettled job when the disk works again (`settle_later`)."""
        self._settlers.append(listener)

    # ------------------------------------------------------------ reading

    def read(self, job_id: int) -> jobs.Job:
        """The newest state of a live job, flushed or not."""
        return self.newest(job_id)[1]

    def newest(self, job_id: int) -> tuple[bytes, jobs.Job]:
        """As `read`, with the bytes that say it."""
        body = self.ledger.newest(job_id)
        if body is None:
            raise errors.StorageError(f"job {job_id} has no file")
        return body, jobs.decode_job(body)

    def read_archived(self, job_id: int) -> jobs.Job | None:
        """A job from the archive; None if there is no such job."""
        data = self.ledger.files.read_archived(job_id)
        return None if data is None else jobs.decode_job(data)

    def is_archived(self, job_id: int) -> bool:
        """Whether the job lies in the archive."""
        return self.ledger.directory.read_archived(job_id) is not None

    # ------------------------------------------------------------ new jobs and secrets

    def add(self, row: Row, secrets: dict[int, dict[str, Any]]) -> None:
        """Take in a new job that is durable; memory alone keeps its secrets."""
        self.table.add(row)
        if secrets:
            self._secrets[row.id] = secrets

    def took_out(self, job_id: int) -> None:
        """The job is in the archive now."""
        row = self.table.find(job_id)
        if row is not None:
            self.reader.search.archive.add(row.as_summary(archived=True))
        self.table.remove(job_id)

    def secrets_of(self, job_id: int) -> dict[int, dict[str, Any]]:
        """The secret parameters of a job's opcodes, by their places."""
        return self._secrets.get(job_id, {})

    # ------------------------------------------------------------ transitions

    def move(self, row: Row, status: JobStatus, *, has_locks: bool = True) -> None:
        """Announce that the job has this status now, durably. Other values may be new, too.

        ``has_locks``: its process may have locks.
        """
        was_final = row.status.is_final
        is_new = row.status is not status
        if is_new or was_final:
            self.table.give_status(row, status)
        if is_new:
            self.reader.watches.changed(row)
        self.reader.waits.changed(row.id)
        if not status.is_final or was_final:
            return
        if row.lock_file is None or row.phase is not Phase.HANDED_OVER:
            # The scheduler may not know the job yet: its end must not arrive before the job.
            self.announcements.finished(finished(row))
            return
        self._runtime.tell(SCHEDULER, finished(row))
        if has_locks:
            self._runtime.tell(LOCK_MANAGER, messages.OwnerEnded(lock_file=row.lock_file))

    def back_to_pending(self, row: Row, job: jobs.Job, status: JobStatus) -> None:
        """Announce that a job whose process has gone is pending again."""
        self.output_dropped.pop(row.id, None)
        self.move(row, status)
        self.announcements.pending([(row, job.judged_inputs)])
        for listener in self._returned:
            listener(row)

    def fail(self, row: Row, job: jobs.Job, source: str, text: str, *, ending: Ending) -> None:
        """End a job without a process in an error."""
        self._log.warning("job failed", job=row.id, reason=text)
        shown = job_bounds.end_text(text, len(job.ops))
        outcomes.note(job, ending)
        job_ends.fail_whole(job, jobs.timestamp(time.time()), source=source, text=shown)
        self.store_end(row, job)

    def end_pending(
        self, job_id: int, verdict: PendingEnd, text: str, decisive: int | None = None
    ) -> None:
        """End a pending job that can never start, or that a rule rejects.

        ``decisive``: the dependency whose end decides that.
        """
        row = self.table.find(job_id)
        if row is None or row.phase is not Phase.PENDING:
            return
        job = self.read(job_id)
        now = jobs.timestamp(time.time())
        match verdict:
            case "canceled":
                outcomes.note(job, self.endings.skipped(decisive, row.depends))
                job_ends.cancel_from(job, job.next_index, now)
            case "rejected":
                self._log.info("pending job is rejected", job=job_id, reason=text)
                shown = job_bounds.end_text(text, len(job.ops))
                outcomes.note(job, Ending(Outcome.REJECTED, text))
                job_ends.cancel_pending(job, now, source=jobs.FILTER_SOURCE, text=shown)
            case "failed":
                outcomes.note(job, self.endings.skipped(decisive, row.depends))
                result = job_bounds.error_result(["OpExecError", [text]])
                job_ends.fail_from(job, job.next_index, now, result)
            case _:
                assert_never(verdict)
        self.store_end(row, job)

    def store_end(self, row: Row, job: jobs.Job, envelope: Envelope | None = None) -> None:
        """Make the end of a job without a process durable, then announce it.

        ``envelope`` has the request that cancels it.
        """
        before, row.phase = row.phase, Phase.ENDED
        # Jobs that can never start because of this one may end in the same turn.
        row.show_ending(job)
        state = self.next_state(row, job)

        def stored() -> None:
            self.ledger.files.write_file(row.id)
            row.ended = jobs.seconds(job.end_timestamp)
            row.priority = job.priority
            if envelope is not None:
                text = f"Dequeued job {row.id}"
                envelope.reply(messages.CancelOutcome(accepted=True, text=text, has_ended=True))
            self.reader.log_reaches(row, job.last_log_serial)
            self.move(row, job.status)
            self.end(row)

        def failed(error: errors.GangerError) -> None:
            row.ending = None
            if before in (Phase.PENDING, Phase.STARTING):
                row.phase = Phase.PENDING
            else:
                # It had begun, so it must never be pending again. It keeps its run slot.
                self.table.give_slot(row, Phase.HANDED_OVER)
                self.settle_later(row)
            if envelope is not None:
                envelope.refuse(error)

        self.ledger.store_state(state, stored, failed, is_cancelation=envelope is not None)

    def next_state(self, row: Row, job: jobs.Job) -> tuple[int, int, bytes]:
        """The job under the next serial, as the ledger takes it."""
        row.serial = max(row.serial, job.serial) + 1
        job.extra[jobs.STATE_SERIAL_KEY] = row.serial
        return row.id, row.serial, jobs.encode_job(job)

    def note_dropped(self, message: messages.OutputDropped) -> None:
        """A job's process drops output, or stores it again."""
        row = self.table.find(message.job_id)
        if row is not None and row.is_in_hand and message.text:
            self.output_dropped[message.job_id] = message.text
        else:
            self.output_dropped.pop(message.job_id, None)

    def end(self, row: Row) -> None:
        """Note that no process writes the job's file any more."""
        self.output_dropped.pop(row.id, None)
        row.phase = Phase.ENDED
        self._secrets.pop(row.id, None)
        self.reader.forget_appended(row.id, None)
        for listener in self._ended:
            listener(row)

    # ------------------------------------------------------------ a disk that refuses

    def settle_later(self, row: Row) -> None:
        """Keep for later a job whose process has gone, because the disk refuses its new state."""
        if row.id not in self._unsettled:
            self._unsettled.append(row.id)

    def is_unsettled(self, job_id: int) -> bool:
        """Whether the job waits until the disk works, because its process has gone."""
        return job_id in self._unsettled

    def _withhold_end(self, job_id: int, journaled: tuple[int, bytes]) -> None:
        """Show the job as the journal knows it until the disk works."""
        row = self.table.find(job_id)
        assert row is not None
        try:
            status = jobs.decode_job(journaled[1]).status
        except errors.StorageError:
            # The journal has no state that could be shown.
            return
        if row.phase is Phase.ENDED:
            self.settle_later(row)
        self.table.give_status(row, status)
        row.ended = None
        self.table.give_slot(row, Phase.HANDED_OVER)
        self.ledger.withhold(job_id, *journaled)

    def retry_disk(self) -> None:
        """Find out whether the disk takes writes again, and if so, make up for what it refused."""
        ledger = self.ledger
        if ledger.is_read_only or not ledger.is_short:
            if not ledger.retry():
                self._retry_later()
                return
            self._settle()
        if not ledger.has_room_again():
            self._retry_later()
            return
        self._is_retry_due = False
        if self._retry is not None:
            self._retry.cancel()
        self.announcements.whole_queue()

    def _settle(self) -> None:
        """Make up for what the disk has refused."""
        self._log.info("the disk takes writes again")
        self.change_log.settle()
        self._failed_retries = 0
        unsettled, self._unsettled = self._unsettled, []
        for job_id in unsettled:
            row = self.table.find(job_id)
            # If its end was announced and its file has it not, something is left to do.
            if row is not None and not (row.phase is Phase.ENDED and row.status.is_final):
                for listener in self._settlers:
                    listener(row)

    def note_space(self) -> None:
        """There is more space than before: try at once what the disk has refused."""
        if not self.ledger.takes_work:
            self.retry_disk()

    def _retry_later(self) -> None:
        is_first, self._is_retry_due = not self._is_retry_due, True
        if self._retry is not None:
            self._retry.cancel()
        # Each attempt may write files anew: pauses grow, to spare a disk that keeps failing.
        segments = self.ledger.segments
        has_failed = segments.is_doubtful and not segments.is_adopted
        self._failed_retries = self._failed_retries + 1 if has_failed else 0
        factor = min(2 ** max(0, self._failed_retries - 1), settings.DISK_RETRY_FACTOR_MAX)
        seconds = settings.DISK_RETRY_SECONDS * factor
        if is_first and self.ledger.is_short:
            # The queue has given up its reserve: there is room for what gives space back.
            seconds = 0.0
        self._retry = self._runtime.later(seconds, messages.DiskRetried())

    def _compact_in_thread(self, compaction: Compaction, cut: Cut) -> None:
        """Have a thread compact sealed segments; `Compacted` follows."""
        incarnation = self._runtime.incarnation

        def finished() -> Message:
            text = None if compaction.error is None else compaction.error.text
            return messages.Compacted(incarnation=incarnation, error=text)

        steps = compaction.steps(cut)
        try:
            self._work = self._runtime.when_idle(steps, finished)
        except RuntimeError:
            # There is no thread to be had.
            for _ in steps:
                pass
            self.ledger.was_compacted()

    def note_compacted(self, message: messages.Compacted) -> None:
        """The compactor of this queue, or of its predecessor, has come to an end."""
        if message.incarnation == self._runtime.incarnation:
            self._work = None
            self.ledger.was_compacted()
        elif message.error is not None:
            # A failure of the predecessor's flush concerns this queue as well.
            self.ledger.was_compacted(errors.StorageError(message.error))

    def _make_in_thread(self, ahead: SegmentAhead) -> None:
        """Make the journal's next segment in a thread; `SegmentMade` follows."""

        def carry_out() -> Message:
            text = None
            try:
                ahead.carry_out()
            except errors.StorageError as error:
                text = error.text
            return messages.SegmentMade(error=text)

        try:
            self._runtime.in_thread(carry_out)
        except RuntimeError as error:
            # There is no thread to be had.
            ahead.give_up()
            self.note_segment(messages.SegmentMade(error=str(error)))

    def note_segment(self, message: messages.SegmentMade) -> None:
        """A thread has made a segment ahead, or failed: then the queue makes it in a turn."""
        if message.error is not None:
            self._log.warning("no segment of the journal is made ahead", error=message.error)

    # ------------------------------------------------------------ turns

    def end_turn(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Make all of the turn durable with one flush, and then announce it.

        ``meanwhile`` is called while the disk writes.
        """
        self._commit(meanwhile)
        self.reader.search.archive.write()
        if not (self.ledger.takes_work or self._is_retry_due):
            reason = self.ledger.refusal().text
            if self.ledger.is_read_only:
                self._log.error("the disk refuses writes: the queue takes no changes", error=reason)
            else:
                self._log.error("DISK FULL: the queue takes no new jobs", error=reason)
            self._retry_later()
        self._runtime.patience_seconds = self.ledger.patience_seconds
        kept = len(self.table) * settings.JOB_MEMORY_BYTES
        kept += self.ledger.files.missing_count * settings.UNWRITTEN_JOB_MEMORY_BYTES
        self._runtime.host.keep_memory("jobs", kept)

    def _commit(self, meanwhile: Callable[[], None] | None) -> None:
        """Commit; the compactor may work meanwhile if the newest segment is half full."""
        fullness = 0.0 if self._work is None else self.ledger.segments.fullness
        if self._work is not None and fullness > _HURRY_FROM:
            # The flush does not need the interpreter.
            self._work.allow(settings.FILES_AT_ONCE)
        self.ledger.commit(meanwhile)
        if self._work is not None and self.ledger.segments.must_wait:
            # The longer the segment, the longer the wait: it does not grow for ever.
            self._work.hurry(settings.FILES_SLICE_SECONDS * fullness**2)

    def write_files(self) -> None:
        """Write some files of new jobs; if many are missing, have the compactor write them."""
        ledger = self.ledger
        if ledger.files.has_left_memory and not ledger.has_unwritten:
            # In a turn without other work, as it takes a few milliseconds.
            ledger.files.has_left_memory = False
            free_memory.give_back()
        elif ledger.is_behind:
            ledger.write_serial()
            if not ledger.segments.is_compacting:
                ledger.seal()
        else:
            ledger.write_newest(settings.FILES_AT_ONCE, lambda: self._runtime.has_news)

    def close(self) -> None:
        """Write what has no file yet, and close what is open."""
        self.ledger.files.stop_compaction()
        if self._work is not None:
            self._work.finish()
        self.unread.forget()
        try:
            self.announcements.ages.store()
        finally:
            # Of very many, the next start finds the others in the journal.
            end = self._runtime.clock() + settings.STOP_FILES_SECONDS
            self.ledger.close(lambda: self._runtime.clock() > end)

    def make_spares(self) -> None:
        """Make spare files ahead, unless a message waits."""
        self.ledger.files.make_spares(lambda: self._runtime.has_news)
