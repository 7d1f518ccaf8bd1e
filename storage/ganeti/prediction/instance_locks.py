"""Which locks the opcodes of instances take.

Source: the locks that Ganeti 3's logical units request, where the static map of Ganeti 2.18 says
less or something else; `docs/lock-forecasts.md` lists the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...prediction.declared_needs import MalformedError, Names, alone
from ...prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NO_LOCKS,
    NOTHING,
    UNKNOWN_EXCLUSIVE,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    exclusive,
    forecast_of,
)
from .ganeti_input import GanetiInput, known, together, union


def _instance(asked: GanetiInput) -> LevelForecast:
    return alone(known([asked.instance()]))


def _own_nodes(asked: GanetiInput) -> Names:
    return asked.nodes_of(asked.instance())


def only_instance(asked: GanetiInput) -> LockForecast:
    """The instance."""
    return forecast_of(instance=_instance(asked))


def shared_instance(asked: GanetiInput) -> LockForecast:
    """The instance, shared."""
    return forecast_of(instance=together(known([asked.instance()])))


def instance_and_nodes(asked: GanetiInput) -> LockForecast:
    """The instance and its nodes."""
    return forecast_of(instance=_instance(asked), node=alone(_own_nodes(asked)))


def instance_and_storage(asked: GanetiInput) -> LockForecast:
    """The instance, its nodes and their storage."""
    nodes = alone(_own_nodes(asked))
    return forecast_of(instance=_instance(asked), node=nodes, node_res=nodes)


def _primary(asked: GanetiInput) -> Names:
    instance = asked.instance()
    if instance is None or asked.names is None:
        return None
    return known([asked.names.primary_node(instance)])


def start(asked: GanetiInput) -> LockForecast:
    """The instance and the storage of its primary node."""
    return forecast_of(instance=_instance(asked), node_res=alone(_primary(asked)))


def export(asked: GanetiInput) -> LockForecast:
    """The instance; all nodes, or for another cluster the primary one, if it writes zeros."""
    node = ALL_EXCLUSIVE
    if asked.text("mode") == "remote":
        node = alone(_primary(asked)) if asked.flag("zero_free_space") else NOTHING
    return forecast_of(instance=_instance(asked), node=node)


def change_group(asked: GanetiInput) -> LockForecast:
    """The instance, its groups and the target ones with all their nodes; everything is shared."""
    instance = together(known([asked.instance()]))
    targets = asked.texts("target_groups")
    if not targets:
        return forecast_of(instance=instance, nodegroup=ALL_SHARED, node=ALL_SHARED)
    nodes = _own_nodes(asked)
    groups = union([asked.groups(targets), asked.groups_of(nodes)])
    members = union([nodes, asked.members_of(groups)])
    return forecast_of(instance=instance, nodegroup=together(groups), node=together(members))


def create(asked: GanetiInput) -> LockForecast:
    """The new name; the nodes that are given, their storage and their groups.

    An allocator chooses among all nodes, or among those that are free (``opportunistic_locking``).
    """
    name = asked.text("instance_name")
    if name is None:
        raise MalformedError("instance_name")
    nodes, groups = _nodes_to_create_on(asked)
    return forecast_of(instance=exclusive([name]), nodegroup=groups, node=nodes, node_res=nodes)


def _nodes_to_create_on(asked: GanetiInput) -> tuple[LevelForecast, LevelForecast]:
    is_import = asked.text("mode") == "import"
    fields = [field for field in ("pnode", "snode") if asked.has_node(field)]
    is_allocated = bool(asked.text("iallocator")) or "pnode" not in fields
    if is_allocated and asked.flag("opportunistic_locking"):
        return UNKNOWN_EXCLUSIVE, UNKNOWN_SHARED
    if is_allocated or (is_import and not asked.has_node("src_node")):
        return ALL_EXCLUSIVE, ALL_SHARED
    nodes = known(asked.node(field) for field in fields)
    groups = asked.groups_of(nodes)
    if is_import:
        nodes = union([nodes, known([asked.node("src_node")])])
    return alone(nodes), together(groups)


def create_several(asked: GanetiInput) -> LockForecast:
    """The nodes that are given, shared; all of them if an allocator chooses."""
    given = asked.parameters.get("instances") or []
    if not isinstance(given, list | tuple) or not all(isinstance(one, Mapping) for one in given):
        raise MalformedError("instances")
    each = [GanetiInput(one, asked.snapshot) for one in given]
    if asked.text("iallocator") or not all(one.has_node("pnode") for one in each):
        nodes = UNKNOWN_SHARED if asked.flag("opportunistic_locking") else ALL_SHARED
    else:
        nodes = together(
            known(
                one.node(field)
                for one in each
                for field in ("pnode", "snode")
                if one.has_node(field)
            )
        )
    return forecast_of(node=nodes, node_res=nodes)


def move_away(asked: GanetiInput) -> LockForecast:
    """The instance, its nodes and its target with their storage.

    Disks that every node reaches have all nodes as targets if none is given.
    """
    nodes = _nodes_to_move_between(asked)
    return forecast_of(instance=_instance(asked), node=nodes, node_res=nodes)


def _nodes_to_move_between(asked: GanetiInput) -> LevelForecast:
    instance = asked.instance()
    if instance is None or asked.names is None:
        return UNKNOWN_EXCLUSIVE
    moves_freely = asked.names.moves_between_any_nodes(instance)
    if moves_freely is None:
        return UNKNOWN_EXCLUSIVE
    if not moves_freely:
        return alone(_own_nodes(asked))
    if asked.has_node("target_node"):
        return alone(union([_primary(asked), known([asked.node("target_node")])]))
    return ALL_EXCLUSIVE


def move(asked: GanetiInput) -> LockForecast:
    """The instance; its primary node and the target with their storage."""
    nodes = alone(union([_primary(asked), known([asked.node("target_node")])]))
    return forecast_of(instance=_instance(asked), node=nodes, node_res=nodes)


def read(asked: GanetiInput) -> LockForecast:
    """The instances with their groups, nodes and networks, shared; nothing for stored values."""
    if asked.flag("static") and not asked.flag("use_locking"):
        return NO_LOCKS
    listed = asked.texts("instances")
    if not listed:
        return forecast_of(
            instance=ALL_SHARED, nodegroup=UNKNOWN_SHARED, node=UNKNOWN_SHARED,
            network=UNKNOWN_SHARED,
        )  # fmt: skip
    instances = asked.instances(listed)
    nodes = networks = None
    if instances is not None and asked.names is not None:
        nodes = union(map(asked.names.nodes_of_instance, instances))
        networks = union(map(asked.names.networks_of_instance, instances))
    return forecast_of(
        instance=together(instances),
        nodegroup=together(asked.groups_of(nodes)),
        node=together(nodes),
        network=together(networks),
    )


def make_disks_again(asked: GanetiInput) -> LockForecast:
    """The instance; the given nodes, or its own ones, or all of its group for an allocator."""
    groups: LevelForecast = NOTHING
    given = asked.texts("node_uuids") or asked.texts("nodes")
    if given:
        nodes = asked.nodes(given)
    elif asked.text("iallocator"):
        own = asked.groups_of(_primary(asked))
        groups, nodes = together(own), asked.members_of(own)
    else:
        nodes = _own_nodes(asked)
    return _with_storage(asked, groups, nodes)


def replace_disks(asked: GanetiInput) -> LockForecast:
    """The instance; its nodes and the new one, or all of its groups for an allocator."""
    is_moved = asked.text("mode") == "replace_new_secondary"
    if asked.has_node("remote_node"):
        nodes = union([_own_nodes(asked), known([asked.node("remote_node")])])
        return _with_storage(asked, NOTHING, nodes)
    if asked.text("iallocator") or is_moved:
        own = asked.groups_of(_own_nodes(asked))
        return _with_storage(asked, together(own), asked.members_of(own))
    return _with_storage(asked, NOTHING, _own_nodes(asked))


def _with_storage(asked: GanetiInput, groups: LevelForecast, nodes: Names) -> LockForecast:
    level = alone(nodes)
    return forecast_of(instance=_instance(asked), nodegroup=groups, node=level, node_res=level)


def set_parameters(asked: GanetiInput) -> LockForecast:
    """The instance, its groups (shared) and its nodes; their storage if its disks are converted."""
    own = _own_nodes(asked)
    groups = asked.groups_of(own)
    template = asked.text("disk_template")
    nodes = own
    if template and asked.has_node("remote_node"):
        nodes = union([own, known([asked.node("remote_node")])])
    elif template == "drbd":
        nodes = union([own, asked.members_of(groups)])
    level = alone(nodes)
    return forecast_of(
        instance=_instance(asked),
        nodegroup=together(groups),
        node=level,
        node_res=level if template else NOTHING,
    )


def rename(asked: GanetiInput) -> LockForecast:
    """The old name and the new one."""
    return forecast_of(instance=alone(known([asked.instance(), asked.text("new_name")])))


def repair_sizes(asked: GanetiInput) -> LockForecast:
    """The listed instances, and the storage of their primary nodes, shared; without a list: all."""
    listed = asked.texts("instances")
    if not listed:
        return forecast_of(instance=ALL_EXCLUSIVE, node_res=ALL_SHARED)
    instances = asked.instances(listed)
    primaries: Names = None
    if instances is not None and asked.names is not None:
        primaries = known(asked.names.primary_node(instance) for instance in instances)
    return forecast_of(instance=alone(instances), node_res=together(primaries))


_NAME: Final = ("instance_name",)

DECLARED: Final = {
    "OP_BACKUP_EXPORT": (export, (*_NAME, "mode", "zero_free_space")),
    "OP_BACKUP_PREPARE": (only_instance, _NAME),
    "OP_CLUSTER_REPAIR_DISK_SIZES": (repair_sizes, ("instances",)),
    "OP_INSTANCE_ACTIVATE_DISKS": (instance_and_nodes, _NAME),
    "OP_INSTANCE_CHANGE_GROUP": (change_group, (*_NAME, "target_groups")),
    "OP_INSTANCE_CONSOLE": (shared_instance, _NAME),
    "OP_INSTANCE_CREATE": (
        create,
        (
            *(*_NAME, "mode", "iallocator", "opportunistic_locking", "pnode", "pnode_uuid"),
            *("snode", "snode_uuid", "src_node", "src_node_uuid"),
        ),
    ),
    "OP_INSTANCE_DEACTIVATE_DISKS": (instance_and_nodes, _NAME),
    "OP_INSTANCE_FAILOVER": (move_away, (*_NAME, "target_node", "target_node_uuid")),
    "OP_INSTANCE_GROW_DISK": (instance_and_storage, _NAME),
    "OP_INSTANCE_MIGRATE": (move_away, (*_NAME, "target_node", "target_node_uuid")),
    "OP_INSTANCE_MOVE": (move, (*_NAME, "target_node", "target_node_uuid")),
    "OP_INSTANCE_MULTI_ALLOC": (
        create_several,
        ("iallocator", "opportunistic_locking", "instances"),
    ),
    "OP_INSTANCE_QUERY_DATA": (read, ("instances", "static", "use_locking")),
    "OP_INSTANCE_REBOOT": (only_instance, _NAME),
    "OP_INSTANCE_RECREATE_DISKS": (
        make_disks_again,
        (*_NAME, "iallocator", "nodes", "node_uuids"),
    ),
    "OP_INSTANCE_REINSTALL": (only_instance, _NAME),
    "OP_INSTANCE_REMOVE": (instance_and_storage, _NAME),
    "OP_INSTANCE_RENAME": (rename, (*_NAME, "new_name")),
    "OP_INSTANCE_REPLACE_DISKS": (
        replace_disks,
        (*_NAME, "mode", "iallocator", "remote_node", "remote_node_uuid"),
    ),
    "OP_INSTANCE_SET_PARAMS": (
        set_parameters,
        (*_NAME, "disk_template", "remote_node", "remote_node_uuid"),
    ),
    "OP_INSTANCE_SHUTDOWN": (only_instance, _NAME),
    "OP_INSTANCE_STARTUP": (start, _NAME),
}
"""By opcode: its declaration, and the parameters that this reads."""
