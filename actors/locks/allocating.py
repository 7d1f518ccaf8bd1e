"""Decides what a lock request collides with, and whether it is in order. Pure: no I/O, no clock.

Knows only held locks; ``locking`` knows the waiting requests.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from ...storage import errors
from ...storage.locks.locks import LockMode, Owner, OwnerLocks, SortKey, group_of, show, sort_key

__all__ = ["Allocation", "LockIndex"]

Wants = Mapping[str, LockMode]
"""The modes that an owner holds or wants, by lock."""


class LockIndex:
    """The owners that hold or want each lock, by mode, also through members of a lock set.

    This is the granting rule: two owners conflict on a lock if one of them holds or wants it
    exclusively, and a lock set counts as each lock of its level.
    """

    def __init__(self) -> None:
        self._direct: dict[LockMode, dict[str, set[Owner]]] = {mode: {} for mode in LockMode}
        self._members: dict[LockMode, dict[str, dict[Owner, int]]] = {mode: {} for mode in LockMode}

    def against(self, lock: str, mode: LockMode) -> set[Owner]:
        """The owners whose entries conflict with this lock in this mode.

        A shared lock conflicts with an exclusive one, an exclusive lock with every one: on the
        lock itself, on the lock set it belongs to and, if it is a lock set, on each member.
        """
        found: set[Owner] = set()
        group = group_of(lock)
        for other in LockMode if mode is LockMode.EXCLUSIVE else (LockMode.EXCLUSIVE,):
            direct = self._direct[other]
            found.update(direct.get(lock, ()))
            if group:
                found.update(direct.get(group, ()))
            else:
                found.update(self._members[other].get(lock, ()))
        return found

    def against_others(self, owner: Owner, wants: Wants) -> set[Owner]:
        """The owners except ``owner`` whose entries conflict with one of ``wants``."""
        found: set[Owner] = set()
        for lock, mode in wants.items():
            found |= self.against(lock, mode)
        found.discard(owner)
        return found

    def has_member(self, owner: Owner, group: str, mode: LockMode) -> bool:
        """Whether the owner has an entry in this mode on a member of the lock set."""
        return owner in self._members[mode].get(group, ())

    def locks(self) -> set[str]:
        """Every lock with an entry of its own or (a lock set) through a member."""
        return set().union(*self._direct.values(), *self._members.values())

    def owners(self, lock: str) -> list[tuple[Owner, LockMode]]:
        """The owners with an entry on the lock itself, sorted."""
        found = [(one, mode) for mode in LockMode for one in self._direct[mode].get(lock, ())]
        return sorted(found, key=lambda entry: entry[0].order)

    def add(self, owner: Owner, lock: str, mode: LockMode) -> None:
        """Add an entry; the owner must have none on this lock yet."""
        self._direct[mode].setdefault(lock, set()).add(owner)
        if group := group_of(lock):
            counts = self._members[mode].setdefault(group, {})
            counts[owner] = counts.get(owner, 0) + 1

    def remove(self, owner: Owner, lock: str, mode: LockMode) -> None:
        """Remove this entry."""
        owners = self._direct[mode][lock]
        owners.remove(owner)
        if not owners:
            del self._direct[mode][lock]
        if group := group_of(lock):
            counts = self._members[mode][group]
            counts[owner] -= 1
            if not counts[owner]:
                del counts[owner]
            if not counts:
                del self._members[mode][group]


class Allocation:
    """The locks that each owner holds. Owners without locks are not in it."""

    def __init__(self) -> None:
        self.index = LockIndex()
        self.revision = 0
        self.changed: dict[Owner, dict[str, LockMode | None]] = {}
        """The locks that were given another mode since this was emptied; None: released."""
        self._held: dict[Owner, dict[str, LockMode]] = {}
        self._in_order: dict[Owner, list[SortKey]] = {}
        self._holdings: dict[Owner, OwnerLocks] = {}

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._held

    def owners(self) -> list[Owner]:
        """Every owner that holds a lock, sorted."""
        return sorted(self._held, key=lambda owner: owner.order)

    def held_by(self, owner: Owner) -> Wants:
        """The owner's locks, unsorted."""
        return self._held.get(owner, {})

    def holding(self, owner: Owner) -> OwnerLocks:
        """The owner's locks, in lock order; cached until they change."""
        if owner not in self._holdings:
            held = self._held[owner]
            locks = tuple((lock, held[lock]) for _, _, lock in self._in_order[owner])
            self._holdings[owner] = OwnerLocks(owner, locks)
        return self._holdings[owner]

    def check_order(self, owner: Owner, wants: Wants) -> None:
        """Raise `LockRequestError` if these locks are out of order for what the owner holds."""
        if owner not in self._held:
            return
        held = self._held[owner]
        highest = self._in_order[owner][-1]
        for lock, mode in wants.items():
            has = (held.get(lock), held.get(group_of(lock) or lock))
            in_order = sort_key(lock) >= highest
            if not in_order and not any(one is not None and one.covers(mode) for one in has):
                raise errors.LockOrderError(
                    f"Order violation: requesting {show(lock)} while holding {show(highest[2])}"
                )
        for lock, mode in wants.items():
            group = group_of(lock)
            if group and mode is LockMode.EXCLUSIVE and held.get(group) is LockMode.SHARED:
                raise errors.LockOrderError(
                    f"Order violation: requesting exclusively {show(lock)} while holding a shared"
                    f" lock on the group lock {show(group)} it belongs to."
                )

    def is_upgrade(self, owner: Owner, wants: Wants) -> bool:
        """Whether the owner wants to make one of its shared locks exclusive."""
        held = self.held_by(owner)
        return any(
            mode is LockMode.EXCLUSIVE and held.get(lock) is LockMode.SHARED
            for lock, mode in wants.items()
        )

    def apply(self, owner: Owner, modes: Iterable[tuple[str, LockMode | None]]) -> bool:
        """Give the locks these modes (None: release); True if any lock was released or downgraded.

        The caller has checked that nothing conflicts.
        """
        held = self._held.setdefault(owner, {})
        in_order = self._in_order.setdefault(owner, [])
        gave_back = False
        for lock, mode in modes:
            before = held.get(lock)
            if before is mode:
                continue
            self.revision += 1
            self.changed.setdefault(owner, {})[lock] = mode
            if before is not None:
                self.index.remove(owner, lock, before)
                gave_back |= mode is not LockMode.EXCLUSIVE
            if mode is None:
                del held[lock]
                del in_order[bisect_left(in_order, sort_key(lock))]
            else:
                if before is None:
                    insort(in_order, sort_key(lock))
                held[lock] = mode
                self.index.add(owner, lock, mode)
        self._holdings.pop(owner, None)
        if not held:
            del self._held[owner], self._in_order[owner]
        return gave_back
