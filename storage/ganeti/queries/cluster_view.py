"""The configuration as queries look at it: who refers to whom.

A view is made for the queries of one snapshot. It finds relations when they are first needed, so a
query costs what its fields need, and the next one less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...natural_order import natural_key
from .. import parameters
from ..defaults import with_defaults

Object: TypeAlias = Mapping[str, Any]
"""An object of the configuration."""

_NOTHING: Object = {}

_FOLDERS: Final = {
    "file": "file_storage_dir",
    "sharedfile": "shared_file_storage_dir",
    "gluster": "gluster_storage_dir",
}
"""Where the cluster says in which folder the disks of a template lie."""


class _Filled(NamedTuple):
    item: Object
    parameters: dict[str, Any]


class ClusterView:
    """One state of the configuration, which must not change while the view is used."""

    def __init__(self, configuration: Configuration, known: Mapping[str, Any] = _NOTHING) -> None:
        """``known`` has what the configuration does not hold of the cluster."""
        self.configuration = configuration
        self.known = known
        self.measured: Mapping[str, Mapping[str, Any]] = {}
        """The live fields of the nodes that answered, by their UUIDs."""
        own = configuration.cluster
        self.cluster: Object = with_defaults(own) if own else own
        self._document = configuration.document
        self._ordered: dict[str, list[Object]] = {}
        self._beginnings: dict[str, dict[str, list[Object]]] = {}
        self._last: dict[Callable[[Object, Object], dict[str, Any]], _Filled] = {}

    @property
    def version(self) -> int | None:
        """The version of the configuration's format."""
        found: int | None = self._document.get("version")
        return found

    @property
    def master_name(self) -> str | None:
        """The name of the master node; None if the configuration has no master."""
        master = self.container("nodes").get(self.cluster.get("master_node", ""))
        found: str | None = None if master is None else master.get("name")
        return found

    @property
    def storage_folder(self) -> str | None:
        """The folder with the disks of new instances; None if they lie in no folder."""
        templates = self.cluster.get("enabled_disk_templates") or [""]
        found = self.cluster.get(_FOLDERS.get(templates[0], ""))
        return found if isinstance(found, str) else None

    def container(self, name: str) -> Mapping[str, Object]:
        """All objects of a kind, by UUID."""
        found: Mapping[str, Object] = self._document.get(name, _NOTHING)
        return found

    def ordered(self, name: str) -> list[Object]:
        """All objects of a kind, in the natural order of their names, then of their UUIDs."""
        if name not in self._ordered:
            self._ordered[name] = sorted(self.container(name).values(), key=_place_of)
        return self._ordered[name]

    def find(self, container: str, wanted: str) -> Object | None:
        """The object with this UUID or name, or the only one whose name goes on with a dot."""
        objects = self.container(container)
        if wanted in objects:
            return objects[wanted]
        named: Object | None = self.configuration.find_by_name(ObjectKind(container), wanted)
        if named is not None:
            return named
        if container not in self._beginnings:
            self._beginnings[container] = _by_beginning(objects.values())
        alike = self._beginnings[container].get(wanted, ())
        return alike[0] if len(alike) == 1 else None

    # -------------------------------------------------------- relations

    def group_of(self, node: Object | None) -> Object | None:
        """The group of a node; None if the configuration has none."""
        return self.container("nodegroups").get(node.get("group", "")) if node else None

    def primary_node(self, instance: Object) -> Object | None:
        """The primary node of an instance; None if it has none yet."""
        return self.container("nodes").get(instance.get("primary_node", ""))

    def secondary_nodes(self, instance: Object) -> list[Object]:
        """The nodes with the second copies of DRBD disks, in the order of their UUIDs."""
        nodes = self.container("nodes")
        found = {uuid for disk in self.disks(instance) for uuid in _drbd_nodes(disk)}
        found.discard(instance.get("primary_node", ""))
        return [nodes[uuid] for uuid in sorted(found) if uuid in nodes]

    def disks(self, instance: Object) -> list[Object]:
        """The disks of an instance."""
        disks = self.container("disks")
        return [disks[uuid] for uuid in instance.get("disks") or () if uuid in disks]

    def primary_instances(self, node: Object) -> list[Object]:
        """The instances that have this node as their primary one."""
        return self._primaries.get(node.get("uuid", ""), [])

    def secondary_instances(self, node: Object) -> list[Object]:
        """The instances that have this node as a secondary one."""
        return self._secondaries.get(node.get("uuid", ""), [])

    def nodes_of(self, group: Object) -> list[Object]:
        """The nodes of a group, in the natural order of their names."""
        return self._members.get(group.get("uuid", ""), [])

    def connected_groups(self, network: Object) -> Iterator[tuple[Object, Object]]:
        """Each group that is connected with a network, and how."""
        for _, group in sorted(self.container("nodegroups").items()):
            how = (group.get("networks") or _NOTHING).get(network.get("uuid", ""))
            if how is not None:
                yield group, how

    def connected_instances(self, network: Object) -> list[Object]:
        """The instances with an interface in this network."""
        return self._connected.get(network.get("uuid", ""), [])

    @cached_property
    def _primaries(self) -> dict[str, list[Object]]:
        found = defaultdict(list)
        for instance in self.container("instances").values():
            found[instance.get("primary_node", "")].append(instance)
        return found

    @cached_property
    def _secondaries(self) -> dict[str, list[Object]]:
        found = defaultdict(list)
        for instance in self.container("instances").values():
            for node in self.secondary_nodes(instance):
                found[node.get("uuid", "")].append(instance)
        return found

    @cached_property
    def _members(self) -> dict[str, list[Object]]:
        found = defaultdict(list)
        for node in self.ordered("nodes"):
            found[node.get("group", "")].append(node)
        return found

    @cached_property
    def _connected(self) -> dict[str, list[Object]]:
        found = defaultdict(list)
        for instance in self.container("instances").values():
            networks = {one.get("network") for one in instance.get("nics") or ()}
            for uuid in networks - {None}:
                found[str(uuid)].append(instance)
        return found

    # -------------------------------------------------------- parameters

    def filled(self, fill: Callable[[Object, Object], dict[str, Any]], item: Object) -> Object:
        """What ``fill``, a function of `parameters`, gives for the item.

        Many fields of a row show one parameter each, so the last result is kept.
        """
        last = self._last.get(fill)
        if last is None or last.item is not item:
            last = self._last[fill] = _Filled(item, fill(self.cluster, item))
        return last.parameters

    def node_parameters(self, node: Object) -> dict[str, Any]:
        """The filled node parameters of a node; empty if its group is missing."""
        group = self.group_of(node)
        return {} if group is None else parameters.node_parameters(self.cluster, group, node)

    def group_parameters(self, group: Object) -> dict[str, Any]:
        """The filled node parameters of a group."""
        return parameters.node_parameters(self.cluster, group, None)


