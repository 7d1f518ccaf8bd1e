from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage.prediction import lock_types
from ganger.storage.prediction.lock_types import forecast_of
from ganger.storage.prediction.planned_locks import claims_of
from ganger.storage.prediction.planning import (
    BEHIND_OVERDUE,
    UNKNOWN,
    Candidate,
    Planned,
    Runner,
    plan,
    seconds_left,
)

USUAL = 5.0

ONE = claims_of(forecast_of(node=lock_types.exclusive(["n1"])))
OTHER = claims_of(forecast_of(node=lock_types.exclusive(["n2"])))
SHARES_ONE = claims_of(forecast_of(node=lock_types.shared(["n1"])))
ALL_NODES = claims_of(forecast_of(node=lock_types.ALL_EXCLUSIVE))
SHARES_ALL = claims_of(forecast_of(node=lock_types.ALL_SHARED))


def spans(found: dict[int, Planned]) -> dict[int, tuple[float | None, float | None]]:
    return {job_id: (one.start, one.end) for job_id, one in found.items()}


def test_jobs_take_the_run_slots_in_order() -> None:
    jobs = [Candidate(number, 4.0) for number in (1, 2, 3)]
    assert spans(plan([Runner(9, 3.0)], jobs, 2, USUAL)) == {
        9: (0, 3),
        1: (0, 4),
        2: (3, 7),
        3: (4, 8),
    }


def test_a_job_without_history_has_a_start_and_no_end() -> None:
    found = plan([], [Candidate(1, None), Candidate(2, 1.0)], 1, USUAL)
    assert found == {1: Planned(0, None, 0), 2: Planned(5, 6, 1)}


def test_a_running_job_without_history_is_a_guess_for_those_behind_it() -> None:
    found = plan([Runner(9, None)], [Candidate(1, 1.0)], 1, USUAL)
    assert found == {9: Planned(0, None), 1: Planned(5, 6, 1)}


def test_a_job_waits_for_those_it_depends_on_while_others_pass() -> None:
    jobs = [Candidate(1, 6.0), Candidate(2, 1.0, (1,)), Candidate(3, 2.0), Candidate(4, 9.0)]
    assert spans(plan([], jobs, 2, USUAL)) == {1: (0, 6), 3: (0, 2), 4: (2, 11), 2: (6, 7)}


def test_a_job_that_is_held_and_those_that_depend_on_it_are_unknown() -> None:
    jobs = [Candidate(1, 6.0, is_held=True), Candidate(2, 1.0, (1,)), Candidate(3, 2.0, (77,))]
    assert plan([], jobs, 2, USUAL) == {1: UNKNOWN, 2: UNKNOWN, 3: UNKNOWN}


def test_an_overdue_job_keeps_its_slot_and_its_locks() -> None:
    late = Runner(9, 3.0, ONE, is_overdue=True)
    jobs = [Candidate(1, 4.0, claims=ONE), Candidate(2, 4.0), Candidate(3, 4.0, (9,))]
    held = [Candidate(4, 4.0, is_held=True), Candidate(5, 4.0, (4,)), Candidate(6, 4.0, (1,))]
    found = plan([late], [*jobs, *held], 2, USUAL, holds_back=True)
    assert found[9] == Planned(0.0, None, is_overdue=True)
    assert found[2] == Planned(0.0, 4.0)
    assert [found[one] for one in (1, 3, 6)] == [BEHIND_OVERDUE] * 3
    assert [found[one] for one in (4, 5)] == [UNKNOWN] * 2


def test_more_jobs_may_run_than_there_are_slots() -> None:
    found = plan([Runner(7, 3.0), Runner(8, 4.0), Runner(9, 5.0)], [Candidate(1, 1.0)], 1, USUAL)
    assert found[1] == Planned(5, 6)


@pytest.mark.parametrize(
    ("elapsed", "left"), [(0, 10), (4, 6), (10, 20), (12, 18), (30, 3), (100, 10)]
)
def test_what_an_opcode_still_needs(elapsed: float, left: float) -> None:
    assert seconds_left(elapsed, 10, 30) == pytest.approx(left)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.booleans()), max_size=30),
    st.integers(1, 5),
    st.lists(st.floats(0, 50), max_size=5),
)
def test_no_more_jobs_run_at_once_than_there_are_slots(
    drawn: list[tuple[float, bool]], slots: int, left: list[float]
) -> None:
    jobs = [
        Candidate(number, seconds, (number - 1,) if follows and number > 1 else ())
        for number, (seconds, follows) in enumerate(drawn, 1)
    ]
    running = [Runner(1_000 + number, each) for number, each in enumerate(left[:slots])]
    found = plan(running, jobs, slots, USUAL)
    assert set(found) == {job.id for job in jobs} | {one.id for one in running}
    ends = {}
    for job_id, one in found.items():
        assert one.start is not None
        assert one.end is not None
        ends[job_id] = (one.start, one.end)
    for start, _ in ends.values():
        assert sum(begin <= start < end for begin, end in ends.values()) <= slots
    for job in jobs:
        assert all(ends[target][1] <= ends[job.id][0] for target in job.depends)


