"""What every actor shares: turns, errors, start and end; and pykka's five traps."""

from __future__ import annotations

import io
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec
import pykka
import pytest

from ganger.actors.runtime.actor import ComponentActor, start
from ganger.actors.runtime.addresses import SUPERVISOR
from ganger.actors.runtime.component import AbandonedError, Component, Runtime
from ganger.actors.runtime.host import Host
from ganger.actors.supervision import logs
from ganger.storage import errors
from ganger.storage.alive import lock_files
from ganger.storage.disk.paths import Places
from ganger.transport import messages
from ganger.transport.envelopes import Directory, Envelope
from ganger.transport.messages import CancelJob, Message

DEADLINE = 10.0


def wait(event: threading.Event) -> None:
    assert event.wait(DEADLINE)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


# Actors. The ids of the messages say what the handler does.

ANSWER, REFUSE, FAIL, EXIT, BLOCK, LATER, INTERRUPT = range(7)


class RecordingDirectory(Directory):
    """A directory that keeps the messages for the supervisor."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.made: list[Any] = []

    def tell(self, name: str, envelope: Envelope) -> None:
        if name == "supervisor":
            self.sent.put(envelope.message)
            return
        super().tell(name, envelope)

    def next(self) -> Message:
        return self.sent.get(timeout=DEADLINE)


class ThreadedAsker:
    """Waits for answers from another thread."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def tell(self, envelope: Envelope) -> None:
        self._answers.put(envelope.message)

    def next(self) -> Message:
        return self._answers.get(timeout=DEADLINE)

    @property
    def has_none(self) -> bool:
        return self._answers.empty()


class Subject(Component):
    """The actor under test."""

    name = "subject"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        assert isinstance(runtime.host.directory, RecordingDirectory)
        runtime.host.directory.made.append(self)
        self.went_on = threading.Event()
        self.blocked = threading.Event()
        self.closed = 0
        self.turns = 0
        self.later: list[Envelope] = []

    def receive(self, envelope: Envelope) -> None:
        assert isinstance(envelope.message, CancelJob)
        match envelope.message.id:
            case 0:
                envelope.reply(messages.Done())
            case 1:
                raise errors.JobStateError("not now")
            case 2:
                raise ValueError("a mistake")
            case 3:
                raise SystemExit(1)
            case 4:
                self.blocked.set()
                wait(self.went_on)
                envelope.reply(messages.Done())
            case 5:
                self.later.append(envelope)
            case _:
                raise KeyboardInterrupt

    def turn_ended(self) -> None:
        self.turns += 1
        for envelope in self.later:
            envelope.reply(messages.Done())
        self.later.clear()

    def close(self) -> None:
        self.closed += 1


class Unready(Subject):
    """Cannot build its state."""

    name = "unready"

    def boot(self) -> None:
        raise errors.DataDirectoryError("nothing is there")


class Dirty(Subject):
    """Cannot free what it holds."""

    name = "dirty"

    def close(self) -> None:
        raise OSError("stuck")


class Failing(Subject):
    """Fails at the end of a turn."""

    name = "failing"

    def turn_ended(self) -> None:
        raise errors.StorageError("no disk")