def name_of(holder: Object) -> str:
    """The name of an object; empty if it has none yet."""
    return str(holder.get("name") or "")


def _place_of(one: Object) -> tuple[Any, str]:
    return natural_key(name_of(one)), str(one.get("uuid", ""))


def mark(one: Object) -> str:
    """Tells where in `ClusterView.ordered` an object stands."""
    return msgspec.json.encode((name_of(one), str(one.get("uuid", "")))).decode()


def place(text: str) -> tuple[Any, str]:
    """The key that sorts objects, from a `mark`; `ValueError` if the text is none."""
    name, uuid = msgspec.json.decode(text, type=tuple[str, str])
    return natural_key(name), uuid


def _by_beginning(objects: Iterable[Object]) -> dict[str, list[Object]]:
    """The objects by what stands before each dot in their names."""
    found = defaultdict(list)
    for one in objects:
        name = name_of(one)
        for at, sign in enumerate(name):
            if sign == ".":
                found[name[:at]].append(one)
    return found


def names(objects: Iterable[Object]) -> list[str]:
    """The names of objects, in natural order."""
    return sorted(filter(None, map(name_of, objects)), key=natural_key)


def _drbd_nodes(disk: Object) -> Iterator[str]:
    match disk:
        case {"dev_type": "drbd", "logical_id": [str(one), str(other), *_]}:
            yield one
            yield other
    for child in disk.get("children") or ():
        yield from _drbd_nodes(child)
