"""Which pending job starts now: dependencies, order, run slots."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import pytest
from tests.actors.scheduling.schedules import schedule, started, verdict

from ganger.actors.scheduling.depending import Dependencies, DependencyState, dependency_outcome
from ganger.actors.scheduling.scheduling import Pass, Unsatisfiable
from ganger.storage.jobs import JobStatus

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


# Dependencies, by Ganeti's rules.


@pytest.mark.parametrize(
    ("wanted", "status", "expected"),
    [
        (["success"], SUCCESS, "satisfied"),
        (["success", "error"], ERROR, "satisfied"),
        (["canceled"], CANCELED, "satisfied"),
        ([], SUCCESS, "satisfied"),
        ([], ERROR, "satisfied"),
        ([], CANCELED, "canceled"),
        (["success"], CANCELED, "canceled"),
        (["error"], CANCELED, "canceled"),
        (["success"], ERROR, "failed"),
        (["error"], SUCCESS, "failed"),
        (["canceled"], SUCCESS, "failed"),
        (["success"], QUEUED, "open"),
        (["success"], WAITING, "open"),
        (["error"], RUNNING, "open"),
        ([], CANCELING, "open"),
    ],
)
def test_a_dependency_is_judged_by_the_status_of_the_other_job(
    wanted: list[str], status: JobStatus, expected: str
) -> None:
    outcome = dependency_outcome([(7, wanted)], {7: status})
    assert outcome.verdict == expected
    assert outcome.open == ((7,) if expected == "open" else ())


def test_the_texts_of_failed_dependencies_are_those_of_ganeti() -> None:
    statuses: dict[int, JobStatus | None] = {7: ERROR, 8: None}
    assert dependency_outcome([(7, ["success", "canceled"])], statuses).text == (
        "Dependency job 7 finished with status 'error', not one of 'success, canceled' as required"
    )
    missing = dependency_outcome([(8, [])], statuses)
    assert (missing.verdict, missing.text) == ("failed", "Dependency error: Job 8 not found")


def test_among_dependencies_a_canceled_one_wins_in_any_order() -> None:
    statuses: dict[int, JobStatus | None] = {1: CANCELED, 2: ERROR}
    for depends in permutations([(1, ["success"]), (2, ["success"]), (3, [])]):
        assert dependency_outcome(depends, statuses).verdict == "canceled"


def test_a_failed_dependency_decides_when_no_other_can_be_canceled_any_more() -> None:
    statuses: dict[int, JobStatus | None] = {1: ERROR}
    depends = [(2, []), (1, ["success"])]
    outcome = dependency_outcome(depends, statuses)
    assert (outcome.verdict, outcome.open) == ("open", (2,))
    assert "job 1 finished with status 'error'" in outcome.text
    assert dependency_outcome(depends, statuses | {2: SUCCESS}).verdict == "failed"
    assert dependency_outcome(depends, statuses | {2: CANCELED}).verdict == "canceled"


def test_a_job_that_can_only_fail_waits_for_the_others_and_says_so() -> None:
    known = schedule(verdict(1), verdict(2), verdict(3, (1, "success"), (2, "success")))
    assert known.decide().start == [1, 2]
    known.finish(1, ERROR)
    assert known.decide().unsatisfiable == []
    position = known.position(3)
    assert position is not None
    assert position.open == [2]
    assert position.failing.startswith("Dependency job 1 finished with status 'error'")
    known.finish(2, SUCCESS)
    assert [(one.id, one.verdict) for one in known.decide().unsatisfiable] == [(3, "failed")]


def test_all_dependencies_must_be_satisfied() -> None:
    statuses: dict[int, JobStatus | None] = {1: SUCCESS, 2: RUNNING}
    outcome = dependency_outcome([(1, []), (2, []), (3, [])], statuses)
    assert (outcome.verdict, outcome.open) == ("open", (2, 3))
    assert dependency_outcome([], {}).verdict == "satisfied"


# Order and slots.


def test_the_most_urgent_starts_first_then_the_oldest() -> None:
    known = schedule(
        verdict(1, priority=5), verdict(2), verdict(3, priority=-5), verdict(4), slots=3
    )
    assert started(known) == [3, 2, 4]
    assert known.running == {2, 3, 4}
    assert known.pending_count == 1


def test_no_more_jobs_run_than_there_are_slots() -> None:
    known = schedule(*map(verdict, range(1, 6)), slots=2)
    assert started(known) == [1, 2]
    assert started(known) == []
    known.finish(1, SUCCESS)
    assert started(known) == [3]


def test_more_slots_let_more_jobs_run() -> None:
    known = schedule(*map(verdict, range(1, 6)), slots=1)
    assert started(known) == [1]
    known.limit(3)
    assert started(known) == [2, 3]


def test_fewer_slots_let_running_jobs_go_on() -> None:
    known = schedule(*map(verdict, range(1, 6)), slots=3)
    assert started(known) == [1, 2, 3]
    known.limit(1)
    known.finish(1, SUCCESS)
    known.finish(2, SUCCESS)
    assert started(known) == []
    known.finish(3, SUCCESS)
    assert started(known) == [4]


def test_a_job_starts_once() -> None:
    known = schedule(verdict(1))
    assert started(known) == [1]
    assert started(known) == []


@pytest.mark.parametrize(("priority", "expected"), [(-5, [2, 1]), (5, [1, 2])])
def test_a_new_priority_changes_the_order(priority: int, expected: list[int]) -> None:
    known = schedule(verdict(1), verdict(2))
    known.reprioritise(2, priority)
    assert started(known) == expected


def test_a_new_priority_counts_when_the_dependencies_are_satisfied() -> None:
    known = schedule(verdict(1), slots=1)
    assert started(known) == [1]
    known.add(verdict(2, (1, "success")))
    known.add(verdict(3))
    known.reprioritise(2, -1)
    known.finish(1, SUCCESS)
    assert started(known) == [2]


def test_the_priority_of_an_unknown_job_does_not_matter() -> None:
    known = schedule(verdict(1))
    known.reprioritise(99, -20)
    assert started(known) == [1]


def test_a_job_that_is_gone_does_not_start() -> None:
    known = schedule(verdict(1), verdict(2))
    known.remove(1)
    known.remove(99)
    assert started(known) == [2]


def test_a_job_that_is_pending_again_gives_up_its_slot() -> None:
    known = schedule(verdict(1), slots=1)
    assert started(known) == [1]
    known.add(verdict(1))
    assert known.running == frozenset()
    assert started(known) == [1]
    assert known.running == {1}


def test_a_new_verdict_replaces_the_old_one() -> None:
    known = schedule(verdict(1, action="PAUSE"), verdict(2))
    assert started(known) == [2]
    known.add(verdict(1))
    assert started(known) == [1]
    known.add(verdict(3))
    known.add(verdict(3, action="PAUSE"))
    assert started(known) == []


# Dependants.


def test_a_job_waits_for_its_dependency() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")))
    assert known.decide() == Pass([1], [], [], [])
    known.finish(1, SUCCESS)
    assert known.decide() == Pass([2], [], [], [])


def test_a_satisfied_job_without_a_slot_is_told_to_be_eligible_once() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")), verdict(3, priority=-1), slots=1)
    assert started(known) == [3]
    known.finish(3, SUCCESS)
    assert started(known) == [1]
    known.add(verdict(4, priority=-1))
    known.finish(1, SUCCESS)
    assert known.decide() == Pass([4], [], [], [2])
    assert known.decide() == Pass([], [], [], [])


def test_one_end_may_set_free_many() -> None:
    known = schedule(verdict(1), *(verdict(n, (1, "success")) for n in range(2, 50)), slots=100)
    assert started(known) == [1]
    known.finish(1, SUCCESS)
    assert started(known) == list(range(2, 50))


def test_a_job_waits_for_the_last_of_its_dependencies() -> None:
    known = schedule(verdict(1), verdict(2), verdict(3, (1, ""), (2, "success"), (1, "success")))
    assert started(known) == [1, 2]
    known.finish(1, SUCCESS)
    assert started(known) == []
    known.finish(2, SUCCESS)
    assert started(known) == [3]


def test_dependants_of_a_canceled_job_are_unsatisfiable_at_once() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success,error")), verdict(3, (1, "canceled")))
    assert started(known) == [1]
    known.finish(1, CANCELED)
    assert known.decide() == Pass([3], [Unsatisfiable(2, "canceled", "")], [], [])
    assert known.pending_count == 0


def test_a_chain_is_unsatisfiable_link_by_link() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")), verdict(3, (2, "success")))
    assert started(known) == [1]
    known.finish(1, ERROR)
    [one] = known.decide().unsatisfiable
    assert (one.id, one.verdict) == (2, "failed")
    known.finish(2, ERROR)
    assert [one.id for one in known.decide().unsatisfiable] == [3]


def test_one_bad_dependency_dooms_while_others_are_open() -> None:
    known = schedule(verdict(1), verdict(2), verdict(3, (1, "success"), (2, "success")))
    assert started(known) == [1, 2]
    known.finish(2, CANCELED)
    assert known.decide().unsatisfiable == [Unsatisfiable(3, "canceled", "")]
    known.finish(1, ERROR)
    assert known.decide() == Pass([], [], [], [])


def test_a_pending_job_that_is_canceled_decides_for_its_dependants() -> None:
    known = schedule(
        verdict(1, action="PAUSE"), verdict(2, (1, "success")), verdict(3, (1, "canceled"))
    )
    assert started(known) == []
    known.finish(1, CANCELED)
    decided = known.decide()
    assert decided.start == [3]
    assert [one.id for one in decided.unsatisfiable] == [2]


# What is not known is asked for.


def test_the_status_of_an_unknown_dependency_is_asked_for_once() -> None:
    known = schedule(verdict(5, (1, "success"), (2, "success")))
    assert known.decide() == Pass([], [], [1, 2], [])
    assert known.decide() == Pass([], [], [], [])
    known.learn(1, SUCCESS)
    known.learn(2, RUNNING)
    assert started(known) == []
    known.finish(2, SUCCESS)
    assert started(known) == [5]


def test_a_job_that_is_known_is_not_asked_for() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")))
    assert known.decide().unknown == []
    known.add(verdict(3, (1, "success"), (2, "success")))
    assert known.decide().unknown == []


def test_a_job_that_does_not_exist_dooms_its_dependants() -> None:
    known = schedule(verdict(5, (1, "success")))
    known.learn(1, None)
    text = "Dependency error: Job 1 not found"
    assert known.decide().unsatisfiable == [Unsatisfiable(5, "failed", text)]


def test_a_dependant_that_comes_after_the_end_asks_again() -> None:
    known = schedule(verdict(1))
    assert started(known) == [1]
    known.finish(1, SUCCESS)
    known.add(verdict(2, (1, "success")))
    assert known.decide().unknown == [1]
    known.learn(1, SUCCESS)
    assert started(known) == [2]


# Starting afresh.


def test_everything_can_be_replaced() -> None:
    known = schedule(verdict(1), verdict(2, (1, "success")), slots=2)
    assert started(known) == [1]
    known.replace_all([verdict(3), verdict(4, (9, "success"))], running=[verdict(8), verdict(9)])
    assert known.running == {8, 9}
    assert known.pending_count == 2
    decided = known.decide()
    assert decided.start == []
    known.finish(9, SUCCESS)
    assert started(known) == [3]


def test_running_jobs_are_asked_for_when_everything_is_replaced() -> None:
    # The word that a job has ended goes straight to the scheduler, and may have come before
    # the list that still has it among the running ones: its slot would be lost for ever.
    known = schedule(slots=1)
    known.finish(8, SUCCESS)
    known.replace_all([verdict(9)], running=[verdict(8)])
    assert known.decide() == Pass([], [], [8], [])
    known.learn(8, SUCCESS)
    assert started(known) == [9]


def test_a_job_that_ended_before_it_was_heard_of_gives_its_slot_back() -> None:
    known = schedule(slots=1)
    known.finish(1, CANCELED)
    known.add(verdict(1))
    known.add(verdict(2))
    assert started(known) == [1]
    known.learn(1, CANCELED)
    assert started(known) == [2]


def test_a_running_job_that_is_asked_for_keeps_its_slot() -> None:
    known = schedule(verdict(2), slots=1)
    known.replace_all([verdict(2)], running=[verdict(1)])
    known.learn(1, RUNNING)
    assert known.running == {1}
    assert started(known) == []


def test_a_final_job_is_not_pending_whatever_was_heard_before() -> None:
    known = schedule(verdict(1), verdict(2))
    known.learn(1, CANCELED)
    assert started(known) == [2]


def test_a_pass_costs_what_starts_and_not_what_is_pending() -> None:
    known = schedule(*map(verdict, range(1, 5_001)), slots=1)
    assert started(known) == [1]
    heap_before = len(known._heap)
    known.finish(1, SUCCESS)
    assert started(known) == [2]
    assert heap_before - len(known._heap) == 1


# Many dependencies of one job.


def test_what_a_dependency_costs_does_not_grow_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def look(depends: Dependencies, statuses: Mapping[int, JobStatus | None]) -> DependencyState:
        looks.append(len(statuses))
        return dependency_outcome(depends, statuses)

    monkeypatch.setattr("ganger.actors.scheduling.scheduling.dependency_outcome", look)
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
    assert waiting.decide().unsatisfiable == [Unsatisfiable(9, "canceled", "")]


def test_a_job_that_is_named_twice_is_waited_for_once() -> None:
    waiting = schedule(verdict(9, (1, "success"), (1, ""), (2, "")))
    waiting.learn(1, SUCCESS)
    assert started(waiting) == []
    waiting.learn(2, SUCCESS)
    assert started(waiting) == [9]