class Ears(Component):
    """Reads from a pipe."""

    name = "ears"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        assert isinstance(runtime.host.directory, RecordingDirectory)
        runtime.host.directory.made.append(self)
        self.heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def receive(self, envelope: Envelope) -> None:
        assert isinstance(envelope.message, CancelJob)
        self.runtime.watch(envelope.message.id)

    def readable(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            data = os.read(descriptor, 100)
            if not data:
                raise EOFError
            self.heard.put(data)


class ActorScene:
    """Real actors, all served by one dispatcher or each by its own."""

    def __init__(
        self, host: Host, directory: RecordingDirectory, log: io.StringIO, *, shared: bool
    ) -> None:
        self.host = host
        self.directory = directory
        self.log = log
        self.shared = shared

    def make(self, kind: type[Component]) -> ComponentActor:
        """An actor that has not begun to build its state."""
        dispatcher = self.host.dispatcher("shared" if self.shared else kind.name)
        actor = ComponentActor(kind, self.host, 5, dispatcher)
        actor.begin()
        self.directory.enter(kind.name, actor)
        return actor

    def boot(self, kind: type[Component]) -> None:
        self.directory.tell(kind.name, Envelope(messages.Boot()))

    def start(self, kind: type[Component]) -> Any:
        """A component whose actor builds its state: the object itself, to look inside."""
        start(self.host, kind, "shared" if self.shared else kind.name, 5)
        return self.directory.made[-1]

    def actor(self, kind: type[Component]) -> ComponentActor:
        return cast("ComponentActor", self.host.actors[kind.name])

    def notify(self, kind: type[Component], message: Message) -> None:
        self.directory.tell(kind.name, Envelope(message))

    def tell(self, kind: type[Component], what: int) -> ThreadedAsker:
        asker = ThreadedAsker()
        self.directory.tell(kind.name, Envelope(CancelJob(id=what), asker, number=9))
        return asker


@pytest.fixture(params=[False, True], ids=["a dispatcher each", "one dispatcher"])
def scene(tmp_path: Any, request: pytest.FixtureRequest) -> Iterator[ActorScene]:
    directory, log = RecordingDirectory(), io.StringIO()
    lock = lock_files.create(tmp_path, "daemon")
    host = Host(
        directory=directory,
        places=Places(tmp_path, tmp_path),
        log=logs.to_file(log),
        daemon_lock=lock,
    )
    yield ActorScene(host, directory, log, shared=request.param)
    lock.remove()
    assert pykka.ActorRegistry.stop_all(timeout=DEADLINE) is not None


READY = messages.ComponentReady(component="subject", incarnation=5)


@pytest.mark.parametrize("what", [ANSWER, REFUSE, LATER])
def test_a_message_that_is_faster_than_the_first_waits_for_it(scene: ActorScene, what: int) -> None:
    scene.make(Subject)
    early = scene.tell(Subject, what)
    subject = scene.directory.made[-1]
    assert (early.has_none, subject.turns) == (True, 0)
    scene.boot(Subject)
    assert scene.directory.next() == READY
    refusal = messages.Failure("JobStateError", "not now")
    assert early.next() == (refusal if what == REFUSE else messages.Done())


def test_a_message_that_was_too_early_is_refused_if_there_is_no_beginning(
    scene: ActorScene,
) -> None:
    scene.make(Unready)
    early = scene.tell(Unready, ANSWER)
    scene.boot(Unready)
    answer = early.next()
    assert isinstance(answer, messages.Failure)
    assert answer.error == "ComponentRestartedError"


def test_a_mistake_with_an_early_message_refuses_the_ones_behind_it(scene: ActorScene) -> None:
    scene.make(Subject)
    early = [scene.tell(Subject, what) for what in (ANSWER, FAIL, ANSWER)]
    scene.boot(Subject)
    assert scene.directory.next() == READY
    assert early[0].next() == messages.Done()
    for asker, error in zip(
        early[1:], ["RequestFatalError", "ComponentRestartedError"], strict=True
    ):
        answer = asker.next()
        assert isinstance(answer, messages.Failure)
        assert answer.error == error
    assert scene.directory.next() == failed("ValueError: a mistake")


def failed(text: str, name: str = "subject") -> messages.ComponentFailed:
    return messages.ComponentFailed(component=name, incarnation=5, text=text)


def test_a_component_reports_when_it_is_ready(scene: ActorScene) -> None:
    scene.start(Subject)
    assert scene.directory.next() == READY
    assert scene.tell(Subject, ANSWER).next() == messages.Done()


def test_the_end_of_a_turn_does_together_what_the_turn_collected(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    scene.tell(Subject, BLOCK)
    wait(subject.blocked)
    before = subject.turns
    askers = [scene.tell(Subject, LATER) for _ in range(5)]
    subject.went_on.set()
    assert [asker.next() for asker in askers] == [messages.Done()] * 5
    assert scene.actor(Subject).stop_within(DEADLINE)
    assert subject.turns == before + 1


class Slow(Subject):
    """It takes half a second to build its state."""

    def boot(self) -> None:
        self.runtime.host.clock.sleep(0.5)  # type: ignore[attr-defined]


class StandingClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self._now = 100.0

    def __call__(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def test_the_turn_in_which_a_component_builds_its_state_does_not_count(tmp_path: Any) -> None:
    clock, directory = StandingClock(), RecordingDirectory()
    lock = lock_files.create(tmp_path, "daemon")
    host = Host(
        directory=directory,
        places=Places(tmp_path, tmp_path),
        log=logs.to_file(io.StringIO()),
        daemon_lock=lock,
        clock=clock,
    )
    actor = ComponentActor(Slow, host, 5, host.dispatcher("slow"))
    actor.begin()
    directory.enter("subject", actor)
    directory.tell("subject", Envelope(messages.Boot()))
    assert directory.next() == READY
    assert actor.stop_within(DEADLINE)
    assert actor.heartbeat.turns.longest(clock()) == 0.0
    lock.remove()


# Trap 1: an exception on `ask` would leave the actor alive, in whatever state it is.


def test_an_expected_error_answers_the_request_and_the_actor_lives(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    refused = messages.Failure("JobStateError", "not now")
    assert scene.tell(Subject, REFUSE).next() == refused
    assert scene.tell(Subject, ANSWER).next() == messages.Done()
    assert subject.closed == 0


def test_an_unexpected_error_answers_the_request_and_stops_the_actor(scene: ActorScene) -> None:
    scene.start(Subject)
    assert scene.directory.next() == READY
    answer = scene.tell(Subject, FAIL).next()
    assert isinstance(answer, messages.Failure)
    # It would end the next one too: the asker must not repeat it.
    assert answer.error == "RequestFatalError"
    assert "component subject did not survive this request (ValueError: a mistake)" in answer.text
    assert scene.directory.next() == failed("ValueError: a mistake")
    assert scene.actor(Subject).is_over
    assert "a mistake" in scene.log.getvalue()


# Trap 2: an exception on `tell` would stop the actor, and the supervisor would not learn of it.


def test_an_error_without_an_asker_is_reported_to_the_supervisor(scene: ActorScene) -> None:
    scene.start(Subject)
    assert scene.directory.next() == READY
    scene.notify(Subject, CancelJob(id=REFUSE))
    assert scene.directory.next() == failed("not now")
    assert scene.actor(Subject).is_over


def test_an_error_at_the_end_of_a_turn_is_reported_to_the_supervisor(scene: ActorScene) -> None:
    scene.start(Failing)
    assert isinstance(scene.directory.next(), messages.ComponentReady)
    assert scene.directory.next() == failed("no disk", "failing")


# Trap 3: an exception in `on_start` would stop the actor, and no hook would run.


def test_a_component_that_cannot_start_is_reported_to_the_supervisor(scene: ActorScene) -> None:
    unready = scene.start(Unready)
    assert scene.directory.next() == failed("nothing is there", "unready")
    assert scene.actor(Unready).is_over
    assert unready.closed == 1


def test_an_actor_does_nothing_where_pykka_would_not_tell() -> None:
    for hook in ("on_start", "on_failure", "on_receive"):
        assert getattr(ComponentActor, hook) is getattr(pykka.Actor, hook)


# Trap 4: a mailbox has no bound.


def test_a_listener_can_read_how_many_messages_wait(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    scene.tell(Subject, BLOCK)
    wait(subject.blocked)
    for _ in range(7):
        scene.tell(Subject, ANSWER)
    assert scene.directory.depth("subject") == 7
    subject.went_on.set()
    assert scene.actor(Subject).stop_within(DEADLINE)
    assert scene.directory.depth("subject") == 0


# Trap 5: what is not an `Exception` would stop every actor of the process.


@pytest.mark.parametrize(
    ("what", "text"), [(EXIT, "SystemExit: 1"), (INTERRUPT, "KeyboardInterrupt: ")]
)
def test_nothing_that_is_raised_stops_other_actors(scene: ActorScene, what: int, text: str) -> None:
    scene.start(Ears)
    assert isinstance(scene.directory.next(), messages.ComponentReady)
    scene.start(Subject)
    assert scene.directory.next() == READY
    scene.tell(Subject, what)
    assert scene.directory.next() == failed(text)
    assert scene.actor(Subject).is_over
    assert not scene.actor(Ears).is_over
    assert len(pykka.ActorRegistry.get_all()) == 1


# A crash, and the end.


def test_a_crash_refuses_everything_that_waits(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    scene.tell(Subject, BLOCK)
    wait(subject.blocked)
    scene.tell(Subject, FAIL)
    waiting = [scene.tell(Subject, ANSWER) for _ in range(3)]
    subject.went_on.set()
    for asker in waiting:
        answer = asker.next()
        assert isinstance(answer, messages.Failure)
        assert answer.error == "ComponentRestartedError"
        assert asker.has_none
    # Later requests are refused at once.
    late = scene.tell(Subject, ANSWER).next()
    assert late == messages.Failure(
        "ComponentRestartedError", "component subject is being restarted"
    )


def test_a_successor_takes_the_place_of_a_crashed_component(scene: ActorScene) -> None:
    scene.start(Subject)
    scene.tell(Subject, FAIL).next()
    scene.start(Subject)
    assert scene.tell(Subject, ANSWER).next() == messages.Done()


def test_a_crash_frees_what_the_component_holds_once(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    assert scene.directory.next() == READY
    scene.tell(Subject, FAIL)
    assert isinstance(scene.directory.next(), messages.ComponentFailed)
    scene.actor(Subject).stop_within(DEADLINE)
    assert subject.closed == 1


def test_an_error_while_closing_is_logged_and_the_first_error_reported(scene: ActorScene) -> None:
    scene.start(Dirty)
    assert isinstance(scene.directory.next(), messages.ComponentReady)
    scene.tell(Dirty, FAIL)
    assert scene.directory.next() == failed("ValueError: a mistake", "dirty")
    assert "closing failed" in scene.log.getvalue()


def test_a_test_hook_crashes_only_the_component_it_names(scene: ActorScene) -> None:
    scene.host = msgspec.structs.replace(scene.host, has_test_hooks=True)
    scene.start(Subject)
    assert scene.directory.next() == READY
    crash = messages.CrashComponent(component="subject")
    scene.notify(Subject, crash)
    failure = scene.directory.next()
    assert isinstance(failure, messages.ComponentFailed)
    assert failure.text.startswith("InjectedCrashError")


def test_without_test_hooks_no_client_can_crash_a_component(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    assert scene.directory.next() == READY
    scene.notify(Subject, messages.CrashComponent(component="subject"))
    failure = scene.directory.next()
    # It reaches the component's own handler, which does not know it.
    assert isinstance(failure, messages.ComponentFailed)
    assert not failure.text.startswith("InjectedCrashError")
    assert subject.closed == 1


def test_a_component_that_hangs_is_abandoned_and_ends_when_it_goes_on(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    assert scene.directory.next() == READY
    asker, waiting = ThreadedAsker(), ThreadedAsker()
    scene.directory.tell("subject", Envelope(CancelJob(id=BLOCK), asker))
    scene.directory.tell("subject", Envelope(CancelJob(id=ANSWER), waiting))
    wait(subject.blocked)
    assert isinstance(scene.actor(Subject).heartbeat.handling, Envelope)
    scene.actor(Subject).abandon(errors.ComponentRestartedError("subject hung"))
    # Each waiting request is refused: the one being handled must not be repeated, the others may.
    served = asker.next()
    assert isinstance(served, messages.Failure)
    assert served.error == "RequestFatalError"
    assert waiting.next() == messages.Failure("ComponentRestartedError", "subject hung")
    later = ThreadedAsker()
    scene.directory.tell("subject", Envelope(CancelJob(id=ANSWER), later))
    assert isinstance(later.next(), messages.Failure)
    # What it sends from now on reaches no component.
    with pytest.raises(AbandonedError):
        subject.runtime.tell(SUPERVISOR, READY)
    subject.went_on.set()
    thread = next(
        found
        for found in threading.enumerate()
        if found.ident == scene.actor(Subject).heartbeat.thread
    )
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert scene.directory.sent.empty()
    # Its late reply would answer a request that was refused already, and may be repeated.
    assert asker.has_none


def test_stopping_frees_what_the_component_holds_and_twice_is_harmless(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    assert scene.actor(Subject).stop_within(DEADLINE)
    assert scene.actor(Subject).stop_within(DEADLINE)
    assert scene.actor(Subject).stop_within(DEADLINE)
    assert subject.closed == 1


def test_a_component_that_does_not_stop_in_time_is_reported(scene: ActorScene) -> None:
    subject = scene.start(Subject)
    scene.tell(Subject, BLOCK)
    wait(subject.blocked)
    assert not scene.actor(Subject).stop_within(0.0)
    subject.went_on.set()
    assert scene.actor(Subject).actor_stopped.wait(DEADLINE)


def test_a_component_may_wait_for_descriptors_too(scene: ActorScene, pipe: tuple[int, int]) -> None:
    ears = scene.start(Ears)
    reader, writer = pipe
    scene.notify(Ears, CancelJob(id=reader))
    for data in (b"one", b"two"):
        os.write(writer, data)
        assert ears.heard.get(timeout=DEADLINE) == data


def test_an_error_while_reading_a_descriptor_is_reported_to_the_supervisor(
    scene: ActorScene,
) -> None:
    scene.start(Ears)
    assert isinstance(scene.directory.next(), messages.ComponentReady)
    reader, writer = os.pipe()
    os.close(writer)
    scene.notify(Ears, CancelJob(id=reader))
    failure = scene.directory.next()
    assert isinstance(failure, messages.ComponentFailed)
    assert failure.text.startswith("EOFError")
    os.close(reader)
