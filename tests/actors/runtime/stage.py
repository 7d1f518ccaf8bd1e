"""A stage on which one actor is tested alone: no threads, and all that it tells is written down.

The actor's messages are handled on the test's own thread, and a turn ends when the test says
so. What it tells other components lies in `Stage.sent`; what it answers, in an `Asker`.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from tests.actors.runtime import staged_log
from tests.actors.runtime.staged_log import StagedLog

from ganger.actors.config import change_line
from ganger.actors.config.config_store import ConfigStore
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.runtime.actor import ComponentActor
from ganger.actors.runtime.component import Component
from ganger.actors.runtime.dispatcher import Alarm, Dispatcher
from ganger.actors.runtime.host import Host
from ganger.actors.runtime.idle_work import IdleWait, IdleWork
from ganger.actors.runtime.mailbox import QUIET, TURN_ENDED, Mailbox, Replaced
from ganger.actors.runtime.served_actor import ServedActor
from ganger.actors.scheduling.scheduler import Scheduler
from ganger.actors.supervision import logs, placement
from ganger.storage import settings
from ganger.storage.alive import lock_files
from ganger.storage.disk.paths import Places
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.envelopes import Directory, Envelope
from ganger.transport.messages import Message

MessageT = TypeVar("MessageT", bound=Message)
ComponentT = TypeVar("ComponentT", bound=Component)


class Asker:
    """The sender of a request, which keeps the answers."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []

    def tell(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)

    @property
    def answers(self) -> list[Message]:
        return [envelope.message for envelope in self.envelopes]

    @property
    def answer(self) -> Message:
        """The only answer."""
        [answer] = self.answers
        return answer

    def answer_as(self, kind: type[MessageT]) -> MessageT:
        """The only answer, which must be of this kind."""
        assert isinstance(self.answer, kind), self.answer
        return self.answer

    @property
    def refusal(self) -> tuple[str, str]:
        """The only answer: the name of an error and its text."""
        failure = self.answer_as(messages.Failure)
        return failure.error, failure.text


class StageDispatcher(Dispatcher):
    """Runs nothing by itself: the test hands out messages, and lets alarms ring."""

    def __init__(self, stage: Stage) -> None:
        super().__init__("stage")
        self.stage = stage
        self.has_work = False
        """What components hear when they ask whether something waits."""

    def make_mailbox(self, _actor: ServedActor) -> Mailbox:
        return Mailbox(lambda: None)

    def add(self, actor: ServedActor) -> None:
        """Nothing to do."""

    def remove(self, actor: ServedActor) -> None:
        """Nothing to do."""

    def watch(self, descriptor: int, actor: ServedActor) -> None:
        """Nothing to do."""

    def forget(self, descriptor: int) -> None:
        """Nothing to do."""

    def has_news(self, _actor: ServedActor) -> bool:
        return self.has_work

    def later(self, seconds: float, actor: ServedActor, item: object) -> Alarm:
        alarm = Alarm(seconds, actor, item)
        if isinstance(item, Envelope):
            ring = functools.partial(self.stage.tell, actor.name, item)
            self.stage.timers.append(Timer(seconds, ring, alarm))
        return alarm

    def in_thread(self, name: str, work: Callable[[], None]) -> None:
        self.stage.timers.append(Timer(0.0, work, component=name))

    def when_idle(
        self, name: str, steps: Iterator[object], finish: Callable[[], None]
    ) -> StagedSteps:
        work = StagedSteps(steps, finish)
        self.stage.beside = [one for one in self.stage.beside if not one.is_over] + [work]
        self.stage.timers.append(Timer(0.0, work.run, component=name))
        return work


class StagedSteps(IdleWork):
    """Steps of another thread, which are taken when the test says so."""

    def __init__(self, steps: Iterator[object], finish: Callable[[], None]) -> None:
        super().__init__(IdleWait(), steps)
        self._left = steps
        self._finish = finish
        self.is_over = False

    def take(self, count: int) -> None:
        """Let the thread take so many steps, as far as there are any."""
        for _ in range(count):
            if self.is_over:
                return
            try:
                next(self._left)
            except StopIteration:
                self.is_over = True
                self._finish()

    def run(self) -> None:
        while not self.is_over:
            self.take(1)

    def allow(self, count: int) -> None:
        self.take(count)

    def hurry(self, seconds: float) -> None:
        assert seconds > 0
        self.run()

    def finish(self) -> None:
        self.run()


