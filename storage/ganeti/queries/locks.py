"""The resource ``lock``: which owner holds a lock, and which ones wait for it.

Jobs that other jobs wait for are rows too, as in Ganeti's lock monitor.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ...locks.lock_rows import LockView
from ...locks.locks import Owner
from ...natural_order import natural_key
from .answering import Resource
from .fields import Answer, Field, FieldKind, field, normal, table


class AwaitedJob(NamedTuple):
    """A job that others depend on: ``job/ID``.

    ``pending``: the statuses that they accept, and the jobs that wait for them.
    """

    name: str
    pending: Sequence[tuple[str, Sequence[str]]]


Row: TypeAlias = LockView | AwaitedJob

Rows: TypeAlias = Sequence[Row]
"""The locks and awaited jobs, in the order of `ordered`."""


def ordered(locks: Sequence[LockView], jobs: Sequence[AwaitedJob]) -> Rows:
    """The rows of an answer, in the natural order of their names, as both arguments are."""
    place = bisect.bisect(locks, natural_key("job/"), key=lambda row: natural_key(row.name))
    return [*locks[:place], *jobs, *locks[place:]]


def _name(_rows: Rows, row: Row) -> Answer:
    return normal(row.name)


def _mode(_rows: Rows, row: Row) -> Answer:
    if isinstance(row, AwaitedJob) or row.mode is None:
        return normal(None)
    return normal(row.mode.value)


def _owners(_rows: Rows, row: Row) -> Answer:
    owners = () if isinstance(row, AwaitedJob) else row.owners
    return normal([_shown(owner) for owner in owners])


def _pending(_rows: Rows, row: Row) -> Answer:
    if isinstance(row, AwaitedJob):
        return normal([[wanted, list(jobs)] for wanted, jobs in row.pending])
    found: list[Any] = [[change.value, [_shown(owner)]] for change, owner in row.pending]
    return normal(found)


def _shown(owner: Owner) -> str:
    """The owner's identifier as JSON: the number of a job, or a text with its quotes."""
    return msgspec.json.encode(owner.identifier).decode()


_MODE_DOC: Final = "Mode in which the lock is currently acquired (exclusive or shared)"

_FIELDS: Final[tuple[Field[Rows], ...]] = (
    field("mode", "Mode", FieldKind.OTHER, _MODE_DOC, _mode),
    field("name", "Name", FieldKind.OTHER, "Lock name", _name),
    field("owner", "Owner", FieldKind.OTHER, "Current lock owner(s)", _owners),
    field("pending", "Pending", FieldKind.OTHER, "Jobs waiting for the lock", _pending),
)

LOCKS: Final[Resource[Rows]] = Resource(
    "lock", table(_FIELDS), lambda rows: rows, lambda row: row.name, natural_key
)
"""Locks, in the natural order of their names."""
