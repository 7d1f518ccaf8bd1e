"""The job queue: single writer of ids, pending jobs, the journal and the queue directory.

What a turn brings is collected in the `Ledger`; at the end of the turn one flush makes all
of it durable, and only then is anybody told. A job's file belongs to the queue until the
hand-over is confirmed; from there to the end of its process it belongs to the process,
whose states come here to share the journal's flush.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any, assert_never

from ..storage import errors, jobs, settings
from ..storage.job_files import QueueDirectory
from ..storage.jobs import JobStatus
from ..storage.journal import Journal
from ..storage.locks import Owner
from ..transport import messages
from . import queue_loading, submitting
from .base import Component
from .job_table import JobTable, Phase, Row, row_of
from .ledger import Ledger
from .queue_reading import QueueReader
from .scheduling import dependency_outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..transport.addresses import Envelope

QueueMessage = (
    messages.SubmitJobs
    | messages.ListJobs
    | messages.ReadJob
    | messages.WatchJobs
    | messages.StopWatch
    | messages.PeerGone
    | messages.CancelJob
    | messages.ArchiveJob
    | messages.AutoArchiveJobs
    | messages.ChangeJobPriority
    | messages.RecordState
    | messages.JobWaits
    | messages.JobTold
    | messages.AwaitDependencies
    | messages.CancelAnswered
    | messages.PriorityAnswered
    | messages.JobsChosen
    | messages.ReportStatuses
    | messages.ReportQueue
    | messages.ReportRunning
    | messages.HandOverAsked
    | messages.JobExited
    | messages.StartFailed
    | messages.RuleChainChanged
    | messages.ReportCounts
    | messages.DiskRetried
)

_DEATH_SOURCE = "gnt:daemon:luxid:deathdetection"
_START_SOURCE = "gnt:daemon:luxid:startjobs"


class JobQueue(Component):
    """Owns the queue."""

    name = "job_queue"

    def boot(self) -> None:
        """Load the directory, end the jobs that died, tell the others what there is."""
        directory = QueueDirectory(self.places)
        directory.prepare()
        journal = Journal(self.places.journal)
        own_lock = self.surroundings.daemon_lock.path
        loaded = queue_loading.load(directory, journal, own_lock)
        self._ledger = Ledger(directory, journal)
        self._ledger.begin(
            loaded.last_id,
            loaded.living,
            unwritten=loaded.unwritten,
            unarchived=loaded.unarchived,
        )
        self._table: JobTable = loaded.table
        self._quarantined = loaded.quarantined
        self._reads_opcodes = False
        self._reader = QueueReader(self._table, self._ledger)
        self._requests: dict[int, Envelope] = {}
        self._tokens = 0
        self._dependants: list[tuple[Envelope, messages.AwaitDependencies]] = []
        self._archivals: dict[int, list[Envelope]] = {}
        self._keys_in_flight: dict[str, list[Envelope]] = {}
        self._unended: list[int] = []
        self._is_disk_awaited = False
        self._secrets: dict[int, dict[int, dict[str, Any]]] = {}
        for name in self._quarantined:
            self.log.error("job file is quarantined", file=name)
        for job in loaded.died:
            row = self._table.find(job.id)
            assert row is not None
            self._fail(row, job, _DEATH_SOURCE, _death_text(job))
        self._ledger.commit()
        self._report_queue()

    def close(self) -> None:
        """Write and close what is open."""
        if hasattr(self, "_ledger"):
            self._ledger.close()

    def receive(self, envelope: Envelope) -> None:  # noqa: C901, PLR0912, PLR0915
        """Handle one message."""
        message: QueueMessage = envelope.message  # type: ignore[assignment]
        match message:
            case messages.SubmitJobs():
                self._submit(envelope, message)
            case messages.ListJobs():
                envelope.reply(self._reader.rows(message))
            case messages.ReadJob():
                envelope.reply(self._reader.document(message.id))
            case messages.WatchJobs():
                self._reader.watch(envelope, message)
            case messages.StopWatch():
                self._reader.watches.stop(envelope.peer, message.request_id)
            case messages.PeerGone():
                self._reader.watches.stop_all_of(message.peer)
            case messages.CancelJob():
                self._cancel(envelope, message.id)
            case messages.ArchiveJob():
                self._archive(envelope, message.id)
            case messages.AutoArchiveJobs():
                self._autoarchive(envelope, message)
            case messages.ChangeJobPriority():
                self._change_priority(envelope, message)
            case messages.RecordState():
                self._record_state(envelope, message)
            case messages.JobWaits():
                self._note_waiting(message)
            case messages.JobTold():
                self._reader.told(message)
            case messages.AwaitDependencies():
                self._await_dependencies(envelope, message)
            case messages.CancelAnswered() | messages.PriorityAnswered():
                self._pass_answer(message)
            case messages.JobsChosen():
                self._take_choice(message)
            case messages.ReportStatuses():
                self._report_statuses(message.ids)
            case messages.ReportQueue():
                self._report_queue()
            case messages.ReportRunning():
                self._report_running()
            case messages.HandOverAsked():
                self._hand_over(envelope, message)
            case messages.JobExited():
                # Judged when all that the process said is durable, or is known not to be.
                exit_taken = functools.partial(self._take_exit, message)
                self._ledger.after_commit(exit_taken, lambda _: exit_taken())
            case messages.StartFailed():
                self._fail_start(message)
            case messages.RuleChainChanged():
                self._reads_opcodes = message.reads_opcodes
            case messages.ReportCounts():
                self._report_counts(message.token)
            case messages.DiskRetried():
                self._retry_disk()
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """One flush for everything the turn brought; then everybody is told."""
        self._ledger.commit()
        if self._ledger.is_read_only and not self._is_disk_awaited:
            self.log.error("the disk refuses writes: the queue takes no changes")
            self._retry_disk_later()

    # ------------------------------------------------------------ submission

    def _submit(self, envelope: Envelope, message: messages.SubmitJobs) -> None:
        key = message.key
        if key is not None and not message.dry_run and self._is_repeat(envelope, key):
            return
        if self._ledger.is_read_only and not message.dry_run:
            raise errors.ReadOnlyError
        first_id = self._ledger.last_id + 1
        drafts = submitting.drafts(message.jobs, first_id=first_id, now=time.time(), key=key)
        submitting.check_targets(drafts, first_id, self._is_job)
        if message.dry_run:
            envelope.reply(messages.JobsSubmitted(ids=[]))
            return
        self._ledger.last_id += len(drafts)
        stored = [(draft.job.id, 1, jobs.encode_job(draft.job)) for draft in drafts]
        if key is not None:
            self._keys_in_flight[key] = []
        self._ledger.store_new(
            stored,
            functools.partial(self._submitted, envelope, drafts, key),
            functools.partial(self._not_submitted, envelope, key),
        )

    def _is_repeat(self, envelope: Envelope, key: str) -> bool:
        if (ids := self._table.ids_of_key(key)) is not None:
            envelope.reply(messages.JobsSubmitted(ids=ids, is_repeat=True))
            return True
        if key in self._keys_in_flight:
            self._keys_in_flight[key].append(envelope)
            return True
        return False

    def _is_job(self, job_id: int) -> bool:
        if self._table.find(job_id) is not None:
            return True
        return self._ledger.directory.read_archived(job_id) is not None

    def _submitted(
        self, envelope: Envelope, drafts: list[submitting.Draft], key: str | None
    ) -> None:
        rows = []
        for draft in drafts:
            row = row_of(draft.job, Phase.PENDING)
            self._table.add(row)
            rows.append(row)
            if draft.secrets:
                self._secrets[row.id] = draft.secrets
        reply = messages.JobsSubmitted(ids=[row.id for row in rows])
        envelope.reply(reply)
        for repeated in self._keys_in_flight.pop(key, ()) if key is not None else ():
            repeated.reply(messages.JobsSubmitted(ids=reply.ids, is_repeat=True))
        inputs = [[op.input for op in draft.job.ops] for draft in drafts]
        self._announce(zip(rows, inputs, strict=True))
        for row in rows:
            self._reader.watches.changed(row)

    def _not_submitted(
        self, envelope: Envelope, key: str | None, error: errors.GangerError
    ) -> None:
        envelope.refuse(error)
        for repeated in self._keys_in_flight.pop(key, ()) if key is not None else ():
            repeated.refuse(error)

    def _announce(
        self,
        arrivals: Iterable[tuple[Row, list[dict[str, object]] | None]],
        *,
        is_all: bool = False,
        running: Iterable[int] = (),
    ) -> None:
        arrived = [
            messages.JobArrived(
                job=row.as_pending(), inputs=inputs if self._reads_opcodes else None
            )
            for row, inputs in arrivals
        ]
        notice = messages.JobsArrived(jobs=arrived, is_all=is_all, running=list(running))
        self.address("filter_evaluator").notify(notice)

    # ------------------------------------------------------------ start and hand-over

    def _take_choice(self, message: messages.JobsChosen) -> None:
        starting, mistaken = [], []
        for job_id in message.start:
            row = self._table.find(job_id)
            if row is None or row.phase is not Phase.PENDING:
                mistaken.append(job_id)
                continue
            if self._ledger.is_read_only:
                # It keeps its run slot until the disk works and the queue is told anew.
                continue
            row.phase = Phase.STARTING
            self._mark_being_forked(row)
            starting.append((job_id, row.needs_user_opcodes))
        if starting:
            self.address("executor").notify(messages.StartJobs(jobs=starting))
        if mistaken:
            # They ended before the scheduler heard of them: it must free their run slots.
            self._report_statuses(mistaken)
        for job_id in message.eligible:
            row = self._table.find(job_id)
            if row is not None and row.phase is Phase.PENDING:
                row.status = JobStatus.QUEUED
                self._reader.watches.changed(row)
        for job_id, verdict, text in message.doomed:
            self._end_doomed(job_id, verdict, text)
        self._ledger.write_pending(self._ledger.unwritten_up_to(message.seen_up_to))

    def _mark_being_forked(self, row: Row) -> None:
        """The job file names the daemon's lock file while a process is being made."""
        job = self._read(row.id)
        job.livelock = self.surroundings.daemon_lock.path
        for op in job.ops:
            # A job that waited for dependencies waits no longer.
            if op.status is JobStatus.WAITING:
                op.status = JobStatus.QUEUED
        row.serial = job.advance_serial()
        row.status = job.status
        self._ledger.note(row.id, row.serial, jobs.encode_job(job))
        self._ledger.write_file(row.id)

    def _hand_over(self, envelope: Envelope, message: messages.HandOverAsked) -> None:
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
        job = self._read(row.id)
        job.livelock = message.lock_file
        row.serial = job.advance_serial()
        self._ledger.note(row.id, row.serial, jobs.encode_job(job))
        if not self._ledger.write_state(row.id):
            self._refuse_hand_over(row, message)
            return
        row.phase = Phase.HANDED_OVER
        row.lock_file = message.lock_file
        row.process_id = message.process_id
        self._confirm(envelope, row, message)

    def _refuse_hand_over(self, row: Row | None, message: messages.HandOverAsked) -> None:
        if row is not None and row.phase is Phase.STARTING:
            # The disk refuses: the job is offered again when it works.
            row.phase = Phase.PENDING
        refusal = messages.RefuseHandOver(job_id=message.job_id, lock_file=message.lock_file)
        self.address("executor").notify(refusal)

    def _confirm_again(self, envelope: Envelope, row: Row, message: messages.HandOverAsked) -> None:
        # The first confirmation was lost with an executor or a queue that was replaced.
        if row.lock_file == message.lock_file:
            self._confirm(envelope, row, message)

    def _confirm(self, envelope: Envelope, row: Row, message: messages.HandOverAsked) -> None:
        body = self._ledger.body(row.id)
        if body is None:
            return
        confirmed = messages.HandOverConfirmed(job_id=row.id, lock_file=message.lock_file)
        self.address("executor").notify(confirmed)
        go = messages.JobGo(
            body=body,
            spares=self._ledger.lend_spares(row.id),
            secrets=self._secrets.get(row.id, {}),
            queue=os.fspath(self.places.queue),
            socket=os.fspath(self.places.socket),
        )
        envelope.reply(go)

    def _fail_start(self, message: messages.StartFailed) -> None:
        row = self._table.find(message.job_id)
        if row is not None and row.phase is Phase.STARTING:
            text = f"job {row.id} failed to start: {message.text}"
            self._fail(row, self._read(row.id), _START_SOURCE, text)

    # ------------------------------------------------------------ running jobs

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
            self._ledger.store_state(state, done, envelope.refuse)
        else:
            self._ledger.after_commit(functools.partial(envelope.reply, recorded))

    def _state_recorded(self, row: Row, envelope: Envelope, message: messages.RecordState) -> None:
        envelope.reply(messages.StateRecorded(serial=message.serial))
        if message.body is None:
            self._ledger.forget(row.id)
        row.serial = message.serial
        row.priority = message.priority
        row.started = message.started
        row.ended = message.ended
        self._reader.forget_told(row.id, message.log_serial)
        self._move(row, message.status)

    def _note_waiting(self, message: messages.JobWaits) -> None:
        row = self._table.find(message.job_id)
        if row is None or row.phase is not Phase.HANDED_OVER or message.serial <= row.serial:
            return
        job = jobs.decode_job(message.body)
        row.serial = message.serial
        row.started = jobs.seconds(job.start_timestamp)
        self._ledger.note(row.id, message.serial, message.body)
        self._move(row, job.status)

    def _move(self, row: Row, status: JobStatus) -> None:
        """The job has this status now, durably; tell everybody whom it concerns."""
        was_final = row.status.is_final
        if row.status is not status:
            row.status = status
            self._reader.watches.changed(row)
        if status.is_final and not was_final:
            finished = messages.JobsFinished(jobs=[(row.id, status)])
            self.address("scheduler").notify(finished)
            if row.lock_file is not None and row.phase is Phase.HANDED_OVER:
                ended = messages.OwnerEnded(lock_file=row.lock_file)
                self.address("lock_manager").notify(ended)
            self._settle_dependants()

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
        self._take_death(row)

    def _take_death(self, row: Row) -> None:
        """The process is gone without a word: believe the newest of file and journal."""
        job = self._newest(row)
        if job.status.is_final:
            self._end(row)
            row.started = jobs.seconds(job.start_timestamp)
            row.ended = jobs.seconds(job.end_timestamp)
            self._move(row, job.status)
        elif all(op.status is JobStatus.QUEUED for op in job.ops):
            self._start_again(row)
        else:
            self._fail(row, job, _DEATH_SOURCE, _death_text(job))

    def _newest(self, row: Row) -> jobs.Job:
        data = self._ledger.directory.read(row.id)
        on_disk = None if data is None else jobs.decode_job(data)
        known = self._ledger.serial(row.id)
        if on_disk is not None and (known is None or on_disk.serial >= known):
            self._ledger.forget(row.id)
            return on_disk
        job = self._read(row.id)
        self._ledger.write_file(row.id)
        return job

    def _start_again(self, row: Row) -> None:
        """Nothing of the job has begun: it is pending again."""
        job = self._read(row.id)
        job.livelock = None
        row.serial = max(row.serial, job.serial) + 1
        job.extra[jobs.STATE_SERIAL_KEY] = row.serial
        row.phase = Phase.PENDING
        row.lock_file = row.process_id = None
        self._ledger.store_state(
            (row.id, row.serial, jobs.encode_job(job)),
            functools.partial(self._ledger.write_file, row.id),
        )
        self._announce([(row, [op.input for op in job.ops])])

    # ------------------------------------------------------------ ends

    def _fail(self, row: Row, job: jobs.Job, source: str, text: str) -> None:
        self.log.warning("job failed", job=row.id, reason=text)
        jobs.fail_whole(job, jobs.timestamp(time.time()), source=source, text=text)
        self._store_end(row, job)

    def _end_doomed(self, job_id: int, verdict: str, text: str) -> None:
        row = self._table.find(job_id)
        if row is None or row.phase is not Phase.PENDING:
            return
        job = self._read(job_id)
        now = jobs.timestamp(time.time())
        if verdict == "canceled":
            jobs.cancel_from(job, 0, now)
        else:
            jobs.fail_from(job, 0, now, ["OpExecError", [text]])
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
            self._move(row, job.status)
            self._end(row)

        def failed(error: errors.GangerError) -> None:
            if before in (Phase.PENDING, Phase.STARTING):
                row.phase = Phase.PENDING
            else:
                # It had begun, so it must never be pending again.
                self._unended.append(row.id)
            if envelope is not None:
                envelope.refuse(error)

        self._ledger.store_state(state, stored, failed)

    def _end(self, row: Row) -> None:
        """Nobody works on the job's file any more."""
        row.phase = Phase.ENDED
        self._secrets.pop(row.id, None)
        self._reader.forget_told(row.id, None)
        for envelope in self._archivals.pop(row.id, ()):
            self._archive(envelope, row.id)

    # ------------------------------------------------------------ dependencies of later opcodes

    def _await_dependencies(self, envelope: Envelope, message: messages.AwaitDependencies) -> None:
        self._dependants.append((envelope, message))
        self._settle_dependants()

    def _settle_dependants(self) -> None:
        remaining = []
        for envelope, message in self._dependants:
            statuses = {target: self._status(target) for target, _ in message.depends}
            outcome = dependency_outcome(message.depends, statuses)
            if outcome.verdict == "open":
                remaining.append((envelope, message))
                continue
            envelope.reply(messages.DependencyOutcome(verdict=outcome.verdict, text=outcome.text))
        self._dependants = remaining

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
        self.address("scheduler").notify(messages.StatusesReported(jobs=found))

    # ------------------------------------------------------------ what users ask for

    def _cancel(self, envelope: Envelope, job_id: int) -> None:
        row = self._table.find(job_id)
        if row is None or row.phase is Phase.ENDED or row.status.is_final:
            text = f"Job {job_id} not found in queue"
            envelope.reply(messages.CancelOutcome(accepted=False, text=text))
        elif row.phase is Phase.HANDED_OVER:
            token = self._remember(envelope)
            self._tell_job(row, messages.CancelRequested(token=token))
        else:
            job = self._read(job_id)
            jobs.cancel_pending(job, jobs.timestamp(time.time()))
            self._store_end(row, job, envelope)

    def _change_priority(self, envelope: Envelope, message: messages.ChangeJobPriority) -> None:
        if not jobs.PRIORITY_MIN <= message.priority <= jobs.PRIORITY_MAX:
            text = (
                f"priority: expected {jobs.PRIORITY_MIN} to {jobs.PRIORITY_MAX}, "
                f"got {message.priority}"
            )
            raise errors.BadRequestError(text)
        row = self._table.find(message.id)
        if row is None or row.phase is Phase.ENDED or row.status.is_final:
            text = f"Job {message.id} not found in queue"
            envelope.reply(messages.PriorityOutcome(accepted=False, text=text))
        elif row.phase is Phase.HANDED_OVER:
            token = self._remember(envelope)
            asked = messages.PriorityRequested(token=token, priority=message.priority)
            self._tell_job(row, asked)
        else:
            self._reprioritise(envelope, row, message.priority)

    def _reprioritise(self, envelope: Envelope, row: Row, priority: int) -> None:
        job = self._read(row.id)
        for op in job.ops:
            op.priority = priority
        row.serial = max(row.serial, job.serial) + 1
        job.extra[jobs.STATE_SERIAL_KEY] = row.serial
        text = f"Priorities of pending opcodes for job {row.id} have been changed to {priority}"

        def stored() -> None:
            row.priority = priority
            if row.phase is not Phase.HANDED_OVER:
                self._ledger.write_file(row.id)
            envelope.reply(messages.PriorityOutcome(accepted=True, text=text))
            changed = messages.JobReprioritised(id=row.id, priority=priority)
            # The way the job itself goes, so that it does not get there first.
            self.address("filter_evaluator").notify(changed)
            self._reader.watches.changed(row)

        state = (row.id, row.serial, jobs.encode_job(job))
        self._ledger.store_state(state, stored, envelope.refuse)

    def _tell_job(
        self, row: Row, message: messages.CancelRequested | messages.PriorityRequested
    ) -> None:
        self.address("executor").notify(messages.TellJob(job_id=row.id, message=message))

    def _remember(self, envelope: Envelope) -> int:
        self._tokens += 1
        self._requests[self._tokens] = envelope
        return self._tokens

    def _pass_answer(self, message: messages.CancelAnswered | messages.PriorityAnswered) -> None:
        envelope = self._requests.pop(message.token, None)
        row = self._table.find(message.job_id)
        if isinstance(message, messages.CancelAnswered):
            answer: messages.Reply = messages.CancelOutcome(
                accepted=message.accepted, text=message.text
            )
        else:
            answer = messages.PriorityOutcome(accepted=message.accepted, text=message.text)
            if message.accepted and row is not None and row.lock_file is not None:
                owner = Owner(row.id, row.lock_file, row.process_id or 0)
                row.priority = message.priority
                changed = messages.LockPriorityChanged(owner=owner, priority=row.priority)
                self.address("lock_manager").notify(changed)
        if envelope is not None:
            envelope.reply(answer)

    def _archive(self, envelope: Envelope, job_id: int) -> None:
        row = self._table.find(job_id)
        if row is None:
            raise errors.UnknownJobError(f"there is no live job {job_id}")
        if not row.status.is_final:
            text = f"job {job_id} has status {row.status}: only a final job can be archived"
            raise errors.JobStateError(text)
        if row.phase is not Phase.ENDED:
            # Its process is about to leave; the file is moved when nobody writes it.
            self._archivals.setdefault(job_id, []).append(envelope)
            return
        self._store_archived([row], envelope, left=0)

    def _autoarchive(self, envelope: Envelope, message: messages.AutoArchiveJobs) -> None:
        limit = time.time() - message.age_seconds
        old = [
            row
            for row in self._table
            if row.phase is Phase.ENDED
            and row.status.is_final
            and (message.age_seconds < 0 or (row.ended or row.started or limit) < limit)
        ]
        taken = old[: settings.AUTOARCHIVE_JOBS_MAX]
        self._store_archived(taken, envelope, left=len(old) - len(taken))

    def _store_archived(self, rows: list[Row], envelope: Envelope, *, left: int) -> None:
        if self._ledger.is_read_only:
            envelope.refuse(errors.ReadOnlyError())
            return
        archived = [row.id for row in rows]
        for job_id in archived:
            self._ledger.store_archived(job_id, functools.partial(self._table.remove, job_id))
        outcome = messages.ArchiveOutcome(archived=archived, left=left)
        self._ledger.after_commit(functools.partial(envelope.reply, outcome), envelope.refuse)

    # ------------------------------------------------------------ what the others ask for

    def _report_queue(self) -> None:
        pending = self._table.in_phase(Phase.PENDING)
        arrivals = ((row, self._inputs(row.id) if self._reads_opcodes else None) for row in pending)
        running = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
        unfinished = [row.id for row in running if not row.status.is_final]
        self._announce(arrivals, is_all=True, running=unfinished)

    def _inputs(self, job_id: int) -> list[dict[str, object]]:
        return [op.input for op in self._read(job_id).ops]

    def _report_running(self) -> None:
        running = [
            (row.id, row.lock_file, row.process_id)
            for row in self._table.in_phase(Phase.HANDED_OVER)
            if row.lock_file is not None
        ]
        self.address("executor").notify(messages.AdoptJobs(jobs=running))
        starting = [
            (row.id, row.needs_user_opcodes) for row in self._table.in_phase(Phase.STARTING)
        ]
        if starting:
            self.address("executor").notify(messages.StartJobs(jobs=starting))

    def _report_counts(self, token: int) -> None:
        report = messages.QueueReport(
            token=token,
            counts={**self._table.counts(), "last_id": self._ledger.last_id},
            quarantined=list(self._quarantined),
            flushes=self._ledger.flushes,
            is_read_only=self._ledger.is_read_only,
        )
        self.address("supervisor").notify(report)

    # ------------------------------------------------------------ a disk that refuses

    def _retry_disk_later(self) -> None:
        self._is_disk_awaited = True
        notify = functools.partial(self.address(self.name).notify, messages.DiskRetried())
        timer = threading.Timer(settings.DISK_RETRY_SECONDS, notify)
        timer.daemon = True
        timer.start()

    def _retry_disk(self) -> None:
        if not self._ledger.retry():
            self._retry_disk_later()
            return
        self.log.info("the disk takes writes again")
        self._is_disk_awaited = False
        unended, self._unended = self._unended, []
        for job_id in unended:
            if (row := self._table.find(job_id)) is not None and not row.status.is_final:
                self._take_death(row)
        self._report_queue()

    def _read(self, job_id: int) -> jobs.Job:
        body = self._ledger.newest(job_id)
        if body is None:
            raise errors.StorageError(f"job {job_id} has no file")
        return jobs.decode_job(body)


def _death_text(job: jobs.Job) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"detected death of job {job.id} at {when}: its process ended without a result"
