"""What the locks of Ganeti's opcodes are called that users name otherwise. Pure.

Nodes, node groups and networks have a name and a UUID. Ganeti's opcodes lock them by UUID, and so
do Ganger's: a lock that a command names is that of the object with this name. A name that the
configuration does not know stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from .configuration import Configuration
from .names import Alike
from .objects import ObjectKind

NameTable = dict[str, dict[str, str]]
"""By level and name, the UUID of each object that has a lock of its own."""

OBJECTS: Final = {
    "node": ObjectKind.NODE,
    "nodegroup": ObjectKind.NODE_GROUP,
    "network": ObjectKind.NETWORK,
}
"""The kind of objects that the locks of a level stand for."""

KINDS: Final = frozenset(OBJECTS.values())
"""The kinds of objects that have such locks."""

_SAME: Final = {"node-res": "node"}
"""The levels whose locks are named as those of another one."""


def table_of(configuration: Configuration) -> NameTable:
    """The names of all objects; damaged ones are left out."""
    return {
        level: {
            one["name"]: uuid
            for uuid, one in configuration.objects(kind)
            if isinstance(one, Mapping) and isinstance(one.get("name"), str)
        }
        for level, kind in OBJECTS.items()
    }


class LockNames:
    """Finds the UUIDs. A node may be named by the beginning of its name, up to a dot."""

    def __init__(self, table: NameTable) -> None:
        self._table = table
        self._nodes: Alike[str] | None = None
        self.has_some = any(table.values())
        """Whether there are such objects."""

    def uuid(self, level: str, name: str) -> str | None:
        """The UUID of the object that the lock ``level``/``name`` means; None: there is none."""
        level = _SAME.get(level, level)
        own = self._table.get(level)
        if not own:
            return None
        found = own.get(name)
        if found is None and level == "node":
            if self._nodes is None:
                self._nodes = Alike(own.items())
            found = self._nodes.find(name)
        return found

    def uuids(self, locks: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The UUIDs of these locks, each by level and name: ``{"node/web1": "0a5e..."}``."""
        found = ((f"{level}/{name}", self.uuid(level, name)) for level, name in locks)
        return {lock: uuid for lock, uuid in found if uuid is not None}

    def named(self, text: str) -> str:
        """A text for people: locks with UUIDs have the names of their objects instead.

        >>> LockNames({"node": {"web1": "u1"}}).named("it takes node/u1 (shared)")
        'it takes node/web1 (shared)'
        """
        return _LOCK.sub(self._name, text) if self.has_some else text

    def _name(self, found: re.Match[str]) -> str:
        level, own = found["level"], found["name"]
        name = self._names.get(f"{_SAME.get(level, level)}/{own}")
        return found[0] if name is None else f"{level}/{name}"

    @cached_property
    def _names(self) -> dict[str, str]:
        return {
            f"{level}/{uuid}": name
            for level, own in self._table.items()
            for name, uuid in own.items()
        }


_LOCK: Final = re.compile(r"\b(?P<level>node|node-res|nodegroup|network)/(?P<name>[\w-]+)")
