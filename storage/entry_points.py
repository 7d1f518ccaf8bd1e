"""What installed packages add to Ganger, by groups of entry points.

Single opcodes are loaded by rules of their own (`storage.opcodes.catalogue`).
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoints

OPCODE_FAMILIES: Final = "ganger.opcode_families"
"""Modules with many opcodes each (`storage.opcodes.catalogue.Family`)."""

LOCK_DECLARATIONS: Final = "ganger.lock_declarations"
"""Modules that say which locks the opcodes of a family take (`DeclarationTable` of
`storage.prediction.declared`)."""

ANSWERS: Final = "ganger.answers"
"""Classes that answer for a component (`actors.runtime.installed_answers`)."""

LISTENERS: Final = "ganger.listeners"
"""Components with a socket of their own (`actors.listeners.installed`)."""

CONFIG_PARTS: Final = "ganger.config_parts"
"""Classes of parts of the configuration store (`actors.config.installed_parts`)."""

CONFIG_KINDS: Final = "ganger.config_kinds"
"""Modules about kinds of objects of the configuration (`storage.cluster.objects.Kinds`)."""

CONFIG_FILES: Final = "ganger.config_files"
"""Modules about files that follow the configuration, which ``ganger fsck`` looks at: each has
``folder``, ``PREFIX`` and ``stale`` (`storage.fsck.survey`)."""

RESOURCES: Final = "ganger.resources"
"""Tuples of resources of the remote API (`rapi.table`)."""

LEFT_OUT: Final = "a part of a package is left out"
"""What logs say when a problem was found."""

_PROBLEM_CHARACTERS_MAX: Final = 400

_problems: dict[str, tuple[str, ...]] = {}


class Found(NamedTuple):
    """The objects of a group, by their names in order; a sentence for each that is left out."""

    objects: dict[str, Any]
    problems: tuple[str, ...]


def load(group: str) -> Found:
    """Import the objects of this group. The packages are looked through once in a process."""
    objects: dict[str, Any] = {}
    found: list[str] = []
    for entry in sorted(installed(group), key=lambda entry: entry.name):
        try:
            objects[entry.name] = entry.load()
        # A package of others may raise anything; only this entry is left out.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            text = f"{group}: {entry.name} ({entry.value}) cannot be loaded: {error!r}"
            found.append(text[:_PROBLEM_CHARACTERS_MAX])
    _problems[group] = tuple(found)
    return Found(objects, tuple(found))


def installed(group: str) -> EntryPoints:
    """The entry points of this group, as packages had them when this process asked first."""
    return _installed(tuple(sys.path))(group=group)


@functools.lru_cache(maxsize=1)
def _installed(_path: tuple[str, ...]) -> Callable[..., EntryPoints]:
    """Chooses among what packages on this path add: a daemon that starts asks for seven groups."""
    # Slow to import, and most commands never need it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points().select


def problems() -> list[str]:
    """What this process could not load, of all groups."""
    return [problem for found in _problems.values() for problem in found]
