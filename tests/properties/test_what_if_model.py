"""What `simulate` says would happen then happens, and what `explain` names is what holds."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.scheduling.schedules import pending_in_order, remedy_for, simulated

from ganger.actors.answers import explaining
from ganger.actors.scheduling.first_obstacle import first_obstacle
from ganger.actors.scheduling.scheduling import Pass, Schedule
from ganger.actors.store.job_rows import JobClass, Row
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import remedy_words
from ganger.transport.messages import JobVerdict, PendingJob, Remedy, RunSimulation, Simulate

CHAIN, OTHER_CHAIN = 7, 8
FINAL = (JobStatus.SUCCESS, JobStatus.ERROR, JobStatus.CANCELED)
ACTIONS = (
    ("ACCEPT", None, None),
    ("PAUSE", "pausing", None),
    ("REJECT", "rejecting", None),
    ("RATE_LIMIT", "limiting", 1),
    ("RATE_LIMIT", "limiting", 1),
)
LIMITS = (("1:x", 1), ("2:y", 2))

actions = st.sampled_from(ACTIONS)
limits = st.sets(st.sampled_from(LIMITS)).map(lambda found: tuple(sorted(found)))


@st.composite
def verdicts(draw: st.DrawFn) -> list[JobVerdict]:
    """Some jobs in id order, with dependencies on earlier ones."""
    found: list[JobVerdict] = []
    for job_id in range(1, draw(st.integers(1, 8)) + 1):
        targets = draw(st.sets(st.integers(1, job_id - 1), max_size=2)) if job_id > 1 else set()
        wanted = st.sets(st.sampled_from([str(status) for status in FINAL])).map(
            lambda statuses: tuple(sorted(statuses))
        )
        depends = tuple((target, draw(wanted)) for target in sorted(targets))
        job = PendingJob(
            id=job_id, priority=draw(st.integers(-2, 2)), depends=depends, limits=draw(limits)
        )
        found.append(under(job, draw(actions), CHAIN))
    return found


def under(job: PendingJob, action: tuple[str, str | None, int | None], chain: int) -> JobVerdict:
    name, rule, limit = action
    return JobVerdict(job=job, action=name, rule=rule, limit=limit, chain=chain)


def scheduled(jobs: list[JobVerdict], slots: int) -> Schedule:
    """A schedule after its first passes: what can start runs, and nothing is left to be asked."""
    schedule = Schedule(slots, CHAIN)
    for verdict in jobs:
        schedule.add(verdict)
    settle(schedule)
    return schedule


def settle(schedule: Schedule) -> Pass:
    """Passes until one has nothing more to say; jobs that are unsatisfiable end. The first one."""
    first = decided = schedule.decide()
    while decided.unsatisfiable:
        for one in decided.unsatisfiable:
            failed = one.verdict == "failed"
            schedule.learn(one.id, JobStatus.ERROR if failed else JobStatus.CANCELED)
        decided = schedule.decide()
    return first


def is_rejected(schedule: Schedule, job_id: int) -> bool:
    position = schedule.position(job_id)
    return position is not None and position.action == "REJECT"


changes = st.fixed_dictionaries(
    {},
    optional={
        "running_jobs_max": st.integers(1, 5),
        "priorities": st.dictionaries(st.integers(1, 8), st.integers(-3, 3), max_size=3),
        "ended": st.dictionaries(st.integers(1, 8), st.sampled_from(FINAL), max_size=3),
    },
)


@given(verdicts(), st.integers(1, 3), changes, st.sampled_from([CHAIN, OTHER_CHAIN]), st.data())
def test_what_is_simulated_is_what_then_happens(
    jobs: list[JobVerdict], slots: int, change: dict[str, Any], chain: int, data: st.DataObject
) -> None:
    schedule = scheduled(jobs, slots)
    if chain != CHAIN:
        jobs = [under(one.job, data.draw(actions), chain) for one in jobs]
    simulation = Simulate(**change)
    asked = RunSimulation(
        simulation=simulation,
        jobs=[one for one in jobs if one.job.id not in schedule.running],
        running=[one for one in jobs if one.job.id in schedule.running],
    )
    before = {one: schedule.position(one) for one in pending_in_order(schedule)}
    outcome = simulated(schedule, asked)
    after = {one: schedule.position(one) for one in pending_in_order(schedule)}
    assert after == before, "it changed something"

    schedule.change_chain(chain)
    for one in jobs:
        schedule.judge(one)
    if simulation.running_jobs_max is not None:
        schedule.limit(simulation.running_jobs_max)
    for job_id, priority in simulation.priorities.items():
        schedule.reprioritise(job_id, priority)
    for job_id, status in simulation.ended.items():
        schedule.learn(job_id, status)
    decided = schedule.decide()
    assert outcome.start == decided.start
    left = pending_in_order(schedule)
    # A rule that rejects ends jobs wherever they stand, and not only those whose turn it is.
    rejected = [one for one in left if is_rejected(schedule, one)]
    unsatisfiable = [one.id for one in decided.unsatisfiable]
    assert [job_id for job_id, _ in outcome.ended] == unsatisfiable + rejected
    left = [one for one in left if one not in rejected]
    assert [waiting.id for waiting in outcome.waiting] == left
    assert sum(outcome.counts.values()) == len(left)


@given(verdicts(), st.integers(1, 3))
def test_a_job_that_does_not_run_is_held_back_by_the_cause_that_explain_names(
    jobs: list[JobVerdict], slots: int
) -> None:
    schedule = scheduled(jobs, slots)
    for job_id in pending_in_order(schedule):
        position = schedule.position(job_id)
        assert position is not None
        row = Row(id=job_id, status=JobStatus.QUEUED, priority=0, job_class=JobClass(summary=""))
        rules = explaining.holding(position)
        held_by = [explaining.HoldingRule(rule, f"text of {rule}", 0) for rule in rules]
        obstacles = explaining.of_pending(row, position, held_by)
        assert obstacles, f"nothing is said to hold job {job_id} back, and it does not start"
        remedy = remedy_for(schedule.contention(job_id, None, rules), rules)
        position = msgspec.structs.replace(position, remedy=remedy)
        assert remedy_words.remedy(explaining.remedy_of_pending(position, held_by), job_id)
        # Nothing that is named has ended, and what is named really runs or waits.
        alive = schedule.running | set(pending_in_order(schedule))
        assert {other for one in obstacles for other in one.jobs} <= alive
        # Simulation and explanation agree on what comes first.
        kind, _, _ = first_obstacle(msgspec.structs.replace(position))
        assert kind == obstacles[0].kind


@given(verdicts(), st.integers(1, 3), st.data())
def test_the_change_that_explain_names_lets_the_job_start(
    jobs: list[JobVerdict], slots: int, data: st.DataObject
) -> None:
    by_id = {one.job.id: one for one in jobs}
    for job_id in pending_in_order(scheduled(jobs, slots)):
        schedule = scheduled(jobs, slots)
        position = schedule.position(job_id)
        assert position is not None
        rules = explaining.holding(position)
        then = under(by_id[job_id].job, ACTIONS[0], CHAIN) if rules else None
        remedy = remedy_for(schedule.contention(job_id, then, rules), rules)
        assert not remedy.is_turn
        apply(schedule, remedy, by_id, job_id, data)
        assert job_id in schedule.decide().start, remedy


@given(verdicts(), st.integers(1, 3), st.sets(st.integers(-20, 19)))
def test_no_priority_is_named_that_rules_refuse(
    jobs: list[JobVerdict], slots: int, refused: set[int]
) -> None:
    schedule = scheduled(jobs, slots)
    for job_id in pending_in_order(schedule):
        position = schedule.position(job_id)
        assert position is not None
        position = msgspec.structs.replace(position, refused=sorted(refused))
        row = Row(id=job_id, status=JobStatus.QUEUED, priority=0, job_class=JobClass(summary=""))
        rules = explaining.holding(position)
        remedy = remedy_for(schedule.contention(job_id, None, rules), rules, refused)
        named = [remedy, *(one.remedy for one in explaining.of_pending(row, position, []))]
        assert refused.isdisjoint(one.priority for one in named if one.priority is not None)


def apply(
    schedule: Schedule,
    remedy: Remedy,
    by_id: dict[int, JobVerdict],
    job_id: int,
    data: st.DataObject,
) -> None:
    """Make the change; where it leaves a choice, chance decides."""
    for verdict in by_id.values():
        if verdict.rule in remedy.rules:
            schedule.judge(under(verdict.job, ACTIONS[0], CHAIN))
    ends = remedy.ends
    if remedy.slots is not None and data.draw(st.booleans()):
        ends = ends[: len(ends) - (remedy.slots - schedule._running_jobs_max)]
        schedule.limit(remedy.slots)
    if remedy.needs_slots is not None:
        schedule.limit(remedy.needs_slots)
    for group in ends:
        schedule.learn(data.draw(st.sampled_from(group)), JobStatus.SUCCESS)
    if remedy.priority is not None:
        schedule.reprioritise(job_id, remedy.priority)
    for target in remedy.depends:
        wanted = dict(by_id[job_id].job.depends)[target]
        schedule.learn(target, JobStatus(wanted[0]) if wanted else JobStatus.SUCCESS)


@given(verdicts(), st.integers(1, 3))
def test_what_explain_names_first_is_what_to_remove_first(
    jobs: list[JobVerdict], slots: int
) -> None:
    schedule = scheduled(jobs, slots)
    by_id = {one.job.id: one for one in jobs}
    for job_id in pending_in_order(schedule):
        for _ in range(40):
            position = schedule.position(job_id)
            if position is None:
                break
            kind, _, _ = first_obstacle(position)
            match kind:
                case "dependency":
                    wanted = dict(by_id[job_id].job.depends)[position.open[0]]
                    status = JobStatus(wanted[0]) if wanted else JobStatus.SUCCESS
                    schedule.learn(position.open[0], status)
                case "limit":
                    schedule.learn(position.full[0].inside[0], JobStatus.SUCCESS)
                case "rule":
                    accepted = under(by_id[job_id].job, ("ACCEPT", None, None), CHAIN)
                    schedule.judge(accepted)
                case "slots":
                    schedule.learn(position.running[0], JobStatus.SUCCESS)
                case _:
                    raise AssertionError(f"job {job_id} waits, and only {kind} is said")
            settle(schedule)
        assert schedule.position(job_id) is None, f"job {job_id} never started"
