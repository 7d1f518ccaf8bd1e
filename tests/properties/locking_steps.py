"""Steps that do the same to the lock state and to the slow model, and compare.

`test_locking_model` lets hypothesis choose the steps, and `tests/torture/locks` plays many of them.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pytest
from tests.properties.locking_model import (
    LOCKS,
    OWNERS,
    SHARED,
    LockModel,
    Request,
    conflict,
    is_of,
)

from ganger.actors.locks.locking import LockState
from ganger.storage import errors
from ganger.storage.locks.lock_journal import StoredLocks, TurnStored, replay
from ganger.storage.locks.locks import (
    LockChange,
    LockLevel,
    LockMode,
    Owner,
    decode_locks,
    encode_locks,
)

Changes = tuple[tuple[str, LockChange], ...]


class LockingSteps:
    """A lock state, what its journal tells, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.state = LockState()
        self.stored = StoredLocks()
        self.model = LockModel()

    # Requests.

    def request(self, owner: Owner, priority: int, changes: Changes) -> None:
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

    def repeat(self, waiting: Request, priority: int) -> None:
        """As a job does after a restart, with the priority that it has by then."""
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

    def mattering(self, owner: Owner) -> list[str]:
        """The locks in order for the owner that others hold or want."""
        highest = max(map(LOCKS.index, self.model.held[owner]), default=-1)
        others = [held for other, held in self.model.held.items() if other != owner]
        matters = {lock for held in others for lock in held}
        matters |= {lock for request in self.model.line for lock in request.wants}
        return [lock for lock in LOCKS[highest + 1 :] if lock in matters] or LOCKS[-2:]

    def try_request(self, owner: Owner, changes: Changes) -> None:
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

    def take_what_is_free(
        self, owner: Owner, wanted: AbstractSet[tuple[str, LockMode]], at_least: int
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

    def set_priority(self, request: Request, priority: int) -> None:
        woken = self.state.set_priority(request.owner, priority)
        if priority == request.priority:
            assert woken == ()
            return
        self.model.withdraw(request.owner)
        self.model.stand(request._replace(priority=priority))
        assert woken == tuple(self.model.settle())

    # Giving back.

    def release_owner(self, owner: Owner) -> None:
        self.model.withdraw(owner)
        self.model.held[owner].clear()
        assert self.state.release_owner(owner) == tuple(self.model.settle())

    def free_level(self, owner: Owner, level: LockLevel) -> None:
        self.model.withdraw(owner)
        held = self.model.held[owner]
        self.model.held[owner] = {lock: held[lock] for lock in held if not is_of(lock, level)}
        assert self.state.free_level(owner, level) == tuple(self.model.settle())

    def downgrade_level(self, owner: Owner, level: LockLevel) -> None:
        self.model.withdraw(owner)
        for lock in self.model.held[owner]:
            if is_of(lock, level):
                self.model.held[owner][lock] = SHARED
        assert self.state.downgrade_level(owner, level) == tuple(self.model.settle())

    def intersect(self, owner: Owner, kept: AbstractSet[str]) -> None:
        self.model.withdraw(owner)
        held = self.model.held[owner]
        self.model.held[owner] = {lock: held[lock] for lock in held if lock in kept}
        assert self.state.intersect(owner, kept) == tuple(self.model.settle())

    def release_lock_file(self) -> None:
        for owner in OWNERS[:2]:
            self.model.withdraw(owner)
            self.model.held[owner].clear()
        assert self.state.release_lock_file("/l/daemon") == tuple(self.model.settle())

    def reload(self) -> None:
        """A successor reads what the journal tells."""
        file = decode_locks(encode_locks(self.stored.file))
        self.state, woken = LockState.restore(file)
        assert woken == ()
        self.state.take_changes()

    # What holds after every step.

    def check(self) -> None:
        self.check_agreement()
        self.check_changes()
        self.check_holders()
        self.check_waiting()
        self.check_left_overs()

    def check_agreement(self) -> None:
        file = self.state.snapshot()
        assert [(one.owner, dict(one.locks)) for one in file.allocation] == [
            (owner, held) for owner, held in sorted(self.model.held.items()) if held
        ]
        assert [(one.priority, one.owner, one.changes) for one in file.pending] == self.model.line

    def check_changes(self) -> None:
        """The changes lead from the state before to this one."""
        replay(self.stored, [TurnStored(0.0, self.state.take_changes())])
        assert self.stored.file == self.state.snapshot()

    def check_holders(self) -> None:
        held = [dict(holding.locks) for holding in self.state.snapshot().allocation]
        assert not any(
            conflict(one, other) for place, one in enumerate(held) for other in held[:place]
        )

    def check_waiting(self) -> None:
        """Each waiting owner is queued under one that blocks it."""
        for request in self.model.line:
            above = self.state._line[request.owner].above
            stops = self.model.holding_up(request)
            assert above in stops | {other.owner for other in self.model.harmed(request)}

    def check_left_overs(self) -> None:
        """Nothing is kept of ended owners."""
        line, waiting = self.state._line, {request.owner for request in self.model.line}
        assert sum(map(len, line._under.values())) == len(waiting)
        assert all(
            line[owner].above == above for above in line._under for owner in line.under(above)
        )
        assert line.deferred <= waiting
        assert self.state._upgrading <= waiting
        held = {owner for owner, locks in self.model.held.items() if locks}
        assert set().union(*self.state._by_lock_file.values()) == waiting | held

    def finish(self) -> None:
        """Each owner is served once the running ones release what they hold."""
        while self.model.line:
            runs = [one for one in OWNERS if self.model.held[one] and not self.model.waiting(one)]
            assert runs, "deadlock: every owner that holds a lock waits"
            self.release_owner(runs[0])
            self.check_agreement()
