"""Which locks Ganger's own opcodes take: what the opcode itself declares."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .. import errors
from ..cluster.delays import uuid_of
from ..cluster.objects import ObjectKind
from ..opcodes import LockNeeds
from ..opcodes.catalogue import MASTER_NODE
from ..opcodes.fields import locks_on_nodes
from .declared_needs import MalformedError, OpcodeInput, alone
from .lock_types import NO_LOCKS, UNKNOWN_EXCLUSIVE, LockForecast, forecast_of
from .needs import forecast_of_needs


def command(asked: OpcodeInput) -> LockForecast:
    """The locks that the submitter declared, and the node where it runs."""
    plain, uuids = asked.parameters.get("locks"), asked.parameters.get("lock_uuids") or {}
    node = asked.text("node")
    nodes = asked.texts("nodes") if node is None else [node]
    if not isinstance(uuids, dict):
        raise MalformedError("lock_uuids")
    if nodes or uuids:
        needs = plain if isinstance(plain, LockNeeds) else _needs(plain)
        return forecast_of_needs(locks_on_nodes(needs, nodes, uuids))
    if not plain:
        return NO_LOCKS
    if isinstance(plain, LockNeeds):
        return forecast_of_needs(plain)
    try:
        written = msgspec.json.encode(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedError("locks") from error
    return _known(written) if len(written) <= _WRITTEN_BYTES_MAX else _of_written(written)


def _needs(plain: object) -> LockNeeds:
    try:
        return LockNeeds.of(plain or {})  # type: ignore[arg-type]
    except (errors.OpcodeError, ValueError) as error:
        raise MalformedError("locks") from error


def _of_written(written: bytes) -> LockForecast:
    try:
        return forecast_of_needs(LockNeeds.of(msgspec.json.decode(written)))
    except (errors.OpcodeError, msgspec.DecodeError) as error:
        raise MalformedError("locks") from error


# Many jobs declare the same locks, one after the other.
_known = functools.lru_cache(maxsize=4_096)(_of_written)
_WRITTEN_BYTES_MAX: Final = 1_024


def on_nodes(asked: OpcodeInput) -> LockForecast:
    """The nodes where it runs, shared."""
    node, uuids = asked.text("node"), asked.parameters.get("lock_uuids") or {}
    if not isinstance(uuids, dict):
        raise MalformedError("lock_uuids")
    nodes = asked.texts("nodes") if node is None else [node]
    return forecast_of_needs(locks_on_nodes(LockNeeds(), nodes, uuids))


def test_delay(asked: OpcodeInput) -> LockForecast:
    """The nodes, and the master node; those that the configuration does not know by their names."""
    nodes = set(asked.texts("on_nodes") or asked.texts("on_node_uuids"))
    if asked.flag("on_master", default=True):
        nodes.add(MASTER_NODE)
    if "" in nodes:
        raise MalformedError("on_nodes")
    if not nodes:
        return NO_LOCKS
    if asked.snapshot is None:
        return forecast_of(node=UNKNOWN_EXCLUSIVE)
    configuration = asked.snapshot.configuration
    return forecast_of(node=alone(frozenset(uuid_of(configuration, name) for name in nodes)))


DECLARED: Final = {
    "OP_EXEC": (command, ()),
    "OP_NODE_CALL": (on_nodes, ("node", "nodes", "lock_uuids")),
    "OP_NODE_COPY": (on_nodes, ("node", "nodes", "lock_uuids")),
    "OP_TEST_DELAY": (test_delay, ("on_nodes", "on_node_uuids", "on_master")),
}
"""By opcode: its declaration, and the parameters that this reads."""

_READ: Final = {ObjectKind.CLUSTER: ("master_node",), ObjectKind.NODE: ("uuid", "name")}


def read(kind: ObjectKind, found: Mapping[str, Any]) -> object:
    """What the declarations read of an object."""
    return [found.get(field) for field in _READ.get(kind, ())]
