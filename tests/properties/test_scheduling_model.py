"""The schedule against a slow model that looks at every job each time: no wake-up is lost."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ganger.actors.scheduling import Schedule
from ganger.storage.jobs import JobStatus
from ganger.transport.messages import JobVerdict, PendingJob

CANCELED, SUCCESS, ERROR = JobStatus.CANCELED, JobStatus.SUCCESS, JobStatus.ERROR
FINAL = (CANCELED, SUCCESS, ERROR)
HELD_BACK = ("PAUSE", "RATE_LIMIT")

statuses = st.sets(st.sampled_from([str(status) for status in FINAL])).map(sorted)
actions = st.sampled_from(["ACCEPT", "ACCEPT", "ACCEPT", "CONTINUE", *HELD_BACK])
priorities = st.integers(-3, 3)


@dataclass
class ModelJob:
    """What the whole world knows of a job."""

    id: int
    priority: int
    action: str
    depends: list[tuple[int, list[str]]]
    state: str = "pending"
    status: JobStatus | None = None


class ScheduleAgainstModel(RuleBasedStateMachine):
    """The job queue's side of the talk, and jobs that end as hypothesis likes."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = 2
        self.schedule = Schedule(self.slots)
        self.jobs: dict[int, ModelJob] = {}

    def of(self, state: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.state == state]

    # ------------------------------------------------------------ the model

    def outcomes(self, job: ModelJob) -> set[str]:
        """Judged anew each time, from the true statuses: that of each of its dependencies."""
        return {self.outcome_of(target, wanted) for target, wanted in job.depends}

    def outcome_of(self, target: int, wanted: list[str]) -> str:
        other = self.jobs.get(target)
        if other is None:
            return "failed"
        if other.status is None:
            return "open"
        if other.status is CANCELED and "canceled" not in wanted:
            return "canceled"
        return "failed" if wanted and other.status not in wanted else "satisfied"

    def is_satisfied(self, job: ModelJob) -> bool:
        return self.outcomes(job) <= {"satisfied"}

    def startable(self) -> list[int]:
        """Who may start, in order; as many as there are slots."""
        ready = [
            job
            for job in self.of("pending")
            if job.action not in HELD_BACK and self.is_satisfied(job)
        ]
        ready.sort(key=lambda job: (job.priority, job.id))
        free = max(0, self.slots - len(self.of("running")))
        return [job.id for job in ready[:free]]

    # ------------------------------------------------------------ what happens

    @rule(priority=priorities, action=actions, data=st.data())
    def submit(self, priority: int, action: str, data: st.DataObject) -> None:
        job_id = len(self.jobs) + 1
        # One above all others: a job that does not exist.
        targets = st.lists(st.sampled_from([*self.jobs, job_id + 1_000]), max_size=3)
        depends = [(target, data.draw(statuses)) for target in data.draw(targets)]
        self.jobs[job_id] = ModelJob(job_id, priority, action, depends)
        self.tell(self.jobs[job_id])

    def tell(self, job: ModelJob) -> None:
        self.schedule.add(self.verdict(job))

    def verdict(self, job: ModelJob) -> JobVerdict:
        depends = tuple((target, tuple(wanted)) for target, wanted in job.depends)
        pending = PendingJob(id=job.id, priority=job.priority, depends=depends)
        return JobVerdict(job=pending, action=job.action)

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), status=st.sampled_from(FINAL))
    def finish(self, data: st.DataObject, status: JobStatus) -> None:
        job = data.draw(st.sampled_from(self.of("running")))
        job.state, job.status = "final", status
        self.schedule.finish(job.id, status)

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.of("pending")))
        job.state, job.status = "final", CANCELED
        self.schedule.finish(job.id, CANCELED)

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data())
    def lose_process(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.of("running")))
        job.state = "pending"
        self.tell(job)

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data(), priority=priorities)
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        job = data.draw(st.sampled_from(self.of("pending")))
        job.priority = priority
        self.schedule.reprioritise(job.id, priority)

    @precondition(lambda self: self.of("pending"))
    @rule(data=st.data(), action=actions)
    def judge_anew(self, data: st.DataObject, action: str) -> None:
        job = data.draw(st.sampled_from(self.of("pending")))
        job.action = action
        self.tell(job)

    @rule(slots=st.integers(0, 4))
    def limit(self, slots: int) -> None:
        self.slots = slots
        self.schedule.limit(slots)

    @rule()
    def tell_everything(self) -> None:
        verdicts = [self.verdict(job) for job in self.of("pending")]
        self.schedule.replace_all(verdicts, [job.id for job in self.of("running")])

    @precondition(lambda self: self.of("running"))
    @rule(data=st.data(), status=st.sampled_from(FINAL))
    def end_overtakes_the_list(self, data: st.DataObject, status: JobStatus) -> None:
        # The list of everything was made before the job ended, and comes after the word of it.
        job = data.draw(st.sampled_from(self.of("running")))
        verdicts = [self.verdict(one) for one in self.of("pending")]
        running = [one.id for one in self.of("running")]
        job.state, job.status = "final", status
        self.schedule.finish(job.id, status)
        self.schedule.replace_all(verdicts, running)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def passes_start_what_the_model_starts(self) -> None:
        """After whatever happened, passes and answers until nothing moves any more."""
        while True:
            decided = self.schedule.decide()
            for one in decided.doomed:
                # Of several bad dependencies, the one that is heard of first decides.
                assert one.verdict in self.outcomes(self.jobs[one.id])
            expected = self.startable()
            if not decided.unknown:
                assert decided.start == expected
            self.start(decided.start)
            if not decided.doomed and not decided.unknown:
                break
            for one in decided.doomed:
                status = CANCELED if one.verdict == "canceled" else ERROR
                job = self.jobs[one.id]
                job.state, job.status = "final", status
                self.schedule.finish(job.id, status)
            for job_id in decided.unknown:
                known = self.jobs.get(job_id)
                status_told = None
                if known is not None:
                    status_told = known.status or JobStatus.QUEUED
                self.schedule.learn(job_id, status_told)
        assert self.startable() == []
        for job in self.of("pending"):
            assert self.outcomes(job) <= {"open", "satisfied"}
        assert self.schedule.running == {job.id for job in self.of("running")}
        assert self.schedule.pending_count == len(self.of("pending"))
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
        assert not self.schedule._statuses

    def start(self, ids: list[int]) -> None:
        # While something has yet to be asked for, others may be first, but never too many.
        assert len(ids) <= len(self.startable())
        for job_id in ids:
            job = self.jobs[job_id]
            assert job.state == "pending"
            assert self.is_satisfied(job)
            assert job.action not in HELD_BACK
            job.state = "running"


TestSchedule = ScheduleAgainstModel.TestCase
TestSchedule.settings = settings(max_examples=300, stateful_step_count=30)
