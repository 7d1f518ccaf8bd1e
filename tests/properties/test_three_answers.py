"""What a daemon does when a job ends, what `job why` says, and what `queue simulate` says: one.

A real scheduler and a real lock manager on a stage. Queue and jobs are played here: their messages
and those of the two travel in lines, as from and to another process, so that each interleaving of
lines comes up. Whatever arrives first, the jobs that start are those that were foretold before.
"""

from __future__ import annotations

import functools
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.actors.locks.lock_stage import Locks
from tests.actors.runtime.stage import Asker, Stage

from ganger.actors.scheduling.scheduler import Scheduler
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.prediction.lock_types import NO_LOCKS, exclusive, forecast_of
from ganger.storage.prediction.policy import Policy
from ganger.transport import messages
from ganger.transport.messages import JobVerdict, PendingJob, Remedy

CHAIN = 7
Work = tuple[int, frozenset[str], bool]
"""A job: its priority, the nodes that it locks, and whether a rate limit counts it."""

works: st.SearchStrategy[list[Work]] = st.lists(
    st.tuples(
        st.sampled_from([0, 0, -10, 10]),
        st.frozensets(st.sampled_from("abc"), max_size=2),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=2,
    max_size=10,
)


class World:
    """A scheduler and a lock manager, and the lines in which messages wait; ``dice`` chooses."""

    def __init__(self, folder: Path, slots: int, dice: st.DataObject) -> None:
        self.stage = Stage(folder)
        self.locks = Locks(self.stage)
        self.scheduler = self.stage.start(Scheduler)
        self.dice = dice
        self.slots = slots
        self.pending: dict[int, JobVerdict] = {}
        self.running: dict[int, JobVerdict] = {}
        self.owners: dict[int, Owner] = {}
        self.started: list[int] = []
        self.lines: defaultdict[str, deque[Callable[[], object]]] = defaultdict(deque)
        self.scheduler.turn(
            messages.RuleChainChanged(chain=CHAIN, serial=1, reads_opcodes=False),
            messages.PolicyChanged(policy=Policy()),
            messages.LimitsChanged(running_jobs_max=slots),
            messages.JobsJudged(jobs=[], is_all=True, report=1),
        )
        self.stage.sent.clear()

    # ------------------------------------------------------------ lines

    def post(self, line: str, *notices: messages.Message) -> None:
        """Let these arrive some time, after all that stands in the line."""
        turn = self.locks.actor.turn if line.endswith("lock manager") else self.scheduler.turn
        self.lines[line] += [functools.partial(turn, one) for one in notices]

    def deliver(self, line: str) -> None:
        """The first message of a line arrives, and what follows is sent."""
        self.lines[line].popleft()()
        for to, sent in self.stage.sent:
            if isinstance(sent, messages.OwnersChanged):
                assert to == "scheduler"
                self.post("lock manager to scheduler", sent)
            elif isinstance(sent, messages.JobsChosen):
                self.start(sent)
        self.stage.sent.clear()

    def settle(self, *but: str) -> None:
        """Deliver all messages, in any order of the lines; ``but`` those of some lines."""
        while waiting := sorted(line for line, left in self.lines.items() if left):
            able = [line for line in waiting if line not in but]
            if not able:
                return
            self.deliver(self.dice.draw(st.sampled_from(able), label="next"))

    # ------------------------------------------------------------ jobs

    def submit(self, work: Work) -> None:
        priority, nodes, is_limited = work
        job = PendingJob(
            id=len(self.pending) + len(self.owners) + 1,
            priority=priority,
            forecast=forecast_of(node=exclusive(nodes)) if nodes else NO_LOCKS,
            limits=(("1:x", 1),) if is_limited else (),
        )
        self.pending[job.id] = JobVerdict(job=job, chain=CHAIN)
        self.post("queue to scheduler", messages.JobsJudged(jobs=[self.pending[job.id]]))

    def start(self, chosen: messages.JobsChosen) -> None:
        """The jobs have a process, which asks for their locks on a line of its own."""
        for job_id in chosen.start:
            self.started.append(job_id)
            verdict = self.running[job_id] = self.pending.pop(job_id)
            owner = self.owners[job_id] = self.locks.owner(job_id)
            forecast = verdict.job.forecast
            assert forecast is not None
            changes = [(f"node/{name}", "exclusive") for name in forecast.node.names]
            if changes:
                ask = messages.RequestLocks(
                    owner=owner, priority=verdict.job.priority, changes=changes
                )
                self.lines[f"job {job_id}"].append(functools.partial(self.locks.actor.ask, ask))

    def can_end(self) -> list[int]:
        """The jobs that have got their locks."""
        state = self.locks.actor.component._state
        return [one for one in self.running if not state.has_pending(self.owners[one])]

    def end(self, job_id: int, *, is_killed: bool) -> None:
        """The job ends in order, or its process dies: then the executor frees the locks."""
        del self.running[job_id]
        owner = self.owners[job_id]
        self.locks.kill(owner)
        over = messages.JobsFinished(jobs=[(job_id, JobStatus.SUCCESS)])
        gone = messages.OwnerEnded(lock_file=owner.lock_file)
        self.post("queue to scheduler", over)
        if not is_killed:
            self.post("queue to lock manager", gone)
        self.post("executor to lock manager", gone)

    # ------------------------------------------------------------ what is foretold

    def simulated(self, job_id: int) -> list[int]:
        """What starts if this job ends, as a simulation says."""
        asked = messages.RunSimulation(
            simulation=messages.Simulate(ended={job_id: JobStatus.SUCCESS}),
            jobs=list(self.pending.values()),
            running=list(self.running.values()),
        )
        return self.ask(asked).answer_as(messages.Simulated).start

    def explained(self, job_id: int) -> set[int]:
        """The pending jobs of which it is said that the end of this one starts them."""
        found = set()
        for pending in self.pending:
            asker = self.ask(messages.ExplainPending(id=pending))
            position = asker.answer_as(messages.PendingExplained).position
            assert position is not None
            remedy = position.remedy
            if is_done_by_end(remedy, job_id):
                found.add(pending)
        return found

    def ask(self, request: messages.Message) -> Asker:
        asker = self.scheduler.ask(request)
        assert not self.stage.take(messages.JobsChosen), "it could have started before"
        return asker


def is_done_by_end(remedy: Remedy, job_id: int) -> bool:
    """Whether the end of this job is all that the remedy asks for."""
    groups = [*remedy.ends, *([owner] for owner in remedy.locks)]
    left = msgspec.structs.replace(remedy, ends=[], locks=[], slots=None)
    return left == Remedy() and bool(groups) and all(job_id in group for group in groups)


@settings(max_examples=60)
@given(works, st.sampled_from([1, 1, 2, 3]), st.data())
def test_what_why_and_simulate_say_of_an_end_is_what_the_daemon_does(
    jobs: list[Work], slots: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), slots, data)
        for one in jobs:
            world.submit(one)
        world.settle()
        while able := world.can_end():
            ended = data.draw(st.sampled_from(able), label="ends")
            simulated, explained = world.simulated(ended), world.explained(ended)
            world.started.clear()
            world.end(ended, is_killed=data.draw(st.booleans(), label="killed"))
            # The next end may come before the news of what these jobs have got.
            world.settle("lock manager to scheduler")
            assert world.started == simulated[: len(world.started)]
            world.settle()
            assert world.started == simulated
            assert explained <= set(simulated)
            if explained:
                event("a job was said to start with the end of another one")
            for place, job_id in enumerate(simulated):
                urgency = world.running[job_id].job.priority
                # No lock holds a job back while a less urgent one has any: not foreseen by `why`.
                outranked = any(
                    world.running[other].job.priority > urgency for other in simulated[:place]
                )
                assert job_id in explained or outranked
        assert not world.pending, "some never start"
