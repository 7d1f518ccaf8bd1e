"""Gives chosen jobs to processes: `mark_starting`, then `hand_over` when the process asks.

A job's file belongs to the queue until the hand-over is confirmed; then it belongs to the process.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from ...storage import settings
from ...storage.jobs import jobs
from ...storage.jobs.jobs import JobStatus
from ...transport import messages
from ..runtime.addresses import EXECUTOR, NODE_HUB
from ..store.job_rows import Phase, Row
from .reusing import reuses_process

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..store.job_store import JobStore
    from ..store.start_gate import StartGate

_NODES = (b'"node"', b'"nodes"', b'"on_nodes":["')
"""What stands in the file of a job that may have nodes to run on."""


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
        self._hub = os.fspath(runtime.host.places.node_socket)
        self._may_reuse = runtime.host.reuses_processes
        self._starting: dict[int, tuple[bytes, jobs.Job]] = {}
        store.when_ended(self._forget)

    def _forget(self, row: Row) -> None:
        self._starting.pop(row.id, None)

    # ------------------------------------------------------------ starts

    def mark_starting(self, row: Row) -> bool:
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
        if self._ledger.segments.is_covered(row.id):
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
            self.ask_for_processes([(row.id, row.needs_user_opcodes)])

    def ask_for_processes(self, starting: list[tuple[int, bool]]) -> None:
        """Let the executor start these: ids, and whether the job needs opcodes of users."""
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
        if not self._ledger.segments.is_covered(row.id):
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
            direct=self._direct_for(row, body),
            reuses=reuses,
        )
        envelope.reply(go)

    def _direct_for(self, row: Row, body: bytes) -> dict[str, str]:
        """The sockets of the components that the job's process asks directly.

        The hub is among them if the job may have nodes, and the hub lives; else the daemon answers.
        """
        may_have_nodes = row.needs_user_opcodes or any(one in body for one in _NODES)
        if not (may_have_nodes and os.path.exists(self._hub)):  # noqa: PTH110 - pathlib is slow
            return self._direct
        return self._direct | {NODE_HUB.name: self._hub}

    def _give_up(self, row: Row, job: jobs.Job, gate: messages.GateAnswered) -> None:
        """Take back a chosen job that must not start now, and has no process."""
        row.phase = Phase.PENDING
        if gate.is_rejected:
            self._store.end_pending(row.id, "rejected", gate.text)
        else:
            # The scheduler frees its run slot, and chooses anew.
            self._announcements.pending([(row, job.judged_inputs)])
