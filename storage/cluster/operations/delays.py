"""The locks of ``OP_TEST_DELAY``, whose nodes the configuration knows by their UUIDs."""

from __future__ import annotations

import functools
from typing import Final, NoReturn

from ...opcodes import LockNeeds, OperationError
from ...opcodes.catalogue import MASTER_NODE
from ..configuration import Configuration
from ..objects import ObjectKind
from .base import AnyOpcode, Circumstances, Operation, Operations
from .lookups import find_node


def _locks(opcode: AnyOpcode, configuration: Configuration, _: Circumstances) -> LockNeeds:
    needs: LockNeeds = opcode.lock_needs(functools.partial(_uuid_of, configuration))
    return needs


def _uuid_of(configuration: Configuration, name: str) -> str:
    """The UUID of the node, as Ganeti's locks have it.

    Ganeti refuses an unknown name. Here hosts may be used that the configuration does not know, and
    are locked by the names that are given.
    """
    if name == MASTER_NODE:
        return str(configuration.cluster.get("master_node") or name)
    if configuration.get(ObjectKind.NODE, name) is not None:
        return name
    try:
        return str(find_node(configuration, name)["uuid"])
    except OperationError:
        return name


def _refuse(opcode: AnyOpcode, _: Configuration, __: Circumstances) -> NoReturn:
    raise AssertionError(f"{opcode.op_id} does not run in the store")


OPERATIONS: Final[Operations] = {"OP_TEST_DELAY": Operation(_locks, _refuse)}
