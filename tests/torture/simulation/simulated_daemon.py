"""The daemon of the simulated world: its real components, without threads, and its death.

A component's mailbox is replaced by one that delivers with a delay and ends turns at random;
the component itself, the supervisor and the listener are the real ones.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pykka
from tests.torture.simulation import repeating
from tests.torture.simulation.core import Core, Killed, Program, Task, VirtualTimer

from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.runtime.actor import ComponentActor, InjectedCrashError, start
from ganger.actors.runtime.dispatcher import Alarm, Dispatcher
from ganger.actors.runtime.host import Host
from ganger.actors.runtime.idle_work import IdleWait, IdleWork
from ganger.actors.runtime.mailbox import (
    QUIET,
    TURN_ENDED,
    InboxItem,
    Mailbox,
    Quiet,
    Readable,
    TurnEnded,
)
from ganger.actors.runtime.served_actor import ServedActor
from ganger.actors.supervision import logs
from ganger.actors.supervision.placement import SUPERVISION
from ganger.actors.supervision.supervisor import Shutdown, Supervisor
from ganger.cli import daemon as daemon_command
from ganger.storage import settings
from ganger.storage.alive import lock_files
from ganger.storage.disk.paths import Places
from ganger.transport.envelopes import Directory, Envelope
from ganger.transport.messages import (
    ComponentHung,
    CrashComponent,
    DiskRetried,
    KillDue,
    RestartDue,
    StopRequested,
    WatchDue,
)

ELSEWHERE = {"lock_manager", "config_store"}
"""Components that may live in a process of their own one day."""

RETRIES = (DiskRetried, KillDue, RestartDue, WatchDue)
"""Alarms that are set while something is tried again, beside those of `DISK_RETRY_SECONDS`."""

TURN_GOES_ON = 0.8
"""How likely a turn goes on while there are messages."""

LATE_SHARE, LATE_SECONDS = 0.5, 0.02
"""Of the messages that may come again late: how many do, and how late."""


class WorldMailbox(Mailbox):
    """Delivers with a delay: in one line, or in one for each sender."""

    def __init__(self, actor: ServedActor) -> None:
        super().__init__(lambda: None)
        self.core = Core.active
        self.watched: list[int] = []
        self.name = ""
        self._actor = actor
        self._lines: dict[str, deque[tuple[float, Any]]] = {}
        self._handled = 0
        self._turn_ended_at = 0.0

    def put(self, parcel: Any, /) -> None:
        core = self.core
        core.fault_point()
        line = self._lines.setdefault(self._line_of(core.current), deque())
        self._arrive(line, parcel)
        chance = core.character.repeat_chance
        # What tests send from outside of the world gets one reply.
        if chance and core.current is not None and core.dice.random() < chance:
            self._repeat(line, parcel)

    def _arrive(self, line: deque[tuple[float, Any]], parcel: Any) -> None:
        before = line[-1][0] if line else 0.0
        line.append((max(before, self.core.clock.now + self.core.delay()), parcel))

    def _repeat(self, line: deque[tuple[float, Any]], parcel: Any) -> None:
        """Let it come again, if it may: right behind the first copy, or later."""
        core, said = self.core, parcel.message
        if not repeating.may_come_again(said):
            return
        core.injected["message repeated"] += 1
        if repeating.may_be_late(said) and core.dice.random() < LATE_SHARE:

            def come_late() -> None:
                if not self._actor.is_over:
                    self._arrive(line, parcel)

            core.later(core.dice.expovariate(1.0) * LATE_SECONDS, come_late, "message")
        else:
            self._arrive(line, parcel)

    def waiting(self) -> list[Any]:
        """What is on its way to the owner, and what waits."""
        return [parcel.message for line in self._lines.values() for _, parcel in line]

    def _line_of(self, sender: Task | None) -> str:
        """Messages in one line do not overtake each other."""
        if self.core.character.is_causal or sender is None:
            return ""
        return sender.name if {sender.name, self.name} & ELSEWHERE else ""

    def due(self) -> float:
        """When there is something to do."""
        if self._handled:
            return 0.0
        # Asked of every actor before each step: no calls, no generators.
        due = self._quiet_at()
        for line in self._lines.values():
            if line and line[0][0] < due:
                due = line[0][0]
        for number in self.watched:
            handle = self.core.handles.get(number)
            if handle is not None:
                due = min(due, handle.due())
        return due

    def get(self) -> Any:
        """The next thing to do, if it is due; else None."""
        now = self.core.clock.now
        if self._handled:
            goes_on = self._handled < settings.TURN_MESSAGES_MAX
            goes_on = goes_on and self._next_message() <= now
            if not goes_on or self.core.dice.random() >= TURN_GOES_ON:
                self._handled = 0
                self._turn_ended_at = now
                return InboxItem(TURN_ENDED)
        else:
            handles = [self.core.handles.get(number) for number in self.watched]
            ready = [found.number for found in handles if found is not None and found.due() <= now]
            if ready:
                self._handled = 1
                self.core.dice.shuffle(ready)
                return InboxItem(Readable(ready))
        lines = [line for line in self._lines.values() if line and line[0][0] <= now]
        if not lines and (self._handled or self._quiet_at() > now):
            return None
        self._handled += 1
        if not lines:
            return InboxItem(QUIET)
        return self.core.dice.choice(lines).popleft()[1]

    def empty(self) -> bool:
        return not any(self._lines.values())

    def qsize(self) -> int:
        return sum(map(len, self._lines.values()))

    def drain(self) -> list[Any]:
        waiting = [entry for line in self._lines.values() for entry in line]
        self._lines.clear()
        return [parcel for _, parcel in waiting]

    def _quiet_at(self) -> float:
        """When the owner loses its patience, if nothing comes."""
        patience = self._actor.patience_seconds
        return math.inf if patience is None else self._turn_ended_at + patience

    def _next_message(self) -> float:
        return min((line[0][0] for line in self._lines.values() if line), default=math.inf)


class ActorTask(Task):
    """A component, one message at a time."""

    def __init__(self, core: Core, daemon: SimulatedDaemon, actor: ComponentActor) -> None:
        super().__init__(core, actor.name, daemon.program)
        self.daemon = daemon
        self.actor = actor
        self.component = actor.component
        assert isinstance(actor.mailbox, WorldMailbox)
        self.mailbox: WorldMailbox = actor.mailbox
        self.mailbox.name = actor.name
        self.is_hung = False
        self.handled: object = None
        """What it was at in its last step."""

    @property
    def is_over(self) -> bool:
        """Whether it has stopped for good."""
        return self.actor.is_over

    @property
    def is_able(self) -> bool:
        program = self.program
        return (
            not self.is_hung
            and program.is_alive
            and not program.is_stopped
            and not self.actor.actor_stopped.is_set()
        )

    def due(self) -> float:
        return self.mailbox.due()

    def step(self) -> None:
        self.handled = None
        parcel = self.mailbox.get()
        if parcel is None:
            return
        self.handled = message = parcel.message
        if self.core.trace is not None:
            said = message.message if isinstance(message, Envelope) else message
            self.core.note(f"{self.name:16}", shown(said))
        try:
            if isinstance(message, TurnEnded | Quiet | Readable):
                self.actor.handle(message)
            else:
                self.actor.handle_item(parcel)
        except InjectedCrashError:
            # It came while an error was answered, which itself never fails.
            self.actor.crash(message)

    def crash(self) -> None:
        """Fail between two messages."""
        self.core.injected["component crashed"] += 1
        self.core.note(self.name, "is made to crash")
        self.actor.handle(Envelope(CrashComponent(component=self.name)))

    def hang(self, seconds: float) -> None:
        """Do nothing any more; after so long it is noticed."""
        self.core.injected["component hung"] += 1
        self.core.note(self.name, "hangs")
        self.is_hung = True
        self.core.later(seconds, self._be_noticed, "restart")

    def _be_noticed(self) -> None:
        if self.is_over or not self.program.is_alive:
            return
        if self.name == Supervisor.name:
            self.daemon.shutdown.restart("the supervisor hangs")
            return
        hung = ComponentHung(
            component=self.name, incarnation=self.actor.incarnation, text="it hangs"
        )
        tell = functools.partial(self.daemon.host.directory.tell, Supervisor.name, Envelope(hung))
        self.core.run_as(self.program, tell)

    def fail(self) -> None:
        if self.core.dice.random() < self.daemon.death_share:
            self.core.injected["daemon killed within a message"] += 1
            self.daemon.die()
            raise Killed
        self.core.injected["component crashed within a message"] += 1
        self.core.note(self.name, "is made to crash within a message")
        raise InjectedCrashError


def shown(said: object) -> str:
    """A message in the trace: its kind and its job, without what differs by time."""
    words = [type(said).__name__]
    for field in ("job_id", "id", "ids", "component", "serial", "status", "is_all"):
        value = getattr(said, field, None)
        words += [] if value is None else [f"{field}={value}"]
    for field in ("jobs", "running"):
        # Their opcodes say when they were submitted.
        if jobs := getattr(said, field, None):
            words.append(f"{field}={[_number(one) for one in jobs]}")
    for field in ("start", "unsatisfiable", "eligible"):
        value = getattr(said, field, None)
        words += [f"{field}={value}"] if value else []
    return " ".join(words)


def _number(one: Any) -> object:
    if isinstance(one, tuple):
        return one[0]
    return getattr(getattr(one, "job", one), "id", None)


class NullStream:
    """A log without a reader."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing to do."""


