"""From the scheduler's choice to the process: starts, the hand-over, and choices taken back.

A job's file belongs to the queue until the hand-over is confirmed; then it belongs to the process.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs import jobs
from ...storage.jobs.jobs import JobStatus
from ...transport import messages
from ..runtime.addresses import CONFIG_STORE, EXECUTOR
from ..store.job_rows import Phase, Row
from .reusing import reuses_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...transport.envelopes import Envelope
    from ...transport.messages import PendingEnd
    from ..runtime.runtime import Runtime
    from ..store.job_store import JobStore
    from ..store.start_gate import StartGate


class HandOver:
    """Gives chosen jobs to processes."""

    def __init__(self, runtime: Runtime, store: JobStore, gate: StartGate) -> None:
        self._runtime = runtime
        self._store = store
        self._table = store.table
        self._ledger = store.ledger
        self._announcements = store.announcements
        self._gate = gate
        self._queue_path = os.fspath(runtime.host.places.queue)
        self._socket_path = os.fspath(runtime.host.places.socket)
        self._direct = dict(runtime.host.elsewhere)
        self._may_reuse = runtime.host.reuses_processes
        self._starting: dict[int, tuple[bytes, jobs.Job]] = {}
        self._unreadable: set[int] = set()
        store.when_ended(self._forget)

    def _forget(self, row: Row) -> None:
        self._starting.pop(row.id, None)

    # ------------------------------------------------------------ starts

    def take_choice(self, message: messages.JobsChosen) -> None:
        """Ask for processes for the chosen jobs, and end those that can never start."""
        starting, mistaken = [], []
        # A choice made before our last report was read does not count: the report says that these
        # jobs are pending, and the scheduler will choose anew without knowing that they run.
        is_current = message.report == self._announcements.report
        for job_id in self._still_first(message) if is_current else []:
            row = self._table.find(job_id)
            if row is None or row.phase is not Phase.PENDING:
                mistaken.append(job_id)
                continue
            if self._ledger.is_read_only:
                # It keeps its run slot until the disk works and the whole queue is announced.
                continue
            self._table.give_slot(row, Phase.STARTING)
            # The scheduler may not have known of a new priority yet, at which rules may look.
            chain = 0 if row.is_reprioritised else message.chain
            row.is_reprioritised = False
            row.chosen = messages.ChosenUnder(chain, message.limits.get(job_id, ""))
            with self._reading(row):
                if self._mark_starting(row):
                    starting.append((job_id, row.needs_user_opcodes))
        if starting:
            self._ask_for_processes(starting)
        if mistaken:
            # They ended before the scheduler heard of them: it must free their run slots.
            self._store.report_statuses(mistaken)
        for job_id in message.eligible:
            row = self._table.find(job_id)
            if row is not None and row.phase is Phase.PENDING:
                self._table.give_status(row, JobStatus.QUEUED)
                self._store.reader.changed(row)
        self._end_unsatisfiable(message.unsatisfiable)

    def _end_unsatisfiable(self, unsatisfiable: Sequence[tuple[int, PendingEnd, str]]) -> None:
        for job_id, verdict, text in unsatisfiable:
            if (row := self._table.find(job_id)) is not None:
                with self._reading(row):
                    self._store.end_pending(job_id, verdict, text)

    @contextlib.contextmanager
    def _reading(self, row: Row) -> Iterator[None]:
        """Survive one failure to read the file of a pending job, for want of descriptors say.

        After a retry of the disk the whole queue is announced. If the file still cannot be read, it
        is damaged: the error restarts this component, which then puts the file aside.
        """
        try:
            yield
        except errors.StorageError as error:
            if row.id in self._unreadable:
                raise
            row.phase = Phase.PENDING
            self._unreadable.add(row.id)
            self._ledger.refuse_writes(error)
        else:
            self._unreadable.discard(row.id)

    def _mark_starting(self, row: Row) -> bool:
        """Keep the job in memory while a process is being made; whether to ask for one now.

        The job's file stays as it is: it still says that the job is pending, and so the job is if
        the daemon dies now. The journal must have the job before its file is written for a process
        (docs/decisions/hand-over-without-flush.md).
        """
        body, job = self._store.newest(row.id)
        for op in job.ops:
            # A job that waited for dependencies waits no longer.
            if op.status is JobStatus.WAITING:
                op.status = JobStatus.QUEUED
        self._table.give_status(row, job.status)
        self._store.reader.waits.changed(row.id)
        # From now on the newest segment repeats the state, until the process writes the file.
        self._ledger.files.claim(row.id)
        if self._ledger.is_covered(row.id):
            self._starting[row.id] = body, job
            if self._ledger.in_memory(row.id) is None:
                self._ledger.note(row.id, job.serial, body)
            return True
        row.serial = job.advance_serial()
        body = jobs.encode_job(job)
        self._starting[row.id] = body, job
        self._ledger.store_state(
            (row.id, row.serial, body),
            functools.partial(self._start_marked, row),
            lambda _: self._unmark(row),
        )
        return False

    def _start_marked(self, row: Row) -> None:
        if row.phase is Phase.STARTING:
            self._ask_for_processes([(row.id, row.needs_user_opcodes)])

    def _ask_for_processes(self, starting: list[tuple[int, bool]]) -> None:
        found = ((job_id, self._starting.get(job_id)) for job_id, _ in starting)
        reusing = [job_id for job_id, one in found if one is not None and self._reuses(one[1])]
        self._runtime.tell(EXECUTOR, messages.StartJobs(jobs=starting, reusing=reusing))

    def _reuses(self, job: jobs.Job) -> bool:
        return self._may_reuse and reuses_process(job)

    def _unmark(self, row: Row) -> None:
        if row.phase is Phase.STARTING:
            row.phase = Phase.PENDING

    # ------------------------------------------------------------ the hand-over

    def hand_over(self, envelope: Envelope, message: messages.HandOverRequested) -> None:
        """Write the name of the child's lock file into the job file, then let the child go on.

        The file is not flushed here (docs/decisions/hand-over-without-flush.md): it survives
        the daemon, and after the loss of the machine no process lives that could have begun.
        """
        row = self._table.find(message.job_id)
        if row is not None and row.phase is Phase.HANDED_OVER:
            if row.lock_file == message.lock_file:
                # An executor or a queue that was replaced has lost the first confirmation.
                self._confirm(envelope, row, message)
            return
        if row is None or row.phase is not Phase.STARTING or self._ledger.is_read_only:
            self._refuse(row, message)
            return
        job = self._read_starting(row.id)
        if not self._ledger.is_covered(row.id):
            # The disk was tried again meanwhile: the newest segment does not have the job.
            self._refuse(row, message)
            self._announcements.pending([(row, job.judged_inputs)])
            return
        gate = self._gate.decide(job, row.chosen)
        if not gate.is_open:
            self._refuse(row, message)
            self._give_up(row, job, gate)
            return
        # This choice need not be looked at again.
        row.chosen = messages.ChosenUnder(gate.chain, row.chosen.limit)
        job.livelock = message.lock_file
        row.serial = job.advance_serial()
        self._ledger.note(row.id, row.serial, jobs.encode_job(job))
        if not self._ledger.files.write_state(row.id):
            self._refuse(row, message)
            return
        self._table.give_slot(row, Phase.HANDED_OVER)
        row.handed_serial = row.serial
        row.lock_file = message.lock_file
        row.process_id = message.process_id
        self._confirm(envelope, row, message, reuses=self._reuses(job))

    def _read_starting(self, job_id: int) -> jobs.Job:
        """The job as it was when its process was asked for, unless it has changed since."""
        body, job = self._starting.pop(job_id, (None, None))
        is_newest = job is not None and self._ledger.newest(job_id) is body
        return job if job is not None and is_newest else self._store.read(job_id)

    def _refuse(self, row: Row | None, message: messages.HandOverRequested) -> None:
        if row is not None and row.phase is Phase.STARTING:
            # The disk refuses: the job is offered again when it works.
            row.phase = Phase.PENDING
        refusal = messages.RefuseHandOver(job_id=message.job_id, lock_file=message.lock_file)
        self._runtime.tell(EXECUTOR, refusal)

    def _confirm(
        self,
        envelope: Envelope,
        row: Row,
        message: messages.HandOverRequested,
        *,
        reuses: bool = False,
    ) -> None:
        body = self._ledger.files.body(row.id)
        if body is None:
            return
        confirmed = messages.HandOverConfirmed(job_id=row.id, lock_file=message.lock_file)
        self._runtime.tell(EXECUTOR, confirmed)
        go = messages.JobGo(
            body=body if len(body) <= settings.JOB_BYTES_MAX else b"",
            spares=self._ledger.files.lend_spares(row.id),
            secrets=self._store.secrets_of(row.id),
            queue=self._queue_path,
            socket=self._socket_path,
            chosen=row.chosen,
            direct=self._direct,
            reuses=reuses,
        )
        envelope.reply(go)

    def _give_up(self, row: Row, job: jobs.Job, gate: messages.GateAnswered) -> None:
        """Take back a chosen job that must not start now, and has no process."""
        row.phase = Phase.PENDING
        if gate.is_rejected:
            self._store.end_pending(row.id, "rejected", gate.text)
        else:
            # The scheduler frees its run slot, and chooses anew.
            self._announcements.pending([(row, job.judged_inputs)])

    # ------------------------------------------------------------ choices taken back

    def _still_first(self, message: messages.JobsChosen) -> list[int]:
        """The chosen jobs without those that new priorities may put behind other jobs.

        These are announced again: the scheduler frees their run slots, and chooses anew when it
        knows the priorities.
        """
        moved = self._announcements.new_priorities(message.priorities)
        if not moved:
            return message.start
        first = min(map(_order, moved))
        moved_ids = {row.id for row in moved}
        rows = [row for row in map(self._table.find, message.start) if row is not None]
        passed = [
            row
            for row in rows
            if row.phase is Phase.PENDING and (row.id in moved_ids or _order(row) > first)
        ]
        if passed:
            self._announcements.pending((row, None) for row in passed)
        gone = {row.id for row in passed}
        return [job_id for job_id in message.start if job_id not in gone]

    def make_way(self, row: Row) -> None:
        """A pending job has a new priority: take back one choice behind it, without a process yet.

        The scheduler chooses anew between the two, and knows whether this one may start at all.
        """
        starting = [one for one in map(self._table.find, self._starting) if one is not None]
        behind = [
            one for one in starting if one.phase is Phase.STARTING and _order(one) > _order(row)
        ]
        if behind and row.status is JobStatus.QUEUED:
            self._unchoose([max(behind, key=_order)])

    def obey_limit(self, message: messages.LimitAcknowledged) -> None:
        """Take back surplus choices without a process, the last ones first.

        The report follows the flush of this turn, as with rules.
        """
        rows = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
        occupants = [row for row in rows if not row.status.is_final]
        starting = sorted((row for row in occupants if row.phase is Phase.STARTING), key=_order)
        stay = max(0, message.running_jobs_max - (len(occupants) - len(starting)))
        if beyond := starting[stay:]:
            self._unchoose(beyond)
        in_force = messages.LimitApplied(serial=message.serial)
        report = functools.partial(self._runtime.tell, CONFIG_STORE, in_force)
        self._ledger.after_commit(report, lambda _: report())

    def _unchoose(self, rows: list[Row]) -> None:
        """Give these no process; the scheduler hears that they are pending."""
        for row in rows:
            row.phase = Phase.PENDING
        self._announcements.pending((row, None) for row in rows)


def _order(row: Row) -> tuple[int, int]:
    """Where the scheduler looks at the job; smaller ones come first."""
    return row.priority, row.id
