"""The ZeroMQ door on a stage: how much it lets in at a time."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from tests.actors.stage import Stage, Staged

from ganger.actors import wire_listener
from ganger.actors.wire_listener import WireListener
from ganger.storage import settings
from ganger.transport import frames, messages
from ganger.transport.addresses import Envelope
from ganger.transport.wire import Credentials, Incoming

HERE = Credentials(kind="local", uid=os.geteuid(), pid=os.getpid())
SIZE = 10_000


class Sockets:
    """Stands in for the router: frames to come, one at each call, and those sent."""

    endpoints = ("ipc://nowhere",)

    def __init__(self, *_: object, **__: object) -> None:
        self.coming: deque[Incoming] = deque()
        self.sent: list[bytes] = []

    def filenos(self) -> list[int]:
        return []

    @property
    def has_more(self) -> bool:
        return bool(self.coming)

    def receive(self) -> list[Incoming]:
        return [self.coming.popleft()] if self.coming else []

    has_connections = False
    look_seconds = 1.0

    def end_hoarders(self) -> int:
        return 0

    def take_left(self) -> list[bytes]:
        return []

    def send(self, _peer: bytes, data: bytes) -> bool:
        self.sent.append(data)
        return True

    def close(self) -> None:
        """There is nothing to close."""


class KeepingStage(Stage):
    """A stage whose components are busy with everything that they are told."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.busy_with: list[Envelope] = []

    def tell(self, name: str, envelope: Envelope) -> bool:
        self.busy_with.append(envelope)
        return super().tell(name, envelope)


class Door:
    """The listener, and what has come to it."""

    def __init__(self, stage: KeepingStage) -> None:
        self.stage = stage
        self.actor: Staged[WireListener] = stage.start(WireListener)
        stage.busy_with.clear()
        sockets: Any = self.actor.component._router
        self.sockets: Sockets = sockets
        self._numbers = iter(range(1, 1_000))

    def come(self, message: messages.Message) -> None:
        data = frames.encode(message, next(self._numbers))
        self.sockets.coming.append(Incoming(b"L1", data, HERE))

    def errors(self) -> list[str]:
        answers = [frames.decode(sent, messages.ClientReply).message for sent in self.sockets.sent]
        return [found.text for found in answers if isinstance(found, messages.Failure)]


@pytest.fixture
def door(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(wire_listener, "Router", Sockets)
    stage = KeepingStage(tmp_path)
    door = Door(stage)
    yield door
    door.actor.close()
    stage.daemon_lock.remove()


def large(size: int = SIZE) -> messages.SubmitJobs:
    spec = messages.JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": ["true"], "stdin": "x" * size}])
    return messages.SubmitJobs(jobs=[spec])


def test_nothing_more_is_read_while_components_are_at_too_much(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FRAMES_BYTES_OPEN_MAX", 3 * SIZE)
    for _ in range(9):
        door.come(large())
    door.actor.end_turn()
    assert len(door.stage.busy_with) == 3
    door.actor.end_turn()
    assert len(door.stage.busy_with) == 3
    # One is done: the door hears of it by a descriptor, and reads the next.
    assert not _is_readable(door)
    door.stage.busy_with.pop()
    door.stage.told.clear()
    assert _is_readable(door)
    door.actor.component.readable([door.actor.component._open.descriptor])
    door.actor.end_turn()
    assert len(door.stage.busy_with) == 3
    assert len(door.sockets.coming) == 5
    assert not _is_readable(door)


def test_small_frames_are_not_counted(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FRAMES_BYTES_OPEN_MAX", 100)
    for _ in range(9):
        door.come(messages.ReadInfo())
    door.actor.end_turn()
    assert len(door.stage.busy_with) == 9


def test_large_requests_that_last_are_refused_and_close_the_door_to_nobody(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FRAME_BYTES_MAX", SIZE)
    monkeypatch.setattr(settings, "FRAMES_BYTES_OPEN_MAX", SIZE)
    watch = messages.WatchJobs(ids=list(range(1_000, 3_000)))
    for _ in range(5):
        door.come(watch)
    door.come(messages.ReadInfo())
    door.actor.end_turn()
    kinds = [type(envelope.message) for envelope in door.stage.busy_with]
    assert kinds == [messages.WatchJobs] * 3 + [messages.ReadInfo]
    assert door.errors() == ["the open requests are too large together; try again"] * 2
    door.stage.busy_with.clear()
    door.stage.told.clear()
    door.come(watch)
    door.actor.end_turn()
    assert [type(envelope.message) for envelope in door.stage.busy_with] == [messages.WatchJobs]


def _is_readable(door: Door) -> bool:
    poll = select.poll()
    poll.register(door.actor.component._open.descriptor, select.POLLIN)
    return bool(poll.poll(0))
