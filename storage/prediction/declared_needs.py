"""What a declaration may ask of its opcode and of the configuration. Declares nothing (`declared`).

The parameters are those of a stored opcode, and may be malformed. Without the configuration all
names that it would resolve are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from ..cluster.configuration import Configuration
from .lock_types import UNKNOWN_EXCLUSIVE, LevelForecast, exclusive

NAMES_MAX: Final = 1_000
"""Most names of a level: a forecast with more of them is as good with unknown ones, and smaller."""

Names: TypeAlias = frozenset[str] | None
"""Names of locks; None: they are not known."""

_View = TypeVar("_View")


class MalformedError(Exception):
    """A parameter has another type than the opcode declares."""


class LookupSnapshot:
    """One state of the configuration, which must not change while this is used."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._views: dict[Callable[[Configuration], Any], Any] = {}

    def view(self, make: Callable[[Configuration], _View]) -> _View:
        """What ``make`` makes of the configuration; it is made once."""
        if make not in self._views:
            self._views[make] = make(self.configuration)
        found: _View = self._views[make]
        return found


class OpcodeInput:
    """One opcode, and the configuration if it is at hand."""

    def __init__(self, parameters: Mapping[str, Any], snapshot: LookupSnapshot | None) -> None:
        self.parameters = parameters
        self.snapshot = snapshot

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


def alone(names: Names) -> LevelForecast:
    """These locks exclusively."""
    if names is None or len(names) > NAMES_MAX:
        return UNKNOWN_EXCLUSIVE
    return exclusive(names)
