"""The simulated world as the model needs it: without faults; each effect is an operation.

An operation lasts until the test ends it. The dice choose whose turn it is and how long a turn
lasts. Time passes only when the test lets it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import msgspec
from tests.actors.runtime.stage import Asker
from tests.torture.simulation.core import CALM, Core, Handle, Task
from tests.torture.simulation.patches import simulated
from tests.torture.simulation.simulated_processes import JobTask
from tests.torture.simulation.world import World

from ganger.actors.operations import registry
from ganger.actors.supervision.supervisor import Supervisor
from ganger.storage.opcodes import Opcode, OperationContext, OperationError
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import Message

CHARACTER = msgspec.structs.replace(CALM, segment_bytes=16 * 1024 * 1024, repeat_chance=0.1)
QUIET_CHANCE = 0.5
"""How likely it is that nothing comes for as long as a component's patience."""

STEPS_MAX = 20_000
"""Steps after which the components count as talking for ever."""

DECIDING = {"job_queue", "scheduler", "filter_evaluator"}


class Verdict(Handle):
    """How an operation is to end: readable when the test has said so."""

    outcome: str | None = None

    def due(self) -> float:
        return math.inf if self.outcome is None else 0.0


def operate(_: Opcode, context: OperationContext) -> None:
    """The operation of every opcode here."""
    task = Core.active.current
    assert isinstance(task, JobTask)
    world = task.core
    assert isinstance(world, ModelWorld)
    verdict = world.verdicts[task.job_id] = Verdict(world, task.program)
    world.oracle.started(task.job_id, context.op_index, ())
    context.poll([verdict.number], None)
    world.oracle.ended(task.job_id, context.op_index)
    verdict.close()
    if verdict.outcome == "error":
        raise OperationError("OpExecError", "as it was told to")


class ModelWorld(World):
    """One example."""

    def __init__(self, root: Path, seed: int) -> None:
        self.stack = ExitStack()
        self.stack.enter_context(simulated())
        self.stack.enter_context(
            patch.dict(registry.OPERATIONS, {"OP_EXEC": operate, "OP_TEST_DELAY": operate})
        )
        self.handed_over: list[int] = []
        self.verdicts: dict[int, Verdict] = {}
        self.fuse: tuple[str, int] | None = None
        self.moved: set[str] = set()
        """The tasks that have taken steps lately."""
        super().__init__(CHARACTER, str(seed), root)
        self.has_faults = False
        self.settle()

    def close(self) -> None:
        """Nothing of it is left."""
        self.end()
        self.stack.close()

    def add(self, task: Task) -> None:
        super().add(task)
        if isinstance(task, JobTask):
            self.handed_over.append(task.job_id)

    @property
    def now(self) -> float:
        """The time of day."""
        return self.clock.time()

    def ask(self, name: str, message: Message) -> Asker:
        """Send this request, and let everything come to rest."""
        [asker] = self.ask_all(name, [message])
        return asker

    def ask_all(self, name: str, asked: Sequence[Message]) -> list[Asker]:
        """As `ask`, all at once."""
        assert self.daemon is not None
        askers = [Asker() for _ in asked]
        for message, asker in zip(asked, askers, strict=True):
            self.daemon.host.directory.tell(name, Envelope(message, asker))
        self.settle()
        return askers

    def settle(self) -> None:
        """Take steps until nothing is on its way; now and then also what has time is done."""
        begun, waits = self.steps, self.dice.random() < QUIET_CHANCE
        while self._advance(goes_on=False, waits=waits):
            assert self.steps - begun < STEPS_MAX, "the components talk for ever"
            if self.fuse is not None and self.steps - begun >= self.fuse[1]:
                self._burn_out()
        if self.fuse is not None:
            self._burn_out()
            self.settle()
        assert not self.problems, self.problems

    def _take_step(self, task: Task) -> None:
        self.moved.add(task.name)
        super()._take_step(task)

    def pass_time(self, seconds: float, look: Callable[[], None]) -> None:
        """Let the clock go on; ``look`` is called when a time limit has made a difference."""
        until = self.clock.now + seconds
        while (moment := self._next_limit()) <= until:
            self.clock.now = max(self.clock.now, moment)
            self.moved.clear()
            self.settle()
            if self.moved & DECIDING:
                look()
        self.clock.now = max(self.clock.now, until)

    def _next_limit(self) -> float:
        _, next_message, next_alarm = self._look_around(self.clock.now)
        return min(self.next_entry(), next_message, next_alarm)

    def set_slots(self, slots: int) -> None:
        """The number of run slots has changed."""
        self.slots, self.slots_ever = slots, max(slots, self.slots_ever)

    def end_operation(self, job_id: int, outcome: str) -> None:
        """The operation of the job ends: "success" or "error"."""
        assert self.operates(job_id)
        self.verdicts[job_id].outcome = outcome
        self.settle()

    def operates(self, job_id: int) -> bool:
        """Whether an operation of the job is under way, that ends when the test says so."""
        verdict = self.verdicts.get(job_id)
        return verdict is not None and not verdict.is_closed and verdict.outcome is None

    def lose_process(self, job_id: int) -> None:
        """The process of the job is killed."""
        [task] = self.jobs(job_id)
        self._kill_job(task)
        self.settle()

    def crash(self, name: str) -> None:
        """A component fails between two messages; its last failure was long ago."""
        assert self.daemon is not None
        supervisor = self.daemon.actors["supervisor"].component
        assert isinstance(supervisor, Supervisor)
        supervisor._records.clear()
        task = self.daemon.actors[name]
        if not task.is_over:
            self.run_as(task.program, task.crash)

    def _burn_out(self) -> None:
        assert self.fuse is not None
        (name, _), self.fuse = self.fuse, None
        self.crash(name)

    def reason_of_end(self, job_id: int) -> str:
        """The file of a job that has ended: it says why."""
        document = self.ask("job_queue", messages.ReadJob(id=job_id))
        return document.answer_as(messages.JobDocument).body.decode()
