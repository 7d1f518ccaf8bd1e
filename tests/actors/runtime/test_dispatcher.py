"""Dispatchers: turns, descriptors, alarms, patience, and actors that share a thread."""

from __future__ import annotations

import _thread
import errno
import io
import math
import os
import queue
import select
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast
from unittest import mock

import pytest
from tests.actors.runtime.stage import Asker

from ganger.actors.runtime import dispatcher
from ganger.actors.runtime.actor import ComponentActor, start
from ganger.actors.runtime.component import AbandonedError, Component
from ganger.actors.runtime.dispatcher import ALARMS_KEPT_MIN, Dispatcher
from ganger.actors.runtime.host import Host
from ganger.actors.supervision import logs
from ganger.storage import errors, settings
from ganger.storage.alive import lock_files
from ganger.storage.disk.paths import Places
from ganger.transport import messages
from ganger.transport.envelopes import Address, Directory, Envelope, silence
from ganger.transport.messages import CancelJob, Message, OutputGrew

DEADLINE = 10.0
BLOCK = 1_000
DO = 2_000


class Log(Component):
    """Notes what happens to it: numbers of messages, ``T`` for a turn's end, ``Q`` for quiet."""

    name = "log"

    def boot(self) -> None:
        self.seen: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.to_do: list[Callable[[], object]] = []
        self.blocked, self.went_on = threading.Event(), threading.Event()

    def receive(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, OutputGrew):
            self.runtime.watch(message.size)
        elif isinstance(message, CancelJob) and message.id == BLOCK:
            self.blocked.set()
            assert self.went_on.wait(DEADLINE)
        elif isinstance(message, CancelJob) and message.id == DO:
            self.to_do.pop()()
        elif isinstance(message, CancelJob):
            self.seen.put(message.id)

    def readable(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            self.seen.put(os.read(descriptor, 100))

    def turn_ended(self) -> None:
        self.seen.put("T")

    def quiet(self) -> None:
        self.seen.put("Q")
        self.runtime.patience_seconds = None

    def next(self) -> object:
        return self.seen.get(timeout=DEADLINE)

    def take(self, count: int) -> list[object]:
        return [self.next() for _ in range(count)]

    def numbers(self, count: int) -> list[object]:
        """The next so many numbers and pieces of data, whatever turns they come in."""
        found: list[object] = []
        while len(found) < count:
            found += [one for one in [self.next()] if one != "T"]
        return found


class Neighbour(Log):
    """Another one beside it."""

    name = "other"


class Deaf(Directory):
    """A directory without a supervisor, which keeps the messages for it."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: queue.SimpleQueue[messages.ComponentFailed] = queue.SimpleQueue()

    def tell(self, name: str, envelope: Envelope) -> None:
        if isinstance(envelope.message, messages.ComponentFailed):
            self.failed.put(envelope.message)
        super().tell(name, envelope)


class DispatcherScene:
    """Components that share one dispatcher."""

    def __init__(self, root: Path) -> None:
        self.directory = Deaf()
        self.lock = lock_files.create(root, "ganger-daemon_1")
        self.host = Host(
            directory=self.directory,
            places=Places(root, root),
            log=logs.to_file(io.StringIO()),
            daemon_lock=self.lock,
            actors={},
            dispatchers={},
        )

    @property
    def dispatcher(self) -> Dispatcher:
        return self.host.dispatcher("shared")

    def start(self, kind: type[Log]) -> Log:
        """A component that has built its state."""
        return self.built(start(self.host, kind, "shared", 1))

    def built(self, actor: ComponentActor) -> Log:
        """The component, when it has built its state."""
        assert isinstance(actor.component, Log)
        while not hasattr(actor.component, "went_on"):
            threading.Event().wait(0.001)
        assert actor.component.next() == "T"
        return actor.component

    def actor(self, kind: type[Log]) -> ComponentActor:
        return cast("ComponentActor", self.host.actors[kind.name])

    def tell(self, kind: type[Log], *notices: Message) -> None:
        for message in notices:
            self.directory.tell(kind.name, Envelope(message))

    def say(self, kind: type[Log], *numbers: int) -> None:
        self.tell(kind, *(CancelJob(id=number) for number in numbers))

    def do(self, kind: type[Log], *work: Callable[[], object]) -> None:
        """Let a component do this in its own thread."""
        component = self.actor(kind).component
        assert isinstance(component, Log)
        for one in work:
            component.to_do.append(one)
            self.say(kind, DO)

    def block(self, kind: type[Log]) -> Log:
        """Let a component work at a message until ``went_on`` is set."""
        component = self.actor(kind).component
        assert isinstance(component, Log)
        self.say(kind, BLOCK)
        assert component.blocked.wait(DEADLINE)
        return component


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DispatcherScene]:
    made = DispatcherScene(tmp_path)
    yield made
    for actor in made.host.actors.values():
        if not actor.is_over:
            assert actor.stop_within(DEADLINE)
    made.lock.remove()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_what_waits_is_one_turn(scene: DispatcherScene) -> None:
    log = scene.start(Log)
    scene.block(Log)
    scene.say(Log, 1, 2, 3)
    log.went_on.set()
    assert log.take(4) == [1, 2, 3, "T"]


def test_a_turn_ends_after_so_many_messages_at_the_latest(
    scene: DispatcherScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TURN_MESSAGES_MAX", 2)
    log = scene.start(Log)
    scene.block(Log)
    scene.say(Log, 1, 2, 3, 4)
    log.went_on.set()
    assert log.take(7) == [1, "T", 2, 3, "T", 4, "T"]


def test_a_turn_ends_after_so_many_seconds_at_the_latest(
    scene: DispatcherScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = scene.start(Log)
    scene.block(Log)
    scene.say(Log, 1, 2)
    monkeypatch.setattr(settings, "TURN_SECONDS", 0.0)
    log.went_on.set()
    assert log.take(5) == ["T", 1, "T", 2, "T"]


def test_actors_of_one_dispatcher_take_turns(
    scene: DispatcherScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TURN_MESSAGES_MAX", 1)
    log, other = scene.start(Log), scene.start(Neighbour)
    other.seen = log.seen
    scene.block(Log)
    scene.say(Log, 1, 2)
    scene.say(Neighbour, 11, 12)
    log.went_on.set()
    assert log.take(9) == ["T", 1, "T", 11, "T", 2, "T", 12, "T"]


def test_a_message_wakes_a_dispatcher_that_sleeps(scene: DispatcherScene) -> None:
    log = scene.start(Log)
    for number in range(300):
        scene.say(Log, number)
        assert log.take(2) == [number, "T"]


def test_a_watched_descriptor_begins_a_turn(scene: DispatcherScene, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = scene.start(Log)
    scene.tell(Log, OutputGrew(job_id=1, size=reader))
    assert log.next() == "T"
    os.write(writer, b"x")
    assert log.take(2) == [b"x", "T"]
    log.runtime.forget(reader)
    os.write(writer, b"y")
    scene.say(Log, 1)
    assert log.take(2) == [1, "T"]


class Exchanger(Log):
    """When it has read one descriptor, it puts another file behind the number of the other one."""

    name = "exchanger"

    def readable(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            self.seen.put(os.read(descriptor, 100))
            while self.to_do:
                self.to_do.pop()()


def test_news_of_a_descriptor_are_not_taken_for_those_of_its_successor(
    scene: DispatcherScene, pipe: tuple[int, int]
) -> None:
    """The executor took a new process for ended: its pidfd had the number of an ended one's."""
    log = scene.start(Exchanger)
    pipes = [os.pipe(), os.pipe()]
    readers = [reader for reader, _ in pipes]
    os.set_blocking(pipe[0], False)
    for reader in readers:
        scene.tell(Exchanger, OutputGrew(job_id=1, size=reader))

    def exchange() -> None:
        # The first one that was read is empty now; the other one has news.
        [other] = select.select(readers, [], [], 0)[0]
        log.runtime.forget(other)
        os.dup2(pipe[0], other)
        log.runtime.watch(other)

    scene.block(Exchanger)
    log.to_do.append(exchange)
    for _, writer in pipes:
        os.write(writer, b"old")
    log.went_on.set()
    assert log.numbers(1) == [b"old"]
    scene.say(Exchanger, 1)
    assert log.numbers(1) == [1]
    os.write(pipe[1], b"new")
    assert log.numbers(1) == [b"new"]
    for descriptor in (*readers, *(writer for _, writer in pipes)):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, [1, "T", b"x", 2, "T", 3, 4, "T"]),
        # A look would be due only when no message waits.
        (math.inf, [1, "T", 2, 3, "T", 4, "T", b"x"]),
    ],
)
def test_descriptors_are_not_starved_by_messages_but_not_looked_at_after_each_turn(
    scene: DispatcherScene,
    pipe: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    expected: list[object],
) -> None:
    monkeypatch.setattr(settings, "TURN_MESSAGES_MAX", 2)
    monkeypatch.setattr(dispatcher, "LOOK_SECONDS", seconds)
    reader, writer = pipe
    log = scene.start(Log)
    scene.tell(Log, OutputGrew(job_id=1, size=reader))
    # The turn in which it began may have ended with one of its own.
    scene.say(Log, 0)
    assert [log.numbers(1), log.next()] == [[0], "T"]
    scene.block(Log)
    scene.say(Log, 1, 2, 3, 4)
    os.write(writer, b"x")
    log.went_on.set()
    assert log.take(8) == expected


