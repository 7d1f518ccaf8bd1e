"""How old jobs are, on the scheduler's own clock."""

from __future__ import annotations

import pytest

from ganger.actors.scheduling.ageing import STEPS_MAX, Arrivals


def arrivals(*jobs: tuple[int, float]) -> Arrivals:
    made = Arrivals(tick_seconds=30.0, limit_seconds=900.0)
    for job_id, now in jobs:
        made.note(job_id, now)
    return made


def test_a_job_ages_from_when_it_came_up_to_the_limit() -> None:
    known = arrivals((1, 100.0), (2, 150.0))
    assert [known.age(1, now) for now in (100.0, 160.0, 999.0, 1_000.0, 5_000.0)] == [
        0.0, 60.0, 899.0, 900.0, 900.0
    ]  # fmt: skip
    assert known.age(2, 160.0) == 10.0


def test_the_limit_is_reached_exactly_when_it_was_announced() -> None:
    for came in (0.1, 0.7, 1_234.567_89):
        known = arrivals((1, came))
        assert known.age(1, came + 900.0) == 900.0


def test_a_job_that_comes_back_is_as_old_as_its_number() -> None:
    known = arrivals((1, 0.0), (5, 100.0), (9, 200.0))
    known.note(6, 300.0)
    assert known.of(6) == 100.0


def test_jobs_of_known_times_do_not_come_now() -> None:
    known = arrivals()
    known.restart([(1, 0.0), (5, 100.0)])
    for job_id in range(1, 9):
        known.know(job_id)
    for job_id in range(1, 10):
        known.note(job_id, 300.0)
    assert known.steps() == [(1, 0.0), (5, 100.0), (9, 300.0)]


def test_a_job_that_was_there_before_all_others_is_as_old_as_the_oldest() -> None:
    known = arrivals((5, 100.0), (9, 200.0))
    known.note(3, 300.0)
    assert known.of(3) == 100.0


def test_no_time_is_kept_for_each_job() -> None:
    known = arrivals(*((job, job / 100) for job in range(1, 1_000_001, 10)))
    assert len(known._times) <= 2 * 900 + 2
    assert known.age(999_991, 10_000.0) == pytest.approx(0.09, abs=1.0)
    assert known.age(1, 10_000.0) == 900.0


def test_jobs_of_one_instant_share_a_step() -> None:
    known = arrivals(*((job, 5.0) for job in range(1, 1_000)))
    assert len(known._times) == 1


def test_times_that_are_told_replace_those_that_were_noted() -> None:
    known = arrivals((7, 500.0))
    known.restart(arrivals((1, 100.0), (5, 200.0)).steps())
    assert [known.of(job_id) for job_id in (1, 4, 5, 7)] == [100.0, 100.0, 200.0, 200.0]


def test_without_a_limit_of_age_the_steps_are_bounded_and_no_job_gets_younger() -> None:
    known = Arrivals(tick_seconds=30.0, limit_seconds=float("inf"))
    for job_id in range(1, 20_001):
        known.note(job_id, job_id * 2.0)
    assert len(known.steps()) <= STEPS_MAX
    assert all(known.of(job_id) <= job_id * 2.0 for job_id in range(1, 20_001))
    assert known.of(20_000) >= 20_000 * 2.0 - 64


def test_what_is_forgotten_makes_no_job_younger() -> None:
    """The step of the oldest job that has no weight left stays: jobs after it count from there."""
    known = arrivals((1, 0.0), (2, 1_000.0), (5, 1_500.0), (9, 1_901.0))
    assert known.steps() == [(2, 1_000.0), (5, 1_500.0), (9, 1_901.0)]
    assert [known.of(job_id) for job_id in (2, 4, 5, 8, 9)] == [
        1_000.0, 1_000.0, 1_500.0, 1_500.0, 1_901.0
    ]  # fmt: skip
    assert [known.age(job_id, 1_901.0) for job_id in (1, 2, 5)] == [900.0, 900.0, 401.0]
