"""How an operation on the configuration is carried out. Has no operation."""

from __future__ import annotations

from typing import Final

from ...cluster.configuration import Configuration
from ...cluster.damage import undamaged
from ...opcodes import LockNeeds, Opcode, OperationError
from ...wording import type_name
from .base import Circumstances, Outcome, check_locks_suffice, information
from .table import OPERATIONS

_OUTDATED: Final = "the configuration has changed since the locks were taken; retry the operation"
_DRY_RUN: Final = information("dry-run mode requested, not actually executing the operation")


def locks_of(opcode: Opcode, snapshot: Configuration, given: Circumstances) -> LockNeeds:
    """The locks that the opcode needs in this configuration. Raises what operations raise."""
    operation = OPERATIONS[opcode.op_id]
    return undamaged(snapshot, lambda: operation.locks(opcode, snapshot, given), _refusal)


def decided(opcode: Opcode, snapshot: Configuration, given: Circumstances) -> Outcome:
    """What the opcode does to this configuration, under the locks that its job holds.

    Refuses (wrong_state) if it needs other locks by now. A dry run checks everything, and changes
    nothing. Raises what operations raise.
    """
    operation = OPERATIONS[opcode.op_id]
    outcome = undamaged(
        snapshot, lambda: _sound(operation.decide(opcode, snapshot, given)), _refusal
    )
    # Few operations know better what has changed, and look at the locks themselves.
    needed = locks_of(opcode, snapshot, given)
    check_locks_suffice(given.held, needed, _OUTDATED)
    return Outcome(log=(_DRY_RUN,)) if opcode.dry_run else outcome


def _sound(outcome: Outcome) -> Outcome:
    """The outcome; `TypeError` if it changes an object whose own UUID is none."""
    for change in outcome.changes:
        if not isinstance(change.uuid, str):
            raise TypeError(f"{change.kind}: expected a UUID, got {type_name(change.uuid)}")
    return outcome


def _refusal(text: str) -> OperationError:
    return OperationError("ConfigurationError", text)
