"""The real actors of the queue on one thread: mail is handed out one by one, as the dice fall.

Real are the job queue with its files, the scheduler, the filter evaluator, the configuration
store and the lock manager. The executor, the supervisor and the jobs' processes are played
here: they say what the real ones say (`actors/execution/executor`,
`actors/supervision/supervisor`, `actors/job/job`).
Mail to one receiver keeps its order; whose turn it is, and how long a turn lasts, is chance.
Time is virtual: timers run out when the test lets them.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import msgspec
from tests.actors.runtime.stage import Asker, Stage, StageDispatcher

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.actors.runtime.actor import ComponentActor
from ganger.actors.runtime.component import Component
from ganger.actors.runtime.dispatcher import Alarm
from ganger.actors.runtime.mailbox import QUIET, TURN_ENDED, Replaced
from ganger.actors.scheduling.scheduler import Scheduler
from ganger.actors.supervision import placement
from ganger.storage import documents, errors, jobs, lock_files, opcodes, settings
from ganger.storage.jobs import JobStatus, OpcodeEvent
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import Message, Request

CAST: dict[str, type[Component]] = {
    made.name: made for made in (ConfigStore, LockManager, FilterEvaluator, Scheduler, JobQueue)
}
PLAYED = ("executor", "supervisor")
BEGAN = 1_700_000_000.0
DELIVERIES_MAX = 20_000
"""Deliveries after which the actors count as talking for ever."""

TIMERS_MAX = 100


class Ringing(Alarm):
    """An alarm that rings when the world's clock gets there."""

    def __init__(self, world: ModelWorld, seconds: float, ring: Callable[[], None]) -> None:
        self.due = world.now + seconds
        self.function = ring
        self._world = world
        world.timers.append(self)

    def cancel(self) -> None:
        if self in self._world.timers:
            self._world.timers.remove(self)


class ModelDispatcher(StageDispatcher):
    """Sets alarms on the world's clock."""

    def __init__(self, world: ModelWorld) -> None:
        super().__init__(world)
        self._world = world

    def later(self, seconds: float, actor: ComponentActor, item: object) -> Alarm:
        if isinstance(item, Envelope):
            return Ringing(self._world, seconds, lambda: self._world.tell(actor.name, item))
        return Ringing(self._world, seconds, lambda: actor.handle(item))

    def aside(self, _name: str, work: Callable[[], None]) -> None:
        Ringing(self._world, 0.0, work)


