"""Which locks the opcodes of node groups and networks take. Source: as in `instance_locks`.

A new object has a UUID that is made when its job runs. No other job can name it, so it gets a name
here that no lock has: it conflicts with nothing but the whole level.
"""

from __future__ import annotations

from typing import Final

from ...prediction.declared_needs import MalformedError, Names, alone
from ...prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NOTHING,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    exclusive,
    forecast_of,
)
from .ganeti_input import GanetiInput, known, together, union

NEW: Final = "new:"
"""Begin of the names for locks of objects that do not exist yet."""


def _group(asked: GanetiInput) -> Names:
    return known([asked.group()])


def _new(asked: GanetiInput, field: str) -> LevelForecast:
    name = asked.text(field)
    if name is None:
        raise MalformedError(field)
    return exclusive([f"{NEW}{name}"])


def add_group(asked: GanetiInput) -> LockForecast:
    """The new group."""
    return forecast_of(nodegroup=_new(asked, "group_name"))


def group_alone(asked: GanetiInput) -> LockForecast:
    """The group."""
    return forecast_of(nodegroup=alone(_group(asked)))


def group_and_instances(asked: GanetiInput) -> LockForecast:
    """The group exclusively, its instances shared."""
    group = _group(asked)
    return forecast_of(nodegroup=alone(group), instance=together(asked.instances_of(group)))


def assign_nodes(asked: GanetiInput) -> LockForecast:
    """The group, the nodes and their groups; without a list all nodes."""
    listed = asked.texts("nodes")
    if not listed:
        return forecast_of(nodegroup=ALL_EXCLUSIVE, node=ALL_EXCLUSIVE)
    nodes = asked.nodes(listed)
    groups = union([_group(asked), asked.groups_of(nodes)])
    return forecast_of(nodegroup=alone(groups), node=alone(nodes))


def evacuate_group(asked: GanetiInput) -> LockForecast:
    """The group's instances, its targets or all groups, and the nodes of these; all are shared."""
    group = _group(asked)
    instances = asked.instances_of(group)
    targets = asked.texts("target_groups")
    if not targets:
        return forecast_of(instance=together(instances), nodegroup=ALL_SHARED, node=UNKNOWN_SHARED)
    groups, nodes = _with_instances(asked, union([group, asked.groups(targets)]), instances)
    return forecast_of(
        instance=together(instances), nodegroup=together(groups), node=together(nodes)
    )


def _with_instances(asked: GanetiInput, groups: Names, instances: Names) -> tuple[Names, Names]:
    """These groups and those of the instances; the nodes of both."""
    if asked.names is None or instances is None:
        return None, None
    nodes = union(map(asked.names.nodes_of_instance, instances))
    groups = union([groups, asked.groups_of(nodes)])
    return groups, union([nodes, asked.members_of(groups)])


def verify_group_disks(asked: GanetiInput) -> LockForecast:
    """The group's nodes, its instances with their groups and nodes, shared.

    A check that is not strict takes only what is free of the instances and nodes.
    """
    group = _group(asked)
    instances = asked.instances_of(group)
    groups, _ = _with_instances(asked, group, instances)
    nodes = _members_and_nodes(asked, group, instances)
    if not asked.flag("is_strict", default=True):
        instances = nodes = None
    return forecast_of(
        instance=together(instances), nodegroup=together(groups), node=together(nodes)
    )


def verify_disks(asked: GanetiInput) -> LockForecast:
    """The group, or all groups, shared."""
    return forecast_of(
        nodegroup=together(_group(asked)) if asked.text("group_name") else ALL_SHARED
    )


def verify_group(asked: GanetiInput) -> LockForecast:
    """The group, its nodes, the instances that run on them, and their second nodes, shared."""
    group = _group(asked)
    instances = _primaries(asked, group)
    nodes = _members_and_nodes(asked, group, instances)
    return forecast_of(
        instance=together(instances), nodegroup=together(group), node=together(nodes)
    )


def _primaries(asked: GanetiInput, group: Names) -> Names:
    """The instances whose primary node is in the group."""
    instances, members = asked.instances_of(group), asked.members_of(group)
    if asked.names is None or instances is None or members is None:
        return None
    return frozenset(name for name in instances if asked.names.primary_node(name) in members)


def _members_and_nodes(asked: GanetiInput, group: Names, instances: Names) -> Names:
    """The nodes of the group and of these instances."""
    if instances is None:
        return None
    return union([asked.members_of(group), *map(asked.nodes_of, instances)])


def add_network(asked: GanetiInput) -> LockForecast:
    """The new network; all nodes, shared, if their addresses are looked at."""
    node = ALL_SHARED if asked.flag("conflicts_check", default=True) else NOTHING
    return forecast_of(node=node, network=_new(asked, "network_name"))


def _network(asked: GanetiInput) -> Names:
    return known([asked.network()])


def remove_network(asked: GanetiInput) -> LockForecast:
    """The network; all groups, shared: none may have it."""
    return forecast_of(nodegroup=ALL_SHARED, network=alone(_network(asked)))


def network_alone(asked: GanetiInput) -> LockForecast:
    """The network."""
    return forecast_of(network=alone(_network(asked)))


def connect(asked: GanetiInput) -> LockForecast:
    """The group; its instances and the network, shared, if addresses are looked at."""
    if not asked.flag("conflicts_check", default=True):
        return group_alone(asked)
    both = group_and_instances(asked)
    return forecast_of(
        nodegroup=both.nodegroup, instance=both.instance, network=together(_network(asked))
    )


_NAME: Final = ("group_name",)
_NETWORK: Final = ("network_name",)

DECLARED: Final = {
    "OP_CLUSTER_VERIFY_DISKS": (verify_disks, _NAME),
    "OP_CLUSTER_VERIFY_GROUP": (verify_group, _NAME),
    "OP_GROUP_ADD": (add_group, _NAME),
    "OP_GROUP_ASSIGN_NODES": (assign_nodes, (*_NAME, "nodes")),
    "OP_GROUP_EVACUATE": (evacuate_group, (*_NAME, "target_groups")),
    "OP_GROUP_REMOVE": (group_alone, _NAME),
    "OP_GROUP_RENAME": (group_alone, _NAME),
    "OP_GROUP_SET_PARAMS": (group_and_instances, _NAME),
    "OP_GROUP_VERIFY_DISKS": (verify_group_disks, (*_NAME, "is_strict")),
    "OP_NETWORK_ADD": (add_network, (*_NETWORK, "conflicts_check")),
    "OP_NETWORK_CONNECT": (connect, (*_NAME, *_NETWORK, "conflicts_check")),
    "OP_NETWORK_DISCONNECT": (group_and_instances, _NAME),
    "OP_NETWORK_REMOVE": (remove_network, _NETWORK),
    "OP_NETWORK_RENAME": (network_alone, _NETWORK),
    "OP_NETWORK_SET_PARAMS": (network_alone, _NETWORK),
}
"""By opcode: its declaration, and the parameters that this reads."""