def test_an_alarm_rings_once_and_a_canceled_one_never(scene: DispatcherScene) -> None:
    log = scene.start(Log)

    def set_alarms() -> None:
        log.runtime.later(0.02, CancelJob(id=3))
        log.runtime.later(0.0, CancelJob(id=1)).cancel()
        log.runtime.later(0.01, CancelJob(id=2))

    scene.do(Log, set_alarms)
    assert log.numbers(2) == [2, 3]
    scene.say(Log, 4)
    assert log.numbers(1) == [4]


@pytest.mark.parametrize("seconds", [2**31 / 1_000, 1e18, 1e300, math.inf])
def test_an_alarm_may_be_set_for_any_time(scene: DispatcherScene, seconds: float) -> None:
    log = scene.start(Log)
    scene.do(Log, lambda: log.runtime.later(seconds, CancelJob(id=1)))
    scene.do(Log, lambda: log.runtime.later(0.01, CancelJob(id=2)))
    assert log.numbers(1) == [2]
    scene.say(Log, 3)
    assert log.numbers(1) == [3]


def test_canceled_alarms_do_not_pile_up(scene: DispatcherScene) -> None:
    log = scene.start(Log)
    scene.do(Log, lambda: log.runtime.later(60.0, CancelJob(id=1)).cancel())
    scene.say(Log, 2)
    assert log.numbers(1) == [2]
    assert scene.actor(Log).dispatcher._alarms == []


