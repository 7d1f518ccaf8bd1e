"""What lanes of jobs answer is what looking at each job answers (`slow_standing`)."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.actors.scheduling.schedules import pending_in_order, remedy_for, simulated

from ganger.actors.runtime.id_sets import IdSet
from ganger.actors.runtime.slices import done
from ganger.actors.scheduling import remedies
from ganger.actors.scheduling.class_verdicts import shared_of
from ganger.actors.scheduling.scheduling import Schedule
from ganger.actors.scheduling.smallest_change import Change
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NO_LOCKS,
    UNKNOWN_SHARED,
    LockForecast,
    exclusive,
    shared,
)
from ganger.storage.prediction.policy import Policy
from ganger.transport.messages import JobVerdict, PendingJob, Remedy, RunSimulation, Simulate

from . import slow_standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Step = tuple[str, Any]
"""A part of a remedy."""

CHAIN = 7
FORECASTS = (
    None,
    None,
    NO_LOCKS,
    LockForecast(node=exclusive(["a"]), big_lock="shared"),
    LockForecast(node=exclusive(["b"]), instance=shared(["x"]), big_lock="shared"),
    LockForecast(node=shared(["a", "b"]), big_lock="shared"),
    LockForecast(instance=exclusive(["x"]), big_lock="shared"),
    LockForecast(node=ALL_SHARED, big_lock="shared"),
    LockForecast(node=ALL_EXCLUSIVE, big_lock="shared"),
    LockForecast(node=UNKNOWN_SHARED, big_lock="shared"),
    LockForecast(big_lock="exclusive"),
)
DIFFERENT = (
    *FORECASTS,
    *(
        LockForecast(instance=exclusive([name]), node=shared(nodes), big_lock="shared")
        for name in "uvwxyz"
        for nodes in (["a"], ["b", "c"])
    ),
    *(LockForecast(instance=exclusive([name]), big_lock="shared") for name in "uvwyz"),
    LockForecast(node=exclusive(["a"], ["b", "c"]), big_lock="shared"),
    LockForecast(node=exclusive(["b", "c"], ["d"]), big_lock="shared"),
)
"""Jobs of one shape that want other names: one, some of them, in other modes."""

ACTIONS = (
    ("ACCEPT", None, None),
    ("ACCEPT", None, None),
    ("PAUSE", "pausing", None),
    ("PAUSE", None, None),
    ("REJECT", "rejecting", None),
    ("RATE_LIMIT", "limiting", 1),
)
LIMITS = ((), (), (("1:x", 1),), (("1:x", 1), ("2:y", 2)))
FINAL = (JobStatus.SUCCESS, JobStatus.ERROR, JobStatus.CANCELED)


class World:
    """A schedule to which chance happens."""

    def __init__(self, chance: random.Random, *, has_locks: bool) -> None:
        self.chance = chance
        self.now = 1_000.0
        self.last_id = 0
        self.forecasts: tuple[LockForecast | None, ...] = (None,)
        if has_locks:
            self.forecasts = chance.choice((FORECASTS, DIFFERENT, DIFFERENT[3:]))
        # Fresh objects for the same locks: a kind more, and the same answers.
        policy = Policy(
            is_predictive=chance.random() < 0.9,
            holds_back=chance.random() < 0.7,
            all_opcodes=chance.random() < 0.5,
        )
        self.chain = CHAIN
        self.schedule = Schedule(chance.randint(0, 3), CHAIN, policy=policy)
        self.common = {job_class: chance.choice(ACTIONS) for job_class in (1, 2)}

    def verdict(self, job: PendingJob) -> JobVerdict:
        action, rule, limit = self.common.get(job.job_class) or self.chance.choice(ACTIONS)
        return JobVerdict(
            job=job, action=action, rule=rule, limit=limit, chain=self.chain, is_common=True
        )

    def change_rules(self) -> None:
        """Other rules are in force, and what they say of one job of each class is known."""
        self.chain += 1
        self.schedule.change_chain(self.chain)
        self.common = {job_class: self.chance.choice(ACTIONS) for job_class in (1, 2)}
        shared = {shared_of(one): one for one in self.schedule._pending.values()}
        for judged, one in shared.items():
            if judged is None:
                continue
            job = PendingJob(
                id=one.id, priority=0, job_class=judged.job_class, limits=judged.limits
            )
            event("jobs that are alike get another verdict")
            self.schedule.judge(self.verdict(job))

    def submit(self) -> None:
        chance = self.chance
        self.last_id += chance.choice([1, 1, 2, 700])
        earlier = list(self.schedule._pending) + list(self.schedule._running)
        targets = chance.sample(earlier, min(len(earlier), chance.choice([0, 0, 1, 2])))
        accepted: tuple[str, ...] = chance.choice([(), ("success",), ("canceled", "error")])
        job = PendingJob(
            id=self.last_id,
            priority=chance.choice([0, 0, -1, 2]),
            depends=tuple((target, accepted) for target in targets),
            limits=chance.choice(LIMITS),
            forecast=chance.choice(self.forecasts),
            forecast_of_all=chance.choice((None, *self.forecasts)),
            job_class=chance.choice([0, 1, 1, 2]),
        )
        self.schedule.add(self.verdict(job), self.now)

    def change(self) -> None:
        """Something happens to a job."""
        chance, schedule = self.chance, self.schedule
        jobs = list(schedule._pending)
        running = list(schedule._running)
        what = chance.randrange(10)
        if what == 0 and running:
            schedule.learn(chance.choice(running), chance.choice(FINAL))
        elif what == 1 and running:
            forecast = chance.choice(self.forecasts) or NO_LOCKS
            schedule.locks_changed(chance.choice(running), forecast)
        elif what == 2:
            schedule.locks_changed("somebody", chance.choice(self.forecasts) or NO_LOCKS)
        elif what == 3 and jobs:
            schedule.reprioritise(chance.choice(jobs), chance.choice([0, -1, 2]))
        elif what == 4 and jobs:
            job_id = chance.choice(jobs)
            schedule.judge(self.verdict(PendingJob(id=job_id, priority=0)))
        elif what == 5 and jobs:
            forecasts = chance.choices(self.forecasts, k=2)
            schedule.forecast_changed(chance.choice(jobs), *forecasts)
        elif what == 6 and jobs:
            schedule.learn(chance.choice(jobs), JobStatus.CANCELED)
        elif what == 8:
            self.change_rules()
        elif what == 7:
            self.now += chance.choice([1.0, 450.0, 901.0])
        else:
            schedule.decide(self.now)

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.submit() if self.chance.random() < 0.6 else self.change()
        self.schedule.decide(self.now)


worlds = st.builds(
    lambda seed, has_locks, steps: (World(random.Random(seed), has_locks=has_locks), steps),
    st.integers(0, 2**32),
    st.booleans(),
    st.integers(1, 60),
)


@given(worlds)
@settings(max_examples=60)
def test_a_position_counts_those_ahead_as_if_each_were_looked_at(
    made: tuple[World, int],
) -> None:
    world, steps = made
    world.play(steps)
    schedule = world.schedule
    in_order = [job.id for job in slow_standing.in_order(schedule)]
    assert pending_in_order(schedule) == in_order
    for job_id in in_order:
        expected = slow_standing.position(schedule, job_id)
        assert schedule.position(job_id) == expected
        if expected.ahead > 1:
            event("several jobs are ahead")
    assert schedule.standing_now().obstacles() == slow_standing.obstacles(schedule)


def check_remedies(world: World) -> None:
    schedule = world.schedule
    for job in slow_standing.in_order(schedule):
        rules = (
            [job.judged.rule]
            if job.judged.action in {"PAUSE", "REJECT"} and job.judged.rule
            else []
        )
        then = world.verdict(PendingJob(id=job.id, priority=0)) if rules else None
        slow = remedy_for(slow_standing.contention(schedule, job.id, then), rules)
        found = remedy_for(schedule.contention(job.id, then, rules), rules)
        assert found == slow
        check_smallest(schedule, job.id, then, found)
        if found.priority is not None:
            event("a priority helps")
        if found.is_turn:
            event("it is not its turn")


def choices(groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """One job of each group, each another one."""
    return [one for one in itertools.product(*groups) if len(set(one)) == len(one)]


def check_smallest(schedule: Schedule, job_id: int, then: JobVerdict | None, found: Remedy) -> None:
    """Each change that is named starts the job, and no part of it does.

    A job that is to give locks back may also end.
    """
    if found.is_turn:
        return
    contention = slow_standing.contention(schedule, job_id, then)
    waits_for = contention.own.waits_for
    assert found.depends == sorted(waits_for)

    def starts(steps: Iterable[Step]) -> bool:
        gone = [("end" if what == "release" else what, value) for what, value in steps]
        return starts_as_said(steps) and starts_as_said(gone)

    def starts_as_said(steps: Iterable[Step]) -> bool:
        ended, released, slots, is_first = set(waits_for), set(others), contention.slots, False
        for what, value in steps:
            match what:
                case "end":
                    ended.add(value)
                case "release":
                    released.add(value)
                case "slots":
                    slots = value
                case "priority":
                    is_first = True
        change = Change(
            frozenset(ended), frozenset(found.rules), slots, is_first, frozenset(released)
        )
        return remedies._starts(contention, change)

    # The locks of an owner that is no job are named among the obstacles only.
    others = {one for one in remedies._blocking(contention) if isinstance(one, str)}
    common: list[Step] = [("release", owner) for owner in found.locks]
    if found.priority is not None:
        common.append(("priority", found.priority))
    if found.needs_slots is not None:
        common.append(("slots", found.needs_slots))
    named = [[*common, *(("end", one) for one in ends)] for ends in choices(found.ends)]
    if found.slots is not None:
        left = len(found.ends) - (found.slots - contention.slots)
        named += [
            [*common, ("slots", found.slots), *(("end", one) for one in ends)]
            for ends in choices(found.ends[:left])
        ]
        event("run slots stand beside the ends")
    for steps in named:
        assert starts(steps), (found, steps)
        for count in range(len(steps)):
            for part in itertools.combinations(steps, count):
                assert not starts(part), (found, steps, part)
    if found.needs_slots is not None:
        event("run slots alone")
    if any(job in contention.owners for [job, *_] in found.ends):
        event("an owner of locks ends")


@given(worlds)
@settings(max_examples=60)
def test_a_remedy_is_the_one_that_trials_with_each_job_find(made: tuple[World, int]) -> None:
    world, steps = made
    world.play(steps)
    check_remedies(world)


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_remedy_is_the_right_one_where_an_owner_holds_many_jobs_back(seed: int) -> None:
    """In a trial without that owner, several jobs start, and bar others that want the same."""
    chance = random.Random(seed)
    world = World(chance, has_locks=False)
    world.schedule = schedule = Schedule(chance.randint(2, 5), CHAIN)
    schedule.locks_changed("somebody", LockForecast(node=exclusive(["a"]), big_lock="shared"))
    first = chance.choice([0, 450, 880])
    for job_id in range(1, chance.randint(4, 12)):
        names = [chance.choice("xyz")]
        forecast = LockForecast(instance=exclusive(names), node=shared("a"), big_lock="shared")
        earlier = tuple((one, ()) for one in range(1, job_id) if chance.random() < 0.1)
        job = PendingJob(
            id=job_id,
            priority=0,
            forecast=forecast if chance.random() < 0.9 else None,
            depends=earlier,
            limits=chance.choice(((), (), (("1:x", 1),))),
        )
        accepted = JobVerdict(job=job, action="ACCEPT", rule=None, chain=CHAIN)
        schedule.add(accepted, first + 5 * job_id)
    schedule.decide(chance.choice([940.0, 905.0 + first]))
    world.common[0] = ACTIONS[0]
    check_remedies(world)


def test_run_slots_are_named_alone_where_the_end_of_a_job_would_let_another_go_first() -> None:
    """The lock keeps the other one back, as long as its owner runs; its end is named once."""

    def verdict(job_id: int, forecast: LockForecast | None) -> JobVerdict:
        job = PendingJob(id=job_id, priority=0, forecast=forecast)
        return JobVerdict(job=job, action="ACCEPT", rule=None, chain=CHAIN)

    forecast = LockForecast(node=exclusive(["n1"]), big_lock="shared")
    schedule = Schedule(1, CHAIN)
    schedule.add(verdict(1, forecast))
    schedule.decide()
    for one in (verdict(2, forecast), verdict(3, None)):
        schedule.add(one)
    schedule.decide()
    found = [remedy_for(schedule.contention(one, None), []) for one in (2, 3)]
    assert found == [Remedy(ends=[[1]]), Remedy(needs_slots=2)]
    schedule.limit(2)
    assert schedule.decide().start == [3]


def test_without_a_run_slot_one_is_named() -> None:
    schedule = Schedule(0, CHAIN)
    job = PendingJob(id=1, priority=0)
    schedule.add(JobVerdict(job=job, action="ACCEPT", rule=None, chain=CHAIN))
    schedule.decide()
    assert remedy_for(schedule.contention(1, None), []) == Remedy(needs_slots=1)


def test_in_a_trial_an_old_job_starts_beside_one_that_wants_the_same() -> None:
    """It weighs nothing any more. So both take the places that two ends would free."""

    def verdict(job_id: int, name: str | None, *limits: tuple[str, int]) -> JobVerdict:
        forecast = name and LockForecast(instance=exclusive([name]), big_lock="shared")
        job = PendingJob(id=job_id, priority=0, forecast=forecast or None, limits=limits)
        return JobVerdict(job=job, action="ACCEPT", rule=None, chain=CHAIN)

    schedule = Schedule(2, CHAIN)
    for one in (verdict(1, None, ("1:x", 1)), verdict(2, None, ("2:y", 1))):
        schedule.add(one)
    schedule.decide()
    for one in (verdict(3, "a"), verdict(4, "a"), verdict(5, None, ("1:x", 1), ("2:y", 1))):
        schedule.add(one)
    for now in (10.0, 2_000.0):
        schedule.decide(now)
        slow = remedy_for(slow_standing.contention(schedule, 5, None), [])
        assert remedy_for(schedule.contention(5, None), []) == slow


def test_a_job_whose_locks_become_known_wants_those_it_wanted_before_no_longer() -> None:
    schedule = Schedule(5, CHAIN)
    for job_id, name in ((1, "x"), (2, "y")):
        forecast = LockForecast(instance=exclusive([name]), big_lock="shared")
        job = PendingJob(id=job_id, priority=0, forecast=forecast)
        schedule.add(JobVerdict(job=job, action="ACCEPT", rule=None, chain=CHAIN))
    schedule.forecast_changed(1, LockForecast(instance=exclusive(["z"]), big_lock="shared"))
    schedule.locks_changed("somebody", LockForecast(instance=exclusive(["x"]), big_lock="shared"))
    assert schedule.standing_now().obstacles() == {"order": 2}
    schedule.locks_changed("other", LockForecast(instance=exclusive(["z"]), big_lock="shared"))
    assert schedule.standing_now().obstacles() == {"lock": 1, "order": 1}


@given(worlds, st.integers(1, 5), st.integers(1, 6), st.data())
@settings(max_examples=50)
def test_a_simulation_in_slices_is_one_at_once(
    made: tuple[World, int], at_once: int, slots: int, data: st.DataObject
) -> None:
    world, steps = made
    world.play(steps)
    schedule = world.schedule
    jobs = [world.verdict(PendingJob(id=one, priority=0)) for one in sorted(schedule._pending)]
    running = [world.verdict(PendingJob(id=one, priority=0)) for one in schedule.running]
    whole = done(schedule.what_if(jobs, running, slots, 1_000))
    sliced = done(schedule.what_if(jobs, running, slots, at_once))
    decided = whole.decide(world.now)
    start, unsatisfiable, passes = [], [], 0
    while sliced.is_tired or not passes:
        one = sliced.decide(world.now)
        start += one.start
        unsatisfiable += one.unsatisfiable
        passes += 1
    if passes > 2:
        event("the pass pauses")
    assert start == decided.start
    assert unsatisfiable == decided.unsatisfiable
    left = slow_standing.in_order(whole)
    assert pending_in_order(sliced) == [job.id for job in left]
    assert sliced.standing_now().obstacles() == slow_standing.obstacles(whole)
    ended = {}
    if left:
        ended = {data.draw(st.sampled_from(left)).id: JobStatus.SUCCESS}
    simulation = Simulate(running_jobs_max=slots, ended=ended)
    outcome = simulated(schedule, RunSimulation(simulation=simulation, jobs=jobs, running=running))
    if not ended:
        assert outcome.start == start
        assert [one.id for one in outcome.waiting] == [
            job.id for job in left if job.judged.action != "REJECT"
        ]
        assert outcome.counts == dict(slow_standing.obstacles(whole))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5_000))))
def test_a_set_of_ids_is_a_set_in_order(steps: list[tuple[bool, int]]) -> None:
    known: set[int] = set()
    found = IdSet()
    for is_added, number in steps:
        if is_added:
            known.add(number)
            found.add(number)
        else:
            known.discard(number)
            found.discard(number)
        assert not known or found.first() == min(known)
    assert list(found) == sorted(known)
    assert (len(found), bool(found)) == (len(known), bool(known))
    assert all(number in found for number in known)
    assert all((number in found) == (number in known) for _, number in steps)
