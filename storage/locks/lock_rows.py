"""The list of locks: for each lock who holds it and who waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..natural_order import natural_key
from .locks import LockChange, LockMode, Owner, Pending


class LockView(msgspec.Struct, frozen=True):
    """One row of the lock list; ``mode`` is None if no owner holds the lock itself."""

    name: str
    mode: LockMode | None
    owners: tuple[Owner, ...]
    pending: tuple[tuple[LockChange, Owner], ...]


def lock_rows(
    held: Iterable[tuple[str, Sequence[tuple[Owner, LockMode]]]], line: Iterable[Pending]
) -> list[LockView]:
    """A row for each lock that is held or that a waiting request names, in natural order.

    ``held`` has each lock with the owners that hold it itself, and also the lock sets of which an
    owner holds a member.
    """
    owners = dict(held)
    pending: dict[str, list[tuple[LockChange, Owner]]] = {lock: [] for lock in owners}
    for request in line:
        for lock, change in dict(request.changes).items():
            pending.setdefault(lock, []).append((change, request.owner))
    return [
        _row(lock, owners.get(lock, ()), pending[lock]) for lock in sorted(pending, key=natural_key)
    ]


def _row(
    lock: str,
    owners: Sequence[tuple[Owner, LockMode]],
    pending: Iterable[tuple[LockChange, Owner]],
) -> LockView:
    # All owners share it, or there is only one.
    mode = owners[0][1] if owners else None
    return LockView(lock, mode, tuple(owner for owner, _ in owners), tuple(pending))
