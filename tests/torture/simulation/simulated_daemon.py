"""The daemon of the simulated world: its real components, without threads, and its death.

A component's mailbox is replaced by one that delivers with a delay and ends turns at random;
the component itself, the supervisor and the listener are the real ones.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from pathlib import Path
from typing import Any

import pykka
from tests.torture.simulation.core import Core, Killed, Program, Task

from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.runtime import component as base
from ganger.actors.runtime.component import Component, InjectedCrashError, Surroundings
from ganger.actors.supervision import logs
from ganger.actors.supervision.supervisor import Ending, Supervisor
from ganger.cli import daemon as daemon_command
from ganger.storage import lock_files, settings
from ganger.storage.settings import Places
from ganger.transport.addresses import Directory, Envelope, Parcel
from ganger.transport.messages import Boot, ComponentHung, CrashComponent, StopRequested

ELSEWHERE = {"lock_manager", "config_store"}
"""Components that may live in a process of their own one day."""

TURN_GOES_ON = 0.8
"""How likely a turn goes on while there are messages."""


class Mailbox(base.PollingMailbox):
    """Delivers with a delay: in one line, or in one for each sender."""

    def __init__(self) -> None:
        # Nothing of the real one is wanted but its type.
        self.core = Core.active
        self.watched: list[int] = []
        self.name = ""
        self.patience_seconds = None
        self._lines: dict[str, deque[tuple[float, Any]]] = {}
        self._handled = 0
        self._turn_ended_at = 0.0

    def put(self, parcel: Any, /) -> None:
        core = self.core
        core.fault_point()
        line = self._lines.setdefault(self._line_of(core.current), deque())
        before = line[-1][0] if line else 0.0
        line.append((max(before, core.clock.now + core.delay()), parcel))

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
        return min(self._next_message(), self._next_readable(), self._quiet_at())

    def get(self) -> Any:
        """The next thing to do, if it is due; else None."""
        now = self.core.clock.now
        if self._handled:
            goes_on = self._handled < settings.TURN_MESSAGES_MAX
            goes_on = goes_on and self._next_message() <= now
            if not goes_on or self.core.dice.random() >= TURN_GOES_ON:
                self._handled = 0
                self._turn_ended_at = now
                return base._TURN_ENDED
        else:
            handles = [self.core.handles.get(number) for number in self.watched]
            ready = [found.number for found in handles if found is not None and found.due() <= now]
            if ready:
                self._handled = 1
                self.core.dice.shuffle(ready)
                return Parcel(base._Readable(ready))
        lines = [line for line in self._lines.values() if line and line[0][0] <= now]
        if not lines and (self._handled or self._quiet_at() > now):
            return None
        self._handled += 1
        if not lines:
            return base._QUIET
        return self.core.dice.choice(lines).popleft()[1]

    def empty(self) -> bool:
        return not any(self._lines.values())

    def qsize(self) -> int:
        return sum(map(len, self._lines.values()))

    def watch(self, descriptor: int) -> None:
        assert descriptor in self.core.handles
        self.watched.append(descriptor)

    def forget(self, descriptor: int) -> None:
        self.watched.remove(descriptor)

    def close(self) -> None:
        self.watched.clear()

    def drain(self) -> list[Any]:
        waiting = [entry for line in self._lines.values() for entry in line]
        self._lines.clear()
        return [parcel for _, parcel in waiting]

    def _quiet_at(self) -> float:
        """When the owner loses its patience, if nothing comes."""
        patience = self.patience_seconds
        return math.inf if patience is None else self._turn_ended_at + patience

    def _next_message(self) -> float:
        return min((line[0][0] for line in self._lines.values() if line), default=math.inf)

    def _next_readable(self) -> float:
        handles = map(self.core.handles.get, self.watched)
        return min((found.due() for found in handles if found is not None), default=math.inf)


class ActorTask(Task):
    """A component, one message at a time."""

    def __init__(self, core: Core, daemon: SimulatedDaemon, component: Component) -> None:
        super().__init__(core, component.name, daemon.program)
        self.daemon = daemon
        self.component = component
        assert isinstance(component.actor_inbox, Mailbox)
        self.mailbox: Mailbox = component.actor_inbox
        self.mailbox.name = component.name
        self.is_hung = False
        self.handled: object = None
        """What it was at in its last step."""

    @property
    def is_over(self) -> bool:
        """Whether it has stopped for good."""
        return self.component.actor_stopped.is_set()

    @property
    def is_able(self) -> bool:
        return super().is_able and not self.is_over and not self.is_hung

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
        if isinstance(message, Envelope | base._TurnEnded | base._Quiet | base._Readable):
            try:
                self.component.on_receive(message)
            except InjectedCrashError:
                # It came while an error was answered, which itself never fails.
                self.component._crash(message)
        else:
            self.component._handle_receive(message)

    def crash(self) -> None:
        """Fail between two messages."""
        self.core.injected["component crashed"] += 1
        self.core.note(self.name, "is made to crash")
        self.component.on_receive(Envelope(CrashComponent(component=self.name)))

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
            self.daemon.ending.restart("the supervisor hangs")
            return
        hung = ComponentHung(
            component=self.name, incarnation=self.component.incarnation, text="it hangs"
        )
        notify = self.daemon.surroundings.address(Supervisor.name).notify
        self.core.run_as(self.program, functools.partial(notify, hung))

    def fail(self) -> None:
        if self.core.dice.random() < self.daemon.death_share:
            self.core.injected["daemon killed within a message"] += 1
            self.daemon.die()
            raise Killed
        self.core.injected["component crashed within a message"] += 1
        self.core.note(self.name, "is made to crash within a message")
        raise InjectedCrashError


def shown(said: object) -> str:
    """A message in the trace: what it is, and whom it is about, without what differs by time."""
    words = [type(said).__name__]
    for field in ("job_id", "id", "ids", "component", "serial", "status", "is_all"):
        value = getattr(said, field, None)
        words += [] if value is None else [f"{field}={value}"]
    for field in ("jobs", "running"):
        # Their opcodes say when they were submitted.
        if jobs := getattr(said, field, None):
            words.append(f"{field}={[_number(one) for one in jobs]}")
    for field in ("start", "doomed", "eligible"):
        value = getattr(said, field, None)
        words += [f"{field}={value}"] if value else []
    return " ".join(words)


def _number(one: Any) -> object:
    if isinstance(one, tuple):
        return one[0]
    return getattr(getattr(one, "job", one), "id", None)


class NullStream:
    """A log that nobody reads."""

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
        self.ending = Ending()
        self.is_ready = False
        self.death_share = 0.3
        core.run_as(self.program, self._run)

    def _run(self) -> None:
        daemon_command._prepare(self.places)
        daemon_command._remove_dead_lock_files(self.places)
        stem = f"ganger-daemon_{int(self.core.clock.time())}"
        surroundings = Surroundings(
            directory=Directory(),
            places=self.places,
            log=logs.to_file(self.log_stream),
            daemon_lock=lock_files.create(self.places.lock_files, stem),
            has_test_hooks=True,
        )
        self.surroundings = surroundings
        reference = Supervisor.start(surroundings, self.ending, self._ready)
        surroundings.directory.enter(Supervisor.name, reference)
        surroundings.address(Supervisor.name).notify(Boot())

    def _ready(self) -> None:
        self.is_ready = True

    def enter(self, component: Component) -> None:
        """A component has been made: it takes steps from now on."""
        old = self.actors.get(component.name)
        if old is not None and old in self.core.tasks:
            self.core.tasks.remove(old)
        task = ActorTask(self.core, self, component)
        self.actors[component.name] = task
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
        self.surroundings.address(Supervisor.name).notify(StopRequested())

    def die(self) -> None:
        """It is gone without a word."""
        self.core.note("daemon", "dies")
        self.program.end()
        for task in self.actors.values():
            task.component.actor_stopped.set()
            pykka.ActorRegistry.unregister(task.component.actor_ref)
            if task in self.core.tasks:
                self.core.tasks.remove(task)
            if isinstance(task.component, JobQueue) and hasattr(task.component, "_ledger"):
                task.component._ledger._journal._close()
                task.component._ledger.directory.close()


def stop_all(component: type[Component], _timeout_seconds: float) -> bool:
    """Stands for `base.stop_all`: it handles what it has been told, then stops."""
    core = Core.active
    supervisor = core.current
    assert isinstance(supervisor, ActorTask)
    task = supervisor.daemon.actors.get(component.name)
    if task is None or task.is_over:
        return True
    core.current = task
    try:
        for parcel in task.mailbox.drain():
            if not task.is_over:
                task.component.on_receive(parcel.message)
        if not task.is_over:
            task.component.on_receive(base._TURN_ENDED.message)
        if not task.is_over:
            task.component._stop()
    finally:
        core.current = supervisor
    return True


def start_loop(component: Component) -> None:
    """Stands for the start of an actor's thread."""
    task = Core.active.current
    assert task is not None
    daemon = task.program.owner
    assert isinstance(daemon, SimulatedDaemon)
    daemon.enter(component)


def make_folder(root: Path) -> Places:
    """Places of a world of its own."""
    return Places(root / "data", root / "run")
