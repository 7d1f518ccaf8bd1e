from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage.prediction.planning import UNKNOWN, Candidate, Planned, plan, seconds_left

USUAL = 5.0


def spans(found: dict[int, Planned]) -> dict[int, tuple[float | None, float | None]]:
    return {job_id: (one.start, one.end) for job_id, one in found.items()}


def test_jobs_take_the_run_slots_in_order() -> None:
    jobs = [Candidate(number, 4.0) for number in (1, 2, 3)]
    assert spans(plan({9: 3.0}, jobs, 2, USUAL)) == {9: (0, 3), 1: (0, 4), 2: (3, 7), 3: (4, 8)}


def test_a_job_without_history_has_a_start_and_no_end() -> None:
    found = plan({}, [Candidate(1, None), Candidate(2, 1.0)], 1, USUAL)
    assert found == {1: Planned(0, None, 0), 2: Planned(5, 6, 1)}


def test_a_running_job_without_history_is_a_guess_for_those_behind_it() -> None:
    found = plan({9: None}, [Candidate(1, 1.0)], 1, USUAL)
    assert found == {9: Planned(0, None), 1: Planned(5, 6, 1)}


def test_a_job_waits_for_those_it_depends_on_while_others_pass() -> None:
    jobs = [Candidate(1, 6.0), Candidate(2, 1.0, (1,)), Candidate(3, 2.0), Candidate(4, 9.0)]
    assert spans(plan({}, jobs, 2, USUAL)) == {1: (0, 6), 3: (0, 2), 4: (2, 11), 2: (6, 7)}


def test_a_job_that_is_held_and_those_that_depend_on_it_are_unknown() -> None:
    jobs = [Candidate(1, 6.0, is_held=True), Candidate(2, 1.0, (1,)), Candidate(3, 2.0, (77,))]
    assert plan({}, jobs, 2, USUAL) == {1: UNKNOWN, 2: UNKNOWN, 3: UNKNOWN}


def test_more_jobs_may_run_than_there_are_slots() -> None:
    found = plan({7: 3.0, 8: 4.0, 9: 5.0}, [Candidate(1, 1.0)], 1, USUAL)
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
    running = {1_000 + number: each for number, each in enumerate(left[:slots])}
    found = plan(running, jobs, slots, USUAL)
    assert set(found) == {job.id for job in jobs} | set(running)
    ends = {}
    for job_id, one in found.items():
        assert one.start is not None
        assert one.end is not None
        ends[job_id] = (one.start, one.end)
    for start, _ in ends.values():
        assert sum(begin <= start < end for begin, end in ends.values()) <= slots
    for job in jobs:
        assert all(ends[target][1] <= ends[job.id][0] for target in job.depends)
