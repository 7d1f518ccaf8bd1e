"""The run times of opcodes: the queue learns them as jobs end, and sends what a plan needs.

They lie in a small file that is written now and then: losing it costs estimates, nothing else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, settings
from ...storage.disk import documents
from ...storage.jobs.jobs import JobStatus, Timestamp, seconds
from ...storage.prediction.estimates import Estimates, key_of
from ...transport import messages
from ..runtime.addresses import FILTER_EVALUATOR
from ..store.job_rows import Phase

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..store.job_rows import Row
    from ..store.job_store import JobStore


class _Input(msgspec.Struct):
    """What tells the kind of an opcode; its other parameters are passed over."""

    OP_ID: Any = None
    argv: Any = None


class _Opcode(msgspec.Struct):
    input: _Input
    status: str
    exec_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None


class _Job(msgspec.Struct):
    ops: list[_Opcode]


_decoder = msgspec.json.Decoder(_Job)


class Estimating:
    """Keeps the estimates of run times."""

    def __init__(self, runtime: Runtime, store: JobStore) -> None:
        self._runtime = runtime
        self._store = store
        self._path = runtime.host.places.estimates
        self._is_write_due = False
        self.estimates = self._load()

    def _load(self) -> Estimates:
        try:
            data = documents.read(self._path)
            return Estimates() if data is None else Estimates.decode(data)
        except errors.StorageError as error:
            self._runtime.log.warning("estimates are started afresh", error=error.text)
            return Estimates()

    def learn(self, body: bytes | None) -> None:
        """Take in the run times of a job that has ended in success, from the text of its file.

        A process that flushes its own file sends no text: then nothing is learnt.
        """
        if body is None or len(body) > settings.LEARNT_BODY_BYTES_MAX:
            return
        try:
            job = _decoder.decode(body)
        except msgspec.DecodeError:
            # Another program may write what we cannot read.
            return
        has_learnt = False
        for op in job.ops:
            began, ended = seconds(op.exec_timestamp), seconds(op.end_timestamp)
            if op.status == JobStatus.SUCCESS and began is not None and ended is not None:
                key = key_of({"OP_ID": op.input.OP_ID, "argv": op.input.argv})
                self.estimates.learn(key, ended - began)
                has_learnt = True
        if has_learnt and not self._is_write_due:
            self._is_write_due = True
            self._runtime.later(settings.ESTIMATES_WRITE_SECONDS, messages.StoreEstimates())

    def store(self) -> None:
        """Write what was learnt, unless nothing was."""
        if not self._is_write_due:
            return
        self._is_write_due = False
        try:
            documents.replace(self._path, self.estimates.encode(), flush=False)
        except errors.StorageError as error:
            self._runtime.log.warning("estimates are not written", error=error.text)

    def read_plan(self, envelope: Envelope, message: messages.ReadPlan) -> None:
        """Answer with what a plan needs: the scheduler knows the order.

        It is asked on the way that new jobs take, so that it knows those, too.
        """
        limit = settings.PLANNED_JOBS_MAX
        if message.limit is not None:
            limit = min(limit, message.limit)
        asked = message.causes_of
        if len(asked) > settings.CAUSES_MAX:
            text = f"causes_of: expected at most {settings.CAUSES_MAX}, got {len(asked)}"
            raise errors.BadRequestError(text)
        order = messages.ReportOrder(limit=limit, has_causes=message.has_causes, causes_of=asked)
        answer = functools.partial(self._answer, envelope, message)
        self._runtime.ask(FILTER_EVALUATOR, order, answer, envelope.refuse, envelope.deadline)

    def _waiting(self, order: messages.OrderReported) -> dict[str, int]:
        """For what the pending jobs wait, and how many wait for locks with a process."""
        rows = self._store.table.in_phase(Phase.HANDED_OVER)
        with_process = sum(row.status is JobStatus.WAITING for row in rows)
        return {**order.waiting, **({"process": with_process} if with_process else {})}

    def _causes(self, order: messages.OrderReported) -> dict[int, tuple[str, str]]:
        """For what the jobs wait that were asked for: a full disk holds all of them."""
        if self._store.ledger.takes_work:
            return order.causes
        return dict.fromkeys(order.causes, ("disk", ""))

    def _answer(
        self, envelope: Envelope, message: messages.ReadPlan, order: messages.OrderReported
    ) -> None:
        now = self._runtime.wall_clock()
        find = self._store.table.find
        works: dict[tuple[str, ...], int] = {}
        running = [
            (row.id, works.setdefault(row.work, len(works)), _elapsed(row, now))
            for job_id in order.running
            if (row := find(job_id)) is not None and row.phase is not Phase.ENDED
        ]
        pending = [
            (job_id, works.setdefault(row.work, len(works)), depends, is_held)
            for job_id, depends, is_held in order.pending
            if (row := find(job_id)) is not None
        ]
        usual = self.estimates.usual()
        envelope.reply(
            messages.PlanRead(
                now=now,
                slots=order.slots,
                works=[self.estimates.of(work) for work in works],
                running=running,
                pending=pending,
                count=order.count,
                usual=None if usual is None else usual.typical,
                accuracy=self.estimates.accuracy(),
                locks=order.locks,
                lock_sets=order.lock_sets,
                standing=order.standing,
                holds_back=order.holds_back,
                waiting=self._waiting(order) if message.has_causes else {},
                causes=self._causes(order),
            )
        )


def _elapsed(row: Row, now: float) -> float:
    """How long its opcodes have been running; 0 before the first one runs."""
    if row.status is not JobStatus.RUNNING or row.started is None:
        return 0.0
    return max(0.0, now - row.started)
