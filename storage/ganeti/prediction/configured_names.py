"""The names that forecasts of locks need, resolved in one state of the configuration.

Implements `ClusterNames` of `storage/prediction`. Names are found as the operations find them: an
instance or a node also by the beginning of its name, up to a dot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from ...cluster.configuration import Configuration
from ...cluster.names import Alike
from ...cluster.objects import ObjectKind
from ...prediction.declared_needs import Names
from ..operations.lookups import disks_of_instance, holder_of, nodes_of_instance

_ON_ANY_NODE: Final = frozenset({"blockdev", "diskless", "ext", "gluster", "rbd", "sharedfile"})
"""The disk templates whose disks every node reaches, as Ganeti has them; ``diskless`` has none."""


class ConfiguredNames:
    """One state of the configuration, which must not change while this is used.

    A name that is written out costs one look. What needs a look at all objects is found once.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._alike: dict[ObjectKind, Alike[Mapping[str, Any]]] = {}

    def instance(self, name: str) -> str | None:
        """The full name of the instance."""
        found = self._find(ObjectKind.INSTANCE, name)
        return None if found is None else found["name"]

    def node(self, name: str) -> str | None:
        """The UUID of the node."""
        if self.configuration.get(ObjectKind.NODE, name) is not None:
            return name
        found = self._find(ObjectKind.NODE, name)
        return None if found is None else found["uuid"]

    def group(self, name: str) -> str | None:
        """The UUID of the node group."""
        return holder_of(self.configuration, ObjectKind.NODE_GROUP, name)

    def network(self, name: str) -> str | None:
        """The UUID of the network."""
        return holder_of(self.configuration, ObjectKind.NETWORK, name)

    def master_node(self) -> str | None:
        """The UUID of the master node."""
        return self.configuration.cluster.get("master_node") or None

    def primary_node(self, instance: str) -> str | None:
        """The primary node of an instance."""
        return self._instance(instance).get("primary_node") or None

    def nodes_of_instance(self, instance: str) -> Names:
        """The primary node, and the nodes of all DRBD disks."""
        found = self.configuration.find_by_name(ObjectKind.INSTANCE, instance)
        if found is None:
            return None
        return frozenset(nodes_of_instance(self.configuration, found))

    def networks_of_instance(self, instance: str) -> Names:
        """The networks of its interfaces."""
        nics = self._instance(instance).get("nics") or ()
        return frozenset(nic["network"] for nic in nics if nic.get("network"))

    def moves_between_any_nodes(self, instance: str) -> bool | None:
        """Whether every node could reach its disks; None if there is no such instance."""
        found = self.configuration.find_by_name(ObjectKind.INSTANCE, instance)
        if found is None:
            return None
        disks = disks_of_instance(self.configuration, found)
        return all(disk.get("dev_type") in _ON_ANY_NODE for disk in disks)

    def groups_of_nodes(self, nodes: Iterable[str]) -> Names:
        """The groups of these nodes."""
        found = [self.configuration.get(ObjectKind.NODE, node) for node in nodes]
        return None if None in found else frozenset(node["group"] for node in found)

    def nodes_of_group(self, group: str) -> Names:
        """The nodes of a group."""
        return frozenset(self._members.get(group, ()))

    def instances_of_group(self, group: str) -> Names:
        """The instances with a node in a group."""
        by_node = self._instances_by_node
        return frozenset(
            name for node in self._members.get(group, ()) for name in by_node.get(node, ())
        )

    @cached_property
    def _members(self) -> Mapping[str, list[str]]:
        found = defaultdict(list)
        for uuid, node in self.configuration.objects(ObjectKind.NODE):
            found[node["group"]].append(uuid)
        return found

    @cached_property
    def _instances_by_node(self) -> Mapping[str, list[str]]:
        found = defaultdict(list)
        for _, instance in self.configuration.objects(ObjectKind.INSTANCE):
            for node in nodes_of_instance(self.configuration, instance):
                found[node].append(instance["name"])
        return found

    def _instance(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] | None
        found = self.configuration.find_by_name(ObjectKind.INSTANCE, name)
        return {} if found is None else found

    def _find(self, kind: ObjectKind, name: str) -> Any:  # noqa: ANN401 - decoded JSON
        found = self.configuration.find_by_name(kind, name)
        if found is not None:
            return found
        if kind not in self._alike:
            objects = self.configuration.objects(kind)
            self._alike[kind] = Alike((one["name"], one) for _, one in objects)
        return self._alike[kind].find(name)


# ---------------------------------------------------------------- what changes the answers

_READ: Final[Mapping[ObjectKind, tuple[str, ...]]] = {
    ObjectKind.CLUSTER: ("master_node",),
    ObjectKind.NODE: ("uuid", "name", "group"),
    ObjectKind.NODE_GROUP: ("uuid", "name"),
    ObjectKind.INSTANCE: ("name", "primary_node", "disks", "nics"),
    ObjectKind.DISK: ("dev_type", "logical_id", "children"),
    ObjectKind.NETWORK: ("uuid", "name"),
    ObjectKind.FILTER: (),
}
"""The fields of each kind that forecasts read."""


def read(kind: ObjectKind, found: Mapping[str, Any]) -> object:
    """What the declarations read of an object."""
    values = {field: found.get(field) for field in _READ[kind]}
    if kind is ObjectKind.INSTANCE and isinstance(values["nics"], list):
        nics = values["nics"]
        values["nics"] = [nic.get("network") for nic in nics if isinstance(nic, Mapping)]
    return values
