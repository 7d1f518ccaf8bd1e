"""What the parts of the job queue share: its state, its announcements, and the ends of jobs.

`job_queue` is the actor; `queue_lives` follows jobs from the scheduler's choice to the end of
their processes; `queue_wishes` does what users ask for; `queue_reading` answers questions.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from ...storage import errors, job_bounds, jobs, lock_files
from ...storage.jobs import JobStatus
from ...storage.queue_files.job_files import QueueDirectory
from ...storage.queue_files.journal import Journal
from ...transport import messages
from ..processes import sessions
from ..rules.rules_in_force import RulesInForce
from ..runtime.addresses import FILTER_EVALUATOR, LOCK_MANAGER, SCHEDULER
from ..runtime.component import Component
from ..scheduling.depending import dependency_outcome
from . import recovery
from .job_table import JobTable, Phase, Row
from .ledger import Ledger
from .queries import QueueReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.queue_files.journal import Cut
    from ...transport.envelopes import Envelope
    from ...transport.messages import Message
    from .submission_keys import InFlight

DEATH_SOURCE = "gnt:daemon:luxid:deathdetection"
START_SOURCE = "gnt:daemon:luxid:startjobs"


class QueueCore(Component):
    """The state of the queue, and what every part of it does with it."""

    def boot(self) -> None:
        """Load the directory, and end the jobs that died."""
        directory = QueueDirectory(self.places)
        directory.prepare()
        journal = Journal(self.places.journal)
        own_lock = self.runtime.host.daemon_lock.path
        loaded = recovery.load(directory, journal, own_lock)
        self._ledger = Ledger(directory, journal, self._cut_aside)
        self._ledger.begin(
            loaded.last_id,
            loaded.living,
            unwritten=loaded.unwritten,
            unarchived=loaded.unarchived,
        )
        self._table: JobTable = loaded.table
        self._quarantined = loaded.quarantined
        self._reads_opcodes = False
        self._is_drained = directory.is_drained
        self._door: RulesInForce | None = None
        self._before_rules: list[Envelope] = []
        self._chain_serial = 0
        self._noted_serial = -1
        self._reader = QueueReader(self._table, self._ledger, self.log)
        self._unread: set[int] = set()
        self._requests: dict[int, Envelope] = {}
        self._unstored: dict[int, errors.GangerError] = {}
        # Answers to a queue that was replaced must not be taken for answers to this one.
        self._tokens = time.monotonic_ns()
        self._reports = self.runtime.incarnation << 32
        self._archivals: dict[int, list[Envelope]] = {}
        self._links: dict[int, list[int]] = {}
        self._keys_in_flight: dict[str, InFlight] = {}
        self._unended: list[int] = []
        self._arriving: list[tuple[Row, list[dict[str, object]] | None]] = []
        self._is_disk_awaited = False
        self._doubts = 0
        self._simulations: dict[int, tuple[Envelope, messages.Simulate]] = {}
        self._simulated: dict[int, messages.Simulated] = {}
        self._unexplained: dict[int, tuple[Envelope, int]] = {}
        self._secrets: dict[int, dict[int, dict[str, Any]]] = {}
        self._forked: dict[int, tuple[bytes, jobs.Job]] = {}
        # New priorities that the scheduler may not know of yet, each by its number.
        self._moved: dict[int, int] = {}
        self._moves = 0
        self._queue_path = os.fspath(self.places.queue)
        self._socket_path = os.fspath(self.places.socket)
        if self._ledger.is_read_only:
            # Nothing was flushed: what the journal does not have may be lost yet.
            for job_id, state in loaded.handed_in.items():
                self._withhold_end(job_id, state)
        for name in self._quarantined:
            self.log.error("job file is quarantined", file=name)
        for job in loaded.died:
            row = self._table.find(job.id)
            assert row is not None
            self._end_left_over(job)
            self._fail(row, job, DEATH_SOURCE, death_text(job))
        self._ledger.commit()

    def _cut_aside(self, cut: Cut) -> None:
        """Flush the file system in a thread, which may take long; then `JournalCut` comes."""
        incarnation = self.runtime.incarnation

        def carry_out() -> Message:
            text = None
            try:
                cut.carry_out()
            except errors.StorageError as error:
                text = error.text
            return messages.JournalCut(incarnation=incarnation, error=text)

        self.runtime.aside(carry_out)

    def _note_cut(self, message: messages.JournalCut) -> None:
        error = None if message.error is None else errors.StorageError(message.error)
        # A failure concerns us, whichever of us flushed.
        if message.incarnation == self.runtime.incarnation or error is not None:
            self._ledger.was_cut(error)

    def _end_left_over(self, job: jobs.Job) -> None:
        """End what the dead process left running; its locks are not free before (`LockManager`)."""
        mark = None if job.livelock is None else lock_files.identity_of(job.livelock)
        try:
            if mark is not None:
                sessions.end_left_over(mark)
        except OSError as error:
            self.log.error("what a dead process left runs on", job=job.id, error=str(error))

    def close(self) -> None:
        """Write and close what is open."""
        if hasattr(self, "_ledger"):
            self._ledger.close()

    def _announce(
        self,
        arrivals: Iterable[tuple[Row, list[dict[str, object]] | None]],
        *,
        is_all: bool = False,
        running: Iterable[Row] = (),
    ) -> None:
        arrived = [
            messages.JobToJudge(
                job=row.as_pending(), inputs=inputs if self._reads_opcodes else None
            )
            for row, inputs in arrivals
        ]
        occupied = [messages.JobToJudge(job=row.as_pending(), inputs=None) for row in running]
        notice = messages.JobsArrived(
            jobs=arrived, is_all=is_all, running=occupied, report=self._reports
        )
        self.runtime.tell(FILTER_EVALUATOR, notice)

    # ------------------------------------------------------------ ends of jobs

    def _fail(self, row: Row, job: jobs.Job, source: str, text: str) -> None:
        self.log.warning("job failed", job=row.id, reason=text)
        told = job_bounds.end_text(text, len(job.ops))
        jobs.fail_whole(job, jobs.timestamp(time.time()), source=source, text=told)
        self._store_end(row, job)

    def _end_doomed(self, job_id: int, verdict: str, text: str) -> None:
        row = self._table.find(job_id)
        if row is None or row.phase is not Phase.PENDING:
            return
        job = self._read(job_id)
        now = jobs.timestamp(time.time())
        match verdict:
            case "canceled":
                jobs.cancel_from(job, job.next_index, now)
            case "rejected":
                self.log.info("pending job is rejected", job=job_id, reason=text)
                told = job_bounds.end_text(text, len(job.ops))
                jobs.cancel_pending(job, now, source=jobs.FILTER_SOURCE, text=told)
            case _:
                result = job_bounds.error_result(["OpExecError", [text]])
                jobs.fail_from(job, job.next_index, now, result)
        self._store_end(row, job)

    def _store_end(self, row: Row, job: jobs.Job, envelope: Envelope | None = None) -> None:
        """Make the end of a job without a process durable, then tell of it."""
        before, row.phase = row.phase, Phase.ENDED
        row.serial = max(row.serial, job.serial) + 1
        job.extra[jobs.STATE_SERIAL_KEY] = row.serial
        state = (row.id, row.serial, jobs.encode_job(job))

        def stored() -> None:
            self._ledger.write_file(row.id)
            row.ended = jobs.seconds(job.end_timestamp)
            if envelope is not None:
                text = f"Dequeued job {row.id}"
                envelope.reply(messages.CancelOutcome(accepted=True, text=text))
            self._reader.log_reaches(row, job.last_log_serial)
            self._move(row, job.status)
            self._end(row)

        def failed(error: errors.GangerError) -> None:
            if before in (Phase.PENDING, Phase.STARTING):
                row.phase = Phase.PENDING
            else:
                # It had begun, so it must never be pending again.
                self._judge_later(row.id)
            if envelope is not None:
                envelope.refuse(error)

        self._ledger.store_state(state, stored, failed)

    def _end(self, row: Row) -> None:
        """Nobody works on the job's file any more."""
        row.phase = Phase.ENDED
        self._secrets.pop(row.id, None)
        self._unstored.pop(row.id, None)
        self._forked.pop(row.id, None)
        self._reader.forget_told(row.id, None)
        self._repeat_wishes(row.id)
        for retried_by in self._links.pop(row.id, ()):
            self._link_retry(row.id, retried_by)
        for envelope in self._archivals.pop(row.id, ()):
            self._archive(envelope, row.id)

    def _withhold_end(self, job_id: int, journaled: tuple[int, bytes]) -> None:
        """The job is shown as the journal knows it until the disk works."""
        row = self._table.find(job_id)
        assert row is not None
        try:
            status = jobs.decode_job(journaled[1]).status
        except errors.StorageError:
            # Nothing that could be shown.
            return
        if row.phase is Phase.ENDED:
            self._judge_later(row.id)
        row.phase, row.status, row.ended = Phase.HANDED_OVER, status, None
        self._ledger.note(job_id, *journaled)

    def _judge_later(self, job_id: int) -> None:
        """The job's process is gone; what became of the job is stored when the disk works."""
        if job_id not in self._unended:
            self._unended.append(job_id)

    def _hear_again_later(self, message: messages.JobExited) -> None:
        """Take in this message once more when there has been time for things to get better."""
        raise NotImplementedError

    def _repeat_wishes(self, job_id: int) -> None:
        """Do what was asked of the job's process, and not answered before it left."""
        raise NotImplementedError

    def _make_way(self, row: Row) -> None:
        """A pending job has become more urgent than chosen ones without a process may be."""
        raise NotImplementedError

    def _link_retry(self, job_id: int, retried_by: int) -> None:
        """Let a final job name the one that repeats it, now or when its process has gone."""
        raise NotImplementedError

    def _archive(self, envelope: Envelope, job_id: int) -> None:
        """Archive a final job, now or when its process has gone."""
        raise NotImplementedError

    def _move(self, row: Row, status: JobStatus, *, has_locks: bool = True) -> None:
        """The job has this status now, durably; tell everybody whom it concerns.

        ``has_locks``: its process may have locks.
        """
        was_final = row.status.is_final
        if row.status is not status:
            row.status = status
            self._reader.watches.changed(row)
        if status.is_final and not was_final:
            finished = messages.JobsFinished(jobs=[(row.id, status)])
            has_slot = row.lock_file is not None and row.phase is Phase.HANDED_OVER
            # A job that holds a slot the scheduler knows. Of any other, word of the end must not
            # get there before the job itself: it goes the same way.
            self.runtime.tell(SCHEDULER if has_slot else FILTER_EVALUATOR, finished)
            if row.lock_file is not None and has_slot and has_locks:
                ended = messages.OwnerEnded(lock_file=row.lock_file)
                self.runtime.tell(LOCK_MANAGER, ended)

    # ------------------------------------------------------------ what a job's process asks for

    def _dependencies_of(self, message: messages.AskDependencies) -> messages.DependencyOutcome:
        statuses = {target: self._status(target) for target, _ in message.depends}
        outcome = dependency_outcome(message.depends, statuses)
        return messages.DependencyOutcome(verdict=outcome.verdict, text=outcome.text)

    def _status(self, job_id: int) -> JobStatus | None:
        """The status of a live or archived job; None if there is no such job."""
        row = self._table.find(job_id)
        if row is not None:
            return row.status
        try:
            data = self._ledger.directory.read_archived(job_id)
            return None if data is None else jobs.decode_job(data).status
        except errors.StorageError as error:
            # Who depends on it fails as if it were missing: nobody can tell how it ended.
            self.log.error("archived job cannot be read", job=job_id, error=error.text)
            return None

    def _report_statuses(self, ids: list[int]) -> None:
        found = [(job_id, self._status(job_id)) for job_id in ids]
        self.runtime.tell(SCHEDULER, messages.StatusesReported(jobs=found))

    def _read(self, job_id: int) -> jobs.Job:
        body = self._ledger.newest(job_id)
        if body is None:
            raise errors.StorageError(f"job {job_id} has no file")
        return jobs.decode_job(body)


def kill_text(job: jobs.Job) -> str:
    """What is told of a job that did not end when it was asked to, and was made to."""
    return f"job {job.id} was killed on request at {_now()}, with SIGKILL"


def death_text(job: jobs.Job, exit_code: int | None = None) -> str:
    """What is told of a job whose process died; a negative exit code is that of a signal."""
    text = f"detected death of job {job.id} at {_now()}: its process ended without a result"
    if exit_code is None:
        return text
    if exit_code >= 0:
        return f"{text} (it exited with code {exit_code})"
    return f"{text} (it was ended by {_signal_name(-exit_code)})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _now() -> str:
    # Without an argument it asks a coarse clock, which may be still in the second before.
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time()))
