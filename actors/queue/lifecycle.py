"""The lives of jobs that have a process: their states, returns, exits and deaths.

The process writes the job's file until it has gone. Its states come here too, and share the
flush of the journal.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, settings, wording
from ...storage.alive import lock_files, process_identity
from ...storage.jobs import jobs
from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import (
    DEATH_SOURCE,
    OF_STATUS,
    START_SOURCE,
    Ending,
    Outcome,
    ending_of,
)
from ...storage.queue_files import job_files
from ...transport import messages
from ..processes import sessions
from ..runtime.addresses import EXECUTOR, LOCK_MANAGER
from ..scheduling.depending import dependency_outcome
from ..store.job_classes import row_of
from ..store.job_rows import Phase, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...transport.envelopes import Envelope
    from ..answers.estimating import Estimating
    from ..runtime.component import Runtime
    from ..store.job_store import JobStore
    from ..store.start_gate import StartGate


class Lifecycle:
    """Follows jobs from the hand-over to the end of their processes."""

    def __init__(
        self, runtime: Runtime, store: JobStore, gate: StartGate, estimating: Estimating
    ) -> None:
        self._runtime = runtime
        self._estimating = estimating
        self._log = runtime.log
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._reader = store.reader
        self._gate = gate
        self._refused: dict[int, errors.GangerError] = {}
        self._held_up: dict[int, str] = {}
        self._nodes: dict[int, str] = {}
        """For what jobs wait on nodes."""
        self._killed: set[int] = set()
        self._closed: dict[int, tuple[int, messages.GateAnswered]] = {}
        store.settle_with(self._take_death)

    # ------------------------------------------------------------ states

    def take_state(self, envelope: Envelope, message: messages.RecordState) -> None:
        """Record the state, unless it begins an opcode that the rules in force hold back."""
        row = self._table.find(message.job_id)
        if row is not None and (gate := self._closed_gate(row, message)) is not None:
            envelope.reply(gate)
            return
        recorded = messages.StateRecorded(serial=message.serial)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial < row.serial:
            envelope.reply(recorded)
            return
        done = functools.partial(self._state_recorded, row, envelope, message)
        if message.digest is not None:
            filed = (message.job_id, message.serial, message.digest)
            self._ledger.store_filed(filed, done, envelope.refuse)
        elif message.body is None:
            self._ledger.after_commit(done, envelope.refuse)
        elif message.serial > row.serial:
            state = (message.job_id, message.serial, message.body)
            refused = functools.partial(self._state_refused, row, envelope)
            is_canceled = message.status in (JobStatus.CANCELING, JobStatus.CANCELED)
            if message.status.is_final and not is_canceled and row.origin.is_task:
                self._ledger.store_lazily(state, done, refused)
            else:
                self._ledger.store_state(state, done, refused, is_cancelation=is_canceled)
        else:
            self._ledger.after_commit(functools.partial(envelope.reply, recorded))

    def _closed_gate(self, row: Row, message: messages.RecordState) -> messages.GateAnswered | None:
        """The answer to a state that may not begin under the rules in force; None: it may.

        A copy of the message gets this answer as well, even if other rules are in force by then:
        the process takes the first answer, and gives the job back.
        """
        is_new = row.phase is Phase.HANDED_OVER and message.serial > row.serial
        if message.begins is None or not is_new:
            return None
        serial, gate = self._closed.get(row.id, (0, None))
        if serial == message.serial:
            return gate
        gate = self._gate.decide(row, message.begins)
        if gate.is_open:
            return None
        self._closed[row.id] = (message.serial, gate)
        return gate

    def _state_refused(self, row: Row, envelope: Envelope, error: errors.GangerError) -> None:
        # Until a later state of the job is stored, answers of its process do not count.
        self._refused[row.id] = error
        envelope.refuse(error)

    def _forget_refusal(self, job_id: int) -> None:
        self._refused.pop(job_id, None)
        self._held_up.pop(job_id, None)
        self._nodes.pop(job_id, None)

    def note_held_up(self, message: messages.StateHeldUp) -> None:
        """The job's process waits until the disk takes a state."""
        row = self._table.find(message.job_id)
        if row is not None and row.is_in_hand:
            what = "its end" if message.is_end else "its newest state"
            self._held_up[row.id] = f"{what} cannot be stored: {message.text}"

    def note_node(self, message: messages.NodeAwaited) -> None:
        """The job's process waits for a node, or does no more."""
        row = self._table.find(message.job_id)
        if row is not None and row.is_in_hand and message.text:
            self._nodes[message.job_id] = message.text
        else:
            self._nodes.pop(message.job_id, None)

    def awaited_node(self, job_id: int) -> str:
        """For what the job waits on a node; empty: for nothing."""
        return self._nodes.get(job_id, "")

    def held_up(self, job_id: int) -> str:
        """Why the newest state of a job with a process is not stored; empty if it is."""
        if text := self._held_up.get(job_id):
            return text
        if self._store.is_unsettled(job_id) and not self._ledger.takes_work:
            return "its process has gone, and its end cannot be stored until the disk takes writes"
        return ""

    def refusal_of(self, job_id: int) -> errors.GangerError | None:
        """Why the newest state of the job's process is not stored; None if it is."""
        return self._refused.get(job_id)

    def _state_recorded(self, row: Row, envelope: Envelope, message: messages.RecordState) -> None:
        self._forget_refusal(row.id)
        envelope.reply(messages.StateRecorded(serial=message.serial))
        if message.serial < row.serial:
            return
        known = self._ledger.files.serial(row.id)
        if message.body is None and known is not None and known < message.serial:
            self._ledger.files.forget(row.id)
        row.serial = message.serial
        row.take_priority(message.priority)
        row.started = message.started
        row.ended = message.ended
        if message.status.is_final and message.status is not JobStatus.SUCCESS:
            row.ending = self._ending_in(row, message)
        self._reader.log_reaches(row, message.log_serial)
        self._reader.forget_appended(row.id, message.log_serial)
        self._store.move(row, message.status, has_locks=message.has_locks)
        if message.status is JobStatus.SUCCESS:
            self._estimating.learn(message.body)

    def _ending_in(self, row: Row, message: messages.RecordState) -> Ending:
        """How the job ended, from the text of its final state: in the message, or in the file."""
        body = message.body
        try:
            job = self._read_file(row) if body is None else jobs.decode_job(body)
            if (found := ending_of(job)) is not None:
                return found
        except errors.StorageError as error:
            self._log.error("state of a process cannot be read", job=row.id, error=error.text)
        return Ending(OF_STATUS[message.status][0], "its file cannot be read")

    def catch_up(self, job_id: int) -> None:
        """Take in a newer state of the job's file before the whole job is shown.

        A process that flushes its own file replaces the file before it reports the state; if the
        disk refuses, long before. A reader must not see more in the file than listings show. The
        data are on the disk: once the file's name is flushed too, the state may be announced.
        `StorageError` if it cannot be flushed.
        """
        row = self._table.find(job_id)
        if row is None or not row.is_in_hand:
            return
        if self._ledger.in_memory(job_id) is not None:
            return
        job = self._store.read(job_id)
        if job.serial <= row.serial and job.status is row.status:
            return
        self._ledger.directory.flush_names()
        row.serial = max(row.serial, job.serial)
        row.take_priority(job.priority)
        _show_times(row, job)
        self._reader.log_reaches(row, job.last_log_serial)
        self._store.move(row, job.status)

    def note_waiting(self, message: messages.JobWaits) -> None:
        """The job's process waits for locks; this state needs no flush."""
        row = self._table.find(message.job_id)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial <= row.serial:
            return
        if message.body is None:
            try:
                job = self._read_file(row)
            except errors.StorageError as error:
                self._log.error("state of a process cannot be read", job=row.id, error=error.text)
                return
            if job.serial != message.serial:
                # The file is ahead, and its state may not be shown yet: a later message has it.
                return
            self._ledger.files.forget(row.id)
        else:
            job = jobs.decode_job(message.body)
            self._ledger.note(row.id, message.serial, message.body)
        row.serial = message.serial
        row.started = jobs.seconds(job.start_timestamp)
        self._reader.log_reaches(row, job.last_log_serial)
        self._store.move(row, job.status)

    def note_return(self, envelope: Envelope, message: messages.JobReturns) -> None:
        """The process gives the job back; it is shown as pending when the process has left."""
        row = self._table.find(message.job_id)
        recorded = messages.StateRecorded(serial=message.serial)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial <= row.serial:
            envelope.reply(recorded)
            return

        def stored() -> None:
            envelope.reply(recorded)
            row.serial = message.serial
            self._reader.forget_appended(row.id, None)
            self._reader.waits.changed(row.id)

        if message.body is None:
            # The process has flushed its file, which is as new as anything we know.
            self._ledger.files.forget(row.id)
        if message.digest is not None:
            filed = (message.job_id, message.serial, message.digest)
            self._ledger.store_filed(filed, stored, envelope.refuse)
        elif message.body is None:
            self._ledger.after_commit(stored, envelope.refuse)
        else:
            state = (message.job_id, message.serial, message.body)
            self._ledger.store_state(state, stored, envelope.refuse)

    def dependencies_of(self, message: messages.AskDependencies) -> messages.DependencyOutcome:
        """Whether the dependencies of the job's next opcode are satisfied."""
        ends = {target: self._store.endings.of(target) for target, _ in message.depends}
        found = dependency_outcome(message.depends, ends)
        if found.verdict not in ("canceled", "failed"):
            return messages.DependencyOutcome(verdict=found.verdict)
        skipped = self._store.endings.skipped(found.decisive, message.depends)
        return messages.DependencyOutcome(verdict=found.verdict, text=found.text, ending=skipped)

    # ------------------------------------------------------------ starts that failed

    def fail_start(self, message: messages.StartFailed) -> None:
        """End a job for which no process could be made."""
        row = self._table.find(message.job_id)
        if row is not None and row.phase is Phase.STARTING:
            lost = Ending(Outcome.LOST, f"it failed to start: {message.text}")
            text = f"job {row.id} failed to start: {message.text}"
            self._store.fail(row, self._store.read(row.id), START_SOURCE, text, ending=lost)

    def report_running(self) -> None:
        """Send a new executor the jobs that have a process, and those that need one."""
        running = [
            (row.id, row.lock_file, row.process_id)
            for row in self._table.in_phase(Phase.HANDED_OVER)
            if row.lock_file is not None and not self._store.is_unsettled(row.id)
        ]
        self._runtime.tell(EXECUTOR, messages.AdoptJobs(jobs=running))
        starting = [
            (row.id, row.needs_user_opcodes) for row in self._table.in_phase(Phase.STARTING)
        ]
        if starting:
            self._runtime.tell(EXECUTOR, messages.StartJobs(jobs=starting))

    # ------------------------------------------------------------ ends of processes

    def fail_dead(self, dead: Iterable[jobs.Job]) -> None:
        """End the jobs whose processes died while no daemon ran."""
        for job in dead:
            row = self._table.find(job.id)
            assert row is not None
            self._end_left_over(job)
            self._store.fail(row, job, DEATH_SOURCE, death_text(job), ending=_lost(job))

    def _end_left_over(self, job: jobs.Job) -> None:
        """End what the dead process left running: its locks are not free before (`LockManager`)."""
        mark = None if job.livelock is None else lock_files.identity_of(job.livelock)
        try:
            if mark is not None:
                sessions.end_left_over(mark)
        except OSError as error:
            self._log.error("what a dead process left runs on", job=job.id, error=str(error))

    def note_exit(self, message: messages.JobExited) -> None:
        """Judge the exit when all messages of the process are durable, or refused."""
        exit_taken = functools.partial(self._take_exit, message)
        self._ledger.after_commit(exit_taken, lambda _: exit_taken())

    def _take_exit(self, message: messages.JobExited) -> None:
        self._closed.pop(message.job_id, None)
        row = self._table.find(message.job_id)
        if row is None or row.lock_file != message.lock_file:
            if row is not None and row.phase is Phase.STARTING:
                self._start_again(row)
            return
        if row.phase is not Phase.HANDED_OVER:
            return
        self._ledger.files.take_back_spares(row.id)
        if message.has_left and row.status.is_final:
            self._forget_refusal(row.id)
            self._ledger.files.forget(row.id)
            self._store.end(row)
            return
        try:
            self._take_death(row, message)
        except errors.StorageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            # There is no descriptor for its file, say. Try again: it stays dead.
            self._log.error("a dead job cannot be read", job=row.id, error=error.text)
            self._runtime.later(settings.DISK_RETRY_SECONDS, message)

    def take_killed(self, job_id: int) -> bool:
        """Whether the job, which has ended, was killed on request. It is forgotten with that."""
        is_killed = job_id in self._killed
        self._killed.discard(job_id)
        return is_killed

    def _take_death(self, row: Row, exited: messages.JobExited | None = None) -> None:
        """The process left no word: believe the newest of file and journal."""
        job = self._newest(row)
        self._forget_refusal(row.id)
        if job.status.is_final:
            self._store_found_end(row, job)
        elif job.is_returned:
            self._take_back(row, job)
        elif (
            all(op.status is JobStatus.QUEUED for op in job.ops) or job.serial == row.handed_serial
        ):
            # A process that gave the job back took its name out of it.
            self._start_again(row, has_failed=job.livelock is not None)
        else:
            # The file may lack the last lines of the log, which explain the death.
            self._reader.add_appended(job)
            was_killed = exited is not None and exited.was_killed
            exit_code = None if exited is None else exited.exit_code
            if was_killed:
                self._killed.add(row.id)
            text = kill_text(job) if was_killed else death_text(job, exit_code)
            ending = _KILLED if was_killed else _lost(job, exit_code)
            if exited is not None and exited.on_node:
                text = f"{text}; {exited.on_node}"
                reason = f"{ending.reason}; {exited.on_node}"
                ending = msgspec.structs.replace(ending, reason=reason)
            self._store.fail(row, job, DEATH_SOURCE, text, ending=ending)

    def _read_file(self, row: Row) -> jobs.Job:
        """The job as its process has written it."""
        data = self._ledger.files.read(row.id)
        if data is None:
            raise errors.StorageError(f"job {row.id} has no file")
        return job_files.read_job(data, row.id)

    def _take_back(self, row: Row, job: jobs.Job) -> None:
        """The process gave the job back between two opcodes: it is pending again."""
        row.serial = max(row.serial, job.serial)

        def stored() -> None:
            if row.lock_file is not None:
                ended = messages.OwnerEnded(lock_file=row.lock_file)
                self._runtime.tell(LOCK_MANAGER, ended)
            fresh = row_of(job, Phase.PENDING)
            row.phase = Phase.PENDING
            row.lock_file = row.process_id = None
            row.failed_starts = 0
            row.job_class = fresh.job_class
            row.priority = fresh.priority
            self._reader.log_reaches(row, job.last_log_serial)
            self._store.back_to_pending(row, job, fresh.status)

        self._store_found(row, job, stored)

    def _store_found_end(self, row: Row, job: jobs.Job) -> None:
        # The process may have been killed between writing its end and flushing it.
        row.serial = max(row.serial, job.serial)

        def stored() -> None:
            # On a full disk the file waits for room, and the log alone has the end.
            if self._ledger.files.unwritten(row.id) is None:
                self._ledger.files.forget(row.id)
            self._store.end(row)
            row.priority = job.priority
            _show_times(row, job)
            self._reader.log_reaches(row, job.last_log_serial)
            self._store.move(row, job.status)

        self._store_found(row, job, stored)

    def _store_found(self, row: Row, job: jobs.Job, stored: Callable[[], None]) -> None:
        """Make durable what a process left behind; if the disk refuses, look again later."""
        self._ledger.store_state(
            (row.id, job.serial, jobs.encode_job(job)),
            stored,
            lambda _: self._store.settle_later(row),
            is_cancelation=job.status is JobStatus.CANCELED,
        )

    def _newest(self, row: Row) -> jobs.Job:
        data = self._ledger.files.read(row.id)
        on_disk = None if data is None else jobs.decode_job(data)
        known = self._ledger.files.serial(row.id)
        if on_disk is not None and (known is None or on_disk.serial >= known):
            if not on_disk.status.is_final:
                # A final state need not be durable yet: until it is, the state before counts.
                self._ledger.files.forget(row.id)
            return on_disk
        job = self._store.read(row.id)
        self._ledger.files.write_file(row.id)
        return job

    def _start_again(self, row: Row, *, has_failed: bool = False) -> None:
        """Nothing of the job has begun: make it pending again, unless its starts keep failing.

        ``has_failed``: its process had the job, and ended all the same. A process that was refused
        the job, because the disk refuses say, does not count as a failed start.
        """
        job = self._store.read(row.id)
        row.failed_starts += has_failed
        if row.failed_starts >= settings.START_ATTEMPTS_MAX:
            why = (
                f"{row.failed_starts} of its processes, one after the other, ended before it began"
            )
            lost = Ending(Outcome.LOST, f"it failed to start: {why}")
            text = f"job {row.id} failed to start: {why}"
            self._store.fail(row, job, START_SOURCE, text, ending=lost)
            return
        job.livelock = None
        state = self._store.next_state(row, job)
        row.phase = Phase.PENDING
        row.lock_file = row.process_id = None
        row.started = jobs.seconds(job.start_timestamp)
        self._reader.forget_appended(row.id, None)
        self._ledger.store_state(state, functools.partial(self._ledger.files.write_file, row.id))
        # Its process may have given it back while it waited for locks.
        self._store.back_to_pending(row, job, row_of(job, Phase.PENDING).status)


