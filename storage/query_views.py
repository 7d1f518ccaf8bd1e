"""Answers to queries as users of the library see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

FieldKind = Literal["unknown", "text", "bool", "number", "float", "unit", "timestamp", "other"]

NORMAL, UNKNOWN, NO_DATA, UNAVAILABLE, OFFLINE = range(5)
"""The statuses of values, as in Ganeti."""


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A field that queries can ask for; ``title`` is the heading of its column.

    A ``unit`` is a number of MiB, a ``timestamp`` in seconds since the epoch.
    """

    name: str
    title: str
    kind: FieldKind
    doc: str


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a query, in Ganeti's form.

    ``data`` has a row for each item, with a pair (status, value) for each field. Status 0: this is
    the value; 1: there is no such field; 2: the value is not known; 3: the item has none; 4: its
    node is offline.
    """

    fields: list[FieldInfo]
    data: list[list[tuple[int, Any]]]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The values of each item by field, None where there is none."""
        names = [field.name for field in self.fields]
        return [dict(zip(names, (value for _, value in row), strict=True)) for row in self.data]


def fields_of(definitions: Iterable[dict[str, str]]) -> list[FieldInfo]:
    """Definitions as they travel."""
    return msgspec.convert(list(definitions), list[FieldInfo])


def joined_rows(pages: Iterable[bytes]) -> bytes:
    """The rows of several pages, as JSON.

    >>> joined_rows([b"[[[0,1]],[[0,2]]]", b"[]", b"[[[0,3]]]"])
    b'[[[0,1]],[[0,2]],[[0,3]]]'
    """
    return b"[%b]" % b",".join(found for page in pages if (found := page[1:-1]))


_decode = msgspec.json.Decoder(list[list[tuple[int, Any]]]).decode


def rows_of(data: bytes) -> list[list[tuple[int, Any]]]:
    """The rows of one page as they travel."""
    return _decode(data)
