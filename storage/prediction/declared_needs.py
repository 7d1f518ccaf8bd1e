"""What a declaration asks of its opcode and of the configuration. Declares nothing (`declared`).

The parameters are those of a stored opcode, and may be malformed. Without the configuration all
names that it would resolve are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from ..cluster.configuration import Configuration
from .lock_types import (
    UNKNOWN_EXCLUSIVE,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    exclusive,
    shared,
)

NAMES_MAX: Final = 1_000
"""Most names of a level: a forecast with more of them is as good with unknown ones, and smaller."""

Names: TypeAlias = frozenset[str] | None
"""Names of locks; None: they are not known."""


class MalformedError(Exception):
    """A parameter has another type than the opcode declares."""


class ClusterNames(Protocol):
    """Resolves what opcodes name, in one state of the configuration. None: it has no such object.

    Instances go by their names, all else by UUIDs, as in the names of locks.
    """

    @property
    def configuration(self) -> Configuration:
        """The configuration in that state."""
        ...

    def instance(self, name: str) -> str | None:
        """The full name of the instance with this name, or the only one that begins so."""
        ...

    def node(self, name: str) -> str | None:
        """The UUID of the node with this UUID or name, or the only one whose name begins so."""
        ...

    def group(self, name: str) -> str | None:
        """The UUID of the node group with this name or UUID."""
        ...

    def network(self, name: str) -> str | None:
        """The UUID of the network with this name or UUID."""
        ...

    def master_node(self) -> str | None:
        """The UUID of the master node."""
        ...

    def primary_node(self, instance: str) -> str | None:
        """The primary node of an instance."""
        ...

    def nodes_of_instance(self, instance: str) -> Names:
        """The primary node, and the nodes of all DRBD disks."""
        ...

    def networks_of_instance(self, instance: str) -> Names:
        """The networks of its interfaces."""
        ...

    def moves_between_any_nodes(self, instance: str) -> bool | None:
        """Whether every node could reach its disks; None if that is not known."""
        ...

    def groups_of_nodes(self, nodes: Iterable[str]) -> Names:
        """The groups of these nodes."""
        ...

    def nodes_of_group(self, group: str) -> Names:
        """The nodes of a group."""
        ...

    def instances_of_group(self, group: str) -> Names:
        """The instances with a node in a group."""
        ...


class OpcodeInput:
    """One opcode, and the configuration if it is at hand."""

    def __init__(self, parameters: Mapping[str, Any], names: ClusterNames | None) -> None:
        self.parameters = parameters
        self.names = names

    # ------------------------------------------------------------ parameters

    def text(self, field: str) -> str | None:
        """A text; None if it is unset or empty."""
        found = self.parameters.get(field)
        if found is not None and not isinstance(found, str):
            raise MalformedError(field)
        return found or None

    def texts(self, field: str) -> list[str]:
        """A list of texts; empty if it is unset."""
        found = self.parameters.get(field)
        if found is None or found == []:
            return []
        if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
            raise MalformedError(field)
        return list(found)

    def flag(self, field: str, default: bool | None = False) -> bool | None:  # noqa: FBT001, FBT002 - as in the catalogue
        """A truth value, or the default if it is unset."""
        found = self.parameters.get(field)
        if found is not None and not isinstance(found, bool):
            raise MalformedError(field)
        return default if found is None else found

    # ------------------------------------------------------------ one object

    def instance(self) -> str | None:
        """The instance ``instance_name``."""
        name = self.text("instance_name")
        return self.names.instance(name) if self.names is not None and name else None

    def node(self, field: str) -> str | None:
        """The node that this parameter, or the one with UUIDs beside it, names."""
        stem = field.removesuffix("_name")
        name = self.text(f"{stem}_uuid") or self.text(field)
        return self.names.node(name) if self.names is not None and name else None

    def has_node(self, field: str) -> bool:
        """Whether a node is given in this parameter, or in the one beside it."""
        return bool(self.text(f"{field.removesuffix('_name')}_uuid") or self.text(field))

    def group(self) -> str | None:
        """The group ``group_name``."""
        name = self.text("group_name")
        return self.names.group(name) if self.names is not None and name else None

    def network(self) -> str | None:
        """The network ``network_name``."""
        name = self.text("network_name")
        return self.names.network(name) if self.names is not None and name else None

    # ------------------------------------------------------------ several

    def instances(self, names: Iterable[str]) -> Names:
        """These instances."""
        if self.names is None:
            return None
        return known(self.names.instance(name) for name in names)

    def nodes(self, names: Iterable[str]) -> Names:
        """These nodes."""
        if self.names is None:
            return None
        return known(self.names.node(name) for name in names)

    def groups(self, names: Iterable[str]) -> Names:
        """These groups."""
        if self.names is None:
            return None
        return known(self.names.group(name) for name in names)

    def nodes_of(self, instance: str | None) -> Names:
        """The nodes of an instance."""
        if self.names is None or instance is None:
            return None
        return self.names.nodes_of_instance(instance)

    def groups_of(self, nodes: Names) -> Names:
        """The groups of nodes."""
        if self.names is None or nodes is None:
            return None
        return self.names.groups_of_nodes(nodes)

    def members_of(self, groups: Names) -> Names:
        """The nodes of groups."""
        if self.names is None or groups is None:
            return None
        return union(self.names.nodes_of_group(group) for group in groups)

    def instances_of(self, groups: Names) -> Names:
        """The instances with a node in one of the groups."""
        if self.names is None or groups is None:
            return None
        return union(self.names.instances_of_group(group) for group in groups)


def known(names: Iterable[str | None]) -> Names:
    """All these names, unless one of them is not known."""
    found = list(names)
    return None if None in found else frozenset(name for name in found if name is not None)


def union(several: Iterable[Names]) -> Names:
    """All names together, unless some are not known."""
    found: set[str] = set()
    for names in several:
        if names is None:
            return None
        found |= names
    return frozenset(found)


def alone(names: Names) -> LevelForecast:
    """These locks exclusively."""
    if names is None or len(names) > NAMES_MAX:
        return UNKNOWN_EXCLUSIVE
    return exclusive(names)


def together(names: Names) -> LevelForecast:
    """These locks, shared."""
    if names is None or len(names) > NAMES_MAX:
        return UNKNOWN_SHARED
    return shared(names)


BIG_LOCK: Final = LockForecast(big_lock="exclusive")
"""The forecast of the opcodes that keep all others out."""