def test_canceled_alarms_do_not_pile_up_behind_one_that_stays(scene: DispatcherScene) -> None:
    """As of a door that answers thousands of requests a second, each with a late deadline."""
    log = scene.start(Log)

    def set_alarms() -> None:
        log.runtime.later(50.0, CancelJob(id=1))
        for _ in range(3 * ALARMS_KEPT_MIN):
            log.runtime.later(100.0, CancelJob(id=1)).cancel()
        log.runtime.later(100.0, CancelJob(id=1))

    scene.do(Log, set_alarms)
    # Canceled ones are looked for when one rings.
    scene.do(Log, lambda: log.runtime.later(0.0, CancelJob(id=2)))
    assert log.numbers(1) == [2]
    assert len(scene.actor(Log).dispatcher._alarms) == 2


def test_an_alarm_of_an_actor_that_has_ended_reaches_no_successor(scene: DispatcherScene) -> None:
    log = scene.start(Log)
    other = scene.start(Neighbour)
    scene.do(Log, lambda: log.runtime.later(0.01, CancelJob(id=1)))
    assert scene.actor(Log).stop_within(DEADLINE)
    successor = scene.start(Log)
    scene.do(Neighbour, lambda: other.runtime.later(0.02, CancelJob(id=2)))
    assert other.numbers(1) == [2]
    scene.say(Log, 3)
    assert successor.numbers(1) == [3]


def test_a_component_with_patience_is_called_though_nothing_came(scene: DispatcherScene) -> None:
    log = scene.start(Log)
    for patience in (0.001, 0.0):
        log.runtime.patience_seconds = patience
        scene.say(Log, 1)
        assert log.take(4) == [1, "T", "Q", "T"]


