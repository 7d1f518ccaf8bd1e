"""All operations on the configuration, and how one of them is carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ...opcodes import LockNeeds, Opcode, OperationError
from ...wording import type_name
from ..configuration import Configuration
from ..integrity import problems
from . import cluster, groups, networks, tags
from .base import (
    Circumstances,
    Operations,
    Outcome,
    check_locks_suffice,
    information,
)

OPERATIONS: Final[Operations] = {
    **cluster.OPERATIONS,
    **groups.OPERATIONS,
    **networks.OPERATIONS,
    **tags.OPERATIONS,
}
"""The operations by the ids of their opcodes; those of queries are in `storage/queries`."""

_Answer = TypeVar("_Answer")

_OUTDATED: Final = "the configuration has changed since the locks were taken; retry the operation"
_DRY_RUN: Final = information("dry-run mode requested, not actually executing the operation")


def locks_of(
    opcode: Opcode,
    snapshot: Configuration,
    given: Circumstances,
    operations: Operations = OPERATIONS,
) -> LockNeeds:
    """The locks that the opcode needs in this configuration. Raises what operations raise."""
    operation = operations[opcode.op_id]
    return _undamaged(snapshot, lambda: operation.locks(opcode, snapshot, given))


def decided(
    opcode: Opcode,
    snapshot: Configuration,
    given: Circumstances,
    operations: Operations = OPERATIONS,
) -> Outcome:
    """What the opcode does to this configuration, under the locks that its job holds.

    Refuses (wrong_state) if it needs other locks by now. A dry run checks everything, and changes
    nothing. Raises what operations raise.
    """
    operation = operations[opcode.op_id]
    outcome = _undamaged(snapshot, lambda: _sound(operation.decide(opcode, snapshot, given)))
    # Few operations know better what has changed, and look at the locks themselves.
    needed = locks_of(opcode, snapshot, given, operations)
    check_locks_suffice(given.held, needed, _OUTDATED)
    return Outcome(log=(_DRY_RUN,)) if opcode.dry_run else outcome


def _sound(outcome: Outcome) -> Outcome:
    """The outcome; `TypeError` if it changes an object whose own UUID is none."""
    for change in outcome.changes:
        if not isinstance(change.uuid, str):
            raise TypeError(f"{change.kind}: expected a UUID, got {type_name(change.uuid)}")
    return outcome


def _undamaged(snapshot: Configuration, decide: Callable[[], _Answer]) -> _Answer:
    """The answer; `OperationError` if a damaged configuration stands in its way.

    Operations rely on the types of all objects, but the store serves a configuration with wrong
    ones, too, so that it can be repaired.
    """
    try:
        return decide()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        found = problems(snapshot)
        if not found:
            raise
        text = f"the configuration is damaged: {found[0]}"
        raise OperationError("ConfigurationError", text) from error
