"""The order of starts against a slow reference: the document's formulas, for each job, each time.

The reference knows every owner of locks and looks at every pending job before each start. The
schedule keeps jobs together; for any forecasts, locks, policies and times, both start the same jobs
in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NO_LOCKS,
    NOTHING,
    UNKNOWN_EXCLUSIVE,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    adjusted_weight,
    exclusive,
    is_certain_to_block,
    shared,
    static_weight,
)
from ganger.storage.prediction.policy import Policy
from ganger.transport.messages import JobVerdict, PendingJob

CHAIN = 7
names = st.sets(st.sampled_from(["a", "b", "c"]), max_size=2)
level_forecasts: st.SearchStrategy[LevelForecast] = st.one_of(
    st.just(NOTHING),
    st.just(NOTHING),
    names.map(exclusive),
    names.map(exclusive),
    names.map(shared),
    st.builds(exclusive, names, names),
    st.sampled_from([UNKNOWN_SHARED, ALL_SHARED, UNKNOWN_EXCLUSIVE, ALL_EXCLUSIVE]),
)


@st.composite
def lock_forecasts(draw: st.DrawFn) -> LockForecast:
    """Locks of two levels; jobs with locks share the big one, few have it for themselves."""
    node, instance = draw(level_forecasts), draw(level_forecasts)
    if draw(st.integers(0, 9)) == 0:
        return LockForecast(big_lock="exclusive")
    if node == NOTHING == instance:
        return NO_LOCKS
    return LockForecast(node=node, instance=instance, big_lock="shared")


policies = st.builds(
    Policy,
    is_predictive=st.sampled_from([True, True, True, False]),
    holds_back=st.booleans(),
    all_opcodes=st.booleans(),
)
priorities = st.sampled_from([0, 0, 0, -1, 2])
submissions = st.tuples(
    priorities,
    lock_forecasts(),
    st.none() | lock_forecasts(),
    st.sampled_from([(), (), (("1:x", 1),)]),
)


@dataclass
class KnownJob:
    """A pending job, or one that runs."""

    id: int
    came: float
    priority: int
    forecast: LockForecast
    of_all: LockForecast | None
    limits: tuple[tuple[str, int], ...]


class ScheduleAgainstFormulas(RuleBasedStateMachine):
    """Jobs come, start, take locks, give them back and end, as hypothesis likes."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy(holds_back=True)
        self.slots = 3
        self.now = 1_000.0
        self.last_id = 0
        self.schedule = Schedule(self.slots, CHAIN, policy=self.policy)
        self.pending: dict[int, KnownJob] = {}
        self.running: dict[int, KnownJob] = {}
        self.held: dict[int | str, LockForecast] = {}
        self.expected: dict[int | str, LockForecast] = {}

    # ------------------------------------------------------------ the reference

    def weighed(self, job: KnownJob) -> LockForecast:
        if self.policy.all_opcodes and job.of_all is not None:
            return job.of_all
        return job.forecast

    def owners(self) -> dict[int | str, LockForecast]:
        known: dict[int | str, LockForecast] = {}
        known.update((job_id, NO_LOCKS) for job_id in self.running)
        return {**known, **self.expected, **self.held}

    def is_held_back(self, job: KnownJob) -> bool:
        policy = self.policy
        return (
            policy.is_predictive
            and policy.holds_back
            and self.weighed(job) != NO_LOCKS
            and not self.outranks_an_owner(job)
            and any(is_certain_to_block(job.forecast, held) for held in self.owners().values())
            and (
                self.now < job.came + policy.seconds_until_weightless
                or self.stands_behind_an_older_one(job)
            )
        )

    def outranks_an_owner(self, job: KnownJob) -> bool:
        """Whether a less urgent job runs that has locks, or is about to take some."""
        return any(
            self.running[owner].priority > job.priority
            for owner in {**self.expected, **self.held}
            if isinstance(owner, int) and owner in self.running
        )

    def stands_behind_an_older_one(self, job: KnownJob) -> bool:
        """Whether an older job has a run slot, has not got its locks yet, and would go first."""
        return any(
            isinstance(owner, int) and owner < job.id and is_certain_to_block(job.forecast, wanted)
            for owner, wanted in self.expected.items()
            if owner not in self.held
        )

    def place(self, job: KnownJob) -> tuple[int, float, int]:
        weight = 0.0
        if self.policy.is_predictive:
            weight = static_weight(self.weighed(job), self.owners().values())
        return (job.priority, adjusted_weight(weight, self.now - job.came), job.id)

    def has_places(self, job: KnownJob) -> bool:
        return not any(job.limits and other.limits for other in self.running.values())

    def starts(self) -> list[int]:
        """What a pass starts: before each start, every pending job is looked at."""
        found = []
        while len(self.running) < self.slots:
            able = [
                job
                for job in self.pending.values()
                if self.has_places(job) and not self.is_held_back(job)
            ]
            if not able:
                break
            first = min(able, key=self.place)
            if any(job.id < first.id and job.priority == first.priority for job in able):
                event("a lighter job passes an older one")
            del self.pending[first.id]
            self.running[first.id] = first
            is_weighed = self.policy.is_predictive and self.weighed(first) != NO_LOCKS
            if is_weighed and first.id not in self.held and first.forecast != NO_LOCKS:
                self.expected[first.id] = first.forecast
            found.append(first.id)
        return found

    # ------------------------------------------------------------ what happens

    @rule(news=st.lists(submissions, min_size=1, max_size=5))
    def submit(
        self,
        news: list[tuple[int, LockForecast, LockForecast | None, tuple[tuple[str, int], ...]]],
    ) -> None:
        for priority, forecast, of_all, limits in news:
            self.last_id += 1
            job = KnownJob(self.last_id, self.now, priority, forecast, of_all, limits)
            self.pending[job.id] = job
            told = PendingJob(
                id=job.id,
                priority=priority,
                limits=limits,
                # Both ways to say that there are no locks.
                forecast=None if forecast == NO_LOCKS and job.id % 2 else forecast,
                forecast_of_all=of_all,
            )
            self.schedule.add(JobVerdict(job=told, chain=CHAIN), self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_told_first=st.booleans())
    def finish(self, data: st.DataObject, is_told_first: bool) -> None:  # noqa: FBT001 - drawn
        """Slot and locks become free in one; the lock manager tells of it before or after."""
        job_id = data.draw(st.sampled_from(sorted(self.running)))
        if is_told_first:
            self.schedule.owner_ended(job_id)
            # Nothing is free yet.
            self.both_start_the_same_jobs()
        del self.running[job_id]
        self.expected.pop(job_id, None)
        self.held.pop(job_id, None)
        self.schedule.learn(job_id, JobStatus.SUCCESS)

    @precondition(lambda self: self.last_id)
    @rule(data=st.data(), locks=st.none() | lock_forecasts())
    def report_late(self, data: st.DataObject, locks: LockForecast | None) -> None:
        """The lock manager tells of a job that has ended."""
        job_id = data.draw(st.integers(1, self.last_id))
        if job_id in self.running or job_id in self.pending:
            return
        if locks is None:
            self.schedule.owner_ended(job_id)
        else:
            self.schedule.locks_changed(job_id, locks)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), locks=lock_forecasts(), is_as_forecast=st.booleans())
    def take_locks(
        self,
        data: st.DataObject,
        locks: LockForecast,
        is_as_forecast: bool,  # noqa: FBT001 - drawn
    ) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.running)))
        self.report(job_id, self.running[job_id].forecast if is_as_forecast else locks)

    @rule(locks=lock_forecasts())
    def another_owner_takes_locks(self, locks: LockForecast) -> None:
        self.report("somebody", locks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.report(data.draw(st.sampled_from(sorted(self.held, key=str))), NO_LOCKS)

    def report(self, owner: int | str, locks: LockForecast) -> None:
        self.held.pop(owner, None)
        self.expected.pop(owner, None)
        if locks != NO_LOCKS:
            self.held[owner] = locks
        self.schedule.locks_changed(owner, locks)

    @rule()
    def report_all(self) -> None:
        """The lock manager has started again."""
        self.schedule.all_locks(dict(self.held))

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), priority=priorities)
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        job = self.pending[data.draw(st.sampled_from(sorted(self.pending)))]
        job.priority = priority
        self.schedule.reprioritise(job.id, priority)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), forecast=lock_forecasts())
    def resolve(self, data: st.DataObject, forecast: LockForecast) -> None:
        job = self.pending[data.draw(st.sampled_from(sorted(self.pending)))]
        job.forecast = forecast
        self.schedule.forecast_changed(job.id, forecast, job.of_all)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.pending)))
        del self.pending[job_id]
        self.schedule.remove(job_id)

    @rule(slots=st.integers(0, 5))
    def limit(self, slots: int) -> None:
        self.slots = slots
        self.schedule.limit(slots)

    @rule(policy=policies)
    def change_policy(self, policy: Policy) -> None:
        self.policy = policy
        self.schedule.change_policy(policy)

    @rule(seconds=st.sampled_from([1.0, 30.0, 450.0, 899.0, 900.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.schedule.decide(self.now).due_at is not None)
    @rule()
    def wait_until_the_alarm(self) -> None:
        before = self.schedule.decide(self.now)
        assert before.start == []
        assert before.due_at is not None
        assert before.due_at > self.now, "it would be called again and again"
        self.now = before.due_at
        expected = self.starts()
        decided = self.schedule.decide(self.now)
        assert decided.start == expected
        assert decided.due_at is None or decided.due_at > self.now
        if expected:
            event("a job that was held back for long starts")

    # ------------------------------------------------------------ what must hold

    @invariant()
    def both_start_the_same_jobs(self) -> None:
        held_back = [job.id for job in self.pending.values() if self.is_held_back(job)]
        expected = self.starts()
        decided = self.schedule.decide(self.now)
        assert decided.start == expected
        if held_back:
            event("a job is held back")
        if any(
            self.is_held_back(job) and self.now >= job.came + self.policy.seconds_until_weightless
            for job in self.pending.values()
        ):
            event("a job without weight is held back behind an older one")
        self.each_position_names_what_holds_a_job_back()
        assert len(self.schedule._prediction.taken.watchers) <= 3 * 5

    def each_position_names_what_holds_a_job_back(self) -> None:
        for job in self.pending.values():
            position = self.schedule.position(job.id, is_brief=True)
            assert position is not None
            assert bool(position.held_back) == self.is_held_back(job)
            owners = self.owners()
            for one in position.held_back:
                assert one.jobs or one.soon or one.others
                named: list[int | str] = [*one.jobs, *one.soon, *one.others]
                for owner in named:
                    assert is_certain_to_block(job.forecast, owners[owner])


TestSchedule = ScheduleAgainstFormulas.TestCase
TestSchedule.settings = settings(max_examples=60, stateful_step_count=25)