def test_what_comes_before_patience_is_at_its_end_begins_it_anew(scene: DispatcherScene) -> None:
    log = scene.start(Log)
    log.runtime.patience_seconds = 3_600.0
    scene.say(Log, 1)
    assert log.take(2) == [1, "T"]
    log.runtime.patience_seconds = 0.0
    scene.say(Log, 2)
    assert log.take(4) == [2, "T", "Q", "T"]


def test_a_component_can_see_that_another_one_waits(scene: DispatcherScene) -> None:
    log, other = scene.start(Log), scene.start(Neighbour)
    before = log.runtime.has_news, log.runtime.have_others_work
    assert before == (False, False)
    scene.block(Log)
    scene.say(Neighbour, 1)
    assert log.runtime.has_news
    assert log.runtime.have_others_work
    assert not log.runtime.has_mail
    log.went_on.set()
    assert other.take(2) == [1, "T"]


def test_the_result_of_work_in_a_thread_goes_to_the_component_of_that_name(
    scene: DispatcherScene,
) -> None:
    log = scene.start(Log)
    log.runtime.in_thread(lambda: CancelJob(id=7))
    assert log.take(2) == [7, "T"]


def test_a_turn_does_not_wait_until_the_thread_beside_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[object] = []

    def begin(run: Callable[[], None], *_: object) -> None:
        begun.append(run)

    monkeypatch.setattr(_thread, "start_new_thread", begin)
    monkeypatch.setattr(threading, "_start_new_thread", begin)
    monkeypatch.setattr(threading.Event, "wait", mock.Mock(side_effect=AssertionError("it waits")))
    Dispatcher("shared").in_thread("log", lambda: None)
    assert len(begun) == 1


# Neighbours.


def test_the_neighbours_of_a_component_that_crashed_go_on(scene: DispatcherScene) -> None:
    scene.start(Log)
    other = scene.start(Neighbour)
    scene.tell(Log, OutputGrew(job_id=1, size=-1))
    assert scene.directory.failed.get(timeout=DEADLINE).component == "log"
    scene.say(Neighbour, 1)
    assert other.take(2) == [1, "T"]
    log = scene.start(Log)
    scene.say(Log, 2)
    assert log.take(2) == [2, "T"]