class Stage(Directory):
    """The other components, as far as the actor on the stage can see."""

    def __init__(self, root: Path, daemon: str = "ganger-daemon_1") -> None:
        """``daemon`` is the stem of its lock file's name."""
        super().__init__()
        self.sent: list[tuple[str, Message]] = []
        self.requests: list[tuple[str, Envelope]] = []
        """What was sent to be answered, by components or on behalf of a client."""
        self.timers: list[Timer] = []
        self.beside: list[StagedSteps] = []
        """Work of other threads that is done step by step."""
        self.now = 1_000.0
        self.today = 1_700_000_000.0
        """What the components see on the clocks."""
        self.places = Places(root / "data", root / "run")
        self.log_stream = io.StringIO()
        self.grants_config_lock: bool | None = None
        """A configuration store gets its lock at once, unless this is false: as from a lock manager
        without others. The log takes its changes at once, too."""
        self._log_of_changes: StagedLog | None = None
        self.dispatcher = StageDispatcher(self)
        self.make_folders()
        self.daemon_lock = lock_files.create(self.places.lock_files, daemon)
        self.host = Host(
            directory=self,
            places=self.places,
            log=logs.to_file(self.log_stream),
            daemon_lock=self.daemon_lock,
            clock=lambda: self.now,
            wall_clock=lambda: self.today,
        )

    @property
    def log_of_changes(self) -> StagedLog:
        """The log that takes the changes of a configuration store."""
        if self._log_of_changes is None:
            self.renew_log()
        assert self._log_of_changes is not None
        return self._log_of_changes

    def renew_log(self) -> None:
        """The queue begins, or is replaced: the log is read."""
        self.close_log()
        self._log_of_changes = StagedLog(self.places)

    def close_log(self) -> None:
        """End what takes the changes of a configuration store."""
        if self._log_of_changes is not None:
            self._log_of_changes.close()
            self._log_of_changes = None

    def make_folders(self) -> None:
        """Make the folders that components expect."""
        for directory in (self.places.queue, self.places.lock_files):
            directory.mkdir(parents=True, exist_ok=True)

    def run_timers(self) -> None:
        """The time has come for everything that waits for it."""
        timers, self.timers[:] = list(self.timers), []
        for timer in timers:
            timer.run_out()

    def tell(self, name: str, envelope: Envelope) -> None:
        if self.grants_config_lock and (reply := _reply_to_store(envelope.message)) is not None:
            envelope.reply(reply)
            return
        if self.grants_config_lock and isinstance(envelope.message, staged_log.REQUESTS):
            self.log_of_changes.take(envelope)
            return
        self.sent.append((name, envelope.message))
        if envelope.reply_to is not None:
            self.requests.append((name, envelope))

    def take_requests(self, kind: type[MessageT]) -> list[Envelope]:
        """The requests of this kind that components sent since the last time, in order."""
        self.take(kind)
        found = [entry for entry in self.requests if isinstance(entry[1].message, kind)]
        self.requests = [entry for entry in self.requests if entry not in found]
        return [envelope for _, envelope in found]

    def make(
        self, component: type[ComponentT], *arguments: Any, incarnation: int = 1
    ) -> Staged[ComponentT]:
        """An actor that has heard nothing yet."""
        if component is ConfigStore and self.grants_config_lock is None:
            self.grants_config_lock = True
        actor = ComponentActor(component, self.host, incarnation, self.dispatcher, *arguments)
        return Staged(actor, component, self)

    def start(self, component: type[ComponentT], incarnation: int = 1) -> Staged[ComponentT]:
        """An actor that has built its state; what it sent meanwhile is forgotten."""
        staged = self.make(component, incarnation=incarnation)
        staged.say(messages.Boot())
        if component is JobQueue:
            # It takes no submission before it has the filter rules: there are none.
            none = messages.RuleChainChanged(chain=1, serial=1, reads_opcodes=False)
            staged.say(none)
        if component is Scheduler:
            slots = settings.RUNNING_JOBS_MAX
            staged.say(messages.LimitsChanged(running_jobs_max=slots))
        staged.end_turn()
        self.sent.clear()
        return staged

    def take(self, kind: type[MessageT], to: str | None = None) -> list[MessageT]:
        """The messages of this kind that were sent since the last time, in order."""
        found = [
            message
            for name, message in self.sent
            if isinstance(message, kind) and to in (None, name)
        ]
        self.sent = [(name, message) for name, message in self.sent if message not in found]
        return found

    def take_one(self, kind: type[MessageT], to: str | None = None) -> MessageT:
        """The only message of this kind."""
        found = self.take(kind, to)
        assert len(found) == 1, found
        return found[0]