def _show_times(row: Row, job: jobs.Job) -> None:
    row.started = jobs.seconds(job.start_timestamp)
    row.ended = jobs.seconds(job.end_timestamp)
    row.show_ending(job)


_KILLED = Ending(Outcome.KILLED, "on request; it did not react, and got SIGKILL")


def _lost(job: jobs.Job, exit_code: int | None = None) -> Ending:
    return Ending(Outcome.LOST, _death(job, exit_code))


def kill_text(job: jobs.Job) -> str:
    """The error of a job that ignored a request to end, and was killed."""
    return f"job {job.id} was killed on request at {_now()}, with SIGKILL"


def death_text(job: jobs.Job, exit_code: int | None = None) -> str:
    """The error of a job whose process died; a negative exit code is the number of a signal."""
    return f"detected death of job {job.id} at {_now()}: {_death(job, exit_code)}"


def _death(job: jobs.Job, exit_code: int | None) -> str:
    text = "its process ended without a result"
    if exit_code is None:
        identity = None if job.livelock is None else lock_files.identity_of(job.livelock)
        is_of_earlier_boot = identity is not None and identity.boot != process_identity.boot()
        return f"{text} (the machine was restarted)" if is_of_earlier_boot else text
    if exit_code >= 0:
        return f"{text} (it exited with code {exit_code})"
    return f"{text} (it was ended by {wording.signal_name(-exit_code)})"


def _now() -> str:
    # Without an argument `gmtime` reads a coarse clock, which may be still in the second before.
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time()))
