"""Which pending job starts now, among many; tests/transcripts/scheduling has the stories."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.actors.scheduling.schedules import schedule, started, verdict

from ganger.actors.scheduling.depending import Dependencies, DependencyState, dependency_outcome
from ganger.actors.scheduling.scheduling import Unsatisfiable
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import JobEnd

CANCELED, SUCCESS, ERROR = JobStatus.CANCELED, JobStatus.SUCCESS, JobStatus.ERROR


def test_one_end_may_set_free_many() -> None:
    known = schedule(verdict(1), *(verdict(n, (1, "success")) for n in range(2, 50)), slots=100)
    assert started(known) == [1]
    known.learn(1, SUCCESS)
    assert started(known) == list(range(2, 50))


def test_a_job_that_is_known_is_not_asked_for() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")))
    assert known.decide().unknown == []
    known.add(verdict(3, (1, "success"), (2, "success")))
    assert known.decide().unknown == []


def test_everything_can_be_replaced() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")), slots=2)
    assert started(known) == [1]
    known.replace_all([verdict(3), verdict(4, (9, "success"))], running=[verdict(8), verdict(9)])
    assert known.running == {8, 9}
    assert len(known._pending) == 2
    decided = known.decide()
    assert decided.start == []
    known.learn(9, SUCCESS)
    assert started(known) == [3]


def test_jobs_of_a_report_are_as_old_as_it_says() -> None:
    known = schedule()
    known.replace_all([verdict(1), verdict(2), verdict(3)], [], 500.0, [(1, 100.0), (3, 200.0)])
    known.add(verdict(4), 600.0, is_age_known=True)
    known.add(verdict(5), 700.0)
    ages = [known._prediction.arrivals.of(job_id) for job_id in range(1, 6)]
    assert ages == [100.0, 100.0, 200.0, 200.0, 700.0]


def test_a_job_with_a_final_status_is_not_pending_any_more() -> None:
    known = schedule(verdict(1), verdict(2))
    known.learn(1, CANCELED)
    assert started(known) == [2]


def test_a_pass_costs_what_starts_and_not_what_is_pending() -> None:
    known = schedule(*map(verdict, range(1, 5_001)), slots=1)
    assert started(known) == [1]
    heap_before = len(known._order._order)
    known.learn(1, SUCCESS)
    assert started(known) == [2]
    assert heap_before - len(known._order._order) == 1


def test_what_a_dependency_costs_does_not_grow_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def look(depends: Dependencies, ends: Mapping[int, JobEnd | None]) -> DependencyState:
        looks.append(len(ends))
        return dependency_outcome(depends, ends)

    monkeypatch.setattr("ganger.actors.scheduling.scheduled_jobs.dependency_outcome", look)
    depends = [(job_id, "success,canceled") for job_id in range(1, 1_001)]
    waiting = schedule(verdict(2_000, *depends))
    assert waiting.decide().unknown == list(range(1, 1_001))
    for job_id in range(1, 1_001):
        assert started(waiting) == []
        waiting.learn(job_id, (SUCCESS, CANCELED)[job_id % 2])
    assert started(waiting) == [2_000]
    assert looks == [0, 1_000]


def test_of_many_dependencies_one_that_is_canceled_decides_at_once() -> None:
    waiting = schedule(verdict(9, (1, "canceled"), (2, "canceled"), (3, "success"), (4, "")))
    waiting.learn(1, CANCELED)
    waiting.learn(2, ERROR)
    assert waiting.decide().unsatisfiable == []
    waiting.learn(3, CANCELED)
    assert waiting.decide().unsatisfiable == [Unsatisfiable(9, "canceled", "", 3)]


def test_a_job_that_is_named_twice_is_waited_for_once() -> None:
    waiting = schedule(verdict(9, (1, "success"), (1, ""), (2, "")))
    waiting.learn(1, SUCCESS)
    assert started(waiting) == []
    waiting.learn(2, SUCCESS)
    assert started(waiting) == [9]
