"""The listeners that installed packages bring: classes under the entry point group `LISTENERS`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...storage import entry_points
from ..runtime.component import Component


class Installed(NamedTuple):
    """The classes, in the order of their start; a sentence for each that is left out."""

    classes: tuple[type[Component], ...]
    problems: tuple[str, ...]

    def wishes(self) -> dict[str, int]:
        """The most connections of each (its ``connections_max``), if it says how many."""
        found = ((one.name, getattr(one, "connections_max", 0)) for one in self.classes)
        return {name: count for name, count in found if count}


def installed(taken: Iterable[str]) -> Installed:
    """The listeners of all packages, but for those with a name that is taken."""
    found = entry_points.load(entry_points.LISTENERS)
    names, classes, problems = {*taken}, list[type[Component]](), [*found.problems]
    for entry, listener in found.objects.items():
        if not (isinstance(listener, type) and issubclass(listener, Component)):
            problems.append(f"{entry_points.LISTENERS}: {entry}: is not a class of `Component`")
        elif listener.name in names:
            problems.append(f"{entry_points.LISTENERS}: {entry}: {listener.name} is there already")
        else:
            names.add(listener.name)
            classes.append(listener)
    return Installed(tuple(classes), tuple(problems))
