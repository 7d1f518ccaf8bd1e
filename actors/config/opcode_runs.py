"""Carries out the opcodes that need nothing but the configuration, each once.

A job repeats its request when a component, the daemon or its link was replaced. The answer of an
opcode that changes something is stored with the change, in the journal and the history: so even a
successor of the daemon finds it. All other answers are kept while the store lives: they changed
nothing, so a successor may decide again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, opcodes, settings
from ...storage.cluster.objects import Kind
from ...storage.cluster.operations import table
from ...storage.cluster.operations.base import Circumstances, RefusedError
from ...storage.config_files import OpcodeAnswer
from ...storage.opcodes import LockNeeds, OperationError
from ...transport.messages import OpcodePrepared, OpcodeRan

if TYPE_CHECKING:
    from ...storage.cluster.configuration import Configuration
    from ...storage.cluster.operations.base import Outcome
    from ...transport.messages import OperationProblem, PrepareOpcode, RunOpcode
    from .stored_configuration import StoredConfiguration


def prepared(snapshot: Configuration, message: PrepareOpcode, now: float) -> OpcodePrepared:
    """The locks that the opcode needs now, or its error."""
    try:
        opcode = opcodes.parse(message.opcode)
        needs = table.locks_of(opcode, snapshot, Circumstances(message.new_uuid, now))
    except (OperationError, errors.BadRequestError) as error:
        return OpcodePrepared(locks={}, serial_no=snapshot.serial_no, error=problem_of(error))
    plain = msgspec.to_builtins(needs)
    return OpcodePrepared(locks=plain, serial_no=snapshot.serial_no)


def decided(snapshot: Configuration, message: RunOpcode, now: float) -> Outcome:
    """What the opcode does. Raises `OperationError` or `BadRequestError`: it changes nothing."""
    opcode = opcodes.parse(message.opcode)
    held = LockNeeds.of(message.locks)
    outcome = table.decided(opcode, snapshot, Circumstances(message.new_uuid, now, held))
    size = len(msgspec.json.encode([outcome.result, outcome.log]))
    if size > settings.OPCODE_ANSWER_BYTES_MAX:
        text = (
            f"{opcode.op_id}: the result has {size} bytes as JSON, "
            f"expected at most {settings.OPCODE_ANSWER_BYTES_MAX}"
        )
        raise OperationError("OpResultError", text)
    return outcome


def failed(error: OperationError | errors.BadRequestError) -> OpcodeRan:
    """The answer to an opcode that failed so."""
    log = list(error.log) if isinstance(error, RefusedError) else []
    return OpcodeRan(log=log, error=problem_of(error))


def problem_of(error: OperationError | errors.BadRequestError) -> OperationProblem:
    """The error as the opcode's result has it: its name in Ganeti, text and kind."""
    if isinstance(error, OperationError):
        return error.name, error.details
    kind = [error.error_code] if error.luxi_name == "OpPrereqError" else []
    return error.luxi_name, [error.text, *kind]


def new_run_slots(snapshot: Configuration, outcome: Outcome) -> int | None:
    """The number of run slots that the opcode sets; None if it leaves them as they are."""
    for change in outcome.changes:
        if change.kind is Kind.CLUSTER and change.object is not None:
            slots: int | None = change.object.get("max_running_jobs")
            return None if slots == snapshot.cluster.get("max_running_jobs") else slots
    return None


def entry_of(message: RunOpcode) -> tuple[str, str]:
    """Who changes the configuration, and why, as the history says it."""
    return f"job {message.job_id}", opcodes.summary(message.opcode)


def stored_form(message: RunOpcode, outcome: Outcome) -> OpcodeAnswer:
    """The answer as it is stored with the change."""
    return OpcodeAnswer(message.job_id, message.op_index, outcome.result, list(outcome.log))


class Answers:
    """The answers to the newest opcode of each job, of a store that began at this serial number."""

    def __init__(self, stored: StoredConfiguration) -> None:
        self._stored = stored
        self._complete_since = stored.snapshot.serial_no
        self._newest: dict[int, tuple[int, OpcodeRan]] = {}

    def find(self, message: RunOpcode) -> OpcodeRan | None:
        """The answer that the request has had already. Raises `StorageError`."""
        index, answer = self._newest.get(message.job_id, (-1, None))
        if index == message.op_index:
            return answer
        if message.since >= self._complete_since:
            return None
        found = self._stored.find_answer(message.job_id, message.op_index, message.since)
        return None if found is None else OpcodeRan(result=found.result, log=found.log)

    def keep(self, message: RunOpcode, answer: OpcodeRan) -> None:
        """Keep the answer to this request; the oldest ones go."""
        self._newest.pop(message.job_id, None)
        self._newest[message.job_id] = (message.op_index, answer)
        if len(self._newest) > settings.OPCODE_ANSWERS_MAX:
            self._newest.pop(next(iter(self._newest)))
            # What is not in memory any more is found in the history.
            self._complete_since = self._stored.snapshot.serial_no