def test_the_neighbours_of_a_component_that_hangs_go_on_in_another_thread(
    scene: DispatcherScene, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    scene.start(Log)
    other = scene.start(Neighbour)
    scene.tell(Neighbour, OutputGrew(job_id=1, size=reader))
    assert other.next() == "T"
    scene.do(Neighbour, lambda: other.runtime.later(0.0, CancelJob(id=3)))
    assert other.numbers(1) == [3]
    stuck = scene.block(Log)
    hung = scene.actor(Log)
    scene.say(Neighbour, 1)
    os.write(writer, b"x")
    hung.abandon(errors.ComponentRestartedError("it hung"))
    assert set(other.numbers(2)) == {1, b"x"}
    before = hung.heartbeat.thread
    successor = scene.start(Log)
    scene.say(Log, 2)
    assert successor.take(2) == [2, "T"]
    assert scene.actor(Log).heartbeat.thread == scene.actor(Neighbour).heartbeat.thread != before
    # It comes back, finds that its time is over, and ends.
    stuck.went_on.set()
    for thread in [one for one in threading.enumerate() if one.ident == before]:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    scene.say(Neighbour, 4)
    assert other.numbers(1) == [4]


def test_a_component_that_is_given_up_between_two_messages_leaves_the_thread_alone(
    scene: DispatcherScene,
) -> None:
    scene.start(Log)
    other = scene.start(Neighbour)
    thread = scene.actor(Neighbour).heartbeat.thread
    scene.actor(Log).abandon(errors.ComponentRestartedError("it hung"))
    scene.say(Neighbour, 1)
    assert other.take(2) == [1, "T"]
    assert scene.actor(Neighbour).heartbeat.thread == thread


def test_what_an_abandoned_component_watched_keeps_no_dispatcher_awake(
    scene: DispatcherScene, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    log = scene.start(Log)
    other = scene.start(Neighbour)
    scene.tell(Log, OutputGrew(job_id=1, size=reader))
    assert log.next() == "T"
    scene.actor(Log).abandon(errors.ComponentRestartedError("it hung"))
    os.write(writer, b"x")
    scene.say(Neighbour, 1)
    assert other.take(2) == [1, "T"]
    assert scene.dispatcher._poll is not None
    assert scene.dispatcher._poll.poll(0) == []
    with pytest.raises(AbandonedError):
        log.runtime.watch(reader)
    with pytest.raises(AbandonedError):
        log.runtime.forget(reader)
    with pytest.raises(AbandonedError):
        log.runtime.later(0.0, CancelJob(id=1))


def test_an_error_of_the_dispatcher_itself_ends_its_actors_and_is_reported(
    scene: DispatcherScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start(Log)
    scene.start(Neighbour)
    monkeypatch.setattr(scene.dispatcher, "_next", mock.Mock(side_effect=MemoryError))
    scene.say(Log, 1)
    failed = {scene.directory.failed.get(timeout=DEADLINE).component for _ in range(2)}
    assert failed == {"log", "other"}
    monkeypatch.undo()
    log = scene.start(Log)
    scene.say(Log, 2)
    assert log.take(2) == [2, "T"]


def test_a_component_that_is_restarted_before_its_neighbours_have_failed_is_served(
    scene: DispatcherScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start(Log)
    scene.start(Neighbour)
    monkeypatch.setattr(scene.dispatcher, "_next", mock.Mock(side_effect=MemoryError))
    crash_neighbour = scene.actor(Neighbour).crash

    def restart_first(message: object) -> None:
        monkeypatch.undo()
        start(scene.host, Log, "shared", 2)
        crash_neighbour(message)

    monkeypatch.setattr(scene.actor(Neighbour), "crash", restart_first)
    scene.say(Log, 1)
    failed = {scene.directory.failed.get(timeout=DEADLINE).component for _ in range(2)}
    assert failed == {"log", "other"}
    log = scene.built(scene.actor(Log))
    scene.say(Log, 2)
    assert log.take(2) == [2, "T"]


# Its thread.


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "dispatcher-shared"]


def test_a_dispatcher_has_a_thread_and_descriptors_as_long_as_it_has_actors(
    scene: DispatcherScene,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        scene.start(Log)
        scene.start(Neighbour)
        [thread] = [one for one in threading.enumerate() if one.name == "dispatcher-shared"]
        for kind in (Log, Neighbour):
            assert threads() == ["dispatcher-shared"]
            assert scene.actor(kind).stop_within(DEADLINE)
        thread.join(DEADLINE)
        assert threads() == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "none left"), RuntimeError("no thread")])
def test_an_actor_without_descriptors_or_threads_for_it_is_not_started(
    scene: DispatcherScene, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    what = "select.epoll" if isinstance(error, OSError) else "threading.Thread.start"
    with monkeypatch.context() as patch:
        patch.setattr(what, mock.Mock(side_effect=error))
        with pytest.raises(type(error)):
            start(scene.host, Log, "shared", 1)
    assert scene.host.actors == {}
    assert len(os.listdir("/proc/self/fd")) == before
    log = scene.start(Log)
    scene.say(Log, 1)
    assert log.take(2) == [1, "T"]


def test_a_dispatcher_without_actors_is_not_woken(scene: DispatcherScene) -> None:
    scene.start(Log)
    actor = scene.actor(Log)
    assert actor.stop_within(DEADLINE)
    # As seen by a sender that was held up between its two steps.
    scene.dispatcher._is_asleep = True
    scene.dispatcher.schedule(actor)
    assert not actor.tell(Envelope(CancelJob(id=1)))


def test_a_new_thread_may_have_the_number_of_one_that_hung() -> None:
    asker = Asker()

    def reply() -> None:
        silence(threading.get_ident())
        Envelope(CancelJob(id=1), asker).reply(messages.Done())
        Dispatcher("new")._run(generation=-1)
        Envelope(CancelJob(id=1), asker).reply(messages.Done())

    thread = threading.Thread(target=reply)
    thread.start()
    thread.join()
    assert asker.answer == messages.Done()


def test_the_address_of_a_component_shows_its_name() -> None:
    assert repr(Address("queue")) == "Address('queue')"
