"""What a pass under filter rules costs; tests/transcripts/scheduling shows what it decides."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest
from tests.actors.scheduling.schedules import (
    CHAIN,
    pending_in_order,
    schedule,
    simulated,
    started,
    verdict,
)

from ganger.actors.runtime.slices import done
from ganger.actors.scheduling import simulating
from ganger.actors.scheduling.first_obstacle import first_obstacle
from ganger.actors.scheduling.lanes import Lane
from ganger.actors.scheduling.scheduling import Pass, Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import (
    JobVerdict,
    QueuePosition,
    ReportOrder,
    RunSimulation,
    Simulate,
)

SUCCESS = JobStatus.SUCCESS
NEXT = CHAIN + 1


def judge(known: Schedule, *verdicts: JobVerdict) -> None:
    for one in verdicts:
        known.judge(one)


def test_a_job_that_was_never_judged_does_not_start() -> None:
    known = Schedule(20)
    known.add(verdict(1, chain=0))
    assert started(known) == []
    known.change_chain(CHAIN)
    known.judge(verdict(1, chain=0))
    assert known.decide() == Pass([], [], [], [], [1])


@pytest.mark.parametrize("pending", [60, 3_000])
def test_a_pass_after_new_rules_asks_for_a_bounded_number(pending: int) -> None:
    known = schedule(*map(verdict, range(1, pending + 1)), slots=1)
    known.change_chain(NEXT)
    asked = known.decide().unjudged
    assert asked == list(range(1, min(pending, 100) + 1))
    assert known.decide().unjudged == []
    # The evaluator drops what it judges in slices when other rules come.
    known.change_chain(NEXT + 1)
    assert known.decide().unjudged == asked


def test_jobs_that_are_judged_anew_again_and_again_fill_no_memory() -> None:
    known = schedule(*map(verdict, range(1, 101)), slots=0)
    for chain in range(NEXT, NEXT + 50):
        known.change_chain(chain)
        judge(known, *(verdict(n, chain=chain) for n in range(1, 101)))
        known.decide()
    assert sum(len(lane.ids) for lane in known._order.lanes) == 100
    assert len(known._order.lanes) == 1


def test_a_pass_costs_what_starts_and_not_what_stands_in_a_line() -> None:
    known = schedule(*(verdict(n, action="RATE_LIMIT", rule="r", limit=1) for n in range(1, 5_001)))
    assert started(known) == [1]
    [parked] = known._order._parked.values()
    before = len(parked)
    known.learn(1, SUCCESS)
    assert started(known) == [2]
    assert before - len(parked) == 1
    assert len(known._order._order) == 0


@pytest.mark.parametrize(
    ("running", "kind"), [([], "order"), ([1], "order"), ([1, 2], "slots"), ([1, 2, 3], "slots")]
)
def test_a_job_is_held_by_the_slots_where_all_are_taken(running: list[int], kind: str) -> None:
    position = QueuePosition(
        open=[], full=[], action="ACCEPT", rule=None, ahead=0, first_ahead=[], running=running,
        slots=2, best_priority=0,
    )  # fmt: skip
    assert first_obstacle(position)[0] == kind


@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_of_many_jobs_it_is_told_for_what_each_waits(at_once: int) -> None:
    known = schedule(
        verdict(1),
        verdict(2, (1, "")),
        verdict(3, action="PAUSE", rule="held"),
        *(verdict(n, action="RATE_LIMIT", rule="few", limit=1) for n in (4, 5)),
        verdict(6),
        slots=3,
    )
    assert started(known) == [1, 4, 6]
    asked = ReportOrder(limit=0, causes_of=[9, 5, 1, 3, 2])
    found = done(known.standing_now().reported(asked, at_once))
    assert found.pending == []
    assert found.causes == {5: ("limit", "few"), 3: ("rule", "held"), 2: ("dependency", "1")}


def test_a_simulation_leaves_none_of_its_jobs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [verdict(n, action="PAUSE" if n % 2 else "ACCEPT") for n in range(1, 11)]
    known = schedule(*jobs, slots=1)
    made: list[Schedule] = []
    what_if = Schedule.what_if

    def watched(*arguments: Any) -> Generator[None, None, Schedule]:
        made.append((yield from what_if(*arguments)))
        return made[-1]

    monkeypatch.setattr(Schedule, "what_if", watched)
    monkeypatch.setattr(simulating, "_FREED_AT_ONCE", 3)
    asked = RunSimulation(simulation=Simulate(), jobs=jobs, running=[])
    gc.collect()
    # Other tests in this process may have left some.
    earlier = [one for one in gc.get_objects() if isinstance(one, Lane)]
    before = {id(one) for one in earlier}
    gc.disable()
    try:
        assert simulated(known, asked).counts == {"rule": 5, "slots": 4}
        lanes = [
            one
            for one in gc.get_objects()
            if isinstance(one, Lane) and one.ids and id(one) not in before
        ]
    finally:
        gc.enable()
    assert lanes == []
    [other] = made
    assert (pending_in_order(other), other._order.lanes) == ([], [])
    assert pending_in_order(known) == [*range(1, 11)]


def test_a_what_if_does_not_look_at_the_jobs_that_a_rule_holds_one_by_one() -> None:
    held = [verdict(job_id, action="PAUSE", rule="r") for job_id in range(1, 6)]
    known = schedule(*held, verdict(6), slots=2)
    other = done(known.what_if([*held, verdict(6)], [], 3, 1))
    assert other.decide().start == [6]
    assert not other.is_tired
    assert other.standing_now().obstacles() == {"rule": 5}
    assert pending_in_order(other) == [1, 2, 3, 4, 5]


def test_a_simulation_names_a_bounded_number_of_jobs_that_would_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [verdict(1), *(verdict(n, action="REJECT") for n in range(2, 10))]
    known = schedule(*jobs)
    asked = RunSimulation(simulation=Simulate(), jobs=jobs, running=[])
    whole = simulated(known, asked)
    assert ([job_id for job_id, _ in whole.ended], whole.more_ended) == ([*range(2, 10)], 0)
    monkeypatch.setattr(simulating, "_ENDED_SHOWN_MAX", 3)
    some = simulated(known, asked)
    assert (some.ended, some.more_ended) == (whole.ended[:3], 5)


def test_a_simulation_that_ends_a_job_names_a_bounded_number_of_those_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulating, "_ENDED_SHOWN_MAX", 3)
    jobs = [verdict(1), *(verdict(n, (1, "success")) for n in range(2, 10))]
    simulation = Simulate(ended={1: JobStatus.ERROR})
    asked = RunSimulation(simulation=simulation, jobs=jobs, running=[])
    found = simulated(schedule(*jobs), asked)
    assert (len(found.ended), found.more_ended) == (3, 5)
