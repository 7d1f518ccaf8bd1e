"""Which owners hold locks, which wait, and for whom. Only `locking` changes it. Pure."""

from __future__ import annotations

import msgspec

from ...storage.locks.lock_rows import LockView, lock_rows
from ...storage.locks.locks import LockMode, LocksFile, Owner, Pending, group_of, sort_key
from .allocating import Allocation
from .waiting import WaitingLine


class WantView(msgspec.Struct, frozen=True):
    """A lock that an owner waits for: the conflicting holders, and the owners before it in line."""

    name: str
    mode: LockMode
    holders: tuple[tuple[Owner, LockMode], ...]
    ahead: tuple[Owner, ...]


class KnownLocks:
    """Every held lock, and every waiting request."""

    def __init__(self) -> None:
        self._allocation = Allocation()
        self._line = WaitingLine()
        self._by_lock_file: dict[str, set[Owner]] = {}

    @property
    def revision(self) -> int:
        """Counts changes: while it stays the same, there is nothing to write."""
        return self._allocation.revision + self._line.revision

    def snapshot(self) -> LocksFile:
        """This state in the format of ``locks.data``."""
        return LocksFile(
            tuple(self._allocation.holding(owner) for owner in self._allocation.owners()),
            tuple(waiter.pending for waiter in self._line),
        )

    def has_pending(self, owner: Owner) -> bool:
        """Whether a request of this owner waits."""
        return owner in self._line

    def pending_of(self, owner: Owner) -> Pending | None:
        """The waiting request of this owner, if there is one."""
        waiter = self._line.get(owner)
        return None if waiter is None else waiter.pending

    def owners(self) -> list[Owner]:
        """Every owner that holds a lock or waits."""
        return sorted(
            {*self._allocation.owners(), *(one.owner for one in self._line)}, key=owner_order
        )

    def list_locks(self, owner: Owner) -> tuple[tuple[str, LockMode], ...]:
        """The owner's locks, in lock order."""
        return self._allocation.holding(owner).locks if owner in self._allocation else ()

    def owners_of(self, lock: str) -> list[tuple[Owner, LockMode]]:
        """The owners that hold the lock itself, in order, with its mode."""
        return self._allocation.index.owners(lock)

    def list_waiting_status(
        self,
    ) -> tuple[list[tuple[str, list[tuple[Owner, LockMode]]]], list[Pending]]:
        """Every held lock with the owners that hold it itself, and the waiting requests, in line.

        A lock set is held if a member of it is. The locks are in lock order.
        """
        index = self._allocation.index
        held = [(lock, index.owners(lock)) for lock in sorted(index.locks(), key=sort_key)]
        return held, [waiter.pending for waiter in self._line]

    def wants_of(self, lock_file: str) -> list[WantView]:
        """The locks that owners with this lock file wait for, in lock order, and the reasons."""
        found = []
        for owner in self._by_lock_file.get(lock_file, ()):
            waiter = self._line.get(owner)
            for lock, mode in sorted(waiter.wants.items() if waiter else (), key=wanted_order):
                assert waiter is not None
                index = self._allocation.index
                holders = sorted(index.against(lock, mode) - {owner}, key=owner_order)
                ahead = self._line.ahead(owner, {lock: mode}, waiter.position)
                if holders or ahead:
                    held = tuple((one, self._strongest(one, lock)) for one in holders)
                    found.append(WantView(lock, mode, held, tuple(one.owner for one in ahead)))
        return found

    def waiting(self) -> list[Owner]:
        """The waiting owners, in line."""
        return [waiter.owner for waiter in self._line]

    def _strongest(self, owner: Owner, lock: str) -> LockMode:
        """The mode in which the owner holds the lock, or its lock set, or a member of it."""
        held, index = self._allocation.held_by(owner), self._allocation.index
        if index.has_member(owner, lock, LockMode.EXCLUSIVE):
            return LockMode.EXCLUSIVE
        modes = (held.get(lock), held.get(group_of(lock) or lock))
        return LockMode.EXCLUSIVE if LockMode.EXCLUSIVE in modes else LockMode.SHARED

    def rows(self) -> list[LockView]:
        """Every lock that is held or that a waiting request names, sorted naturally by name."""
        return lock_rows(*self.list_waiting_status())


def owner_order(owner: Owner) -> tuple[bool, int | str, str, int]:
    """Named owners come first, then jobs by id."""
    return owner.order


def wanted_order(wanted: tuple[str, LockMode]) -> tuple[tuple[int, bool, str], bool]:
    """In lock order; of one lock, shared first."""
    lock, mode = wanted
    return sort_key(lock), mode is LockMode.EXCLUSIVE
