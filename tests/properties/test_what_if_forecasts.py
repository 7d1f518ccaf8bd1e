"""What a simulation says would start then starts, where locks decide: weights, hold-back, ages."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.actors.scheduling.schedules import pending_in_order, simulated
from tests.properties.test_predictive_model import lock_forecasts, policies, submissions

from ganger.actors.scheduling.first_obstacle import first_obstacle
from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import LockForecast
from ganger.transport.messages import JobVerdict, PendingJob, RunSimulation, Simulate

CHAIN, OTHER_CHAIN = 7, 8
actions = st.sampled_from(
    [("ACCEPT", None, None)] * 9
    + [("PAUSE", "pausing", None), ("REJECT", "rejecting", None), ("RATE_LIMIT", "limiting", 1)]
)
changes = st.fixed_dictionaries(
    {"running_jobs_max": st.integers(1, 8)},
    optional={"priorities": st.dictionaries(st.integers(1, 9), st.integers(-2, 3), max_size=3)},
)
pauses = st.sampled_from([0.0, 1.0, 35.0, 300.0, 901.0])


def under(job: PendingJob, action: tuple[str, str | None, int | None], chain: int) -> JobVerdict:
    name, rule, limit = action
    return JobVerdict(job=job, action=name, rule=rule, limit=limit, chain=chain)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Schedule, list[JobVerdict], float]:
    """A schedule in the middle of its work, its jobs, and the time."""
    now = 1_000.0
    schedule = Schedule(draw(st.integers(1, 4)), CHAIN, policy=draw(policies))
    jobs: list[JobVerdict] = []
    running: set[int] = set()
    for job_id, one in enumerate(draw(st.lists(submissions, min_size=2, max_size=9)), 1):
        priority, forecast, of_all, limits = one
        job = PendingJob(
            id=job_id, priority=priority, forecast=forecast, forecast_of_all=of_all, limits=limits
        )
        jobs.append(under(job, draw(actions), CHAIN))
        schedule.add(jobs[-1], now)
        if draw(st.booleans()):
            # Some of those that start get other locks than was foreseen, and some none as yet.
            for started in schedule.decide(now).start:
                running.add(started)
                held = draw(st.none() | lock_forecasts() | st.just(jobs[started - 1].job.forecast))
                if held is not None:
                    schedule.locks_changed(started, held)
        now += draw(pauses)
    if draw(st.booleans()):
        schedule.locks_changed("somebody", draw(lock_forecasts()))
    schedule.decide(now)
    return schedule, jobs, now


def held_of(schedule: Schedule) -> dict[Any, LockForecast]:
    return {owner: held for owner, held, _ in schedule._prediction.taken.owners()}


@settings(max_examples=100)
@given(worlds(), changes, st.sampled_from([CHAIN, OTHER_CHAIN]), st.data())
def test_what_is_simulated_is_what_then_starts(
    world: tuple[Schedule, list[JobVerdict], float],
    change: dict[str, Any],
    chain: int,
    data: st.DataObject,
) -> None:
    schedule, jobs, now = world
    pending = set(pending_in_order(schedule))
    jobs = [one for one in jobs if one.job.id in pending | schedule.running]
    if chain != CHAIN:
        jobs = [under(one.job, data.draw(actions), chain) for one in jobs]
    running = sorted(schedule.running)
    ended = data.draw(st.sets(st.sampled_from(running))) if running else set()
    simulation = Simulate(**change, ended=dict.fromkeys(sorted(ended), JobStatus.SUCCESS))
    asked = RunSimulation(
        simulation=simulation,
        jobs=[one for one in jobs if one.job.id in pending],
        running=[one for one in jobs if one.job.id in schedule.running],
    )
    before = held_of(schedule), pending_in_order(schedule), schedule.running
    outcome = simulated(schedule, asked)
    assert (held_of(schedule), pending_in_order(schedule), schedule.running) == before

    schedule.change_chain(chain)
    for one in jobs:
        schedule.judge(one)
    if simulation.running_jobs_max is not None:
        schedule.limit(simulation.running_jobs_max)
    for job_id, priority in simulation.priorities.items():
        schedule.reprioritise(job_id, priority)
    for job_id, status in simulation.ended.items():
        schedule.learn(job_id, status)
    decided = schedule.decide(now)
    assert outcome.start == decided.start
    waiting = {one.id: one.kind for one in outcome.waiting}
    for job_id, kind in waiting.items():
        position = schedule.position(job_id)
        assert position is not None
        assert kind == first_obstacle(position)[0]
    event(f"starts: {min(2, len(decided.start))}, for locks: {'lock' in waiting.values()}")


@settings(max_examples=30)
@given(worlds())
def test_without_a_change_nothing_is_foretold_that_a_pass_has_not_done(
    world: tuple[Schedule, list[JobVerdict], float],
) -> None:
    schedule, jobs, _ = world
    pending = set(pending_in_order(schedule))
    asked = RunSimulation(
        simulation=Simulate(),
        jobs=[one for one in jobs if one.job.id in pending],
        running=[one for one in jobs if one.job.id in schedule.running],
    )
    assert simulated(schedule, asked).start == []
    assert msgspec.to_builtins(asked.simulation) == msgspec.to_builtins(Simulate())