class SimulatedDaemon:
    """One life of the daemon, as `ganger daemon` runs it."""

    def __init__(self, core: Core, places: Places, log_stream: Any) -> None:
        self.core = core
        self.program = Program(core, "daemon")
        self.program.owner = self
        self.places = places
        self.log_stream = log_stream
        self.actors: dict[str, ActorTask] = {}
        self.shutdown = Shutdown()
        self.is_ready = False
        self.death_share = 0.3
        core.run_as(self.program, self._run)

    def _run(self) -> None:
        daemon_command._prepare(self.places)
        daemon_command._remove_dead_lock_files(self.places)
        # Two daemons of one second get one name, and then more is to be released: of the wall clock
        # that may jump, the name would make another world.
        stem = lock_files.daemon_stem(self.core.clock.monotonic())
        self.host = Host(
            directory=Directory(),
            clock=self.core.clock.monotonic,
            wall_clock=self.core.clock.time,
            make_dispatcher=lambda _: WorldDispatcher(self),
            actors={},
            dispatchers={},
            places=self.places,
            log=logs.to_file(self.log_stream),
            daemon_lock=lock_files.create(self.places.lock_files, stem),
            has_test_hooks=True,
            reuses_processes=self.core.character.reuses_processes,
            listener_options={"luxi_listener": {} if self.core.character.tool_actions else None},
            listener_states={},
        )
        start(self.host, Supervisor, SUPERVISION, 0, self.shutdown, self._ready)

    def _ready(self) -> None:
        self.is_ready = True

    def enter(self, actor: ComponentActor) -> None:
        """An actor begins: it takes steps from now on."""
        old = self.actors.get(actor.name)
        if old is not None and old in self.core.tasks:
            self.core.tasks.remove(old)
        task = ActorTask(self.core, self, actor)
        self.actors[actor.name] = task
        self.core.add(task)

    def component(self, name: str) -> Any:
        """The component of this name, if it lives and has built its state; else None."""
        task = self.actors.get(name)
        supervisor = self.actors[Supervisor.name].component
        assert isinstance(supervisor, Supervisor)
        if task is None or task.is_over or task.is_hung or name not in supervisor._ready:
            return None
        return task.component

    @property
    def is_whole(self) -> bool:
        """Whether every component is there, has built its state, and works."""
        supervisor = self.actors[Supervisor.name]
        if supervisor.is_over or supervisor.is_hung:
            return False
        return self.program.is_alive and all(
            self.component(name) is not None
            for name in (
                "config_store", "lock_manager", "filter_evaluator", "scheduler", "job_queue",
                "executor", "wire_listener",
            )
        )  # fmt: skip

    def stop(self) -> None:
        """Ask it to stop in order."""
        self.host.directory.tell(Supervisor.name, Envelope(StopRequested()))

    def die(self) -> None:
        """It is gone without a word."""
        self.core.note("daemon", "dies")
        self.program.end()
        for task in self.actors.values():
            task.actor.actor_stopped.set()
            pykka.ActorRegistry.unregister(task.actor.actor_ref)
            if task in self.core.tasks:
                self.core.tasks.remove(task)
            if isinstance(task.component, JobQueue) and hasattr(task.component, "store"):
                task.component.store.ledger._journal._close()
                task.component.store.ledger.directory.close()


