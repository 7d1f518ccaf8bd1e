"""A slow model of lock decisions: it looks at every pair of locks and every owner in line."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ganger.storage.locks.locks import LockChange, LockLevel, LockMode, Owner

# In lock order, each with the lock set it belongs to.
GROUPS = {
    "cluster/[lockset]": None,
    "cluster/BGL": "cluster/[lockset]",
    "node/[lockset]": None,
    "node/a": "node/[lockset]",
    "node/b": "node/[lockset]",
    "node/c": "node/[lockset]",
    "node-res/a": "node-res/[lockset]",
    "network/x": "network/[lockset]",
    "cluster/config": None,
}
LOCKS = list(GROUPS)
LEVELS = [LockLevel.CLUSTER, LockLevel.NODE, LockLevel.NODE_RES, LockLevel.CONFIG]
OWNERS = [
    Owner("luxid", "/l/daemon", 1),
    Owner("thread", "/l/daemon", 1),
    *(Owner(number, f"/l/{number}", 10 + number) for number in range(2, 7)),
]
EXCLUSIVE, SHARED = LockMode.EXCLUSIVE, LockMode.SHARED


class Request(NamedTuple):
    """A request in the model's line."""

    priority: int
    owner: Owner
    changes: tuple[tuple[str, LockChange], ...]

    @property
    def wants(self) -> dict[str, LockMode]:
        return {lock: change.mode for lock, change in self.changes if change.mode is not None}


def conflict(one: dict[str, LockMode], other: dict[str, LockMode]) -> bool:
    return any(
        (lock == locked or GROUPS[lock] == locked or GROUPS[locked] == lock)
        and EXCLUSIVE in (mode, held)
        for lock, mode in one.items()
        for locked, held in other.items()
    )


class LockModel:
    """Everything by looking at everything."""

    def __init__(self) -> None:
        self.held: dict[Owner, dict[str, LockMode]] = {owner: {} for owner in OWNERS}
        self.line: list[Request] = []

    def waiting(self, owner: Owner) -> Request | None:
        return next((request for request in self.line if request.owner == owner), None)

    def idle(self) -> list[Owner]:
        return [owner for owner in OWNERS if not self.waiting(owner)]

    def holding_up(self, request: Request) -> set[Owner]:
        return {
            owner
            for owner, held in self.held.items()
            if owner != request.owner and conflict(request.wants, held)
        }

    def ahead(self, request: Request) -> list[Request]:
        """Those it conflicts with, among those ahead; all of its urgency if it is not in line."""
        if request in self.line:
            others = self.line[: self.line.index(request)]
        else:
            others = [other for other in self.line if other.priority <= request.priority]
        return [
            other
            for other in others
            if other.owner != request.owner and conflict(request.wants, other.wants)
        ]

    def waits_for(self, one: Owner, target: Owner, *, in_line: bool = True) -> bool:
        reached: set[Owner] = set()
        unseen = [one]
        while unseen:
            request = self.waiting(unseen.pop())
            if request is None:
                continue
            stops = self.holding_up(request)
            if in_line:
                stops |= {other.owner for other in self.ahead(request)}
            unseen += stops - reached
            reached |= stops
        return target in reached

    def harmed(self, request: Request) -> list[Request]:
        return [
            other for other in self.ahead(request) if not self.waits_for(other.owner, request.owner)
        ]

    def blockers(self, request: Request) -> list[Owner]:
        by_order = sorted(self.holding_up(request))
        return by_order or [other.owner for other in self.harmed(request)[:1]]

    def closes_ring(self, request: Request) -> bool:
        return any(
            self.waits_for(owner, request.owner, in_line=False)
            for owner in self.holding_up(request)
        )

    def apply(self, request: Request) -> None:
        for lock, change in request.changes:
            self.held[request.owner].pop(lock, None)
            if change.mode is not None:
                self.held[request.owner][lock] = change.mode

    def stand(self, request: Request) -> None:
        behind = [] if self.holding_up(request) else self.harmed(request)
        place = len(self.line)
        while place:
            last = self.line[place - 1]
            is_smaller = (last.priority, last.owner) > (request.priority, request.owner)
            is_equal = last.priority == request.priority
            if not is_smaller or (is_equal and last in behind):
                break
            place -= 1
        self.line.insert(place, request)

    def settle(self) -> list[Owner]:
        woken = []
        while served := next((one for one in self.line if not self.blockers(one)), None):
            self.line.remove(served)
            self.apply(served)
            woken.append(served.owner)
        return woken

    def error(self, request: Request) -> str | None:
        """The check that an invalid request fails."""
        held = self.held[request.owner]
        if self.waiting(request.owner):
            return "cannot update locks while having pending requests"
        if len({lock for lock, _ in request.changes}) < len(set(request.changes)):
            return "Inconsitent requests"
        highest = max(map(LOCKS.index, held), default=-1)
        for lock, mode in request.wants.items():
            has = (held.get(lock), held.get(GROUPS[lock] or lock))
            if LOCKS.index(lock) < highest and EXCLUSIVE not in has and mode not in has:
                return "Order violation: requesting .* while holding (?!a shared)"
        for lock, mode in request.wants.items():
            if mode is EXCLUSIVE and held.get(GROUPS[lock] or "") is SHARED:
                return "Order violation: .* it belongs to"
        return None

    def withdraw(self, owner: Owner) -> None:
        self.line = [request for request in self.line if request.owner != owner]

    def opportunistic(self, owner: Owner, wanted: AbstractSet[tuple[str, LockMode]]) -> list[str]:
        taken: list[str] = []
        before = dict(self.held[owner])
        for lock, mode in sorted(
            wanted, key=lambda one: (LOCKS.index(one[0]), one[1] is EXCLUSIVE)
        ):
            request = Request(1000, owner, ((lock, LockChange(mode.value)),))
            if before.get(lock) in (EXCLUSIVE, mode):
                continue
            if not self.error(request) and not self.blockers(request):
                self.apply(request)
                taken.insert(0, lock)
        return taken


def is_of(lock: str, level: LockLevel) -> bool:
    if lock == "cluster/config":
        return level is LockLevel.CONFIG
    return lock.partition("/")[0] == level.value
