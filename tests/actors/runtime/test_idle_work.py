"""Work in a thread beside a dispatcher, which rests while the dispatcher works."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest
from tests.actors.runtime.test_dispatcher import (  # noqa: F401 - the fixture
    DEADLINE,
    DispatcherScene,
    Log,
    scene,
)

from ganger.actors.runtime.dispatcher import REST_SECONDS, Dispatcher
from ganger.actors.runtime.idle_work import IdleWait, IdleWork
from ganger.transport.messages import CancelJob


class Steps:
    """Steps that another thread takes."""

    def __init__(self) -> None:
        self.taken: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.count = 0

    def take(self, count: int) -> Iterator[None]:
        for _ in range(count):
            self.count += 1
            self.taken.put(self.count)
            yield

    def await_taken(self, count: int) -> list[int]:
        return [self.taken.get(timeout=DEADLINE) for _ in range(count)]


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_steps_are_taken_while_the_dispatcher_sleeps_and_their_end_is_told(
    scene: DispatcherScene,  # noqa: F811
    steps: Steps,
) -> None:
    log = scene.start(Log)
    log.runtime.when_idle(steps.take(3), lambda: CancelJob(id=7))
    assert log.take(2) == [7, "T"]
    assert steps.await_taken(3) == [1, 2, 3]


def test_a_dispatcher_at_work_is_left_alone_but_for_steps_that_it_allows(
    scene: DispatcherScene,  # noqa: F811
    steps: Steps,
) -> None:
    log = scene.start(Log)
    scene.block(Log)
    work = log.runtime.when_idle(steps.take(5), lambda: CancelJob(id=7))
    work.allow(2)
    assert steps.await_taken(2) == [1, 2]
    assert steps.taken.empty()
    log.went_on.set()
    assert log.take(3) == ["T", 7, "T"]
    assert steps.await_taken(3) == [3, 4, 5]


def test_a_dispatcher_that_waits_for_the_work_goes_on_when_that_is_over(steps: Steps) -> None:
    work = IdleWork(IdleWait(), steps.take(3))
    thread = threading.Thread(target=work.run)
    thread.start()
    work.hurry(DEADLINE)
    thread.join(DEADLINE)
    assert steps.count == 3
    assert not thread.is_alive()


def test_work_that_is_to_be_finished_waits_for_nothing(steps: Steps) -> None:
    work = IdleWork(IdleWait(), steps.take(3))
    thread = threading.Thread(target=work.run)
    thread.start()
    work.finish()
    thread.join(DEADLINE)
    assert steps.count == 3
    assert not thread.is_alive()


def test_a_gate_that_opens_wakes_each_thread_that_waits(steps: Steps) -> None:
    gate = IdleWait()
    threads = [
        threading.Thread(target=IdleWork(gate, steps.take(1)).run, daemon=True) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    gate.is_open = True
    gate.wake()
    assert len(steps.await_taken(3)) == 3
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


class Poll:
    """What a dispatcher sleeps in: it finds something in the sleep of this number, if in any."""

    def __init__(self, idle: IdleWait, found_in: int) -> None:
        self.idle = idle
        self.found_in = found_in
        self.sleeps: list[tuple[float | None, bool]] = []

    def poll(self, seconds: float | None) -> list[tuple[int, int]]:
        self.sleeps.append((seconds, self.idle.is_open))
        return [(1, 1)] if len(self.sleeps) == self.found_in else []


def test_a_dispatcher_that_sleeps_for_a_moment_only_does_not_let_the_work_go_on() -> None:
    for found_in, expected in (
        (1, [(REST_SECONDS, False)]),
        (2, [(REST_SECONDS, False), (5.0 - REST_SECONDS, True)]),
    ):
        sleeper = Dispatcher("test")
        poll = Poll(sleeper._idle, found_in)
        sleeper._poll = poll  # type: ignore[assignment]
        waiting = threading.Lock()
        waiting.acquire()
        sleeper._idle.waiting.append(waiting)
        assert sleeper._sleep(5.0) == [(1, 1)]
        assert poll.sleeps == expected
        assert waiting.locked() == (found_in == 1)
