"""What changes a lock state, and what it shows; tests/transcripts/locking has the rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ganger.actors.locks import lock_remedies
from ganger.actors.locks.locking import LockOutcome, LockState
from ganger.storage import errors
from ganger.storage.locks.lock_rows import LockView
from ganger.storage.locks.locks import (
    LockChange,
    LockLevel,
    LockMode,
    LocksFile,
    Owner,
    OwnerLocks,
    Pending,
    decode_locks,
)
from ganger.storage.settings import PRIORITY_MIN

RECORDED = Path(__file__).parents[2] / "compatibility" / "data" / "locks.data"
NODES, A, B, C = "node/[lockset]", "node/a", "node/b", "node/c"
BGL, CONFIG, NETWORK = "cluster/BGL", "cluster/config", "network/n"
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE
GRANTED = LockOutcome(granted=True)


def job(number: int) -> Owner:
    return Owner(number, f"/run/livelocks/job_{number}", 1000 + number)


def changes(text: str) -> list[tuple[str, str]]:
    """``"node/a!, node/b, -node/c"``: a exclusively, b shared, c released."""
    return [
        (part.strip("!- "), "release" if "-n" in part else "exclusive" if "!" in part else "shared")
        for part in text.split(",")
    ]


def ask(state: LockState, number: int, text: str, priority: int = 0) -> LockOutcome:
    return state.request(job(number), priority, changes(text))


def holds(state: LockState, number: int) -> dict[str, LockMode]:
    return dict(state.list_locks(job(number)))


def numbers(owners: tuple[Owner, ...]) -> list[int | str]:
    return [owner.identifier for owner in owners]


def held_state(*held: str) -> LockState:
    """Job 1 holds the first, job 2 the second, ..."""
    state = LockState()
    for number, text in enumerate(held, start=1):
        assert ask(state, number, text) == GRANTED
    return state


def test_a_request_that_is_satisfied_already_succeeds_and_changes_nothing() -> None:
    state = held_state(f"{A}!, {B}")
    ask(state, 2, f"{A}!")
    revision = state.revision
    assert ask(state, 1, f"{B}, {A}!") == GRANTED
    assert state.revision == revision


CHANGING: list[Callable[[LockState], object]] = [
    lambda state: ask(state, 2, f"{A}!"),
    lambda state: state.set_priority(job(3), -1),
    lambda state: state.release_owner(job(3)),
    lambda state: ask(state, 1, A),
    lambda state: state.opportunistic_union(job(1), [(B, SHARED)]),
    lambda state: state.release_owner(job(1)),
]


@pytest.mark.parametrize("change", CHANGING)
def test_every_change_moves_the_revision(change: Callable[[LockState], object]) -> None:
    state = held_state(f"{A}!")
    ask(state, 3, f"{A}!")
    before = state.revision
    change(state)
    assert state.revision > before


def test_a_try_never_waits() -> None:
    state = held_state(f"{A}!")
    revision = state.revision
    assert not state.try_request(job(2), changes(f"{A}!")).granted
    assert not state.has_pending(job(2))
    assert state.revision == revision


def test_a_new_priority_changes_nothing_for_an_owner_that_does_not_wait() -> None:
    state = held_state(A)
    revision = state.revision
    assert state.set_priority(job(1), 5) == ()
    assert state.set_priority(job(2), 5) == ()
    assert state.revision == revision


# Giving back.


GIVING_BACK: list[Callable[[LockState], tuple[Owner, ...]]] = [
    lambda state: state.release_owner(job(2)),
    lambda state: state.free_level(job(2), LockLevel.NETWORK),
    lambda state: state.downgrade_level(job(2), LockLevel.NETWORK),
    lambda state: state.intersect(job(2), [A, B, C]),
    lambda state: state.release_lock_file(job(2).lock_file),
]


@pytest.mark.parametrize("give_back", GIVING_BACK)
def test_giving_back_withdraws_the_waiting_request(
    give_back: Callable[[LockState], tuple[Owner, ...]],
) -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    ask(state, 3, A)
    assert give_back(state) == (job(3),)
    assert not state.has_pending(job(2))


def test_a_freed_owner_is_forgotten() -> None:
    state = held_state(f"{BGL}, {A}!, {CONFIG}!")
    ask(state, 2, f"{A}!")
    state.release_owner(job(1))
    state.release_owner(job(2))
    assert state.snapshot() == LocksFile()
    assert state.owners() == []
    assert state.list_waiting_status() == ([], [])
    assert state.release_owner(job(1)) == ()


# Listing.


def test_lock_sets_with_members_held_are_listed_without_owners() -> None:
    state, woken = LockState.restore(decode_locks(RECORDED.read_bytes()))
    assert woken == ()
    first, second = state.owners()
    node = "node/90910f02-036a-444f-8631-f25d6d53cb05"
    assert state.list_locks(first) == ((BGL, SHARED), (node, EXCLUSIVE))
    assert state.list_locks(job(1)) == ()
    assert state.list_locks(second) == ((BGL, SHARED),)
    listed = [
        ("cluster/[lockset]", []),
        (BGL, [(first, SHARED), (second, SHARED)]),
        (NODES, []),
        (node, [(first, EXCLUSIVE)]),
    ]
    assert state.list_waiting_status() == (
        listed,
        [Pending(0, second, ((node, LockChange.EXCLUSIVE),))],
    )


def test_rows_have_holders_and_waiting_owners_sorted_naturally() -> None:
    state = held_state("node/n10!", "node/n9", "node/n9", "node/x1!")
    ask(state, 5, "node/n9!, node/n010!")
    state.request(job(3), 0, [("node/n9", "release"), ("node/x1", "shared")])
    exclusive, shared, release = LockChange.EXCLUSIVE, LockChange.SHARED, LockChange.RELEASE
    assert state.rows() == [
        LockView(NODES, None, (), ()),
        LockView("node/n9", SHARED, (job(2), job(3)), ((release, job(3)), (exclusive, job(5)))),
        LockView("node/n010", None, (), ((exclusive, job(5)),)),
        LockView("node/n10", EXCLUSIVE, (job(1),), ()),
        LockView("node/x1", EXCLUSIVE, (job(4),), ((shared, job(3)),)),
    ]


# The file.


def test_what_could_be_served_is_served_as_the_state_is_restored() -> None:
    file = LocksFile((), (Pending(0, job(1), ((A, LockChange.EXCLUSIVE),)),))
    state, woken = LockState.restore(file)
    assert woken == (job(1),)
    assert holds(state, 1) == {A: EXCLUSIVE}


@pytest.mark.parametrize(
    "file",
    [
        LocksFile((OwnerLocks(job(1), ((A, EXCLUSIVE),)), OwnerLocks(job(2), ((NODES, SHARED),)))),
        LocksFile((OwnerLocks(job(1), ((A, SHARED), (A, SHARED))),)),
        LocksFile((), (Pending(0, job(1), ()), Pending(1, job(1), ()))),
    ],
)
def test_a_file_that_contradicts_itself_is_not_restored(file: LocksFile) -> None:
    with pytest.raises(errors.StorageError, match=r"locks\.data"):
        LockState.restore(file)


def test_the_hint_names_a_priority_better_than_all_before_the_owner() -> None:
    for best, locks, hint in (
        (-5, [1], -6),
        (PRIORITY_MIN + 1, [1], PRIORITY_MIN),
        # None is better than the best.
        (PRIORITY_MIN, [1, 2, 3], None),
    ):
        state = held_state("node/a!")
        for number, priority in ((2, best), (3, 0), (4, 1)):
            ask(state, number, "node/a!", priority)
        remedy = lock_remedies.for_owner(state, job(4).lock_file)
        assert (remedy.locks, remedy.priority) == (locks, hint)


def test_the_hint_names_those_that_pass_the_owner_when_others_end() -> None:
    state = held_state("node/a, node/b!")
    ask(state, 4, "node/a")
    for number, text in ((4, "node/a!"), (3, "node/a, node/b"), (2, "node/a!")):
        ask(state, number, text, PRIORITY_MIN)
    assert lock_remedies.for_owner(state, job(2).lock_file).locks == [1, 3, 4]


def test_a_holder_is_shown_with_the_mode_in_which_it_stands_in_the_way() -> None:
    """Not with that of another lock of the level; so the cost does not grow with what it holds."""
    state = held_state("node/a, node/b!")
    ask(state, 2, "node/a!, node/b")
    [on_a, on_b] = state.wants_of(job(2).lock_file)
    assert (on_a.name, on_a.holders) == (A, ((job(1), SHARED),))
    assert (on_b.name, on_b.holders) == (B, ((job(1), EXCLUSIVE),))
    ask(state, 3, "node/[lockset]")
    [on_all] = state.wants_of(job(3).lock_file)
    assert on_all.holders == ((job(1), EXCLUSIVE),)
    everything = held_state("node/[lockset]!")
    ask(everything, 2, "node/a")
    assert everything.wants_of(job(2).lock_file)[0].holders == ((job(1), EXCLUSIVE),)


def test_a_try_does_not_jump_the_line() -> None:
    """What it wants is free, and the least urgent request would have to wait longer for it."""
    state = held_state(A)
    ask(state, 2, f"{A}!", 19)
    tried = state.try_request(job(3), changes(A))
    assert (tried.granted, numbers(tried.blockers)) == (False, [2])
    assert holds(state, 3) == {}
    # It harms nobody in the line for another lock, and one that is more urgent may go first.
    assert state.try_request(job(3), changes(B)).granted
    assert state.try_request(job(4), changes(A), priority=-1).granted
