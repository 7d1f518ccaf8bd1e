"""The queue with its rules, limits and dependencies against a slow model of the whole.

Hypothesis plays the users, the jobs and the misfortunes; the real actors talk to each other in an
order that the dice choose. After each step, when nothing is on its way any more, exactly those
jobs run that the model says, and `explain` and `simulate` were right.

GANGER_EXAMPLES=N plays N cases instead of those that fit into the daily run; `make torture` plays
2,000.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.properties.queue_model import (
    ARCHIVED,
    CANCELED,
    ENDED,
    ERROR,
    FINAL,
    PENDING,
    RUNNING,
    SUCCESS,
    Happened,
    ModelJob,
    ModelOp,
    QueueModel,
)
from tests.properties.queue_model_world import ModelWorld

from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import JobSpec, Message

EXAMPLES = int(os.environ.get("GANGER_EXAMPLES", "25"))
# A case that fails is made small before it is shown; hypothesis gives that five minutes.
pytestmark = pytest.mark.timeout(600 + EXAMPLES)

UUIDS = [f"{number}0000000-0000-4000-8000-000000000000" for number in range(1, 5)]
OP_IDS: dict[str, dict[str, Any]] = {
    "OP_TEST_DELAY": {"duration": 1.0, "on_master": False},
    "OP_EXEC": {"argv": ["true"]},
}
TEXTS = ["a", "b", "a", "b", "a", "b", "rate-limit:1:x", "rate-limit:2:y", "rate-limit:1:y"]

priorities = st.integers(-2, 2)
trails = st.lists(st.sampled_from(TEXTS), max_size=2).map(
    lambda texts: [("user", text, 1) for text in texts]
)
statuses: st.SearchStrategy[list[str]] = (
    st.just([]) | st.just([SUCCESS]) | st.sets(st.sampled_from(FINAL)).map(sorted)
)
OUTCOMES = [SUCCESS] * 6 + [ERROR, "lost"]
windows = st.sampled_from([None] * 3 + [(0, 30), (30, 90), (None, 45), (45, None), (-5, 0)])
comparing = st.sampled_from(["<=", ">", "=", "!="])
predicates = st.lists(
    st.one_of(
        st.sampled_from(["<=", ">"]).map(lambda sign: ["jobid", [sign, "id", "watermark"]]),
        st.tuples(comparing, st.integers(1, 8)).map(
            lambda drawn: ["jobid", [drawn[0], "id", drawn[1]]]
        ),
        st.sampled_from(sorted(OP_IDS)).map(lambda name: ["opcode", ["=", "OP_ID", name]]),
        st.sampled_from(["a", "b"]).map(lambda text: ["reason", ["=", "reason", text]]),
        st.sampled_from(["rate-limit:.*y", "^user$"]).map(
            lambda text: ["reason", ["|", ["=~", "reason", text], ["=~", "source", text]]]
        ),
        st.just(["opcode", ["!", ["=", "OP_ID", "OP_EXEC"]]]),
    ),
    max_size=2,
)
actions = st.sampled_from(
    ["ACCEPT", "PAUSE", "PAUSE", "REJECT", "CONTINUE", ["RATE_LIMIT", 1], ["RATE_LIMIT", 2]]
)

Drawn = dict[str, Any]


@st.composite
def drawn_opcodes(draw: st.DrawFn) -> Drawn:
    name = draw(st.sampled_from(sorted(OP_IDS)))
    raw: Drawn = {"OP_ID": name, **OP_IDS[name], "reason": draw(trails)}
    if draw(st.booleans()):
        raw["priority"] = draw(priorities)
    return raw


jobs = st.fixed_dictionaries(
    {
        "ops": st.lists(drawn_opcodes(), min_size=1, max_size=3),
        "priority": st.none() | priorities,
        "reason": trails,
        # Dependencies: on the how-manieth opcode, how far back, whether counted within the batch.
        "depends": st.lists(
            st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans(), statuses), max_size=2
        ),
    }
)


class QueueAgainstModel(RuleBasedStateMachine):
    """Users, jobs and misfortunes."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        place = memory if memory.is_dir() else None
        self.root = Path(tempfile.mkdtemp(prefix="ganger-queue-model-", dir=place))
        self.world: ModelWorld | None = None

    @initialize(
        seed=st.integers(0, 2**16),
        slots=st.integers(1, 4),
        batch=st.lists(jobs, min_size=3, max_size=6),
    )
    def begin(self, seed: int, slots: int, batch: list[Drawn]) -> None:
        self.world = ModelWorld(self.root, seed)
        self.model = QueueModel(self.world.now)
        self.is_disturbed = False
        self.lost: dict[Path, ModelJob] = {}
        self.set_slots(slots)
        self.submit(batch)

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()
        shutil.rmtree(self.root)

    def ask(self, name: str, message: Message) -> Any:
        assert self.world is not None
        return self.world.ask(name, message)

    # ------------------------------------------------------------ submissions

    @rule(batch=st.lists(jobs, min_size=1, max_size=4))
    def submit(self, batch: list[Drawn]) -> None:
        model, world = self.model, self.world
        assert world is not None
        first = model.last_id + 1
        specs, made = [], []
        for place, drawn in enumerate(batch):
            spec, job = self._drawn_job(drawn, first, place)
            specs.append(spec)
            made.append(job)
        answer = self.ask("job_queue", messages.SubmitJobs(jobs=specs))
        if model.is_drained:
            assert answer.refusal[0] == "QueueDrainedError", answer.refusal
            self.look(Happened())
            return
        rejected = self._rejected(made)
        if len(rejected) == len(made):
            outcome = answer.answer_as(messages.JobsSubmitted)
            assert (outcome.ids, outcome.rejected.keys()) == ([], rejected.keys())
            for place, uuid in rejected.items():
                assert uuid is None or uuid in outcome.rejected[place]
            event("a whole submission is rejected")
            self.look(Happened())
            return
        model.last_id += len(made)
        stored = [job for place, job in enumerate(made) if place not in rejected]
        submitted = answer.answer_as(messages.JobsSubmitted)
        assert submitted.ids == [job.id for job in stored]
        assert submitted.rejected.keys() == rejected.keys()
        for place, uuid in rejected.items():
            assert uuid is None or uuid in submitted.rejected[place]
        # The scheduler must ask about those that are no longer in it; others go on meanwhile.
        asks = any(
            target not in model.jobs or model.jobs[target].final is not None
            for job in stored
            for target, _ in job.depends
            if target < first
        )
        model.jobs.update((job.id, job) for job in stored)
        self.settle(is_open=asks)

    def _drawn_job(self, drawn: Drawn, first: int, place: int) -> tuple[JobSpec, ModelJob]:
        job_id = first + place
        depends: dict[int, list[tuple[int, list[str]]]] = {}
        given: dict[int, list[tuple[int, list[str]]]] = {}
        for number, back, is_relative, wanted in drawn["depends"]:
            target = job_id - back
            if target < first and target not in self.model.jobs:
                continue
            index = min(number, len(drawn["ops"]) - 1)
            depends.setdefault(index, []).append((target, wanted))
            named = -back if is_relative and target >= first else target
            given.setdefault(index, []).append((named, wanted))
        raws, ops = [], []
        for index, raw in enumerate(drawn["ops"]):
            own = {"depends": given[index]} if index in given else {}
            raws.append(raw | own)
            name = raw["OP_ID"].removeprefix("OP_").lower()
            assert self.world is not None
            entry = (f"gnt:opcode:{name}", f"job={job_id};index={index}", int(self.world.now * 1e9))
            trail = [*raw["reason"], *drawn["reason"], entry]
            priority = raw.get("priority", drawn["priority"] or 0)
            ops.append(ModelOp(raw | {"reason": trail}, priority, depends.get(index, [])))
        spec = JobSpec(ops=raws, reason=drawn["reason"], priority=drawn["priority"])
        return spec, ModelJob(job_id, ops)

    def _rejected(self, made: list[ModelJob]) -> dict[int, str | None]:
        """The places of those that are refused: by a rule, or because of one that is."""
        rejected: dict[int, str | None] = {}
        ids: set[int] = set()
        for place, job in enumerate(made):
            uuid, action = self.model.verdict(job.id, job.ops)
            needed = {target for op in job.ops for target, _ in op.depends}
            if action == "REJECT" or ids & needed:
                rejected[place] = uuid if action == "REJECT" else None
                ids.add(job.id)
        return rejected

    @rule(is_drained=st.sampled_from([False, False, False, True]))
    def drain(self, is_drained: bool) -> None:  # noqa: FBT001 - drawn
        self.ask("job_queue", messages.SetDrain(is_drained=is_drained)).answer_as(messages.Done)
        self.model.is_drained = is_drained
        self.settle()

    # ------------------------------------------------------------ rules, limits, requests

    @rule(
        uuid=st.sampled_from(UUIDS),
        priority=st.integers(0, 2),
        predicates=predicates,
        action=actions,
        window=windows,
    )
    def store_rule(
        self, uuid: str, priority: int, predicates: list[Any], action: Any, window: Any
    ) -> None:
        since, until = window or (None, None)
        now = self.model.now
        asked = messages.ReplaceFilter(
            uuid=uuid,
            priority=priority,
            predicates=predicates,
            action=action,
            valid_from=None if since is None else now + since,
            valid_until=None if until is None else now + until,
        )
        said = self.simulated(messages.Simulate(rule=asked))
        stored = self.ask("config_store", asked).answer_as(messages.FilterStored)
        assert stored.uuid == uuid
        self.model.rules[uuid] = {
            "uuid": uuid,
            "watermark": self.model.last_id,
            "priority": priority,
            "predicates": predicates,
            "action": action,
            "valid_from": asked.valid_from,
            "valid_until": asked.valid_until,
        }
        self.settle(said=said)

    @precondition(lambda self: self.model.rules)
    @rule(data=st.data())
    def delete_rule(self, data: st.DataObject) -> None:
        uuid = data.draw(st.sampled_from(sorted(self.model.rules)))
        said = self.simulated(messages.Simulate(without=uuid))
        self.ask("config_store", messages.DeleteFilter(uuid=uuid)).answer_as(messages.Done)
        del self.model.rules[uuid]
        self.settle(said=said)

    @rule(slots=st.integers(1, 5))
    def set_slots(self, slots: int) -> None:
        said = self.simulated(messages.Simulate(running_jobs_max=slots))
        assert self.world is not None
        self.world.set_slots(slots)
        limits = messages.SetLimits(running_jobs_max=slots)
        self.ask("config_store", limits).answer_as(messages.LimitsRead)
        self.model.slots = slots
        self.settle(said=said)

    @precondition(lambda self: self.model.at(PENDING, RUNNING))
    @rule(data=st.data(), priority=priorities)
    def change_priority(self, data: st.DataObject, priority: int) -> None:
        job = self.one_of(data, PENDING, PENDING, RUNNING)
        changed = job.left if job.place == PENDING else job.left[1:]
        pending = {job.id: priority} if job.place == PENDING else {}
        said = self.simulated(messages.Simulate(priorities=pending))
        asked = messages.ChangeJobPriority(id=job.id, priority=priority)
        answer = self.ask("job_queue", asked).answer_as(messages.PriorityOutcome)
        assert answer.accepted == bool(changed)
        for op in changed:
            op.priority = priority
        self.settle(said=said)

    @precondition(lambda self: self.model.at(PENDING, RUNNING, ENDED))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = self.one_of(data, PENDING, PENDING, RUNNING, ENDED)
        asked = messages.CancelJob(id=job.id)
        answer = self.ask("job_queue", asked).answer_as(messages.CancelOutcome)
        assert answer.accepted == (job.place == PENDING)
        if job.place == PENDING:
            self.model.end(job, CANCELED)
        self.settle()

    @precondition(lambda self: self.model.at(ENDED))
    @rule(data=st.data())
    def archive(self, data: st.DataObject) -> None:
        job = self.one_of(data, ENDED)
        answer = self.ask("job_queue", messages.ArchiveJob(id=job.id))
        assert answer.answer_as(messages.ArchiveOutcome).archived == [job.id]
        job.place = ARCHIVED
        self.settle()

    @precondition(lambda self: self.model.at(ARCHIVED))
    @rule(data=st.data())
    def lose_archived(self, data: st.DataObject) -> None:
        """The operator deletes an archived file that no pending job is waiting for."""
        job = self.one_of(data, ARCHIVED)
        waited_for = {target for one in self.model.at(PENDING) for target, _ in one.depends}
        assert self.world is not None
        if job.id not in waited_for:
            [found] = self.world.places.queue.glob(f"archive/*/job-{job.id}")
            found.unlink()
            self.lost[found] = self.model.jobs.pop(job.id)

    def find_lost(self) -> None:
        """What its journal still holds, a job queue that starts anew brings back."""
        for path in [path for path in self.lost if path.exists()]:
            job = self.lost.pop(path)
            self.model.jobs[job.id] = job

    # ------------------------------------------------------------ the jobs

    @precondition(lambda self: self.model.at(RUNNING))
    @rule(data=st.data(), outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6))
    def end_opcodes(self, data: st.DataObject, outcomes: list[str]) -> None:
        for outcome in outcomes:
            if self.model.at(RUNNING):
                job = self.one_of(data, RUNNING)
                if outcome == "lost":
                    self.lose_process(job)
                else:
                    self.end_opcode(job, outcome)

    @precondition(lambda self: self.model.at(RUNNING))
    @rule(rounds=st.integers(1, 4))
    def work(self, rounds: int) -> None:
        """Time goes by, and all goes well."""
        for _ in range(rounds):
            for job in self.model.at(RUNNING):
                self.end_opcode(job, SUCCESS)

    def end_opcode(self, job: ModelJob, outcome: str) -> None:
        assert self.world is not None
        said = None
        if len(job.left) == 1:
            said = self.simulated(messages.Simulate(ended={job.id: JobStatus(outcome)}))
        self.world.end_operation(job.id, outcome)
        self.model.end_opcode(job, outcome)
        if job.place == PENDING:
            event("a running job returns")
        self.settle(said=said)

    def lose_process(self, job: ModelJob) -> None:
        assert self.world is not None
        self.world.lose_process(job.id)
        self.model.end(job, ERROR)
        self.settle()

    # ------------------------------------------------------------ time and misfortunes

    @rule(seconds=st.sampled_from([10.0, 30.0, 45.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        assert self.world is not None
        self.world.pass_time(seconds, self.settle)
        self.settle()

    @rule(name=st.sampled_from(["job_queue", "scheduler", "filter_evaluator", "config_store"]))
    def restart(self, name: str) -> None:
        assert self.world is not None
        self.world.crash(name)
        self.world.settle()
        self.find_lost()
        self.settle()

    @rule(name=st.sampled_from(["scheduler", "filter_evaluator"]), after=st.integers(1, 60))
    def restart_soon(self, name: str, after: int) -> None:
        """It dies while the next step's messages are on their way."""
        assert self.world is not None
        self.world.fuse = (name, after)
        self.is_disturbed = True

    # ------------------------------------------------------------ what must hold

    def one_of(self, data: st.DataObject, *places: str) -> ModelJob:
        ids = [job.id for place in places for job in self.model.at(place)]
        return self.model.jobs[data.draw(st.sampled_from(sorted(ids)))]

    def simulated(self, simulation: messages.Simulate) -> messages.Simulated | None:
        """What the daemon predicts of a change; it is not asked while a fault is pending."""
        if self.is_disturbed:
            return None
        answer = self.ask("job_queue", simulation)
        return answer.answer_as(messages.Simulated)  # type: ignore[no-any-return]

    def settle(self, *, is_open: bool = False, said: messages.Simulated | None = None) -> None:
        """The event is over: the model says what must have come of it."""
        assert self.world is not None
        self.model.now = self.world.now
        seen = self.statuses()
        happened = self.model.settle(seen)
        happened.is_open |= is_open or self.is_disturbed
        if said is not None:
            self.compare_simulated(said, happened)
        if happened.is_open:
            event("the next start depends on the order of messages")
            self.adopt(happened, seen)
        self.is_disturbed = False
        self.look(happened)

    def adopt(self, happened: Happened, seen: dict[int, str]) -> None:
        """Believe the actors which jobs started, if these may all run at once."""
        model = self.model
        for job_id in happened.started:
            model.jobs[job_id].place = PENDING
        happened.started = [job.id for job in model.at(PENDING) if seen.get(job.id) == "running"]
        for job_id in happened.started:
            job = model.jobs[job_id]
            assert model.cause(job) is None, (job_id, model.cause(job))
            job.place = RUNNING
        assert not model.startable(), [job.id for job in model.startable()]

    def look(self, happened: Happened) -> None:
        """Everything is as the model says."""
        world, model = self.world, self.model
        assert world is not None
        expected = {job.id: model.status(job) for job in model.at(PENDING, RUNNING, ENDED)}
        seen = self.statuses()
        assert seen == expected, differences(seen, expected)
        running = [job.id for job in model.at(RUNNING)]
        assert sorted(task.job_id for task in world.jobs()) == running
        assert all(map(world.operates, running))
        assert sorted(world.handed_over) == sorted(happened.started)
        world.handed_over.clear()
        for job_id in happened.ended:
            uuid = model.jobs[job_id].told_rule
            assert uuid is None or uuid in world.reason_of_end(job_id)
        self.compare_explained(model.at(PENDING))

    def statuses(self) -> dict[int, str]:
        rows = self.ask("job_queue", messages.ListJobs()).answer_as(messages.JobRows).rows
        return {row.id: str(row.status) for row in rows}

    def compare_explained(self, pending: list[ModelJob]) -> None:
        assert self.world is not None
        asked = [messages.ExplainJob(id=job.id) for job in pending]
        answers = self.world.ask_all("job_queue", asked) if asked else []
        for job, answer in zip(pending, answers, strict=True):
            explained = answer.answer_as(messages.JobExplained)
            cause = self.model.cause(job)
            assert cause is not None
            first = explained.obstacles[0]
            said = (first.kind, tuple(first.jobs), first.rule)
            assert said == (cause.kind, cause.jobs, cause.rule), (job.id, explained)
            event(f"held back by {cause.kind}")

    def compare_simulated(self, said: messages.Simulated, happened: Happened) -> None:
        """A simulation is one pass; it does not follow the dependants of unsatisfiable jobs."""
        ended = [job_id for job_id, _ in said.ended]
        if happened.is_open:
            assert set(ended) <= happened.ended.keys()
            return
        assert sorted(ended) == sorted(happened.ended), (said, happened)
        assert said.start == happened.started, (said, happened)
        causes = {job.id: self.model.cause(job) for job in self.model.at(PENDING)}
        kinds = {job_id: cause.kind for job_id, cause in causes.items() if cause is not None}
        assert {one.id: one.kind for one in said.waiting} == kinds, (said, causes)
        event("a simulation that came true")


def differences(seen: dict[int, str], expected: dict[int, str]) -> str:
    """The jobs whose statuses are not as expected, each with both."""
    unlike = [job for job in sorted({*seen, *expected}) if seen.get(job) != expected.get(job)]
    return "; ".join(f"job {job}: {seen.get(job)}, not {expected.get(job)}" for job in unlike)


TestQueue = QueueAgainstModel.TestCase
TestQueue.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    # Which lines a failing case runs through is found out with a tracer, which takes minutes.
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
