"""Who gets a lock, who waits, and who is served next: one test for each rule."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ganger.actors.locks.locking import LockOutcome, LockState, LockView
from ganger.storage import errors
from ganger.storage.locks import (
    LockChange,
    LockLevel,
    LockMode,
    LocksFile,
    Owner,
    OwnerLocks,
    Pending,
    decode_locks,
)

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


# Who is held up by whom.


# Held by job 1, wanted by job 2: what becomes of the request.
HELD_UP = LockOutcome(granted=False, blockers=(Owner(1, "/run/livelocks/job_1", 1001),))
CONFLICTS = [
    (A, A, GRANTED),
    (A, f"{A}!", HELD_UP),
    (f"{A}!", A, HELD_UP),
    (f"{A}!", f"{A}!", HELD_UP),
    (A, f"{B}!", GRANTED),
    (f"{A}!", f"{B}!", GRANTED),
    (NODES, NODES, GRANTED),
    (NODES, A, GRANTED),
    (NODES, f"{A}!", HELD_UP),
    (NODES, f"{NODES}!", HELD_UP),
    (f"{NODES}!", A, HELD_UP),
    (f"{NODES}!", f"{A}!", HELD_UP),
    (f"{NODES}!", NODES, HELD_UP),
    (A, NODES, GRANTED),
    (A, f"{NODES}!", HELD_UP),
    (f"{A}!", NODES, HELD_UP),
    (f"{A}!", f"{NODES}!", HELD_UP),
    (f"{NODES}!", f"{NETWORK}!", GRANTED),
    (f"{BGL}!", f"{A}!", GRANTED),
    (f"{BGL}!", f"{CONFIG}!", GRANTED),
    ("cluster/[lockset]", BGL, GRANTED),
    ("cluster/[lockset]", f"{BGL}!", HELD_UP),
    ("cluster/[lockset]!", f"{CONFIG}!", GRANTED),
]


@pytest.mark.parametrize(("held", "wanted", "expected"), CONFLICTS)
def test_exclusive_conflicts_and_a_lock_set_counts_as_each_of_its_members(
    held: str, wanted: str, expected: LockOutcome
) -> None:
    state = held_state(held)
    assert state.try_request(job(2), changes(wanted)) == expected
    assert ask(state, 2, wanted) == expected


def test_an_owner_is_not_held_up_by_itself() -> None:
    state = held_state(A)
    assert ask(state, 1, f"{A}!") == GRANTED
    assert holds(state, 1) == {A: EXCLUSIVE}


def test_a_release_is_held_up_by_nobody() -> None:
    state = held_state(f"{A}!")
    assert ask(state, 2, f"-{A}") == GRANTED
    assert holds(state, 1) == {A: EXCLUSIVE}


def test_a_request_is_granted_whole_or_not_at_all() -> None:
    state = held_state(f"{A}!", f"{C}!")
    outcome = state.try_request(job(9), changes(f"{A}!, {B}!, {C}!"))
    assert outcome == LockOutcome(granted=False, blockers=(job(1), job(2)))
    assert holds(state, 9) == {}


def test_owners_with_one_job_id_and_different_processes_are_different() -> None:
    state = held_state(f"{A}!")
    twin = Owner(1, "/run/livelocks/job_1", 9999)
    assert state.try_request(twin, changes(A)).blockers == (job(1),)


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


# What may not be asked.


@pytest.mark.parametrize(
    ("held", "wanted", "text"),
    [
        ("", f"{A}, {B}, {A}!", 'Inconsitent requests for lock Node "a"'),
        ("", f"{A}, -{A}", 'Inconsitent requests for lock Node "a"'),
        ("", "what/ever", "Unknown lock name 'what/ever'"),
        (A, BGL, 'Order violation: requesting BGL while holding Node "a"'),
        (f"{A}, {C}", B, 'Order violation: requesting Node "b" while holding Node "c"'),
        (A, NODES, 'Order violation: requesting NodeLockSet while holding Node "a"'),
        (f"{A}, {B}", f"{A}!", 'Order violation: requesting Node "a" while holding Node "b"'),
        (
            f"{NODES}, {NETWORK}",
            f"{A}!",
            'Order violation: requesting Node "a" while holding Network "n"',
        ),
        (
            NODES,
            f"{A}!",
            (
                'Order violation: requesting exclusively Node "a" while holding a shared lock on'
                " the group lock NodeLockSet it belongs to."
            ),
        ),
    ],
)
def test_an_invalid_request_is_refused_and_changes_nothing(
    held: str, wanted: str, text: str
) -> None:
    state = held_state(held) if held else LockState()
    before = state.snapshot()
    with pytest.raises(errors.LockRequestError) as caught:
        ask(state, 1, wanted)
    assert caught.value.text == text
    with pytest.raises(errors.LockRequestError) as caught:
        state.try_request(job(1), changes(wanted))
    assert caught.value.text == text
    assert state.snapshot() == before


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (f"{A}!, {B}", f"{A}!"),
        (f"{A}!, {B}", A),
        (f"{NODES}, {NETWORK}", A),
        (f"{NODES}!, {NETWORK}", f"{A}!"),
        (f"{A}, {B}", f"{B}!"),
        (f"{A}, {B}", f"-{A}"),
        (f"{A}, {NETWORK}", f"{CONFIG}!"),
    ],
)
def test_what_is_held_well_enough_may_be_asked_again_below_the_highest_lock(
    held: str, wanted: str
) -> None:
    assert ask(held_state(held), 1, wanted) == GRANTED


def test_lock_order_counts_from_what_was_held_before_the_request() -> None:
    state = LockState()
    assert ask(state, 1, f"{C}!, {A}, {B}") == GRANTED
    ask(state, 1, f"-{C}")
    assert ask(state, 1, f"{B}, {C}") == GRANTED


def test_identical_duplicates_in_a_request_pass() -> None:
    state = LockState()
    assert ask(state, 1, f"{A}!, {A}!") == GRANTED
    state.release_owner(job(1))
    assert ask(state, 2, f"{NODES}!") == GRANTED


def test_an_unknown_change_is_refused() -> None:
    with pytest.raises(errors.LockRequestError, match="Unknown lock change"):
        LockState().request(job(1), 0, [(A, "borrow")])


def test_who_waits_may_not_ask_for_anything_else() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, f"{A}!")
    for wanted, priority in ((f"{A}", 0), (f"{A}!, {B}", 1), (f"-{B}", 0)):
        with pytest.raises(errors.LockRequestError) as caught:
            ask(state, 2, wanted, priority)
        assert caught.value.text == "cannot update locks while having pending requests"
    with pytest.raises(errors.LockRequestError, match="pending requests"):
        state.try_request(job(2), changes(B))
    with pytest.raises(errors.LockRequestError, match="pending requests"):
        state.opportunistic_union(job(2), [(B, SHARED)])


# Waiting.


def test_repeating_the_request_that_waits_tells_the_present_blockers() -> None:
    state = held_state(A, A)
    assert numbers(ask(state, 3, f"{A}!").blockers) == [1, 2]
    state.release_owner(job(1))
    revision = state.revision
    assert ask(state, 3, f"{A}!") == LockOutcome(granted=False, blockers=(job(2),))
    assert state.revision == revision


def test_the_request_that_waits_may_be_repeated_with_another_priority() -> None:
    # As a job does after a restart, whose priority was changed while it waited.
    state = held_state(f"{A}!")
    for number in (2, 3):
        ask(state, number, f"{A}!")
    assert ask(state, 3, f"{A}!", -5) == LockOutcome(granted=False, blockers=(job(1),))
    assert [(one.owner, one.priority) for one in state.snapshot().pending] == [
        (job(3), -5),
        (job(2), 0),
    ]
    assert state.release_owner(job(1)) == (job(3),)


def test_a_request_that_is_repeated_with_a_better_priority_may_be_granted_at_once() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    assert not ask(state, 3, A, 5).granted
    assert ask(state, 3, A, -5) == LockOutcome(granted=True)


def test_a_try_never_waits() -> None:
    state = held_state(f"{A}!")
    revision = state.revision
    assert not state.try_request(job(2), changes(f"{A}!")).granted
    assert not state.has_pending(job(2))
    assert state.revision == revision


def test_who_waits_is_served_when_the_lock_is_given_back() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, f"{A}!")
    assert state.has_pending(job(2))
    assert ask(state, 1, f"-{A}") == LockOutcome(granted=True, woken=(job(2),))
    assert not state.has_pending(job(2))
    assert holds(state, 2) == {A: EXCLUSIVE}


def test_those_who_wait_are_served_by_priority_then_owner() -> None:
    state = held_state(f"{A}!")
    thread = Owner("thread", "/run/livelocks/daemon", 1)
    ask(state, 4, f"{A}!")
    ask(state, 3, f"{A}!")
    ask(state, 5, f"{A}!", priority=-1)
    state.request(thread, 0, changes(f"{A}!"))
    served: list[Owner] = [job(1)]
    while woken := state.release_owner(served[-1]):
        served += woken
    assert served == [job(1), job(5), thread, job(3), job(4)]


def test_a_downgrade_serves_those_who_share() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, A)
    ask(state, 3, A)
    assert ask(state, 1, A).woken == (job(2), job(3))


def test_who_is_served_may_give_back_and_so_serve_others() -> None:
    state = held_state(f"{B}!", f"{A}!")
    ask(state, 2, f"-{A}, {B}!")
    ask(state, 3, f"{A}!")
    assert state.release_owner(job(1)) == (job(2), job(3))
    assert holds(state, 2) == {B: EXCLUSIVE}
    assert holds(state, 3) == {A: EXCLUSIVE}


def test_who_waits_for_several_is_served_after_the_last() -> None:
    for order in itertools.permutations([1, 2, 3]):
        state = held_state(f"{A}!", f"{B}!", f"{C}!")
        ask(state, 4, f"{A}!, {B}!, {C}!")
        woken = [numbers(state.release_owner(job(number))) for number in order]
        assert woken == [[], [], [4]]


def test_only_those_whose_locks_come_free_are_served() -> None:
    state = held_state(f"{A}!", f"{B}!")
    ask(state, 3, f"{A}!")
    ask(state, 4, f"{B}!")
    assert state.release_owner(job(2)) == (job(4),)
    assert state.has_pending(job(3))


# The line: no barging.


def test_a_new_request_does_not_pass_a_waiting_one_that_it_would_harm() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    assert ask(state, 3, A) == LockOutcome(granted=False, blockers=(job(2),))
    assert state.try_request(job(4), changes(A)) == LockOutcome(granted=False, blockers=(job(2),))
    assert state.opportunistic_union(job(4), [(A, SHARED), (B, SHARED)]) == [B]
    assert state.release_owner(job(1)) == (job(2),)
    assert state.release_owner(job(2)) == (job(3),)


def test_a_new_request_passes_waiting_ones_that_it_does_not_harm() -> None:
    state = held_state(A, f"{B}!")
    ask(state, 3, f"{A}!")
    ask(state, 4, f"{B}")
    assert ask(state, 5, f"{C}!") == GRANTED
    state.release_owner(job(2))
    ask(state, 6, f"{B}!")
    assert ask(state, 7, f"{NETWORK}!") == GRANTED


def test_sharing_does_not_harm_those_who_wait_to_share() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, f"{A}, {B}")
    assert ask(state, 3, B) == GRANTED


def test_a_more_urgent_request_passes_a_less_urgent_one() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!", priority=5)
    assert ask(state, 3, A, priority=4) == GRANTED
    assert not ask(state, 4, A, priority=5).granted
    assert not ask(state, 5, A, priority=6).granted


def test_a_try_passes_only_those_less_urgent_than_the_priority_it_gives() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!", priority=5)
    assert not state.try_request(job(3), changes(A), priority=5).granted
    assert state.try_request(job(3), changes(A), priority=4).granted


def test_a_new_request_stopped_by_the_line_alone_stands_behind_whom_it_would_harm() -> None:
    state = held_state(f"{A}!")
    ask(state, 7, f"{A}!, {B}!")
    # Job 5 is older, but not held up: it would have passed job 7 that waited before.
    assert ask(state, 5, f"{B}!") == LockOutcome(granted=False, blockers=(job(7),))
    assert [one.owner.identifier for one in state.snapshot().pending] == [7, 5]
    assert state.release_owner(job(1)) == (job(7),)
    assert state.release_owner(job(7)) == (job(5),)


def test_a_waiting_request_does_not_pass_one_ahead_that_still_waits() -> None:
    state = held_state(f"{A}!", f"{B}!")
    ask(state, 3, f"{A}!, {B}!")
    ask(state, 4, f"{B}!")
    # Lock b is free now, but job 3, ahead of job 4, still waits for lock a, and needs both.
    assert state.release_owner(job(2)) == ()
    assert state.release_owner(job(1)) == (job(3),)
    assert state.release_owner(job(3)) == (job(4),)


def test_who_stood_behind_one_that_gives_up_is_served() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    ask(state, 3, A)
    assert state.release_owner(job(2)) == (job(3),)


def test_who_was_deferred_by_one_and_then_held_up_by_another_is_served_after_both() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    ask(state, 3, A)
    assert ask(state, 4, f"{A}!", priority=-1).blockers == (job(1),)
    assert state.release_owner(job(1)) == (job(4),)
    assert state.release_owner(job(2)) == ()
    assert ask(state, 3, A).blockers == (job(4),)
    assert state.release_owner(job(4)) == (job(3),)


# The exception: who is waited for is let pass.


def test_an_owner_passes_one_that_waits_for_its_locks() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, f"{A}!, {B}!")
    assert ask(state, 1, f"{B}!") == GRANTED


def test_an_owner_passes_one_that_waits_for_it_through_others() -> None:
    state = held_state(f"{B}!", f"{A}!")
    ask(state, 2, f"{B}!")
    ask(state, 3, f"{A}!, {C}!")
    # Job 3 waits for job 2, which waits for job 1.
    assert ask(state, 1, f"{C}!") == GRANTED


def test_an_owner_passes_one_that_stands_behind_one_that_waits_for_it() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, f"{A}!, {B}!")
    ask(state, 3, f"{B}!, {C}!")
    # Nobody holds b or c, but job 3 stands behind job 2, which waits for job 1.
    assert ask(state, 1, f"{C}!") == GRANTED


def test_an_owner_waited_for_by_a_stranger_passes_nobody_else() -> None:
    state = held_state(f"{A}!", f"{B}!")
    ask(state, 3, f"{A}!")
    ask(state, 4, f"{B}!, {C}!")
    assert ask(state, 1, f"{C}!") == LockOutcome(granted=False, blockers=(job(4),))


def test_who_stands_in_line_is_let_pass_as_soon_as_those_ahead_begin_to_wait_for_it() -> None:
    state = held_state(f"{A}!", f"{B}!")
    ask(state, 3, f"{A}!, {C}!")
    # Job 3 waits for job 1 only: job 2 stands behind it.
    assert ask(state, 2, f"{C}!").blockers == (job(3),)
    # Now job 1 waits for job 2: if that went on standing behind job 3, all three would for ever.
    assert ask(state, 1, f"{B}!") == LockOutcome(granted=False, blockers=(job(2),), woken=(job(2),))
    assert state.release_owner(job(2)) == (job(1),)
    assert state.release_owner(job(1)) == (job(3),)


def test_one_who_enters_the_line_may_be_served_by_what_that_sets_free() -> None:
    state = held_state(f"{A}!", f"{B}!")
    ask(state, 3, f"{A}!, {C}!")
    assert not ask(state, 2, f"{C}!, -{B}").granted
    # Job 2 is let pass, as above, and gives b back as it does.
    assert ask(state, 1, f"{B}!") == LockOutcome(granted=True, woken=(job(2),))
    assert holds(state, 1) == {A: EXCLUSIVE, B: EXCLUSIVE}


def test_waiting_for_somebody_is_followed_from_every_place_in_line() -> None:
    state = held_state(f"{B}!", "network/z!")
    ask(state, 5, f"{A}!")
    ask(state, 5, f"{B}!, {C}!", priority=3)
    ask(state, 6, f"{A}!, {C}!", priority=1)
    ask(state, 4, f"{C}!, {NETWORK}!, network/z!", priority=2)
    # Job 4 stands behind job 6, that waits for job 5, and that for job 1. Job 5 wants lock c as
    # well, and nobody stands behind it; it counts that somebody does behind job 6.
    assert ask(state, 1, f"{NETWORK}!", priority=4) == GRANTED


def test_who_stands_behind_a_request_lets_it_pass_one_that_waits_for_both() -> None:
    state = held_state(f"{B}!")
    ask(state, 5, f"{A}!")
    ask(state, 5, f"{B}!, {C}!", priority=3)
    ask(state, 6, f"{A}!, {C}!", priority=1)
    # Job 6 is more urgent than job 4, but waits for job 5, which stands behind job 4.
    assert ask(state, 4, f"{C}!", priority=2) == GRANTED


def test_of_two_who_would_wait_for_each_other_to_stop_sharing_the_second_is_refused() -> None:
    state = held_state(A, A)
    assert not ask(state, 1, f"{A}!").granted
    with pytest.raises(errors.LockRequestError) as caught:
        ask(state, 2, f"{A}!")
    assert caught.value.text == (
        "Deadlock: 1 holds what is requested and waits for what the requester holds"
    )
    assert state.release_owner(job(2)) == (job(1),)


def test_no_ring_is_closed_through_a_lock_set_made_exclusive() -> None:
    state = held_state(NODES, A)
    assert not ask(state, 2, f"{B}!").granted
    with pytest.raises(errors.LockRequestError, match="Deadlock"):
        ask(state, 1, f"{NODES}!")
    state = held_state(NODES, A)
    assert not ask(state, 1, f"{NODES}!").granted
    with pytest.raises(errors.LockRequestError, match="Deadlock"):
        ask(state, 2, f"{B}!")


# Priorities that change.


def test_a_waiting_request_made_more_urgent_passes_others() -> None:
    state = held_state(f"{A}!")
    ask(state, 2, f"{A}!")
    ask(state, 3, f"{A}!")
    assert state.set_priority(job(3), -5) == ()
    assert [(one.priority, one.owner.identifier) for one in state.snapshot().pending] == [
        (-5, 3),
        (0, 2),
    ]
    assert state.release_owner(job(1)) == (job(3),)


def test_a_request_that_only_the_line_stops_is_served_when_made_more_urgent() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    ask(state, 3, A)
    assert state.set_priority(job(3), -5) == (job(3),)


def test_a_request_made_more_urgent_serves_others_with_what_it_gives_back() -> None:
    state = held_state(B, f"{A}!")
    ask(state, 4, f"{B}!")
    ask(state, 2, f"-{A}, {B}")
    ask(state, 3, f"{A}!")
    assert state.set_priority(job(2), -5) == (job(2), job(3))


def test_who_stands_in_line_is_let_pass_if_a_priority_makes_those_ahead_wait_for_it() -> None:
    state = held_state(f"{A}!", f"{B}!")
    ask(state, 9, f"{C}!")
    ask(state, 1, f"{C}!", priority=-1)
    ask(state, 3, f"{A}!, {NETWORK}!")
    ask(state, 4, f"{B}!, {C}!")
    # Job 3 waits for job 1, that for job 9, and nobody of these for job 2.
    assert ask(state, 2, f"{NETWORK}!").blockers == (job(3),)
    # Now job 1 stands behind job 4, which waits for job 2.
    assert state.set_priority(job(1), 5) == (job(2),)


def test_those_deferred_by_a_request_are_served_when_it_is_made_less_urgent() -> None:
    state = held_state(A)
    ask(state, 2, f"{A}!")
    ask(state, 3, A)
    assert state.set_priority(job(2), 5) == (job(3),)


def test_the_priority_of_who_does_not_wait_is_nobodys_concern() -> None:
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
    assert state.list_all_locks() == []
    assert state.release_owner(job(1)) == ()


def test_a_lock_file_frees_every_owner_that_had_it_and_nobody_else() -> None:
    state = held_state(f"{A}!")
    first, second = (Owner(name, "/run/livelocks/daemon", 7) for name in ("one", "two"))
    state.request(first, 0, changes(f"{B}!"))
    state.request(second, 0, changes(f"{A}!"))
    ask(state, 3, f"{A}!")
    ask(state, 4, f"{B}!")
    assert state.release_lock_file("/run/livelocks/daemon") == (job(4),)
    assert state.owners() == [job(1), job(3), job(4)]
    assert state.release_lock_file("/run/livelocks/daemon") == ()
    assert state.release_owner(job(1)) == (job(3),)


def test_a_level_is_freed_alone() -> None:
    state = held_state(f"{BGL}, {A}!, {B}, node-res/a!, {CONFIG}!")
    ask(state, 2, f"{A}!")
    assert state.free_level(job(1), LockLevel.NODE) == (job(2),)
    assert list(holds(state, 1)) == [BGL, "node-res/a", CONFIG]
    state.free_level(job(1), LockLevel.CLUSTER)
    assert list(holds(state, 1)) == ["node-res/a", CONFIG]
    state.free_level(job(1), LockLevel.CONFIG)
    assert list(holds(state, 1)) == ["node-res/a"]


def test_a_level_is_made_shared_alone() -> None:
    state = held_state(f"{A}!, {B}, {NETWORK}!")
    ask(state, 2, f"{A}")
    assert state.downgrade_level(job(1), LockLevel.NODE) == (job(2),)
    assert holds(state, 1) == {A: SHARED, B: SHARED, NETWORK: EXCLUSIVE}


def test_an_intersection_releases_all_else_on_all_levels() -> None:
    state = held_state(f"{BGL}, {A}!, {B}!, {NETWORK}!")
    ask(state, 2, f"{A}!")
    assert state.intersect(job(1), [B, C, NETWORK]) == (job(2),)
    assert holds(state, 1) == {B: EXCLUSIVE, NETWORK: EXCLUSIVE}
    with pytest.raises(errors.LockRequestError, match="Unknown lock name"):
        state.intersect(job(1), ["what/ever"])


# Opportunism.


def test_what_is_free_is_taken_and_told_in_reverse_lock_order() -> None:
    state = held_state(f"{B}!")
    wanted = [(lock, EXCLUSIVE) for lock in (NETWORK, C, B, A)]
    assert state.opportunistic_union(job(2), wanted) == [NETWORK, C, A]
    assert list(holds(state, 2)) == [A, C, NETWORK]


def test_what_is_held_already_is_not_told_as_new() -> None:
    state = held_state(f"{A}!, {B}")
    assert state.opportunistic_union(job(1), [(A, SHARED), (B, EXCLUSIVE), (C, SHARED)]) == [C, B]
    assert holds(state, 1) == {A: EXCLUSIVE, B: EXCLUSIVE, C: SHARED}


def test_what_is_out_of_lock_order_cannot_be_had() -> None:
    state = held_state(B)
    assert state.opportunistic_union(job(1), [(A, SHARED), (C, SHARED)]) == [C]


def test_too_few_free_locks_are_not_taken_at_all() -> None:
    state = held_state(A, f"{B}!")
    before = state.snapshot()
    wanted = [(A, EXCLUSIVE), (B, SHARED), (C, EXCLUSIVE)]
    assert state.opportunistic_union(job(1), wanted, at_least=3) == []
    assert state.snapshot() == before
    assert state.opportunistic_union(job(1), wanted, at_least=2) == [C, A]


# Listing.


def test_lock_sets_with_members_held_are_listed_without_owners() -> None:
    state, woken = LockState.restore(decode_locks(RECORDED.read_bytes()))
    assert woken == ()
    first, second = state.owners()
    node = "node/90910f02-036a-444f-8631-f25d6d53cb05"
    assert state.list_locks(first) == ((BGL, SHARED), (node, EXCLUSIVE))
    assert state.list_locks(job(1)) == ()
    assert state.mode_of(first, node) is EXCLUSIVE
    assert state.mode_of(second, node) is None
    assert state.list_all_locks() == ["cluster/[lockset]", BGL, NODES, node]
    listed = [
        ("cluster/[lockset]", []),
        (BGL, [(first, SHARED), (second, SHARED)]),
        (NODES, []),
        (node, [(first, EXCLUSIVE)]),
    ]
    assert state.list_all_locks_owners() == listed
    assert state.list_waiting_status() == (
        listed,
        [Pending(0, second, ((node, LockChange.EXCLUSIVE),))],
    )


def test_rows_tell_holders_and_those_who_wait_sorted_naturally() -> None:
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


def test_a_restored_state_goes_on_as_the_one_that_was_written() -> None:
    state = held_state(f"{A}!")
    ask(state, 7, f"{A}!, {B}!")
    ask(state, 5, f"{B}!")
    ask(state, 6, f"{A}!")
    again, woken = LockState.restore(state.snapshot())
    assert woken == ()
    assert again.snapshot() == state.snapshot()
    for one in (state, again):
        assert one.release_owner(job(1)) == (job(7),)
        assert one.release_owner(job(7)) == (job(5), job(6))


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