class Staged(Generic[ComponentT]):
    """The actor on the stage."""

    def __init__(self, actor: ComponentActor, _kind: type[ComponentT], stage: Stage) -> None:
        self.actor = actor
        self.component: ComponentT = actor.component  # type: ignore[assignment]
        self._stage = stage

    def begin(self) -> None:
        """Let it be as if it had built its state."""
        self.actor._is_booted = True

    def say(self, message: Message, *, number: int = 0, peer: bytes = b"") -> Asker:
        """Let it handle a message; the turn goes on."""
        asker = Asker()
        self.handle(Envelope(message, asker, number, peer=peer))
        return asker

    def notify(self, *notices: Message) -> None:
        """Let it handle messages without a reply; the turn goes on."""
        for message in notices:
            self.handle(Envelope(message))

    def end_turn(self) -> None:
        self.handle(TURN_ENDED)

    def turn(self, *notices: Message) -> None:
        """Let it handle these in a turn of their own."""
        self.notify(*notices)
        self.end_turn()

    def be_quiet(self) -> None:
        """Nothing comes for as long as the actor's patience."""
        self.handle(QUIET)
        self.end_turn()

    def ask(self, message: Message) -> Asker:
        """Let it handle a message in a turn of its own."""
        asker = self.say(message)
        self.end_turn()
        return asker

    def handle_mail(self) -> None:
        """Let it handle what lies in its mailbox: replies to its requests, and what they bring."""
        while items := self.actor.mailbox.drain():
            for item in items:
                self.actor.handle_item(item)

    def work_beside(self) -> bool:
        """Have its threads do what its work needs; False: it needs nothing."""
        timers = self._stage.timers
        found = [timer for timer in timers if timer.component == self.actor.name]
        for timer in found:
            timers.remove(timer)
            timer.run_out()
        self.handle_mail()
        return bool(found)

    def take_slice(self) -> bool:
        """Let it take a slice of the work that is under way, in a turn; False: there was none."""
        if not self.actor.component.runtime.work_count:
            return False
        if self.actor.mailbox.empty():
            self.end_turn()
        self.handle_mail()
        self.end_turn()
        return True

    def work_off(self) -> int:
        """Let it do all its work; how many slices that took."""
        count = 0
        while self.take_slice():
            count += 1
            assert count < 1_000
        return count

    def hear_of_restart(self, component: str) -> None:
        """Another component was replaced."""
        self.actor.put(Replaced(component))
        self.handle_mail()
        if self.actor.name in placement.NOTIFIED_OF_REPLACEMENT:
            self.notify(messages.ComponentReplaced(component=component))

    def handle(self, message: object) -> None:
        self.actor.handle(message)
        if self._stage.grants_config_lock and isinstance(self.component, ConfigStore):
            self.handle_mail()
        failed = self._stage.take(messages.ComponentFailed)
        assert not failed, f"{failed[0].text}\n{self._stage.log_stream.getvalue()}"

    def close(self) -> None:
        """End it as a crash of the daemon does not: in order."""
        self.actor.on_stop()


def _reply_to_store(message: Message) -> Message | None:
    """What a lock manager without others replies to a configuration store."""
    match message:
        case messages.ReadLockTable():
            return messages.LockTable([], [])
        case messages.RequestLocks(owner=Owner(identifier=change_line.IDENTIFIER)):
            return messages.LocksGranted()
        case messages.ReleaseLocks(owner=Owner(identifier=change_line.IDENTIFIER)):
            return messages.Done()
    return None


class Timer(NamedTuple):
    """An alarm, or work of another thread: runs when the test says so."""

    seconds: float
    run_out: Callable[[], None]
    alarm: Alarm | None = None
    component: str = ""
    """Of work of another thread: for whom it is done."""
