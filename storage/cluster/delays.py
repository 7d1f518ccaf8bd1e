"""The locks of ``OP_TEST_DELAY``, whose nodes the configuration knows by their UUIDs."""

from __future__ import annotations

import functools
from typing import Any

from ..opcodes import LockNeeds
from ..opcodes.catalogue import MASTER_NODE
from .configuration import Configuration
from .names import expanded
from .objects import ObjectKind


def locks(opcode: Any, configuration: Configuration) -> LockNeeds:  # noqa: ANN401 - an `OpTestDelay`
    """The locks that the opcode needs in this configuration."""
    needs: LockNeeds = opcode.lock_needs(functools.partial(uuid_of, configuration))
    return needs


def uuid_of(configuration: Configuration, name: str) -> str:
    """The UUID of the node, as Ganeti's locks have it.

    Ganeti refuses an unknown name. Here hosts may be used that the configuration does not know, and
    are locked by the names that are given.
    """
    if name == MASTER_NODE:
        return str(configuration.cluster.get("master_node") or name)
    if configuration.get(ObjectKind.NODE, name) is not None:
        return name
    found = expanded(configuration, ObjectKind.NODE, name)
    return name if found is None else str(found["uuid"])
