"""What declarations of Ganeti's opcodes ask of the opcode and of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...prediction import declared_needs
from ...prediction.declared_needs import LookupSnapshot, Names, OpcodeInput
from ...prediction.lock_types import UNKNOWN_SHARED, LevelForecast, LockForecast, shared
from .configured_names import ConfiguredNames


class GanetiInput(OpcodeInput):
    """One opcode, and the names in the configuration if it is at hand."""

    def __init__(self, parameters: Mapping[str, Any], snapshot: LookupSnapshot | None) -> None:
        super().__init__(parameters, snapshot)
        self.names = None if snapshot is None else snapshot.view(ConfiguredNames)

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


def together(names: Names) -> LevelForecast:
    """These locks, shared."""
    if names is None or len(names) > declared_needs.NAMES_MAX:
        return UNKNOWN_SHARED
    return shared(names)


BIG_LOCK: Final = LockForecast(big_lock="exclusive")
"""The forecast of the opcodes that keep all others out."""


def declares(
    declaration: Callable[[GanetiInput], LockForecast],
) -> Callable[[OpcodeInput], LockForecast]:
    """The declaration, for any input."""
    return lambda asked: declaration(GanetiInput(asked.parameters, asked.snapshot))
