"""Which locks an opcode needs that the configuration store locks.

The store knows them for Ganger's own; parts know them for what they bring (`installed_parts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, opcodes
from ...storage.cluster import delays
from ...storage.cluster.damage import undamaged
from ...storage.cluster.lock_names import LockNames, table_of
from ...storage.opcodes import LockNeeds, OperationError
from ...storage.opcodes.catalogue import OpTestDelay
from ...transport.messages import OpcodePrepared, OpcodeWait, ReadOpcodeWait

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.cluster.configuration import Configuration
    from ...storage.opcodes import Opcode
    from ...transport.messages import OperationProblem, PlainLocks, PrepareOpcode


def answered(
    snapshot: Configuration, message: PrepareOpcode | ReadOpcodeWait
) -> OpcodePrepared | OpcodeWait:
    """The answer of a store without parts, which carries no opcodes out: so none waits."""
    if isinstance(message, ReadOpcodeWait):
        return OpcodeWait()
    return prepared(snapshot, message, lambda opcode: _locks_of_own(opcode, snapshot))


def prepared(
    snapshot: Configuration, message: PrepareOpcode, locks_of: Callable[[Opcode], LockNeeds]
) -> OpcodePrepared:
    """The locks that the opcode needs now, or its error."""
    try:
        needs = locks_of(opcodes.parse(message.opcode))
    except (OperationError, errors.BadRequestError) as error:
        return OpcodePrepared(locks={}, serial_no=snapshot.serial_no, error=problem_of(error))
    plain = msgspec.to_builtins(needs)
    return OpcodePrepared(locks=plain, serial_no=snapshot.serial_no)


def named(snapshot: Configuration, plain: PlainLocks) -> OpcodePrepared:
    """These locks, as Ganeti's opcodes call them."""
    needs = LockNeeds.of(plain)
    uuids = LockNames(table_of(snapshot)).uuids(needs.named())
    locks = msgspec.to_builtins(needs.renamed(uuids))
    return OpcodePrepared(locks=locks, serial_no=snapshot.serial_no)


def _locks_of_own(opcode: Opcode, snapshot: Configuration) -> LockNeeds:
    """The locks of one of Ganger's own opcodes. Raises `OperationError` or `BadRequestError`."""
    if not isinstance(opcode, OpTestDelay):
        raise errors.BadRequestError(f"{opcode.op_id}: no installed package knows its locks")
    return undamaged(snapshot, lambda: delays.locks(opcode, snapshot), _refusal)


def _refusal(text: str) -> OperationError:
    return OperationError("ConfigurationError", text)


def problem_of(error: OperationError | errors.BadRequestError) -> OperationProblem:
    """The error as the opcode's result has it: its name in Ganeti, text and kind."""
    if isinstance(error, OperationError):
        return error.name, error.details
    kind = [error.error_code] if error.luxi_name == "OpPrereqError" else []
    return error.luxi_name, [error.text, *kind]
