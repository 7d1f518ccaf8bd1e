"""Objects by what may be written for their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from .configuration import Configuration
from .objects import Object, ObjectKind


def expanded(configuration: Configuration, kind: ObjectKind, name: str) -> Object | None:
    """The object with this name, or the only one whose name goes on with a dot.

    Large and small letters are the same, unless a name is written exactly so.
    """
    exact: Object | None = configuration.find_by_name(kind, name)
    return exact if exact is not None else _alike(configuration, kind, name)


def _alike(configuration: Configuration, kind: ObjectKind, name: str) -> Object | None:
    wanted = name.upper()
    objects: list[Object] = [one for _, one in configuration.objects(kind)]
    same = [one for one in objects if one["name"].upper() == wanted]
    if len(same) == 1:
        return same[0]
    longer = [one for one in objects if f"{one['name'].upper()}.".startswith(f"{wanted}.")]
    return longer[0] if len(longer) == 1 else None


_Named = TypeVar("_Named")


class Alike(Generic[_Named]):
    """As `_alike`, for many names: what may be written for each, found once.

    A beginning that several names share stands for None.
    """

    def __init__(self, named: Iterable[tuple[str, _Named]]) -> None:
        self._same: dict[str, _Named | None] = {}
        self._beginnings: dict[str, _Named | None] = {}
        for written, one in named:
            name = written.upper()
            self._same[name] = None if name in self._same else one
            beginnings, at = self._beginnings, name.find(".")
            while at >= 0:
                beginning = name[:at]
                beginnings[beginning] = None if beginning in beginnings else one
                at = name.find(".", at + 1)
            beginnings[name] = None if name in beginnings else one

    def find(self, name: str) -> _Named | None:
        """What this stands for; None: nothing, or several."""
        wanted = name.upper()
        return self._same.get(wanted) or self._beginnings.get(wanted)
