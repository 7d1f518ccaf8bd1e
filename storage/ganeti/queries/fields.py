"""Fields of a query: their definition, the status of a value, and the fields that many have.

Source: the answers of Ganeti 3.0's LuxiD; "Ganeti design: query version 2 design".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from ...natural_order import natural_key

Source = TypeVar("Source")
"""Where getters find what an item does not hold itself."""

Item: TypeAlias = Any
"""One object, as its resource defines it."""


class Status(enum.IntEnum):
    """What an answer's value means. Only a normal answer has one."""

    NORMAL = 0
    UNKNOWN = 1
    NO_DATA = 2
    UNAVAILABLE = 3
    OFFLINE = 4


class FieldKind(enum.StrEnum):
    """The type of a field's values. A unit is a number of MiB, a timestamp seconds."""

    UNKNOWN = "unknown"
    TEXT = "text"
    BOOL = "bool"
    NUMBER = "number"
    FLOAT = "float"
    UNIT = "unit"
    TIMESTAMP = "timestamp"
    OTHER = "other"


class Answer(NamedTuple):
    """The value of one field of one item."""

    status: Status
    value: Any = None


UNKNOWN: Final = Answer(Status.UNKNOWN)
NO_DATA: Final = Answer(Status.NO_DATA)
UNAVAILABLE: Final = Answer(Status.UNAVAILABLE)
OFFLINE: Final = Answer(Status.OFFLINE)


def normal(value: object) -> Answer:
    """A value that is there."""
    return Answer(Status.NORMAL, value)


def or_unavailable(value: object) -> Answer:
    """The value; without one, the item does not have this field."""
    return UNAVAILABLE if value is None else normal(value)


class Definition(NamedTuple):
    """What clients see of a field: the title is the head of its column."""

    name: str
    title: str
    kind: FieldKind
    doc: str

    def plain(self) -> dict[str, str]:
        """The definition as JSON."""
        return {"name": self.name, "title": self.title, "kind": self.kind.value, "doc": self.doc}


class HostName(str):
    """A name of which a comparison with ``==`` may leave out the end, from a dot on."""

    __slots__ = ()


class Field(NamedTuple, Generic[Source]):
    """A field of a resource."""

    definition: Definition
    get: Callable[[Source, Item], Answer]

    in_filters: Callable[[Any], object] = lambda value: value
    """From a normal value to the one that filters compare."""


Fields: TypeAlias = Mapping[str, Field[Source]]
"""The fields of a resource, by name, in natural order."""


def table(fields: Iterable[Field[Source]]) -> dict[str, Field[Source]]:
    """The fields by name, in natural order."""
    ordered = sorted(fields, key=lambda field: natural_key(field.definition.name))
    found = {field.definition.name: field for field in ordered}
    assert len(found) == len(ordered), "each field has a name of its own"
    return found


def field(
    name: str,
    title: str,
    kind: FieldKind,
    doc: str,
    get: Callable[[Source, Item], Answer],
) -> Field[Source]:
    """A field whose getter sees the source and the item."""
    return Field(Definition(name, title, kind, doc), get)


def stored(
    name: str,
    title: str,
    kind: FieldKind,
    doc: str,
    key: str,
    *,
    unset: Answer = NO_DATA,
) -> Field[Any]:
    """A field that the item holds under ``key``; ``unset`` is the answer if it does not."""

    def get(_source: object, item: Item) -> Answer:
        value = item.get(key)
        return unset if value is None else normal(value)

    return Field(Definition(name, title, kind, doc), get)
