"""The resource ``lock``: which owner holds a lock, and which ones wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ..locks import LockMode, Owner, Pending
from ..natural_order import natural_key
from .answering import Resource
from .fields import Field, Kind, normal, stored, table


class LockRow(msgspec.Struct, frozen=True):
    """One lock. Its mode is None if nobody holds it itself."""

    name: str
    mode: LockMode | None
    owners: tuple[Owner, ...]
    waiting: tuple[tuple[LockMode, Owner], ...]

    def get(self, key: str) -> Any:  # noqa: ANN401 - JSON of a field
        """The value of a field as JSON; owners are texts, those of jobs are numbers in them."""
        match key:
            case "name":
                return self.name
            case "mode":
                return None if self.mode is None else self.mode.value
            case "owner":
                return [_shown(owner) for owner in self.owners]
            case _:
                return [[mode.value, [_shown(owner)]] for mode, owner in self.waiting]


def lock_rows(
    held: Iterable[tuple[str, Iterable[tuple[Owner, LockMode]]]], pending: Iterable[Pending]
) -> list[LockRow]:
    """A row for each lock that is held or that a waiting request names, in natural order."""
    owners = {lock: list(some) for lock, some in held}
    waiting: dict[str, list[tuple[LockMode, Owner]]] = {lock: [] for lock in owners}
    for request in pending:
        for lock, change in dict(request.changes).items():
            some = waiting.setdefault(lock, [])
            if change.mode is not None:
                some.append((change.mode, request.owner))
    return [
        _row(lock, owners.get(lock, ()), waiting[lock]) for lock in sorted(waiting, key=natural_key)
    ]


def _row(
    lock: str,
    owners: Iterable[tuple[Owner, LockMode]],
    waiting: Iterable[tuple[LockMode, Owner]],
) -> LockRow:
    # All owners share it, or there is only one.
    modes = [mode for _, mode in owners]
    return LockRow(
        lock, modes[0] if modes else None, tuple(owner for owner, _ in owners), tuple(waiting)
    )


def _shown(owner: Owner) -> str:
    return msgspec.json.encode(owner.identifier).decode()


_FIELDS: Final[tuple[Field[list[LockRow]], ...]] = (
    stored(
        "mode",
        "Mode",
        Kind.OTHER,
        "Mode in which the lock is currently acquired (exclusive or shared)",
        "mode",
        unset=normal(None),
    ),
    stored("name", "Name", Kind.OTHER, "Lock name", "name"),
    stored("owner", "Owner", Kind.OTHER, "Current lock owner(s)", "owner"),
    stored("pending", "Pending", Kind.OTHER, "Jobs waiting for the lock", "pending"),
)

LOCKS: Final[Resource[list[LockRow]]] = Resource("lock", table(_FIELDS), lambda rows: rows)
"""Locks; the source are the rows that `lock_rows` makes."""