def test_a_job_waits_for_a_lock_while_others_take_the_slots() -> None:
    running = [Runner(9, 3.0, ONE)]
    jobs = [Candidate(1, 4.0, claims=ONE), Candidate(2, 2.0), Candidate(3, 5.0, claims=OTHER)]
    found = plan(running, jobs, 2, USUAL, holds_back=True)
    assert spans(found) == {9: (0, 3), 2: (0, 2), 3: (2, 7), 1: (3, 7)}


def test_without_hold_back_a_job_waits_for_its_lock_in_a_run_slot() -> None:
    running = [Runner(9, 3.0, ONE)]
    jobs = [Candidate(1, 4.0, claims=ONE), Candidate(2, 2.0)]
    assert spans(plan(running, jobs, 2, USUAL)) == {9: (0, 3), 1: (3, 7), 2: (3, 5)}


def test_a_running_job_that_still_waits_comes_before_pending_ones() -> None:
    running = [Runner(8, 2.0, ONE, waits=True), Runner(9, 3.0, ONE)]
    jobs = [Candidate(1, 1.0, (8,)), Candidate(2, 1.0, claims=ONE)]
    found = plan(running, jobs, 9, USUAL, holds_back=True)
    assert spans(found) == {9: (0, 3), 8: (3, 5), 1: (5, 6), 2: (5, 6)}


def test_jobs_share_a_lock_and_one_that_wants_it_alone_waits_for_all_of_them() -> None:
    running = [Runner(9, 1.0, ONE)]
    jobs = [
        Candidate(1, 4.0, claims=SHARES_ONE),
        Candidate(2, 2.0, claims=SHARES_ONE),
        Candidate(3, 1.0, claims=ONE),
    ]
    found = plan(running, jobs, 9, USUAL, holds_back=True)
    assert spans(found) == {9: (0, 1), 1: (1, 5), 2: (1, 3), 3: (5, 6)}


def test_the_whole_level_waits_for_each_name_of_it() -> None:
    jobs = [
        Candidate(1, 4.0, claims=SHARES_ONE),
        Candidate(2, 2.0, claims=OTHER),
        Candidate(3, 1.0, claims=SHARES_ALL),
        Candidate(4, 1.0, claims=ALL_NODES),
    ]
    found = plan([], jobs, 9, USUAL, holds_back=True)
    assert spans(found) == {1: (0, 4), 2: (0, 2), 3: (2, 3), 4: (4, 5)}


def test_who_waits_for_another_lock_too_lets_the_next_one_have_this_one() -> None:
    both = claims_of(forecast_of(node=lock_types.exclusive(["n1", "n2"])))
    running = [Runner(8, 1.0, ONE), Runner(9, 5.0, OTHER)]
    jobs = [Candidate(1, 1.0, claims=both), Candidate(2, 3.0, claims=ONE)]
    found = plan(running, jobs, 9, USUAL, holds_back=True)
    assert spans(found) == {8: (0, 1), 9: (0, 5), 2: (1, 4), 1: (5, 6)}


_NODES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=2, unique=True)
_LOCKS = st.one_of(
    st.just(lock_types.NO_LOCKS),
    _NODES.map(lambda names: forecast_of(node=lock_types.exclusive(names))),
    _NODES.map(lambda names: forecast_of(node=lock_types.shared(names))),
    st.just(forecast_of(node=lock_types.ALL_SHARED)),
    st.just(forecast_of(node=lock_types.ALL_EXCLUSIVE)),
    st.just(lock_types.LockForecast(big_lock="exclusive")),
    _NODES.map(lambda names: forecast_of(instance=lock_types.exclusive(names))),
)


@given(
    st.lists(st.tuples(st.integers(1, 9), _LOCKS), max_size=15), st.integers(1, 4), st.booleans()
)
def test_jobs_that_meet_never_run_at_once_and_each_gets_its_turn(
    drawn: list[tuple[int, lock_types.LockForecast]],
    slots: int,
    holds_back: bool,  # noqa: FBT001 - drawn
) -> None:
    jobs = [
        Candidate(number, float(seconds), claims=claims_of(forecast))
        for number, (seconds, forecast) in enumerate(drawn)
    ]
    found = plan([], jobs, slots, USUAL, holds_back=holds_back)
    for number, (_, forecast) in enumerate(drawn):
        one = found[number]
        assert one.start is not None
        assert one.end is not None
        for earlier, (_, other) in enumerate(drawn[:number]):
            before = found[earlier]
            assert before.start is not None
            assert before.end is not None
            if one.start < before.end and before.start < one.end:
                assert not lock_types.is_certain_to_block(forecast, other)


def test_the_plan_of_many_jobs_with_many_locks_ends() -> None:
    """Each job meets each other one, on another lock: the looks are bounded."""
    names = [[f"{min(one, two)}-{max(one, two)}" for two in range(60)] for one in range(60)]
    jobs = [
        Candidate(number, 1.0, claims=claims_of(forecast_of(node=lock_types.exclusive(own))))
        for number, own in enumerate(names)
    ]
    found = plan([], jobs, 20, USUAL, holds_back=True)
    assert all(one.end is not None for one in found.values())
