"""Opcodes that the configuration store carries out, as the job's process asks for them.

The process asks which locks the opcode needs, takes them as for any other, and then asks the store
to carry it out. Both requests are repeated until there is an answer, also from a successor of the
daemon; the store carries nothing out twice.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...storage.opcodes import LockNeeds, OperationError, catalogue
from ...transport import messages

if TYPE_CHECKING:
    from ...storage.opcodes import OperationContext
    from ...transport.messages import Message
    from .conversation import Conversation
    from .running_job import RunningJob


_UUID_LEVELS = frozenset({"node", "node-res", "nodegroup", "network"})
"""The levels on which Ganeti's opcodes lock by UUID."""


class Await(Protocol):
    """Waits for the reply to the request of this number, until the job is canceled if it may be."""

    def __call__(self, number: int, *, is_cancelable: bool = True) -> Message: ...


class StoreOperations:
    """Speaks to the configuration store for the opcode whose turn it is."""

    def __init__(self, running: RunningJob, daemon: Conversation, wait: Await) -> None:
        self._running = running
        self._daemon = daemon
        self._await = wait
        self._prepared: messages.OpcodePrepared | None = None

    def prepare(self) -> LockNeeds:
        """The locks that the opcode needs. Raises `OperationError` if it cannot run."""
        answer = self._await(self._daemon.send(messages.PrepareOpcode(**self._fields())))
        assert isinstance(answer, messages.OpcodePrepared)
        _raise(answer.error)
        self._prepared = answer
        return LockNeeds.of(answer.locks)

    def named(self, needs: LockNeeds) -> LockNeeds:
        """These locks, as Ganeti's opcodes call them."""
        if not any(level in _UUID_LEVELS for level, _ in needs.named()):
            return needs
        plain = msgspec.to_builtins(needs)
        request = messages.NameLocks(job_id=self._running.job.id, locks=plain)
        answer = self._await(self._daemon.send(request))
        assert isinstance(answer, messages.OpcodePrepared)
        return LockNeeds.of(answer.locks)

    def run(self, context: OperationContext) -> object:
        """Carry the opcode out, log what it says, and return its result. Raises `OperationError`.

        The opcode runs: so a cancellation does not end the wait.
        """
        assert self._prepared is not None
        prepared, self._prepared = self._prepared, None
        request = messages.RunOpcode(
            **self._fields(),
            locks=prepared.locks,
            since=prepared.serial_no,
            lock_file=self._running.owner.lock_file,
        )
        answer = self._await(self._daemon.send(request), is_cancelable=False)
        assert isinstance(answer, messages.OpcodeRan)
        context.log_lines(answer.log)
        _raise(answer.error)
        return answer.result

    def _fields(self) -> dict[str, Any]:
        return {
            "job_id": self._running.job.id,
            "op_index": self._running.index,
            "opcode": self._running.op.input,
            "new_uuid": self._new_uuid(),
        }

    def _new_uuid(self) -> str:
        """For an object that the opcode makes; the same whenever this process asks."""
        declared = catalogue.find(str(self._running.op.input.get("OP_ID")))
        if declared is None or not declared.runs_in_store:
            # It makes none, and would cost the library that makes them.
            return ""
        place = f"{self._running.owner.lock_file}/{self._running.index}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, place))


def _raise(problem: messages.OperationProblem | None) -> None:
    if problem is not None:
        name, details = problem
        raise OperationError(name, *details)
