"""The resource ``lock``: which owner holds a lock, and which ones wait for it."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from ..lock_rows import LockView
from ..locks import Owner
from .answering import Resource
from .fields import Answer, Field, Kind, field, normal, table

Rows: TypeAlias = list[LockView]
"""The list of locks, as `lock_rows` makes it."""


def _name(_rows: Rows, row: LockView) -> Answer:
    return normal(row.name)


def _mode(_rows: Rows, row: LockView) -> Answer:
    return normal(None if row.mode is None else row.mode.value)


def _owners(_rows: Rows, row: LockView) -> Answer:
    return normal([_shown(owner) for owner in row.owners])


def _pending(_rows: Rows, row: LockView) -> Answer:
    found: list[Any] = [[change.value, [_shown(owner)]] for change, owner in row.pending]
    return normal(found)


def _shown(owner: Owner) -> str:
    """The owner's identifier as JSON: the number of a job, or a text with its quotes."""
    return msgspec.json.encode(owner.identifier).decode()


_MODE_DOC: Final = "Mode in which the lock is currently acquired (exclusive or shared)"

_FIELDS: Final[tuple[Field[Rows], ...]] = (
    field("mode", "Mode", Kind.OTHER, _MODE_DOC, _mode),
    field("name", "Name", Kind.OTHER, "Lock name", _name),
    field("owner", "Owner", Kind.OTHER, "Current lock owner(s)", _owners),
    field("pending", "Pending", Kind.OTHER, "Jobs waiting for the lock", _pending),
)

LOCKS: Final[Resource[Rows]] = Resource("lock", table(_FIELDS), lambda rows: rows)
"""Locks, in the natural order of their names."""
