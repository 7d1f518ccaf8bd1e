"""Which locks the opcodes of nodes take. Source: as in `instance_locks`."""

from __future__ import annotations

from typing import Final

from ...prediction.declared_needs import Names, alone
from ...prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NOTHING,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    forecast_of,
)
from .ganeti_input import GanetiInput, known, together, union


def _node(asked: GanetiInput) -> Names:
    return known([asked.node("node_name")])


def node_alone(asked: GanetiInput) -> LockForecast:
    """The node."""
    return forecast_of(node=alone(_node(asked)))


def node_shared(asked: GanetiInput) -> LockForecast:
    """The node, shared."""
    return forecast_of(node=together(_node(asked)))


def evacuate(asked: GanetiInput) -> LockForecast:
    """The node with its target, or with its whole group for an allocator; everything is shared.

    Which instances go is known when the job runs: others may come before.
    """
    nodes = _node(asked)
    if asked.has_node("remote_node"):
        nodes = union([nodes, known([asked.node("remote_node")])])
        groups = asked.groups_of(nodes)
    else:
        groups = asked.groups_of(nodes)
        nodes = union([nodes, asked.members_of(groups)])
    return forecast_of(instance=UNKNOWN_SHARED, nodegroup=together(groups), node=together(nodes))


def listed_or_all_shared(asked: GanetiInput) -> LockForecast:
    """The listed nodes, shared; without a list all of them."""
    listed = asked.texts("nodes")
    return forecast_of(node=together(asked.nodes(listed)) if listed else ALL_SHARED)


def set_parameters(asked: GanetiInput) -> LockForecast:
    """The node and its storage; all nodes if others may be promoted in its place.

    A new secondary address needs the mirrored instances of the node, shared.
    """
    may_demote = (
        asked.flag("offline")
        or asked.flag("drained")
        or asked.flag("master_candidate", None) is False
        or asked.flag("master_capable", None) is False
    )
    is_all = may_demote and asked.flag("auto_promote")
    level: LevelForecast = ALL_EXCLUSIVE if is_all else alone(_node(asked))
    instance = UNKNOWN_SHARED if asked.text("secondary_ip") else NOTHING
    return forecast_of(instance=instance, node=level, node_res=level)


def command_out_of_band(asked: GanetiInput) -> LockForecast:
    """The listed nodes; without a list all of them."""
    listed = asked.texts("node_uuids") or asked.texts("node_names")
    return forecast_of(node=alone(asked.nodes(listed)) if listed else ALL_EXCLUSIVE)


def restricted_command(asked: GanetiInput) -> LockForecast:
    """The listed nodes: exclusively with ``use_locking``, else shared."""
    nodes = asked.nodes(asked.texts("node_uuids") or asked.texts("nodes"))
    return forecast_of(node=alone(nodes) if asked.flag("use_locking") else together(nodes))


def master_node(asked: GanetiInput) -> LockForecast:
    """The master node."""
    master = None if asked.names is None else asked.names.master_node()
    return forecast_of(node=alone(known([master])))


_NAME: Final = ("node_name", "node_uuid")

DECLARED: Final = {
    "OP_NODE_EVACUATE": (evacuate, (*_NAME, "remote_node", "remote_node_uuid")),
    "OP_NODE_MIGRATE": (node_shared, _NAME),
    "OP_NODE_MODIFY_STORAGE": (node_alone, _NAME),
    "OP_NODE_QUERYVOLS": (listed_or_all_shared, ("nodes",)),
    "OP_NODE_QUERY_STORAGE": (listed_or_all_shared, ("nodes",)),
    "OP_NODE_SET_PARAMS": (
        set_parameters,
        (
            *(*_NAME, "auto_promote", "drained", "master_candidate", "master_capable", "offline"),
            "secondary_ip",
        ),
    ),
    "OP_OOB_COMMAND": (command_out_of_band, ("node_names", "node_uuids")),
    "OP_REPAIR_NODE_STORAGE": (node_alone, _NAME),
    "OP_RESTRICTED_COMMAND": (restricted_command, ("nodes", "node_uuids", "use_locking")),
    "OP_TEST_JQUEUE": (master_node, ()),
}
"""By opcode: its declaration, and the parameters that this reads."""
