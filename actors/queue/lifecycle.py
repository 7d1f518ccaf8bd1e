"""The lives of jobs in the queue: chosen, handed over, running, and the end of their processes.

A job's file belongs to the queue until the hand-over is confirmed; from there to the end of
its process it belongs to the process, whose states come here to share the journal's flush.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from ...storage import errors, jobs, settings
from ...storage.jobs import JobStatus
from ...storage.queue_files import job_files
from ...transport import messages
from ..runtime.addresses import EXECUTOR, LOCK_MANAGER
from .job_store import DEATH_SOURCE, START_SOURCE, death_text, kill_text
from .job_table import Phase, Row, row_of
from .start_gate import QueueGate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...transport.envelopes import Envelope


class QueueLives(QueueGate):
    """Follows jobs from the scheduler's choice to the end of their processes."""

    # ------------------------------------------------------------ start and hand-over

    def _take_choice(self, message: messages.JobsChosen) -> None:
        starting, mistaken = [], []
        # Chosen before our last report was read, which says that these are pending: the
        # scheduler will choose anew, and would not know that these run.
        chosen = self._chosen_still(message) if message.report == self._reports else []
        for job_id in chosen:
            row = self._table.find(job_id)
            if row is None or row.phase is not Phase.PENDING:
                mistaken.append(job_id)
                continue
            if self._ledger.is_read_only:
                # It keeps its run slot until the disk works and the queue is told anew.
                continue
            row.phase = Phase.STARTING
            # The scheduler may not have known of a new priority yet, at which rules may look.
            chain = 0 if row.is_reprioritised else message.chain
            row.is_reprioritised = False
            row.chosen = messages.ChosenUnder(chain, message.limits.get(job_id, ""))
            with self._reading(row):
                if self._mark_being_forked(row):
                    starting.append((job_id, row.needs_user_opcodes))
        if starting:
            self.runtime.tell(EXECUTOR, messages.StartJobs(jobs=starting))
        if mistaken:
            # They ended before the scheduler heard of them: it must free their run slots.
            self._report_statuses(mistaken)
        for job_id in message.eligible:
            row = self._table.find(job_id)
            if row is not None and row.phase is Phase.PENDING:
                row.status = JobStatus.QUEUED
                self._reader.watches.changed(row)
        self._end_all_doomed(message.unsatisfiable)

    def _end_all_doomed(self, doomed: Sequence[tuple[int, str, str]]) -> None:
        for job_id, verdict, text in doomed:
            if (row := self._table.find(job_id)) is not None:
                with self._reading(row):
                    self._end_doomed(job_id, verdict, text)

    @contextlib.contextmanager
    def _reading(self, row: Row) -> Iterator[None]:
        """Within, the file of a pending job is read, which may fail: for want of descriptors, say.

        The queue is told anew when the disk has been tried. If the file cannot be read then either,
        it is damaged: a restart of this component puts it aside.
        """
        try:
            yield
        except errors.StorageError as error:
            if row.id in self._unread:
                raise
            row.phase = Phase.PENDING
            self._unread.add(row.id)
            self._ledger.refuse_writes(error)
        else:
            self._unread.discard(row.id)

    def _mark_being_forked(self, row: Row) -> bool:
        """The job file names the daemon's lock file while a process is being made."""
        job = self._read(row.id)
        job.livelock = self.runtime.host.daemon_lock.path
        for op in job.ops:
            # A job that waited for dependencies waits no longer.
            if op.status is JobStatus.WAITING:
                op.status = JobStatus.QUEUED
        row.serial = job.advance_serial()
        row.status = job.status
        body = jobs.encode_job(job)
        self._forked[row.id] = body, job
        if self._ledger.is_covered(row.id):
            self._ledger.note(row.id, row.serial, body)
            self._ledger.write_state(row.id)
            return True
        self._ledger.store_state(
            (row.id, row.serial, body),
            functools.partial(self._start_marked, row),
            lambda _: self._unmark(row),
        )
        return False

    def _start_marked(self, row: Row) -> None:
        if row.phase is Phase.STARTING:
            self._ledger.write_state(row.id)
            starting = [(row.id, row.needs_user_opcodes)]
            self.runtime.tell(EXECUTOR, messages.StartJobs(jobs=starting))

    def _unmark(self, row: Row) -> None:
        if row.phase is Phase.STARTING:
            row.phase = Phase.PENDING

    def _read_forked(self, job_id: int) -> jobs.Job:
        """The job as it was when its process was asked for, unless it has changed since."""
        body, job = self._forked.pop(job_id, (None, None))
        return (
            job if job is not None and self._ledger.newest(job_id) is body else self._read(job_id)
        )

    def _hand_over(self, envelope: Envelope, message: messages.HandOverRequested) -> None:
        """A child holds its lock file: its name goes into the job file, then it may go on.

        The file is not flushed here (docs/decisions/hand-over-without-flush.md): it survives
        the daemon, and after the loss of the machine no process lives that could have begun.
        """
        row = self._table.find(message.job_id)
        if row is not None and row.phase is Phase.HANDED_OVER:
            self._confirm_again(envelope, row, message)
            return
        if row is None or row.phase is not Phase.STARTING or self._ledger.is_read_only:
            self._refuse_hand_over(row, message)
            return
        job = self._read_forked(row.id)
        gate = self._gate(job, row.chosen)
        if not gate.is_open:
            self._refuse_hand_over(row, message)
            self._take_off(row, job, gate)
            return
        # A choice need not be looked at twice.
        row.chosen = messages.ChosenUnder(gate.chain, row.chosen.limit)
        job.livelock = message.lock_file
        row.serial = job.advance_serial()
        self._ledger.note(row.id, row.serial, jobs.encode_job(job))
        if not self._ledger.write_state(row.id):
            self._refuse_hand_over(row, message)
            return
        row.phase = Phase.HANDED_OVER
        row.handed_serial = row.serial
        row.lock_file = message.lock_file
        row.process_id = message.process_id
        self._confirm(envelope, row, message)

    def _refuse_hand_over(self, row: Row | None, message: messages.HandOverRequested) -> None:
        if row is not None and row.phase is Phase.STARTING:
            # The disk refuses: the job is offered again when it works.
            row.phase = Phase.PENDING
        refusal = messages.RefuseHandOver(job_id=message.job_id, lock_file=message.lock_file)
        self.runtime.tell(EXECUTOR, refusal)

    def _confirm_again(
        self, envelope: Envelope, row: Row, message: messages.HandOverRequested
    ) -> None:
        # The first confirmation was lost with an executor or a queue that was replaced.
        if row.lock_file == message.lock_file:
            self._confirm(envelope, row, message)

    def _confirm(self, envelope: Envelope, row: Row, message: messages.HandOverRequested) -> None:
        body = self._ledger.body(row.id)
        if body is None:
            return
        confirmed = messages.HandOverConfirmed(job_id=row.id, lock_file=message.lock_file)
        self.runtime.tell(EXECUTOR, confirmed)
        go = messages.JobGo(
            body=body if len(body) <= settings.JOB_BYTES_MAX else b"",
            spares=self._ledger.lend_spares(row.id),
            secrets=self._secrets.get(row.id, {}),
            queue=self._queue_path,
            socket=self._socket_path,
            chosen=row.chosen,
        )
        envelope.reply(go)

    def _fail_start(self, message: messages.StartFailed) -> None:
        row = self._table.find(message.job_id)
        if row is not None and row.phase is Phase.STARTING:
            text = f"job {row.id} failed to start: {message.text}"
            self._fail(row, self._read(row.id), START_SOURCE, text)

    # ------------------------------------------------------------ running jobs

    def _take_state(self, envelope: Envelope, message: messages.RecordState) -> None:
        """Record it, unless it begins an opcode that the rules in force do not let start."""
        row = self._table.find(message.job_id)
        if message.begins is not None and row is not None:
            is_new = row.phase is Phase.HANDED_OVER and message.serial > row.serial
            gate = self._gate(row, message.begins) if is_new else None
            if gate is not None and not gate.is_open:
                envelope.reply(gate)
                return
        self._record_state(envelope, message)

    def _record_state(self, envelope: Envelope, message: messages.RecordState) -> None:
        row = self._table.find(message.job_id)
        recorded = messages.StateRecorded(serial=message.serial)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial < row.serial:
            envelope.reply(recorded)
            return
        done = functools.partial(self._state_recorded, row, envelope, message)
        if message.body is None:
            self._ledger.after_commit(done, envelope.refuse)
        elif message.serial > row.serial:
            state = (message.job_id, message.serial, message.body)
            refused = functools.partial(self._state_refused, row, envelope)
            self._ledger.store_state(state, done, refused)
        else:
            self._ledger.after_commit(functools.partial(envelope.reply, recorded))

    def _state_refused(self, row: Row, envelope: Envelope, error: errors.GangerError) -> None:
        # Until a later state of the job is stored, no answer of its process holds.
        self._unstored[row.id] = error
        envelope.refuse(error)

    def _state_recorded(self, row: Row, envelope: Envelope, message: messages.RecordState) -> None:
        self._unstored.pop(row.id, None)
        envelope.reply(messages.StateRecorded(serial=message.serial))
        if message.serial < row.serial:
            return
        known = self._ledger.serial(row.id)
        if message.body is None and known is not None and known < message.serial:
            self._ledger.forget(row.id)
        row.serial = message.serial
        row.priority = message.priority
        row.started = message.started
        row.ended = message.ended
        self._reader.log_reaches(row, message.log_serial)
        self._reader.forget_told(row.id, message.log_serial)
        self._move(row, message.status, has_locks=message.has_locks)

    def _catch_up(self, job_id: int) -> None:
        """Before a whole job is shown: nobody shall see of its file what listings do not tell.

        A process that flushes its own file has replaced it before it tells of that; if the disk
        refuses, long before. Its data are on the disk: with its name there, too, the state may be
        told. `StorageError` if that cannot be said.
        """
        row = self._table.find(job_id)
        if row is None or row.phase is not Phase.HANDED_OVER or row.status.is_final:
            return
        if self._ledger.in_memory(job_id) is not None:
            return
        job = self._read(job_id)
        if job.serial <= row.serial and job.status is row.status:
            return
        self._ledger.directory.flush_names()
        row.serial = max(row.serial, job.serial)
        row.priority = job.priority
        row.started = jobs.seconds(job.start_timestamp)
        row.ended = jobs.seconds(job.end_timestamp)
        self._reader.log_reaches(row, job.last_log_serial)
        self._move(row, job.status)

    def _note_return(self, envelope: Envelope, message: messages.JobReturns) -> None:
        """The process gives the job back; it is pending, and is called so, when that has left."""
        row = self._table.find(message.job_id)
        recorded = messages.StateRecorded(serial=message.serial)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial <= row.serial:
            self._ledger.after_commit(functools.partial(envelope.reply, recorded))
            return

        def stored() -> None:
            envelope.reply(recorded)
            row.serial = message.serial
            self._reader.forget_told(row.id, None)

        if message.body is None:
            # The process has flushed its file, which is as new as anything we know.
            self._ledger.forget(row.id)
            self._ledger.after_commit(stored, envelope.refuse)
            return
        state = (message.job_id, message.serial, message.body)
        self._ledger.store_state(state, stored, envelope.refuse)

    def _note_waiting(self, message: messages.JobWaits) -> None:
        row = self._table.find(message.job_id)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial <= row.serial:
            return
        if message.body is None:
            try:
                job = self._read_file(row)
            except errors.StorageError as error:
                self.log.error("state of a process cannot be read", job=row.id, error=error.text)
                return
            if job.serial != message.serial:
                # The file is ahead, and what it says now may not be told yet: word of it follows.
                return
            self._ledger.forget(row.id)
        else:
            job = jobs.decode_job(message.body)
            self._ledger.note(row.id, message.serial, message.body)
        row.serial = message.serial
        row.started = jobs.seconds(job.start_timestamp)
        self._reader.log_reaches(row, job.last_log_serial)
        self._move(row, job.status)

    def _take_exit(self, message: messages.JobExited) -> None:
        row = self._table.find(message.job_id)
        if row is None or row.lock_file != message.lock_file:
            if row is not None and row.phase is Phase.STARTING:
                self._start_again(row)
            return
        if row.phase is not Phase.HANDED_OVER:
            return
        self._ledger.take_back_spares(row.id)
        if message.has_left and row.status.is_final:
            self._ledger.forget(row.id)
            self._end(row)
            return
        try:
            self._take_death(row, was_killed=message.was_killed, exit_code=message.exit_code)
        except errors.StorageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            # There is no descriptor for its file, say. It is not less dead in a second.
            self.log.error("a dead job cannot be read", job=row.id, error=error.text)
            self._hear_again_later(message)

    def _take_death(
        self, row: Row, *, was_killed: bool = False, exit_code: int | None = None
    ) -> None:
        """The process is gone without a word: believe the newest of file and journal."""
        job = self._newest(row)
        self._unstored.pop(row.id, None)
        if job.status.is_final:
            self._store_found_end(row, job)
        elif job.is_returned:
            self._take_back(row, job)
        elif (
            all(op.status is JobStatus.QUEUED for op in job.ops) or job.serial == row.handed_serial
        ):
            self._start_again(row, has_failed=True)
        else:
            # The file may not have the last lines yet, which are the ones that are looked for.
            self._reader.add_told(job)
            text = kill_text(job) if was_killed else death_text(job, exit_code)
            self._fail(row, job, DEATH_SOURCE, text)

    def _read_file(self, row: Row) -> jobs.Job:
        """The job as its process has written it."""
        data = self._ledger.directory.read(row.id)
        if data is None:
            raise errors.StorageError(f"job {row.id} has no file")
        return job_files.read_job(data, row.id)

    def _take_back(self, row: Row, job: jobs.Job) -> None:
        """The job went back to the queue between two opcodes: it stands in line again."""
        row.serial = max(row.serial, job.serial)

        def stored() -> None:
            if row.lock_file is not None:
                ended = messages.OwnerEnded(lock_file=row.lock_file)
                self.runtime.tell(LOCK_MANAGER, ended)
            fresh = row_of(job, Phase.PENDING)
            row.phase = Phase.PENDING
            row.lock_file = row.process_id = None
            row.failed_starts = 0
            row.depends = fresh.depends
            row.priority = fresh.priority
            self._reader.log_reaches(row, job.last_log_serial)
            self._move(row, fresh.status)
            self._announce([(row, job.judged_inputs)])
            self._repeat_wishes(row.id)

        self._store_found(row, job, stored)

    def _store_found_end(self, row: Row, job: jobs.Job) -> None:
        # The process may have been killed between writing its end and flushing it.
        row.serial = max(row.serial, job.serial)

        def stored() -> None:
            self._ledger.forget(row.id)
            self._end(row)
            row.priority = job.priority
            row.started = jobs.seconds(job.start_timestamp)
            row.ended = jobs.seconds(job.end_timestamp)
            self._reader.log_reaches(row, job.last_log_serial)
            self._move(row, job.status)

        self._store_found(row, job, stored)

    def _store_found(self, row: Row, job: jobs.Job, stored: Callable[[], None]) -> None:
        """Make durable what a process left behind; if the disk refuses, look again later."""
        self._ledger.store_state(
            (row.id, job.serial, jobs.encode_job(job)),
            stored,
            lambda _: self._judge_later(row.id),
        )

    def _newest(self, row: Row) -> jobs.Job:
        data = self._ledger.directory.read(row.id)
        on_disk = None if data is None else jobs.decode_job(data)
        known = self._ledger.serial(row.id)
        if on_disk is not None and (known is None or on_disk.serial >= known):
            if not on_disk.status.is_final:
                # An end need not be durable yet: until it is, the state known before counts.
                self._ledger.forget(row.id)
            return on_disk
        job = self._read(row.id)
        self._ledger.write_file(row.id)
        return job

    def _start_again(self, row: Row, *, has_failed: bool = False) -> None:
        """Nothing of the job has begun: it is pending again, unless this never changes.

        ``has_failed``: its process had the job, and ended all the same. One that was refused the
        job, because the disk refuses say, says nothing about the job.
        """
        job = self._read(row.id)
        row.failed_starts += has_failed
        if row.failed_starts >= settings.START_ATTEMPTS_MAX:
            text = (
                f"job {row.id} failed to start: {row.failed_starts} of its processes, one after "
                "the other, ended before it began"
            )
            self._fail(row, job, START_SOURCE, text)
            return
        job.livelock = None
        row.serial = max(row.serial, job.serial) + 1
        job.extra[jobs.STATE_SERIAL_KEY] = row.serial
        row.phase = Phase.PENDING
        row.lock_file = row.process_id = None
        row.started = jobs.seconds(job.start_timestamp)
        self._reader.forget_told(row.id, None)
        self._ledger.store_state(
            (row.id, row.serial, jobs.encode_job(job)),
            functools.partial(self._ledger.write_file, row.id),
        )
        # Its process may have given it back while it waited for locks.
        self._move(row, row_of(job, Phase.PENDING).status)
        self._announce([(row, job.judged_inputs)])
        self._repeat_wishes(row.id)
