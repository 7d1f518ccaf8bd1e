"""Decides which request gets its locks, which waits, and which comes next. Pure: no I/O, no clock.

Only the methods of `LockState` change it. Each of them returns the waiting owners that got their
locks as a consequence (``woken``), so that the lock manager can answer them once the new state is
on disk.

How it works
============

**Held locks** (``allocating``). Two owners conflict on a lock if one of them has it exclusively. A
lock set counts as each lock of its level. A request is all or nothing; it is *held up* by every
owner whose locks conflict with what it wants.

**The line** (``waiting``). A request that cannot be granted waits in line, at most one of each
owner. The line is sorted by (priority, owner). Of two that conflict, the one behind is not
served first: the one ahead *defers* it. A new request counts as behind every one of at least
its urgency. If no owner holds it up and only the line stops it, then it takes its place behind
the requests of its own priority that it would harm, even if its owner sorts before theirs.

**The exception.** Q *waits for* O if O holds Q up, or if Q is behind O in line and conflicts
with it, or if Q waits for an owner that waits for O. A request of O passes every request that
waits for O: those cannot be served before O has finished anyway.

**Waking.** Each request in line is queued *under* one owner that really stops it: the smallest
of those that hold it up or, if there are none, the first of those that defer it. It is tried
again, in line order, when

1. that owner gives something back, or its own request is withdrawn or moves in line; or
2. a request enters the line, so that the one ahead now waits for the one that it defers.

*No wake-up is lost.* While the owner above a request stops it, it cannot be granted. An owner
that holds it up stops doing so only by giving back (1). One that defers it still stops it when
served, because then it holds what conflicts; otherwise it leaves the line or moves in it (1). The
exception begins to apply only when one owner begins to wait for another. Grants let others wait
only for an owner that waits for none itself, which completes no chain. So it takes a request
that enters the line, and the new chain runs through its owner (2).

*No owner waits for ever.* Assume a ring of requests, each queued under the next one's owner. If one
of them is deferred by the next, then that next one waits, round the ring, for the first, which
therefore passes it: a contradiction. So each is held up by the next. But owners acquire in lock
order, so the highest lock held rises along the ring and cannot come back to where it was. One
thing in this breaks the order, which is making a shared lock (set) exclusive: two owners that
share it may both wait for the other to let go. A request that would close such a ring is refused.
Without rings every chain ends at an owner that runs, and that gives its locks back one day.

*No owner starves.* A request in line is passed only by more urgent ones, by those for which it
waits, and by those of smaller owners (older jobs) of its own priority that were held up when
they came.

**Cost.** Indexes find owners by lock and by lock set, and waiting requests by the locks they want
and by the owner above them: locks that others hold or want cost an unrelated request nothing.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Container, Iterable, Iterator
from math import inf

import msgspec

from ...storage import errors
from ...storage.locks.locks import (
    Changes,
    LockChange,
    LockLevel,
    LockMode,
    LocksFile,
    Owner,
    OwnerChanged,
    Pending,
    check_name,
    level_of,
    show,
)
from .allocating import Wants
from .known_locks import KnownLocks, owner_order, wanted_order
from .waiting import Position, Waiter

__all__ = ["LockOutcome", "LockState"]

_AHEAD_OF_ALL: Position = (-inf, -inf)
_BEHIND_ALL: Position = (inf, inf)


class LockOutcome(msgspec.Struct, frozen=True):
    """The outcome of a request: granted, or stopped by ``blockers`` (sorted).

    ``woken`` are other owners, whose waiting requests were granted as a consequence.
    """

    granted: bool
    blockers: tuple[Owner, ...] = ()
    woken: tuple[Owner, ...] = ()


class LockState(KnownLocks):
    """Every held lock, and every waiting request: each change, and what it wakes."""

    def __init__(self) -> None:
        super().__init__()
        # Owners in line that want to make one of their shared locks exclusive.
        self._upgrading: set[Owner] = set()

    @classmethod
    def restore(cls, file: LocksFile) -> tuple[LockState, tuple[Owner, ...]]:
        """The state that ``file`` describes, and the owners woken (none, if it was at rest).

        Raises `StorageError` if the file contradicts itself.
        """
        state = cls()
        allocation = state._allocation
        for holding in file.allocation:
            owner = holding.owner
            for lock, mode in holding.locks:
                others = allocation.index.against_others(owner, {lock: mode})
                if others or lock in allocation.held_by(owner):
                    raise errors.StorageError(f"locks.data contradicts itself about {lock}")
                state._apply(owner, [(lock, mode)])
        stood: set[Owner] = set()
        for pending in file.pending:
            if pending.owner in stood:
                raise errors.StorageError(f"locks.data has two requests of {pending.owner}")
            state._stand(pending, behind=stood)
            stood.add(pending.owner)
        return state, state._settle(stood)

    def take_changes(self) -> list[OwnerChanged]:
        """What became of each owner that changed since the last call; waiting ones in line."""
        changed, self._allocation.changed = self._allocation.changed, {}
        moved, self._line.changed = self._line.changed, {}
        found = {owner: OwnerChanged(owner, changed.get(owner, {})) for owner in changed | moved}
        waiters = [waiter for owner in found if (waiter := self._line.get(owner))]
        for waiter in sorted(waiters, key=lambda one: one.position):
            # To the end: the one that it stands behind comes first.
            one = found.pop(waiter.owner)
            found[waiter.owner] = msgspec.structs.replace(
                one,
                pending=(waiter.pending.priority, waiter.pending.changes),
                behind=self._line.before(waiter),
            )
        return list(found.values())

    # Requests.

    def request(
        self, owner: Owner, priority: int, changes: Iterable[tuple[str, str]]
    ) -> LockOutcome:
        """Make all of ``changes``, or wait in line until all are possible.

        A repeated request returns its present blockers and changes only its priority.
        """
        pending = Pending(priority, owner, _typed(changes))
        waiter = self._line.get(owner)
        if waiter is not None and waiter.pending.changes == pending.changes:
            return self._outcome(owner, self.set_priority(owner, priority))
        wants = self._check(owner, pending.changes)
        holding_up, harmed = self._obstacles(owner, wants, (priority, inf))
        if not holding_up and not harmed:
            return LockOutcome(granted=True, woken=self._take(owner, pending.changes))
        self._refuse_ring(owner, wants, holding_up)
        self._stand(pending, {other.owner for other in harmed})
        return self._outcome(owner, self._settle({owner} | self._passing_now(owner)))

    def try_request(
        self, owner: Owner, changes: Iterable[tuple[str, str]], priority: float = inf
    ) -> LockOutcome:
        """Make all of ``changes`` now or never; without a priority, all in line come first."""
        typed = _typed(changes)
        wants = self._check(owner, typed)
        holding_up, harmed = self._obstacles(owner, wants, (priority, inf))
        if holding_up:
            return LockOutcome(granted=False, blockers=tuple(sorted(holding_up, key=owner_order)))
        if harmed:
            return LockOutcome(granted=False, blockers=(harmed[0].owner,))
        return LockOutcome(granted=True, woken=self._take(owner, typed))

    def opportunistic_union(
        self, owner: Owner, wanted: Iterable[tuple[str, LockMode]], at_least: int = 0
    ) -> list[str]:
        """Take those of ``wanted`` that are free; returns the new ones, in reverse lock order.

        Takes none if fewer than ``at_least`` are free. A lock that is out of lock order is not
        free.
        """
        self._check(owner, ())
        before = dict(self._allocation.held_by(owner))
        taken: list[str] = []
        for lock, mode in sorted(set(wanted), key=wanted_order):
            held = before.get(lock)
            if (held is None or not held.covers(mode)) and self._can_take(owner, lock, mode):
                self._apply(owner, [(lock, mode)])
                taken.append(lock)
        if len(taken) < at_least:
            self._apply(owner, [(lock, before.get(lock)) for lock in taken])
            return []
        return taken[::-1]

    def set_priority(self, owner: Owner, priority: int) -> tuple[Owner, ...]:
        """Give the waiting request of ``owner``, if there is one, another priority."""
        waiter = self._line.get(owner)
        if waiter is None or waiter.pending.priority == priority:
            return ()
        self._leave(owner)
        _, harmed = self._obstacles(owner, waiter.wants, (priority, inf))
        pending = msgspec.structs.replace(waiter.pending, priority=priority)
        self._stand(pending, {other.owner for other in harmed})
        return self._settle({owner} | self._line.under(owner) | self._passing_now(owner))

    # Giving back. All of these withdraw the owner's waiting request first.

    def release_owner(self, owner: Owner) -> tuple[Owner, ...]:
        """Drop the owner's waiting request and all its locks."""
        return self._settle(self._drop(owner))

    def release_lock_file(self, lock_file: str) -> tuple[Owner, ...]:
        """Drop every owner with this lock file, whose process is gone."""
        due: set[Owner] = set()
        for owner in sorted(self._by_lock_file.get(lock_file, ()), key=owner_order):
            due |= self._drop(owner)
        return self._settle(due)

    def free_level(self, owner: Owner, level: LockLevel) -> tuple[Owner, ...]:
        """Release the owner's locks of this level."""
        return self._settle(self._drop(owner, lambda lock: level_of(lock) is level))

    def downgrade_level(self, owner: Owner, level: LockLevel) -> tuple[Owner, ...]:
        """Make the owner's locks of this level shared."""
        return self._settle(
            self._drop(owner, lambda lock: level_of(lock) is level, LockMode.SHARED)
        )

    def intersect(self, owner: Owner, locks: Iterable[str]) -> tuple[Owner, ...]:
        """Release the owner's locks, of all levels, that are not among ``locks``."""
        kept = set(locks)
        for lock in kept:
            check_name(lock)
        return self._settle(self._drop(owner, lambda lock: lock not in kept))

    # What stops a request.

    def _check(self, owner: Owner, changes: Changes) -> dict[str, LockMode]:
        """The modes that the request acquires, by lock; `LockRequestError` if it is invalid."""
        if owner in self._line:
            raise errors.LockWaitError("cannot update locks while having pending requests")
        last = dict(changes)
        for lock, change in changes:
            check_name(lock)
            if last[lock] is not change:
                raise errors.LockContradictionError(f"Inconsitent requests for lock {show(lock)}")
        wants = _acquisitions(changes)
        self._allocation.check_order(owner, wants)
        return wants

    def _obstacles(
        self, owner: Owner, wants: Wants, position: Position
    ) -> tuple[set[Owner], list[Waiter]]:
        """The owners that hold it up; if none does, the requests before ``position`` it harms."""
        holding_up = self._allocation.index.against_others(owner, wants)
        ahead = [] if holding_up else self._line.ahead(owner, wants, position)
        if ahead:
            passed = self._followers(owner)
            ahead = [other for other in ahead if other.owner not in passed]
        return holding_up, ahead

    def _followers(self, owner: Owner, *, in_line: bool = True) -> set[Owner]:
        """The owners that wait for ``owner``; without ``in_line``, only because of held locks."""
        found: set[Owner] = set()
        # Looking at a lock again for places further back finds nothing new. Without this, a
        # crowd that waits for one lock would cost the square of its size.
        seen: dict[tuple[str, LockMode], Position] = {}
        unseen = [owner] if self._line else []
        while unseen:
            one = unseen.pop()
            for lock, mode, position in self._grounds(one, in_line=in_line):
                if seen.get((lock, mode), _BEHIND_ALL) <= position:
                    continue
                seen[lock, mode] = position
                for other in self._line.wanters.against(lock, mode) - found:
                    if other != one and self._line[other].position > position:
                        found.add(other)
                        unseen.append(other)
        return found

    def _grounds(self, owner: Owner, *, in_line: bool) -> Iterator[tuple[str, LockMode, Position]]:
        """The reasons to wait for ``owner``: a lock, its mode, and the place in line before."""
        for lock, mode in self._allocation.held_by(owner).items():
            yield lock, mode, _AHEAD_OF_ALL
        waiter = self._line.get(owner)
        if in_line and waiter is not None:
            for lock, mode in waiter.wants.items():
                yield lock, mode, waiter.position

    def _refuse_ring(self, owner: Owner, wants: Wants, holding_up: set[Owner]) -> None:
        # Without a request to make a shared lock exclusive there can be no ring.
        if not self._upgrading and not self._allocation.is_upgrade(owner, wants):
            return
        ring = holding_up & self._followers(owner, in_line=False)
        if ring:
            first = min(ring, key=owner_order)
            raise errors.LockRingError(
                f"Deadlock: {first.identifier} holds what is requested"
                " and waits for what the requester holds",
                first,
            )

    # Waiting and waking.

    def _stand(self, pending: Pending, behind: Container[Owner]) -> Waiter:
        waiter = self._line.enter(pending, _acquisitions(pending.changes), behind)
        if self._allocation.is_upgrade(waiter.owner, waiter.wants):
            self._upgrading.add(waiter.owner)
        self._note(waiter.owner)
        return waiter

    def _leave(self, owner: Owner) -> None:
        self._line.leave(owner)
        self._upgrading.discard(owner)
        self._note(owner)

    def _passing_now(self, owner: Owner) -> set[Owner]:
        """Deferred owners for which those ahead may wait, now that ``owner`` is in line."""
        if not self._line.deferred:
            return set()
        below = (self._line.under(ahead) for ahead in self._followers(owner))
        return self._line.deferred.intersection(itertools.chain.from_iterable(below))

    def _settle(self, due: Iterable[Owner]) -> tuple[Owner, ...]:
        """Try the waiting requests of ``due``, in line, and those they free; the granted owners."""
        woken: list[Owner] = []
        heap = [(self._line[owner].position, owner) for owner in due if owner in self._line]
        heapq.heapify(heap)
        while heap:
            _, owner = heapq.heappop(heap)
            waiter = self._line.get(owner)
            if waiter is None:
                continue
            holding_up, harmed = self._obstacles(owner, waiter.wants, waiter.position)
            if holding_up:
                self._line.queue(waiter, min(holding_up, key=owner_order))
            elif harmed:
                self._line.queue(waiter, harmed[0].owner, is_deferred=True)
            else:
                woken.append(owner)
                self._leave(owner)
                if self._apply(owner, _modes(waiter.pending.changes)):
                    for other in self._line.under(owner):
                        heapq.heappush(heap, (self._line[other].position, other))
        return tuple(woken)

    def _outcome(self, owner: Owner, woken: tuple[Owner, ...]) -> LockOutcome:
        """The outcome of the request of ``owner``, which woke these."""
        waiter = self._line.get(owner)
        if waiter is not None:
            return LockOutcome(granted=False, blockers=self._blockers(waiter), woken=woken)
        return LockOutcome(granted=True, woken=tuple(other for other in woken if other != owner))

    def _blockers(self, waiter: Waiter) -> tuple[Owner, ...]:
        # It may be queued under another one of those that defer it than the present first.
        holding_up, harmed = self._obstacles(waiter.owner, waiter.wants, waiter.position)
        return tuple(sorted(holding_up, key=owner_order)) or (harmed[0].owner,)

    # Held locks.

    def _take(self, owner: Owner, changes: Changes) -> tuple[Owner, ...]:
        gave_back = self._apply(owner, _modes(changes))
        return self._settle(self._line.under(owner)) if gave_back else ()

    def _can_take(self, owner: Owner, lock: str, mode: LockMode) -> bool:
        try:
            wants = self._check(owner, ((lock, LockChange(mode.value)),))
        except errors.LockRequestError:
            # For an opportunistic request, a lock out of order is not free.
            return False
        return self._obstacles(owner, wants, _BEHIND_ALL) == (set(), [])

    def _drop(
        self,
        owner: Owner,
        is_meant: Callable[[str], bool] = lambda _: True,
        mode: LockMode | None = None,
    ) -> set[Owner]:
        """Withdraw the waiting request, change the meant locks; returns the owners to try again."""
        self._leave(owner)
        held = self._allocation.held_by(owner)
        self._apply(owner, [(lock, mode) for lock in list(held) if is_meant(lock)])
        return self._line.under(owner)

    def _apply(self, owner: Owner, modes: Iterable[tuple[str, LockMode | None]]) -> bool:
        gave_back = self._allocation.apply(owner, modes)
        self._note(owner)
        return gave_back

    def _note(self, owner: Owner) -> None:
        """Index the owner by its lock file while it holds a lock or waits."""
        owners = self._by_lock_file.setdefault(owner.lock_file, set())
        if owner in self._allocation or owner in self._line:
            owners.add(owner)
            return
        owners.discard(owner)
        if not owners:
            del self._by_lock_file[owner.lock_file]


def _typed(changes: Iterable[tuple[str, str]]) -> Changes:
    try:
        return tuple((lock, LockChange(change)) for lock, change in changes)
    except ValueError as error:
        raise errors.LockRequestError(f"Unknown lock change: {error}") from error


def _modes(changes: Changes) -> list[tuple[str, LockMode | None]]:
    return [(lock, change.mode) for lock, change in changes]


def _acquisitions(changes: Changes) -> dict[str, LockMode]:
    return {lock: mode for lock, mode in _modes(changes) if mode is not None}