def stop_within(actor: ComponentActor, _seconds: float) -> bool:
    """Stands for `ComponentActor.stop_within`: it handles waiting messages, then stops."""
    core = Core.active
    supervisor = core.current
    assert isinstance(supervisor, ActorTask)
    task = supervisor.daemon.actors.get(actor.name)
    if task is None or task.is_over:
        return True
    core.current = task
    try:
        for item in task.mailbox.drain():
            if not task.is_over:
                actor.handle_item(item)
        if not task.is_over:
            actor.handle(TURN_ENDED)
        if not task.is_over:
            actor._stop()
    finally:
        core.current = supervisor
    return True


class WorldDispatcher(Dispatcher):
    """Lets the world run the turns of its actors, and its clock ring their alarms."""

    def __init__(self, daemon: SimulatedDaemon) -> None:
        super().__init__("world")
        self._daemon = daemon

    def make_mailbox(self, actor: ServedActor) -> WorldMailbox:
        return WorldMailbox(actor)

    def add(self, actor: ServedActor) -> None:
        assert isinstance(actor, ComponentActor)
        self._daemon.enter(actor)

    def remove(self, actor: ServedActor) -> None:
        mailbox = actor.mailbox
        assert isinstance(mailbox, WorldMailbox)
        mailbox.watched.clear()

    def leave_behind(self, actor: ServedActor) -> None:
        self.remove(actor)

    def watch(self, descriptor: int, actor: ServedActor) -> None:
        assert descriptor in self._daemon.core.handles
        mailbox = actor.mailbox
        assert isinstance(mailbox, WorldMailbox)
        mailbox.watched.append(descriptor)

    def forget(self, descriptor: int) -> None:
        for task in self._daemon.actors.values():
            if descriptor in task.mailbox.watched:
                task.mailbox.watched.remove(descriptor)

    def has_news(self, actor: ServedActor) -> bool:
        return not actor.mailbox.empty()

    def later(self, seconds: float, actor: ServedActor, item: object) -> Alarm:
        alarm = Alarm(seconds, actor, item)

        def ring() -> None:
            if not alarm.is_canceled and not actor.is_over:
                actor.put(alarm.item)

        # All other alarms come at their time whatever happens until then: nothing waits for them.
        is_retry = isinstance(getattr(item, "message", item), RETRIES)
        is_retry = is_retry or seconds == settings.DISK_RETRY_SECONDS
        VirtualTimer(seconds, ring, "restart" if is_retry else "action").start()
        return alarm

    def in_thread(self, _name: str, work: Callable[[], None]) -> None:
        VirtualTimer(0.0, work).start()

    def when_idle(
        self, _name: str, steps: Iterator[object], finish: Callable[[], None]
    ) -> WorldSteps:
        return WorldSteps(self._daemon.core, steps, finish)


class WorldSteps(IdleWork):
    """Steps of a thread beside the daemon's components, which come between their turns."""

    def __init__(self, core: Core, steps: Iterator[object], finish: Callable[[], None]) -> None:
        super().__init__(IdleWait(), steps)
        self._core = core
        self._left = steps
        self._finish = finish
        self._go_on()

    def _go_on(self) -> None:
        VirtualTimer(self._core.delay(), self._take).start()

    def _take(self) -> None:
        try:
            next(self._left)
        except StopIteration:
            self._finish()
        else:
            self._go_on()

    def allow(self, count: int) -> None:
        """They come by themselves."""

    def hurry(self, seconds: float) -> None:
        """They come by themselves."""

    def finish(self) -> None:
        """They come by themselves."""


def make_folder(root: Path) -> Places:
    """Places of a world of its own."""
    return Places(root / "data", root / "run")
