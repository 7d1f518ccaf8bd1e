"""What is named as the change that gives a job its locks does give it its locks."""

from __future__ import annotations

import contextlib

from hypothesis import event, given
from hypothesis import strategies as st

from ganger.actors.locks import lock_remedies
from ganger.actors.locks.locking import LockState
from ganger.storage import errors
from ganger.storage.locks.locks import Owner
from ganger.storage.settings import PRIORITY_MAX, PRIORITY_MIN

NAMES = ("node/a", "node/b", "node/c", "node/[lockset]", "instance/x")
wanted_locks = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["shared", "exclusive"]), min_size=1, max_size=3
)
requests = st.lists(
    st.tuples(
        st.integers(1, 6), st.sampled_from([PRIORITY_MIN, -1, 0, 0, PRIORITY_MAX]), wanted_locks
    ),
    max_size=10,
)


def owner(number: int) -> Owner:
    return Owner(number, f"/l/job_{number:06d}", 100 + number)


@given(requests)
def test_the_change_gives_the_locks(asked: list[tuple[int, int, dict[str, str]]]) -> None:
    state = LockState()
    for number, priority, changes in asked:
        with contextlib.suppress(errors.LockRequestError):
            state.request(owner(number), priority, sorted(changes.items()))
    before = state.snapshot()
    waiting = [pending.owner for pending in before.pending]
    for waiter in waiting:
        remedy = lock_remedies.for_owner(state, waiter.lock_file)
        event(f"priority {remedy.priority is not None}, locks {len(remedy.locks)}")
        assert state.snapshot() == before, "it changed something"
        copy, _ = LockState.restore(before)
        woken: set[Owner] = set()
        if remedy.priority is not None:
            woken.update(copy.set_priority(waiter, remedy.priority))
        for number in remedy.locks:
            woken.update(copy.release_lock_file(owner(number).lock_file))
        assert waiter in woken, remedy
        assert waiter.identifier not in remedy.locks


@given(requests, st.sets(st.integers(1, 6)))
def test_granted_after_grants_what_a_release_grants(
    asked: list[tuple[int, int, dict[str, str]]], ended: set[int]
) -> None:
    state = LockState()
    for number, priority, changes in asked:
        with contextlib.suppress(errors.LockRequestError):
            state.request(owner(number), priority, sorted(changes.items()))
    before = state.snapshot()
    paths = [owner(number).lock_file for number in ended]
    copy, granted = lock_remedies.granted_after(state, paths)
    assert state.snapshot() == before, "it changed something"
    waited = {pending.owner.lock_file for pending in before.pending} - set(paths)
    for path in paths:
        state.release_lock_file(path)
    assert copy.snapshot() == state.snapshot()
    still = {pending.owner.lock_file for pending in state.snapshot().pending}
    assert sorted(granted) == sorted(waited - still)
