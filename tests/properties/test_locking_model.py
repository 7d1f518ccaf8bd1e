"""Lock decisions against the slow model, in steps that hypothesis chooses."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.properties.locking_model import EXCLUSIVE, LEVELS, LOCKS, OWNERS, SHARED
from tests.properties.locking_steps import Changes, LockingSteps

from ganger.storage.locks.locks import LockChange, LockMode, Owner

owners = st.sampled_from(OWNERS)
locks = st.sampled_from(LOCKS)
priorities = st.sampled_from([0, 0, 0, -5])
levels = st.sampled_from(LEVELS)
acquisitions = st.sampled_from([LockChange.SHARED, LockChange.EXCLUSIVE])


@st.composite
def requests(draw: st.DrawFn) -> Changes:
    change = st.sampled_from([*LockChange, LockChange.EXCLUSIVE])
    return tuple(draw(st.lists(st.tuples(locks, change), min_size=1, max_size=3)))


class Locking(RuleBasedStateMachine):
    """Does the same to the lock state and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = LockingSteps()
        self.model = self.steps.model

    @rule(owner=owners, priority=priorities, changes=requests())
    def request(self, owner: Owner, priority: int, changes: Changes) -> None:
        self.steps.request(owner, priority, changes)

    @precondition(lambda self: self.model.line)
    @rule(data=st.data(), priority=priorities)
    def request_again(self, data: st.DataObject, priority: int) -> None:
        self.steps.repeat(data.draw(st.sampled_from(self.model.line)), priority)

    @precondition(lambda self: len(self.model.idle()) > 1)
    @rule(data=st.data(), change=acquisitions, priority=priorities)
    def request_what_matters(self, data: st.DataObject, change: LockChange, priority: int) -> None:
        """Ask for what others hold or want: chains of owners that hold and wait."""
        owner = data.draw(st.sampled_from(self.model.idle()))
        candidates = st.sampled_from(self.steps.mattering(owner))
        chosen = data.draw(st.sets(candidates, min_size=1, max_size=2))
        self.steps.request(owner, priority, tuple((lock, change) for lock in sorted(chosen)))

    @rule(owner=owners, changes=requests())
    def try_request(self, owner: Owner, changes: Changes) -> None:
        self.steps.try_request(owner, changes)

    @rule(
        owner=owners,
        wanted=st.sets(st.tuples(locks, st.sampled_from([SHARED, EXCLUSIVE])), max_size=4),
        at_least=st.integers(0, 2),
    )
    def take_what_is_free(
        self, owner: Owner, wanted: set[tuple[str, LockMode]], at_least: int
    ) -> None:
        self.steps.take_what_is_free(owner, wanted, at_least)

    @precondition(lambda self: self.model.line)
    @rule(data=st.data(), priority=st.sampled_from([-10, -5, 0, 5]))
    def set_priority(self, data: st.DataObject, priority: int) -> None:
        self.steps.set_priority(data.draw(st.sampled_from(self.model.line)), priority)

    @rule(owner=owners, data=st.data())
    def give_back(self, owner: Owner, data: st.DataObject) -> None:
        """One rule for all ways, so that giving back does not outweigh taking."""
        steps = self.steps
        ways: list[Callable[[], None]] = [
            lambda: steps.release_owner(owner),
            lambda: steps.free_level(owner, data.draw(levels)),
            lambda: steps.downgrade_level(owner, data.draw(levels)),
            lambda: steps.intersect(owner, data.draw(st.sets(locks))),
        ]
        ways[data.draw(st.integers(0, len(ways) - 1))]()

    @rule()
    def release_lock_file(self) -> None:
        self.steps.release_lock_file()

    @rule()
    def reload(self) -> None:
        self.steps.reload()

    @invariant()
    def holds(self) -> None:
        self.steps.check()

    def teardown(self) -> None:
        self.steps.finish()


# The campaign "locking model" plays far more steps; hypothesis shrinks what it finds.
Locking.TestCase.settings = settings(max_examples=50, stateful_step_count=50)
TestLocking = Locking.TestCase
