"""A listener's room: for replies that wait, for connections, and for what it reads at a time."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from ganger.transport.zmq import remote_listener
from ganger.transport.zmq.listeners import (
    RECEIVE_BYTES_MAX,
    SEND_QUEUE_BYTES_MAX,
    SEND_QUEUES_BYTES_MAX,
    can_wait,
)
from ganger.transport.zmq.local_listener import LocalListener
from ganger.transport.zmq.remote_listener import RemoteListener


def stub(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


@pytest.mark.parametrize(
    ("waiting", "of_all", "size", "has_room"),
    [
        # A peer that reads gets a reply of any size, whatever waits for others.
        (0, SEND_QUEUES_BYTES_MAX, SEND_QUEUE_BYTES_MAX + 1, True),
        (1, 1, SEND_QUEUE_BYTES_MAX - 1, True),
        (1, 1, SEND_QUEUE_BYTES_MAX, False),
        (1, SEND_QUEUES_BYTES_MAX - 5, 5, True),
        (1, SEND_QUEUES_BYTES_MAX - 4, 5, False),
    ],
)
def test_replies_wait_up_to_the_bounds_of_their_peer_and_of_all(
    waiting: int, of_all: int, size: int, *, has_room: bool
) -> None:
    assert can_wait(size, waiting, of_all) == has_room


@pytest.mark.parametrize(("descriptors", "has_room"), [(10, True), (9, False)])
def test_a_batch_of_connections_is_let_in_while_it_has_descriptors(
    descriptors: int, *, has_room: bool
) -> None:
    listener = stub(_batch_max=4, _descriptors_max=descriptors, connections=stub(open_count=6))
    assert RemoteListener.has_room.fget(listener) == has_room  # type: ignore[attr-defined]
    # The local listener takes one at a time, and has two of its own.
    local = stub(_descriptors_max=descriptors, connections=stub(open_count=7))
    assert LocalListener.has_room.fget(local) == has_room  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("limit", "size", "count"),
    [(3, 1, 3), (9, RECEIVE_BYTES_MAX // 2, 2), (9, RECEIVE_BYTES_MAX // 2 - 1, 3)],
)
def test_so_many_messages_and_bytes_are_read_at_a_time(
    monkeypatch: pytest.MonkeyPatch, limit: int, size: int, count: int
) -> None:
    class Frame:
        more = False

        def __len__(self) -> int:
            return size

    def receive(*_: object, copy: bool = True) -> object:
        return bytes(remote_listener._GIVEN_IDENTITY_BYTES) if copy else Frame()

    monkeypatch.setattr(remote_listener, "is_readable", lambda _: True)
    listener = stub(socket=stub(recv=receive), _prefix=b"R", _incoming=mock.Mock())
    listener.look = partial(RemoteListener.look, listener)
    assert len(RemoteListener.receive(listener, limit)) == count
    assert not listener.is_emptied
