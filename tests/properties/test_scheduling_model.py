"""The schedule against a slow model that looks at every job each time: no wake-up is lost.

The model knows what the rules say of each job; the schedule hears of it in verdicts, which may
come late, or from rules that are no longer in force. Whatever happens between a question and its
answer, nothing starts that may not; and when everything is answered, all that may start has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganger.actors.scheduling.scheduling import Pass, Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import JobVerdict, PendingJob

CANCELED, SUCCESS, ERROR = JobStatus.CANCELED, JobStatus.SUCCESS, JobStatus.ERROR
FINAL = (CANCELED, SUCCESS, ERROR)

statuses = st.sets(st.sampled_from([str(status) for status in FINAL])).map(sorted)
priorities = st.integers(-3, 3)
# What rules say: the action, and the rule that limits. Their numbers belong to the chain.
SAYINGS = st.sampled_from(
    [("ACCEPT", None)] * 3
    + [("CONTINUE", None), ("PAUSE", "p"), ("PAUSE", "p"), ("REJECT", "j")]
    + [("RATE_LIMIT", "r"), ("RATE_LIMIT", "r"), ("RATE_LIMIT", "q")]
)
AD_HOC = st.sets(st.sampled_from([("1:a", 1), ("2:b", 2)])).map(lambda some: tuple(sorted(some)))
TEMPLATES = st.sampled_from([0, 0, 1, 1, 1, 2])
NUMBERS = st.fixed_dictionaries({"r": st.integers(1, 3), "q": st.integers(1, 2)})
UNJUDGED = 0

Saying = tuple[str, str | None]
Limits = tuple[tuple[str, int], ...]
Dependencies = Sequence[tuple[int, list[str]]]


@dataclass
class ScheduledJob:
    """What the whole world knows of a job."""

    id: int
    priority: int
    action: str
    rule: str | None
    limits: Limits
    depends: list[tuple[int, list[str]]]
    job_class: int = 0
    state: str = "pending"
    status: JobStatus | None = None


class ScheduleAgainstModel(RuleBasedStateMachine):
    """The job queue's side of the talk, and jobs that end as hypothesis likes."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = 3
        self.chain = 1
        self.numbers = {"r": 1, "q": 2}
        # By job_class, what the rules say of all its jobs, unless they look at ids or reasons.
        self.common: dict[int, Saying] = {1: ("ACCEPT", None), 2: ("PAUSE", "p")}
        self.tells_alike_apart = False
        self.schedule = Schedule(self.slots)
        self.schedule.change_chain(self.chain)
        self.jobs: dict[int, ScheduledJob] = {}
        self.unjudged: list[int] = []
        self.unknown: list[int] = []
        self.are_answers_slow = False

    def of(self, state: str) -> list[ScheduledJob]:
        return [job for job in self.jobs.values() if job.state == state]

    # ------------------------------------------------------------ the model

    def outcomes(self, job: ScheduledJob) -> set[str]:
        """Judged anew each time, from the true statuses: that of each of its dependencies."""
        return {self.outcome_of(target, wanted) for target, wanted in job.depends}

    def verdict_of(self, job: ScheduledJob) -> str:
        """How all of them stand together: canceled wins, and nothing fails before all are final."""
        outcomes = self.outcomes(job)
        for verdict in ("canceled", "open", "failed"):
            if verdict in outcomes:
                return verdict
        return "satisfied"

    def outcome_of(self, target: int, wanted: list[str]) -> str:
        other = self.jobs.get(target)
        if other is None:
            return "failed"
        if other.status is None:
            return "open"
        if other.status is CANCELED and "canceled" not in wanted:
            return "canceled"
        return "failed" if wanted and other.status not in wanted else "satisfied"

    def buckets(self, job: ScheduledJob) -> dict[str, int]:
        """The buckets of a job, by the rules in force, each with its size."""
        sizes = dict(job.limits)
        if job.action == "RATE_LIMIT":
            assert job.rule is not None
            sizes["rule " + job.rule] = self.numbers[job.rule]
        return sizes

    def startable(self, unknown: Collection[int] = (), started: Sequence[int] = ()) -> list[int]:
        """The jobs that may start, in order, as long as there is place.

        Of those that depend on one of ``unknown``, of which the schedule has perhaps yet to hear,
        only those that it has ``started``.
        """
        running = self.of("running")
        found: list[int] = []
        for job in sorted(self.of("pending"), key=lambda job: (job.priority, job.id)):
            is_known = not any(target in unknown for target, _ in job.depends)
            if (is_known or job.id in started) and self.may_start(job, running):
                running.append(job)
                found.append(job.id)
        return found

    def may_start(self, job: ScheduledJob, running: list[ScheduledJob]) -> bool:
        """Whether nothing but the order is against it, beside these."""
        taken = Counter(name for other in running for name in self.buckets(other))
        return (
            job.state == "pending"
            and len(running) < self.slots
            and job.action not in {"PAUSE", "REJECT"}
            and self.outcomes(job) <= {"satisfied"}
            and all(taken[name] < size for name, size in self.buckets(job).items())
        )

    # ------------------------------------------------------------ what happens

    @rule(news=st.lists(st.tuples(priorities, SAYINGS, AD_HOC, TEMPLATES), min_size=1, max_size=5))
    def submit(self, news: list[tuple[int, Saying, Limits, int]]) -> None:
        for priority, saying, limits, job_class in news:
            self.take_in(priority, saying, limits, job_class=job_class)

    @rule(job_class=st.sampled_from([1, 2]), saying=SAYINGS, count=st.integers(2, 6))
    def submit_alike(self, job_class: int, saying: Saying, count: int) -> None:
        for _ in range(count):
            self.take_in(job_class, saying, (), job_class=job_class)

    @rule(priority=priorities, saying=SAYINGS, limits=AD_HOC, data=st.data(), job_class=TEMPLATES)
    def submit_a_dependant(
        self, priority: int, saying: Saying, limits: Limits, data: st.DataObject, job_class: int
    ) -> None:
        # One above all others: a job that does not exist.
        known = [*self.jobs] * 3 + [len(self.jobs) + 1_000]
        targets = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        depends = [(each, data.draw(statuses)) for each in targets]
        self.take_in(priority, saying, limits, depends, job_class=job_class)

    def take_in(
        self,
        priority: int,
        saying: Saying,
        limits: Limits,
        depends: Dependencies = (),
        *,
        job_class: int,
    ) -> None:
        job_id = len(self.jobs) + 1
        if job_class and not self.tells_alike_apart:
            saying = self.common[job_class]
        job = self.jobs[job_id] = ScheduledJob(
            job_id, priority, *saying, limits, list(depends), job_class
        )
        # Jobs whose opcodes were not looked at come unjudged.
        self.schedule.add(self.verdict(job) if job_id % 3 else self.no_verdict(job))

    def pending_job(self, job: ScheduledJob) -> PendingJob:
        depends = tuple((target, tuple(wanted)) for target, wanted in job.depends)
        return PendingJob(
            id=job.id,
            priority=job.priority,
            depends=depends,
            limits=job.limits,
            job_class=job.job_class,
        )

    def verdict(self, job: ScheduledJob) -> JobVerdict:
        return JobVerdict(
            job=self.pending_job(job),
            action=job.action,
            rule=job.rule,
            limit=self.numbers[job.rule] if job.action == "RATE_LIMIT" and job.rule else None,
            chain=self.chain,
            is_common=not self.tells_alike_apart,
        )

    def no_verdict(self, job: ScheduledJob) -> JobVerdict:
        return JobVerdict(job=self.pending_job(job), chain=UNJUDGED)

    @precondition(lambda self: self.jobs)
    @rule(
        data=st.data(),
        numbers=NUMBERS,
        common=st.fixed_dictionaries({1: SAYINGS, 2: SAYINGS}),
        tells_alike_apart=st.sampled_from([False, False, True]),
    )
    def change_rules(
        self,
        data: st.DataObject,
        numbers: dict[str, int],
        common: dict[int, Saying],
        tells_alike_apart: bool,  # noqa: FBT001 - drawn
    ) -> None:
        self.chain += 1
        self.numbers = numbers
        self.common, self.tells_alike_apart = common, tells_alike_apart
        for job in (*self.of("pending"), *self.of("running")):
            if job.job_class and not tells_alike_apart:
                job.action, job.rule = common[job.job_class]
            elif data.draw(st.booleans()):
                job.action, job.rule = data.draw(SAYINGS)
        self.schedule.change_chain(self.chain, tells_alike_apart=tells_alike_apart)
        if len(self.schedule._classes):
            event("other rules are in force for jobs that are alike")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), back=st.integers(0, 2), saying=SAYINGS)
    def hear_an_older_verdict(self, data: st.DataObject, back: int, saying: Saying) -> None:
        job = data.draw(st.sampled_from(list(self.jobs.values())))
        chain = max(UNJUDGED, self.chain - 1 - back)
        limit = 1 if saying[0] == "RATE_LIMIT" else None
        old = JobVerdict(
            job=self.pending_job(job), action=saying[0], rule=saying[1], limit=limit, chain=chain
        )
        self.schedule.judge(old)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def hear_a_verdict_unasked(self, data: st.DataObject) -> None:
        # As when the whole queue is looked through.
        self.schedule.judge(self.verdict(data.draw(st.sampled_from(list(self.jobs.values())))))

    @precondition(lambda self: self.unjudged)
    @rule(data=st.data(), is_late=st.booleans())
    def answer_one(self, data: st.DataObject, is_late: bool) -> None:  # noqa: FBT001 - drawn
        job_id = data.draw(st.sampled_from(self.unjudged))
        self.unjudged.remove(job_id)
        # An answer that other rules have overtaken counts for nothing: it is asked again.
        make_verdict = self.no_verdict if is_late else self.verdict
        self.schedule.judge(make_verdict(self.jobs[job_id]))

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), status=st.sampled_from(FINAL))
    def finish(self, data: st.DataObject, status: JobStatus) -> None:
        self.end(data.draw(st.sampled_from(self.of("running"))), status)

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.of("pending"))), CANCELED)

    def end(self, job: ScheduledJob, status: JobStatus) -> None:
        job.state, job.status = "final", status
        self.schedule.learn(job.id, status)

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), is_judged=st.booleans())
    def lose_process(self, data: st.DataObject, is_judged: bool) -> None:  # noqa: FBT001 - drawn
        job = data.draw(st.sampled_from(self.of("running")))
        job.state = "pending"
        self.schedule.add(self.verdict(job) if is_judged else self.no_verdict(job))

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data(), priority=priorities)
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        job = data.draw(st.sampled_from(self.of("pending")))
        job.priority, job.job_class = priority, 0
        self.schedule.reprioritise(job.id, priority)

    @rule(slots=st.sampled_from([0, 1, 2, 3, 4, 4, 6, 8]))
    def limit(self, slots: int) -> None:
        self.slots = slots
        self.schedule.limit(slots)

    @rule(is_judged=st.booleans())
    def tell_everything(self, is_judged: bool) -> None:  # noqa: FBT001 - drawn
        make_verdict = self.verdict if is_judged else self.no_verdict
        pending, running = (
            map(make_verdict, self.of("pending")),
            map(make_verdict, self.of("running")),
        )
        self.schedule.replace_all(list(pending), list(running))

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), status=st.sampled_from(FINAL))
    def end_overtakes_the_list(self, data: st.DataObject, status: JobStatus) -> None:
        # The list of everything was made before the job ended, and comes after the word of it.
        job = data.draw(st.sampled_from(self.of("running")))
        verdicts = [self.verdict(one) for one in self.of("pending")]
        running = [self.verdict(one) for one in self.of("running")]
        self.end(job, status)
        self.schedule.replace_all(verdicts, running)

    @rule(slow=st.booleans())
    def change_pace(self, slow: bool) -> None:  # noqa: FBT001 - drawn
        """Whether verdicts that are asked for come at once, or one by one, while others act."""
        self.are_answers_slow = slow

    @precondition(lambda self: len(self.of("running")) > 1)
    @rule()
    def all_end(self) -> None:
        """Without a job left running every bucket is empty."""
        for job in self.of("running"):
            self.end(job, SUCCESS)
        assert not +self.schedule._order._taken

    # ------------------------------------------------------------ what must hold

    @invariant()
    def each_pass_starts_only_jobs_that_may_start(self) -> None:
        """A pass ends every turn; it names unsatisfiable jobs at once, and verdicts come later."""
        moves = True
        while moves:
            unsatisfiable = self.run_pass().unsatisfiable
            are_answered = self.unjudged and not self.are_answers_slow
            moves = bool(unsatisfiable or self.unknown or are_answered)
            self.answer_statuses()
            if are_answered:
                self.answer_verdicts()
        if not self.unjudged:
            self.nothing_is_left_to_do()

    def run_pass(self) -> Pass:
        decided = self.schedule.decide()
        self.take_start(decided)
        self.unjudged += decided.unjudged
        self.unknown += decided.unknown
        for one in decided.unsatisfiable:
            job = self.jobs[one.id]
            if one.verdict == "rejected":
                assert job.action == "REJECT"
                self.end(job, CANCELED)
            else:
                assert one.verdict == self.verdict_of(job)
                self.end(job, CANCELED if one.verdict == "canceled" else ERROR)
        return decided

    def take_start(self, decided: Pass) -> None:
        # While something has yet to be asked for, others may be first: also two, where one that is
        # not known yet would have taken a place in the buckets of both.
        unknown = {*decided.unknown, *self.unknown}
        expected = self.startable(unknown, decided.start)
        if any(self.jobs[one].status is not None for one in unknown & self.schedule.running):
            # It has ended, which the schedule has yet to hear: it still takes its places.
            event("a pass with a place that is free already")
        elif decided.unjudged or self.unjudged:
            # It stops at the first unjudged job, and passes none.
            assert decided.start == expected[: len(decided.start)]
            event("a pass with open verdicts")
        else:
            assert decided.start == expected
        for job_id in decided.start:
            job = self.jobs[job_id]
            assert self.may_start(job, self.of("running"))
            job.state = "running"

    def answer_statuses(self) -> None:
        unknown, self.unknown = self.unknown, []
        for job_id in unknown:
            known = self.jobs.get(job_id)
            status = None if known is None else known.status or JobStatus.QUEUED
            self.schedule.learn(job_id, status)

    def answer_verdicts(self) -> None:
        unjudged, self.unjudged = self.unjudged, []
        for job_id in unjudged:
            self.schedule.judge(self.verdict(self.jobs[job_id]))

    def nothing_is_left_to_do(self) -> None:
        assert self.startable() == []
        for job in self.of("pending"):
            assert self.verdict_of(job) in {"open", "satisfied"}
        assert self.schedule.running == {job.id for job in self.of("running")}
        assert len(self.schedule._pending) == len(self.of("pending"))
        for name, size in [("1:a", 1), ("2:b", 2)]:
            assert sum(name in dict(job.limits) for job in self.of("running")) <= size
        self.nothing_is_kept_in_vain()

    def nothing_is_kept_in_vain(self) -> None:
        waiting = {
            (target, job.id)
            for job in self.of("pending")
            for target, wanted in job.depends
            if self.outcome_of(target, wanted) == "open"
        }
        known = self.schedule._dependants
        assert {(target, job_id) for target, ids in known.items() for job_id in ids} == waiting


TestSchedule = ScheduleAgainstModel.TestCase
TestSchedule.settings = settings(max_examples=200, stateful_step_count=40)