class ModelWorld(Stage):
    """The components, their mail, and the processes of the jobs."""

    def __init__(self, root: Path, seed: int) -> None:
        self.now = BEGAN
        self.dice = random.Random(seed)
        self.timers: list[Ringing] = []
        self.patches = ExitStack()
        self._patch()
        super().__init__(root)
        self.host = msgspec.structs.replace(self.host, has_test_hooks=True)
        self.dispatcher = ModelDispatcher(self)
        self.mail: dict[str, deque[Envelope]] = {name: deque() for name in PLAYED}
        self.turns: set[str] = set()
        self.living: dict[str, ComponentActor] = {}
        self.incarnations = dict.fromkeys(CAST, 0)
        self.processes: dict[int, ModelProcess] = {}
        self.handed_over: list[int] = []
        self.rejections: dict[int, str] = {}
        self.fuse: tuple[str, int] | None = None
        self.deliveries = 0
        for made in placement.COMPONENTS:
            if made.name in CAST:
                self.begin(made.name)
                self.settle()

    def _patch(self) -> None:
        replaced = [
            (time, "time", lambda: self.now),
            (time, "time_ns", lambda: int(self.now * 1_000_000_000)),
            (settings, "JOURNAL_RESERVE_BYTES", 4_096),
        ]
        for place, name, instead in replaced:
            self.patches.enter_context(patch.object(place, name, instead))
        flush = patch("ganger.storage.queue_files.journal.flush_file_system", lambda *_: None)
        self.patches.enter_context(flush)

    def close(self) -> None:
        """Nothing of it is left."""
        for actor in self.living.values():
            actor.on_stop()
        for process in self.processes.values():
            process.held.remove()
        self.daemon_lock.remove()
        self.patches.close()

    # ------------------------------------------------------------ mail

    def tell(self, name: str, envelope: Envelope) -> None:
        if name == "job_queue":
            self._note_rejections(envelope.message)
        if name not in self.mail:
            # It is not played here, or is being replaced: the mail is lost.
            envelope.refuse(errors.ComponentRestartedError("it is restarted"))
            return
        self.mail[name].append(envelope)

    def remove(self, name: str) -> None:
        self.living.pop(name, None)
        self.turns.discard(name)
        for envelope in self.mail.pop(name, ()):
            envelope.refuse(errors.ComponentRestartedError("it is restarted"))

    def _note_rejections(self, message: Message) -> None:
        if isinstance(message, messages.JobsRejected):
            self.rejections.update(message.jobs)
        if isinstance(message, messages.JobsChosen):
            said = {
                job: text for job, verdict, text in message.unsatisfiable if verdict == "rejected"
            }
            self.rejections.update(said)

    def ask(self, name: str, message: Message) -> Asker:
        """Let somebody ask this, and everything come to rest."""
        asker = Asker()
        self.tell(name, Envelope(message, asker))
        self.settle()
        return asker

    def settle(self) -> None:
        """Hand out mail until there is none, and every turn is over."""
        delivered = 0
        while ready := sorted(filter(self._is_ready, self.mail)):
            delivered += 1
            assert delivered < DELIVERIES_MAX, "the actors talk for ever"
            self._deliver(self.dice.choice(ready))
            if self.fuse is not None and delivered >= self.fuse[1]:
                self._burn_out()
        if self.fuse is not None:
            self._burn_out()
            self.settle()
        self.deliveries += delivered
        self._rest()

    def _rest(self) -> None:
        """Now and then nothing comes for as long as somebody's patience."""
        for actor in self.living.values():
            if actor.patience_seconds is not None and self.dice.random() < 0.5:
                actor.handle(QUIET)
                actor.handle(TURN_ENDED)

    def _is_ready(self, name: str) -> bool:
        actor = self.living.get(name)
        has_replies = actor is not None and not actor.mailbox.empty()
        return bool(self.mail[name]) or name in self.turns or has_replies

    def _deliver(self, name: str) -> None:
        actor = self.living.get(name)
        if actor is not None and not actor.mailbox.empty():
            self.turns.add(name)
            actor.handle_item(actor.mailbox.take())
            return
        if not self.mail[name]:
            self.turns.discard(name)
            assert actor is not None
            actor.handle(TURN_ENDED)
            return
        envelope = self.mail[name].popleft()
        if actor is not None:
            self.turns.add(name)
            actor.handle(envelope)
        elif name == "executor":
            self._execute(envelope.message)
        elif name == "supervisor":
            self._supervise(envelope.message)
        else:
            self.processes[int(name.removeprefix("job "))].take(envelope)

    def pass_time(self, until: float, look: Callable[[], None]) -> None:
        """Let the clock go on; at each timer everything comes to rest, and ``look`` is called."""
        ran_out = 0
        while due := [timer for timer in self.timers if timer.due <= until]:
            ran_out += 1
            assert ran_out < TIMERS_MAX, "timers run out again and again, and time stands still"
            timer = min(due, key=lambda one: one.due)
            self.timers.remove(timer)
            self.now = max(self.now, timer.due)
            timer.function()
            self.settle()
            look()
        self.now = until

    # ------------------------------------------------------------ the supervisor

    def begin(self, name: str) -> None:
        """A component starts."""
        self.incarnations[name] += 1
        self.mail[name] = deque([Envelope(messages.Boot())])
        self.living[name] = self.make(CAST[name], incarnation=self.incarnations[name]).actor
        if self.incarnations[name] > 1:
            for actor in self.living.values():
                if actor.component.runtime.asks:
                    actor.put(Replaced(name))

    def crash(self, name: str) -> None:
        """A component dies in the middle of whatever it does; its mail is lost."""
        order = messages.CrashComponent(component=name)
        if name in self.living:
            self.living[name].handle(Envelope(order))

    def _burn_out(self) -> None:
        assert self.fuse is not None
        (name, _), self.fuse = self.fuse, None
        self.crash(name)

    def _supervise(self, message: Message) -> None:
        match message:
            case messages.ComponentFailed():
                is_injected = message.text.startswith("InjectedCrashError")
                assert is_injected, f"{message.text}\n{self.log_stream.getvalue()}"
                self.begin(message.component)
            case messages.ComponentReady() if message.incarnation > 1:
                replaced = messages.ComponentReplaced(component=message.component)
                for name in placement.NOTIFIED_OF_REPLACEMENT:
                    self.tell(name, Envelope(replaced))

    # ------------------------------------------------------------ the executor

    def _execute(self, message: Message) -> None:
        match message:
            case messages.StartJobs():
                for job_id, _ in message.jobs:
                    self.handed_over.append(job_id)
                    self.processes[job_id] = ModelProcess(self, job_id)
            case messages.DeliverToJob():
                if message.job_id in self.processes:
                    self.processes[message.job_id].tell(Envelope(message.message))
            case messages.RefuseHandOver():
                self.end_process(message.job_id, has_left=False)
            case messages.ComponentReplaced():
                if message.component == "job_queue":
                    self.tell("job_queue", Envelope(messages.ReportRunning()))
                for process in self.processes.values():
                    process.tell(Envelope(messages.ResendRequested()))

    def end_process(self, job_id: int, *, has_left: bool) -> None:
        """A process has gone, its lock with it."""
        process = self.processes.pop(job_id)
        process.held.remove()
        self.mail.pop(process.name, None)
        exited = messages.JobExited(job_id=job_id, lock_file=process.held.path, has_left=has_left)
        self.tell("job_queue", Envelope(exited))


Life = Generator[Request[Message] | None, Message | str, None]


