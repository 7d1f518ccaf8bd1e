"""Which locks the opcodes of the cluster, of tags and of queries take.

Source: as in `instance_locks`.
"""

from __future__ import annotations

import contextlib
from typing import Final

from ... import errors
from ...opcodes import OperationError, parse
from ...prediction.declared_needs import MalformedError, Names, alone
from ...prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NO_LOCKS,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    forecast_of,
)
from ...prediction.needs import forecast_of_needs
from ..operations.base import Circumstances
from ..queries.query_locks import QUERY
from .ganeti_input import BIG_LOCK, GanetiInput, known, together


def nothing(_asked: GanetiInput) -> LockForecast:
    """No lock."""
    return NO_LOCKS


def everything(_asked: GanetiInput) -> LockForecast:
    """The big lock: no other job has any lock meanwhile."""
    return BIG_LOCK


def all_nodes(_asked: GanetiInput) -> LockForecast:
    """All nodes."""
    return forecast_of(node=ALL_EXCLUSIVE)


def all_nodes_shared(_asked: GanetiInput) -> LockForecast:
    """All nodes, shared."""
    return forecast_of(node=ALL_SHARED)


def set_parameters(_asked: GanetiInput) -> LockForecast:
    """All instances, groups and nodes, shared."""
    return forecast_of(instance=ALL_SHARED, nodegroup=ALL_SHARED, node=ALL_SHARED)


def verify(_asked: GanetiInput) -> LockForecast:
    """Everything, shared."""
    return forecast_of(
        instance=ALL_SHARED, nodegroup=ALL_SHARED, node=ALL_SHARED, node_res=ALL_SHARED,
        network=ALL_SHARED,
    )  # fmt: skip


# ---------------------------------------------------------------- tags


def _tagged(asked: GanetiInput) -> tuple[str, Names] | None:
    """The level and the name of the object with the tags; None: the cluster, which has no lock."""
    kind, name = asked.text("kind"), asked.text("name") or ""
    if kind == "cluster":
        return None
    names = asked.names
    match kind:
        case "instance":
            found = names.instance(name) if names is not None else None
        case "node":
            found = names.node(name) if names is not None else None
        case "nodegroup":
            found = names.group(name) if names is not None else None
        case "network":
            found = names.network(name) if names is not None else None
        case _:
            raise MalformedError("kind")
    return kind, known([found])


def _at(level: str, forecast: LevelForecast) -> LockForecast:
    return forecast_of(**{level: forecast})


def change_tags(asked: GanetiInput) -> LockForecast:
    """The object with the tags."""
    tagged = _tagged(asked)
    return NO_LOCKS if tagged is None else _at(tagged[0], alone(tagged[1]))


def read_tags(asked: GanetiInput) -> LockForecast:
    """The object with the tags, shared, if the reader wants locks."""
    tagged = _tagged(asked)
    if tagged is None or not asked.flag("use_locking"):
        return NO_LOCKS
    return _at(tagged[0], together(tagged[1]))


# ---------------------------------------------------------------- queries


def query(asked: GanetiInput) -> LockForecast:
    """The items, shared, if the reader wants locks and fields that only nodes know."""
    what = asked.text("what")
    if not asked.flag("use_locking") or what not in {"node", "instance"}:
        return NO_LOCKS
    if asked.snapshot is not None:
        with contextlib.suppress(OperationError, errors.BadRequestError):
            snapshot = asked.snapshot.configuration
            needs = QUERY.locks(parse(asked.parameters), snapshot, Circumstances("", 0.0))
            return forecast_of_needs(needs)
    if what == "node":
        return forecast_of(node=UNKNOWN_SHARED)
    return forecast_of(
        instance=UNKNOWN_SHARED, nodegroup=UNKNOWN_SHARED, node=UNKNOWN_SHARED,
        network=UNKNOWN_SHARED,
    )  # fmt: skip


_UNLOCKED: Final = (
    "OP_CLUSTER_CONFIG_QUERY",
    "OP_CLUSTER_QUERY",
    "OP_CLUSTER_VERIFY",
    "OP_EXT_STORAGE_DIAGNOSE",
    "OP_NODE_POWERCYCLE",
    "OP_OS_DIAGNOSE",
    "OP_QUERY_FIELDS",
    "OP_TAGS_SEARCH",
    "OP_TEST_DUMMY",
    "OP_TEST_OS_PARAMS",
)
_OF_EVERYTHING: Final = (
    "OP_CLUSTER_ACTIVATE_MASTER_IP",
    "OP_CLUSTER_DEACTIVATE_MASTER_IP",
    "OP_CLUSTER_DESTROY",
    "OP_CLUSTER_POST_INIT",
    "OP_CLUSTER_RENAME",
    "OP_NODE_ADD",
    "OP_NODE_REMOVE",
    "OP_TEST_ALLOCATOR",
)
_TAGS: Final = ("kind", "name", "use_locking")

DECLARED: Final = {
    **dict.fromkeys(_UNLOCKED, (nothing, ())),
    **dict.fromkeys(_OF_EVERYTHING, (everything, ())),
    "OP_BACKUP_REMOVE": (all_nodes, ()),
    "OP_CLUSTER_REDIST_CONF": (all_nodes_shared, ()),
    "OP_CLUSTER_RENEW_CRYPTO": (all_nodes, ()),
    "OP_CLUSTER_SET_PARAMS": (set_parameters, ()),
    "OP_CLUSTER_VERIFY_CONFIG": (verify, ()),
    "OP_QUERY": (query, ("what", "use_locking", "fields", "qfilter")),
    "OP_TAGS_DEL": (change_tags, _TAGS),
    "OP_TAGS_GET": (read_tags, _TAGS),
    "OP_TAGS_SET": (change_tags, _TAGS),
}
"""By opcode: its declaration, and the parameters that this reads."""
