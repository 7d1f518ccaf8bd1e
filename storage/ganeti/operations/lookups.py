"""Objects by their names, and who belongs to whom: what operations ask of a configuration.

Source: Ganeti's look-ups by name, and its functions for the instances of a node group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from ...cluster.configuration import Configuration
from ...cluster.names import expanded
from ...cluster.objects import ObjectKind
from ...natural_order import natural_key
from ...opcodes import OperationError
from .base import Code, prerequisite_error

Object: TypeAlias = Mapping[str, Any]


def find_group(configuration: Configuration, target: str) -> Object:
    """The node group with this UUID or name; `OperationError` (unknown_entity) if there is none."""
    return _found(configuration, ObjectKind.NODE_GROUP, target, "Node group")


def find_network(configuration: Configuration, target: str) -> Object:
    """The network with this UUID or name; `OperationError` (unknown_entity) if there is none."""
    return _found(configuration, ObjectKind.NETWORK, target, "Network")


def holder_of(configuration: Configuration, kind: ObjectKind, name: str) -> str | None:
    """The UUID of the group or network that has ``name`` as its name or UUID; None if none has."""
    found = _by_uuid_or_name(configuration, kind, name)
    return None if found is None else str(found["uuid"])


def find_node(configuration: Configuration, name: str) -> Object:
    """The node with this name, or the only one whose name goes on with a dot.

    Large and small letters are the same, unless a name is written exactly so. No UUID is looked
    for, as in Ganeti. `OperationError` (unknown_entity) if there is no such node, or several.
    """
    return _expanded(configuration, ObjectKind.NODE, name, "Node")


def find_instance(configuration: Configuration, name: str) -> Object:
    """The instance with this name, as `find_node` finds nodes."""
    return _expanded(configuration, ObjectKind.INSTANCE, name, "Instance")


def instances_of_group(configuration: Configuration, group: str) -> list[Object]:
    """The instances with a node in the group (its UUID). Costs a look at each instance."""
    members = {
        uuid for uuid, node in configuration.objects(ObjectKind.NODE) if node["group"] == group
    }
    if not members:
        return []
    instances: list[Object] = [one for _, one in configuration.objects(ObjectKind.INSTANCE)]
    return [
        instance
        for instance in instances
        # Most are found by their primary node.
        if instance.get("primary_node") in members
        or not members.isdisjoint(nodes_of_instance(configuration, instance))
    ]


def nodes_of_instance(configuration: Configuration, instance: Object) -> set[str]:
    """The UUIDs of the primary node and of all nodes of DRBD disks."""
    primary = instance.get("primary_node")
    found = {primary} if primary else set()
    for disk in disks_of_instance(configuration, instance):
        if disk.get("dev_type") == "drbd" or disk.get("children"):
            found.update(_drbd_nodes(disk))
    return found


def disks_of_instance(configuration: Configuration, instance: Object) -> list[Object]:
    """The disks of an instance, in their order, without those that the configuration lacks."""
    uuids = instance.get("disks") or ()
    disks = (configuration.get(ObjectKind.DISK, uuid) for uuid in uuids)
    return [disk for disk in disks if disk is not None]


def in_order(objects: Iterable[Object]) -> list[Object]:
    """The objects in the natural order of their names."""
    return sorted(objects, key=lambda one: natural_key(one.get("name", "")))


def names_of(objects: Iterable[Object]) -> list[str]:
    """The names of objects, in natural order."""
    return [str(one.get("name", "")) for one in in_order(objects)]


def _drbd_nodes(disk: Object) -> Iterator[str]:
    if disk.get("dev_type") == "drbd":
        yield from (disk.get("logical_id") or ())[:2]
    for child in disk.get("children") or ():
        yield from _drbd_nodes(child)


def _found(configuration: Configuration, kind: ObjectKind, target: str, word: str) -> Object:
    found = _by_uuid_or_name(configuration, kind, target)
    if found is None:
        raise not_found(word, target)
    return found


def not_found(word: str, target: str) -> OperationError:
    """The error for a group or network that the configuration does not have."""
    return prerequisite_error(f"{word} '{target}' not found", Code.UNKNOWN)


def _by_uuid_or_name(configuration: Configuration, kind: ObjectKind, target: str) -> Object | None:
    found: Object | None = configuration.get(kind, target)
    return configuration.find_by_name(kind, target) if found is None else found


def _expanded(configuration: Configuration, kind: ObjectKind, name: str, word: str) -> Object:
    found = expanded(configuration, kind, name)
    if found is None:
        raise prerequisite_error(f"{word} '{name}' not known", Code.UNKNOWN)
    return found