class ModelProcess:
    """A job's process: as `actors/job/job`, with operations that last as the test likes."""

    def __init__(self, world: ModelWorld, job_id: int) -> None:
        self.world = world
        self.job_id = job_id
        self.name = f"job {job_id}"
        self.held = lock_files.create(world.places.lock_files, f"job_{job_id:06d}_1")
        self.number = 0
        self.asked: Request[Message] | None = None
        self.life: Life | None = None
        world.mail[self.name] = deque()
        asked = messages.HandOverRequested(job_id=job_id, lock_file=self.held.path, process_id=815)
        world.tell("job_queue", Envelope(asked, self))

    @property
    def operates(self) -> bool:
        """Whether an operation is under way, that ends when the test says so."""
        return self.life is not None and self.asked is None

    def tell(self, envelope: Envelope) -> None:
        self.world.tell(self.name, envelope)

    def take(self, envelope: Envelope) -> None:
        """Something came for the process."""
        message = envelope.message
        match message:
            case messages.JobGo():
                self.job = jobs.decode_job(message.body)
                self.life = self._live()
                self._go_on(None)
            case messages.ResendRequested():
                if self.asked is not None:
                    self._send(self.asked)
            case messages.CancelRequested():
                text = f"Job {self.job_id} is no longer waiting in the queue"
                answer = messages.CancelAnswered(
                    job_id=self.job_id, token=message.token, accepted=False, text=text
                )
                self.world.tell("job_queue", Envelope(answer))
            case messages.PriorityRequested():
                self._change_priority(message)
            case _ if envelope.number == self.number and self.asked is not None:
                assert not isinstance(message, messages.Failure), message
                self.asked = None
                self._go_on(message)

    def end_operation(self, outcome: str) -> None:
        """The operation ends: "success" or "error"; what follows is on its way."""
        assert self.operates
        self._go_on(outcome)

    def die(self) -> None:
        """It is killed; nothing that it knew is written."""
        self.world.end_process(self.job_id, has_left=False)

    def _go_on(self, received: Message | str | None) -> None:
        assert self.life is not None
        try:
            self.asked = self.life.send(received)  # type: ignore[arg-type]
        except StopIteration:
            self.world.end_process(self.job_id, has_left=True)
            return
        if self.asked is not None:
            self.number += 1
            self._send(self.asked)

    def _send(self, request: Message) -> None:
        self.world.tell("job_queue", Envelope(request, self, self.number))

    def _live(self) -> Life:
        job = self.job
        for index, op in enumerate(job.ops):
            if op.status.is_final:
                continue
            if index > 0:
                if depends := opcodes.dependencies(op.input):
                    plain = [(target, list(wanted)) for target, wanted in depends]
                    outcome = yield messages.AskDependencies(job_id=job.id, depends=plain)
                    assert isinstance(outcome, messages.DependencyOutcome)
                    if outcome.verdict == "open":
                        yield from self._return(op)
                        return
                    if outcome.verdict == "canceled":
                        jobs.cancel_from(job, index, self._stamp())
                        break
                    if outcome.verdict == "failed":
                        jobs.fail_from(job, index, self._stamp(), outcome.text)
                        break
                gate = yield messages.AskGate(job_id=job.id)
                assert isinstance(gate, messages.GateAnswered)
                if not gate.is_open:
                    yield from self._return(op)
                    return
            op.apply(OpcodeEvent.START)
            yield self._state()
            self._write()
            if (yield None) == "error":
                jobs.fail_from(job, index, self._stamp(), "as it was told to")
                break
            op.apply(OpcodeEvent.SUCCEED)
            op.end_timestamp = job.end_timestamp = self._stamp()
        yield self._state()
        self._write()

    def _return(self, op: jobs.OpcodeEntry) -> Life:
        op.apply(OpcodeEvent.RETURN)
        op.start_timestamp = None
        self.job.livelock = self.job.process_id = self.job.end_timestamp = None
        serial = self.job.advance_serial()
        body = jobs.encode_job(self.job)
        yield messages.JobReturns(job_id=self.job_id, serial=serial, body=body)
        self._write()

    def _change_priority(self, message: messages.PriorityRequested) -> None:
        if self.life is None:
            return
        changed = [op for op in self.job.ops if op.status is JobStatus.QUEUED]
        for op in changed:
            op.priority = message.priority
        if changed:
            self.world.tell("job_queue", Envelope(self._state(), self, -1))
            self._write()
        answer = messages.PriorityAnswered(
            job_id=self.job_id,
            token=message.token,
            priority=message.priority,
            accepted=bool(changed),
            text="",
        )
        self.world.tell("job_queue", Envelope(answer))

    def _state(self) -> messages.RecordState:
        job = self.job
        serial = job.advance_serial()
        return messages.RecordState(
            job_id=job.id,
            serial=serial,
            status=job.status,
            priority=job.priority,
            log_serial=0,
            ended=jobs.seconds(job.end_timestamp) if job.status.is_final else None,
            body=jobs.encode_job(job),
        )

    def _write(self) -> None:
        path = self.world.places.queue / f"job-{self.job_id}"
        documents.replace(path, jobs.encode_job(self.job), flush=False)

    def _stamp(self) -> jobs.Timestamp:
        return jobs.timestamp(self.world.now)
