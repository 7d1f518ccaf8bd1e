"""Lock decisions against a slow model that looks at every pair of locks and every owner in line."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganger.actors.locks.locking import LockState
from ganger.storage import errors
from ganger.storage.lock_journal import StoredLocks, TurnStored, replay
from ganger.storage.locks import LockChange, LockLevel, LockMode, Owner, decode_locks, encode_locks

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

    def opportunistic(self, owner: Owner, wanted: set[tuple[str, LockMode]]) -> list[str]:
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


owners = st.sampled_from(OWNERS)
locks = st.sampled_from(LOCKS)
priorities = st.sampled_from([0, 0, 0, -5])
levels = st.sampled_from(LEVELS)
acquisitions = st.sampled_from([LockChange.SHARED, LockChange.EXCLUSIVE])


@st.composite
def requests(draw: st.DrawFn) -> tuple[tuple[str, LockChange], ...]:
    change = st.sampled_from([*LockChange, LockChange.EXCLUSIVE])
    return tuple(draw(st.lists(st.tuples(locks, change), min_size=1, max_size=3)))


class Locking(RuleBasedStateMachine):
    """Does the same to the lock state and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.state = LockState()
        self.stored = StoredLocks()
        self.model = LockModel()

    @rule(owner=owners, priority=priorities, changes=requests())
    def request(
        self, owner: Owner, priority: int, changes: tuple[tuple[str, LockChange], ...]
    ) -> None:
        request = Request(priority, owner, changes)
        before = self.state.revision
        if (waiting := self.model.waiting(owner)) and waiting.changes == changes:
            self.repeat(waiting, priority)
            return
        error = self.model.error(request)
        if error is None and self.model.closes_ring(request):
            error = "Deadlock"
        if error is not None:
            with pytest.raises(errors.LockRequestError, match=error):
                self.state.request(owner, priority, changes)
            assert self.state.revision == before
            return
        outcome = self.state.request(owner, priority, changes)
        if self.model.blockers(request):
            self.model.stand(request)
        else:
            self.model.apply(request)
        woken = self.model.settle()
        assert outcome.granted == (self.model.waiting(owner) is None)
        assert outcome.woken == tuple(other for other in woken if other != owner)
        if not outcome.granted:
            assert outcome.blockers == tuple(self.model.blockers(request))

    @precondition(lambda self: self.model.line)
    @rule(data=st.data(), priority=priorities)
    def request_again(self, data: st.DataObject, priority: int) -> None:
        """As a job does after a restart, with the priority that it has by then."""
        self.repeat(data.draw(st.sampled_from(self.model.line)), priority)

    def repeat(self, waiting: Request, priority: int) -> None:
        before = self.state.revision
        outcome = self.state.request(waiting.owner, priority, waiting.changes)
        woken: list[Owner] = []
        if priority != waiting.priority:
            self.model.withdraw(waiting.owner)
            self.model.stand(waiting._replace(priority=priority))
            woken = self.model.settle()
        else:
            assert self.state.revision == before
        request = self.model.waiting(waiting.owner)
        assert outcome.granted == (request is None)
        assert outcome.woken == tuple(other for other in woken if other != waiting.owner)
        if request is not None:
            assert outcome.blockers == tuple(self.model.blockers(request))

    @precondition(lambda self: len(self.model.idle()) > 1)
    @rule(data=st.data(), change=acquisitions, priority=priorities)
    def request_what_matters(self, data: st.DataObject, change: LockChange, priority: int) -> None:
        """Ask for what others hold or want: chains of owners that hold and wait."""
        owner = data.draw(st.sampled_from(self.model.idle()))
        highest = max(map(LOCKS.index, self.model.held[owner]), default=-1)
        others = [held for other, held in self.model.held.items() if other != owner]
        matters = {lock for held in others for lock in held}
        matters |= {lock for request in self.model.line for lock in request.wants}
        candidates = [lock for lock in LOCKS[highest + 1 :] if lock in matters] or LOCKS[-2:]
        chosen = data.draw(st.sets(st.sampled_from(candidates), min_size=1, max_size=2))
        self.request(owner, priority, tuple((lock, change) for lock in sorted(chosen)))

    @rule(owner=owners, changes=requests())
    def try_request(self, owner: Owner, changes: tuple[tuple[str, LockChange], ...]) -> None:
        request = Request(1000, owner, changes)
        error = self.model.error(request)
        if error is not None:
            with pytest.raises(errors.LockRequestError, match=error):
                self.state.try_request(owner, changes)
            return
        outcome = self.state.try_request(owner, changes)
        assert outcome.blockers == tuple(self.model.blockers(request))
        assert outcome.granted == (not outcome.blockers)
        if outcome.granted:
            self.model.apply(request)
            assert outcome.woken == tuple(self.model.settle())

    @rule(
        owner=owners,
        wanted=st.sets(st.tuples(locks, st.sampled_from([SHARED, EXCLUSIVE])), max_size=4),
        at_least=st.integers(0, 2),
    )
    def take_what_is_free(
        self, owner: Owner, wanted: set[tuple[str, LockMode]], at_least: int
    ) -> None:
        if self.model.waiting(owner):
            with pytest.raises(errors.LockRequestError, match="pending requests"):
                self.state.opportunistic_union(owner, wanted, at_least)
            return
        before = dict(self.model.held[owner])
        expected = self.model.opportunistic(owner, wanted)
        if len(expected) < at_least:
            self.model.held[owner] = before
            expected = []
        assert self.state.opportunistic_union(owner, wanted, at_least) == expected

    @precondition(lambda self: self.model.line)
    @rule(data=st.data(), priority=st.sampled_from([-10, -5, 0, 5]))
    def set_priority(self, data: st.DataObject, priority: int) -> None:
        request = data.draw(st.sampled_from(self.model.line))
        woken = self.state.set_priority(request.owner, priority)
        if priority == request.priority:
            assert woken == ()
            return
        self.model.withdraw(request.owner)
        self.model.stand(request._replace(priority=priority))
        assert woken == tuple(self.model.settle())

    @rule(owner=owners, data=st.data())
    def give_back(self, owner: Owner, data: st.DataObject) -> None:
        """One rule for all ways, so that giving back does not outweigh taking."""
        ways: list[Callable[[Owner, st.DataObject], None]] = [
            self.release_owner,
            self.free_level,
            self.downgrade_level,
            self.intersect,
        ]
        data.draw(st.sampled_from(ways))(owner, data)

    def release_owner(self, owner: Owner, _data: st.DataObject | None = None) -> None:
        self.model.withdraw(owner)
        self.model.held[owner].clear()
        assert self.state.release_owner(owner) == tuple(self.model.settle())

    def free_level(self, owner: Owner, data: st.DataObject) -> None:
        level = data.draw(levels)
        self.model.withdraw(owner)
        held = self.model.held[owner]
        self.model.held[owner] = {lock: held[lock] for lock in held if not is_of(lock, level)}
        assert self.state.free_level(owner, level) == tuple(self.model.settle())

    def downgrade_level(self, owner: Owner, data: st.DataObject) -> None:
        level = data.draw(levels)
        self.model.withdraw(owner)
        for lock in self.model.held[owner]:
            if is_of(lock, level):
                self.model.held[owner][lock] = SHARED
        assert self.state.downgrade_level(owner, level) == tuple(self.model.settle())

    def intersect(self, owner: Owner, data: st.DataObject) -> None:
        kept = data.draw(st.sets(locks))
        self.model.withdraw(owner)
        held = self.model.held[owner]
        self.model.held[owner] = {lock: held[lock] for lock in held if lock in kept}
        assert self.state.intersect(owner, kept) == tuple(self.model.settle())

    @rule()
    def release_lock_file(self) -> None:
        for owner in OWNERS[:2]:
            self.model.withdraw(owner)
            self.model.held[owner].clear()
        assert self.state.release_lock_file("/l/daemon") == tuple(self.model.settle())

    @rule()
    def reload(self) -> None:
        file = decode_locks(encode_locks(self.stored.file))
        self.state, woken = LockState.restore(file)
        assert woken == ()
        self.state.take_changes()

    @invariant()
    def agrees_with_the_model(self) -> None:
        file = self.state.snapshot()
        assert [(one.owner, dict(one.locks)) for one in file.allocation] == [
            (owner, held) for owner, held in sorted(self.model.held.items()) if held
        ]
        assert [(one.priority, one.owner, one.changes) for one in file.pending] == self.model.line

    @invariant()
    def its_changes_lead_from_the_state_before_to_this_one(self) -> None:
        replay(self.stored, [TurnStored(0.0, self.state.take_changes())])
        assert self.stored.file == self.state.snapshot()

    @invariant()
    def no_two_holders_conflict(self) -> None:
        held = [dict(holding.locks) for holding in self.state.snapshot().allocation]
        assert not any(
            conflict(one, other) for place, one in enumerate(held) for other in held[:place]
        )

    @invariant()
    def each_waiting_owner_is_queued_under_one_that_blocks_it(self) -> None:
        for request in self.model.line:
            above = self.state._line[request.owner].above
            stops = self.model.holding_up(request)
            assert above in stops | {other.owner for other in self.model.harmed(request)}

    @invariant()
    def nothing_is_kept_of_ended_owners(self) -> None:
        line, waiting = self.state._line, {request.owner for request in self.model.line}
        assert sum(map(len, line._under.values())) == len(waiting)
        assert all(
            line[owner].above == above for above in line._under for owner in line.under(above)
        )
        assert line.deferred <= waiting
        assert self.state._upgrading <= waiting
        held = {owner for owner, locks in self.model.held.items() if locks}
        assert set().union(*self.state._by_lock_file.values()) == waiting | held

    def teardown(self) -> None:
        """Each owner is served once the running ones release what they hold."""
        while self.model.line:
            runs = [one for one in OWNERS if self.model.held[one] and not self.model.waiting(one)]
            assert runs, "deadlock: every owner that holds a lock waits"
            self.release_owner(runs[0])
            self.agrees_with_the_model()


def is_of(lock: str, level: LockLevel) -> bool:
    if lock == "cluster/config":
        return level is LockLevel.CONFIG
    return lock.partition("/")[0] == level.value


Locking.TestCase.settings = settings(max_examples=300, stateful_step_count=50)
TestLocking = Locking.TestCase
