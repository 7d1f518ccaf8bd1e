"""What an operation on the configuration gets, and what it answers. Holds no operation."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ...cluster.configuration import Change, Configuration
from ...opcodes import LevelNeeds, LockNeeds, OperationError
from ...opcodes.declarations import NO_LOCKS, WHOLE_LEVEL

AnyOpcode: TypeAlias = Any
"""An opcode of a class that is made from the catalogue: its parameters are attributes."""


class Code(enum.StrEnum):
    """The second part of ``OpPrereqError``: what kind of prerequisite is not met, as in Ganeti."""

    UNRESOLVED = "resolver_error"
    NO_RESOURCES = "insufficient_resources"
    NO_RESOURCES_NOW = "temp_insufficient_resources"
    WRONG_INPUT = "wrong_input"
    WRONG_STATE = "wrong_state"
    UNKNOWN = "unknown_entity"
    EXISTS = "already_exists"
    NOT_UNIQUE = "resource_not_unique"
    INTERNAL = "internal_error"
    ENVIRONMENT = "environment_error"


class RefusedError(OperationError):
    """An operation failed, and the job log is to say more: ``log`` has the lines for it."""

    def __init__(self, name: str, *details: object, log: tuple[str, ...]) -> None:
        super().__init__(name, *details)
        self.log = log


def prerequisite_error(text: str, code: Code, *, log: tuple[str, ...] = ()) -> OperationError:
    """The error of an operation whose prerequisites are not met: nothing was changed."""
    return RefusedError("OpPrereqError", text, code.value, log=log)


def execution_error(text: str, *, log: tuple[str, ...] = ()) -> OperationError:
    """The error of an operation that failed although its prerequisites were met."""
    return RefusedError("OpExecError", text, log=log)


def warning(text: str) -> str:
    """A warning as the job log has it."""
    return f" - WARNING: {text}"


def information(text: str) -> str:
    """A line of information as the job log has it."""
    return f" - INFO: {text}"


class Circumstances(NamedTuple):
    """What a decision must not find out by itself.

    ``new_uuid`` is the same for every attempt of the same opcode of a job, so that the lock of an
    object and the object itself have one UUID. ``now``: seconds since the epoch. ``held`` are the
    locks that the job took, for `Operation.decide`: those that `Operation.locks` named before.
    ``known`` has what the configuration does not hold of the cluster, such as versions.
    """

    new_uuid: str
    now: float
    held: LockNeeds = NO_LOCKS
    known: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What an operation does: changes of the configuration, its result, and lines of the job log.

    ``result`` is JSON.
    """

    changes: tuple[Change, ...] = ()
    result: Any = None
    log: tuple[str, ...] = ()


class Operation(NamedTuple):
    """The two decisions of one kind of opcode. Both may raise `OperationError`.

    ``locks`` resolves names to UUIDs in the present snapshot. ``decide`` runs when the job holds
    these locks; it refuses if the configuration has changed so that other locks would be needed.
    """

    locks: Callable[[AnyOpcode, Configuration, Circumstances], LockNeeds]
    decide: Callable[[AnyOpcode, Configuration, Circumstances], Outcome]
    is_long: bool = False
    """It changes nothing, and takes long in a large configuration: a thread decides it."""
    writes_files: bool = False
    """It changes nothing; it ends when the files of the configuration are written anew."""
    needs_known: bool = False
    """Whether it needs `Circumstances.known`."""


def never_decided(opcode: AnyOpcode, _: Configuration, __: Circumstances) -> NoReturn:
    """In place of a decision: the job's process carries the opcode out, and the store locks it."""
    raise AssertionError(f"{opcode.op_id} does not run in the store")


def check_locks_suffice(held: LockNeeds, needed: LockNeeds, text: str) -> None:
    """Raise `OperationError` (wrong_state) with ``text`` unless ``held`` covers ``needed``."""
    if not locks_suffice(held, needed):
        raise prerequisite_error(text, Code.WRONG_STATE)


def locks_suffice(held: LockNeeds, needed: LockNeeds) -> bool:
    """Whether an owner of the locks ``held`` has everything that ``needed`` gives."""
    return all(
        _level_suffices(getattr(held, level), getattr(needed, level))
        for level in LockNeeds.__struct_fields__
    )


def _level_suffices(held: LevelNeeds, needed: LevelNeeds) -> bool:
    if WHOLE_LEVEL in held.exclusive:
        return True
    exclusive = set(held.exclusive)
    shares_all = WHOLE_LEVEL in held.shared or exclusive.union(held.shared) >= {*needed.shared}
    return shares_all and exclusive >= {*needed.exclusive}


Operations = dict[str, Operation]
"""The operations of one family, by the ids of their opcodes."""
