"""A job's connection to the daemon's local listener, at a router and at impostors."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.zmq.routers import PATIENCE_SECONDS, received, serve

from ganger.storage import settings
from ganger.transport.zmq import local_wire, zmtp
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.local_wire import LocalWire
from ganger.transport.zmq.peers import Incoming
from ganger.transport.zmq.router import Router


@pytest.fixture
def wire(path: Path, router: Router) -> Iterator[LocalWire]:
    assert router.endpoints
    with contextlib.closing(LocalWire(os.fspath(path))) as made:
        yield made


@pytest.fixture
def impostor(path: Path) -> Iterator[socket.socket]:
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))
        listening.listen()
        yield listening


def next_of(wire: LocalWire, router: Router | None = None) -> bytes | ConnectionEvent:
    """What the wire receives next; the router works meanwhile."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (item := wire.receive()) is None:
        assert time.monotonic() < end
        if router is not None:
            assert router.receive() == []
        poll = select.poll()
        for descriptor, mask in wire.descriptors().items():
            poll.register(descriptor, mask)
        poll.poll(10)
    return item


def test_frames_go_there_at_once_and_back_in_order(router: Router, wire: LocalWire) -> None:
    sent = [b"", b"x", b"y" * 255, b"z" * 256, b"w" * 70_000]
    # Before a word of the other end.
    assert all(map(wire.send, sent))
    incoming: list[Incoming] = []

    def all_there() -> bool:
        incoming.extend(router.receive())
        return len(incoming) == len(sent)

    serve(router, all_there)
    assert [one.data for one in incoming] == sent
    assert incoming[0].identity.uid == os.geteuid()
    assert incoming[0].identity.pid == os.getpid()
    for data in sent:
        assert router.send(incoming[0].peer, data)
    assert [next_of(wire) for _ in sent] == sent
    assert wire.receive() is None
    assert not wire.has_news


def test_the_largest_frame_passes_although_the_other_end_reads_late(
    router: Router, wire: LocalWire
) -> None:
    data = os.urandom(settings.FRAME_BYTES_MAX)
    assert wire.send(data)
    [(_, mask)] = wire.descriptors().items()
    assert mask & select.POLLOUT
    end = time.monotonic() + PATIENCE_SECONDS
    found = router.receive()
    while not found:
        assert time.monotonic() < end
        assert wire.receive() is None
        found = router.receive()
    assert found[0].data == data
    [(_, mask)] = wire.descriptors().items()
    assert not mask & select.POLLOUT
    assert router.send(found[0].peer, data)
    assert next_of(wire, router) == data


def test_what_came_before_a_loss_is_read_before_it_and_a_return_is_told(path: Path) -> None:
    wire = LocalWire(os.fspath(path))
    assert not wire.send(b"too early")
    with contextlib.closing(Router(path)) as first:
        assert next_of(wire, first) is ConnectionEvent.MADE
        assert wire.send(b"x")
        assert first.send(received(first).peer, b"last words")
    assert [next_of(wire), next_of(wire)] == [b"last words", ConnectionEvent.LOST]
    assert not wire.send(b"lost")
    assert wire.descriptors() == {}
    with contextlib.closing(Router(path)) as second:
        assert next_of(wire, second) is ConnectionEvent.MADE
        assert wire.send(b"sent")
        assert received(second).data == b"sent"
    wire.close()
    wire.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400", zmtp.GREETING + zmtp.refused(b"500")])
def test_who_refuses_it_or_speaks_another_language_is_left(
    path: Path, impostor: socket.socket, answer: bytes
) -> None:
    with contextlib.closing(LocalWire(os.fspath(path))) as wire:
        connection, _ = impostor.accept()
        with connection:
            connection.sendall(answer)
            assert next_of(wire) is ConnectionEvent.LOST


def test_a_flood_that_nobody_reads_is_refused(
    path: Path, impostor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_wire, "UNSENT_BYTES_MAX", 1_000_000)
    assert impostor.fileno() >= 0
    with contextlib.closing(LocalWire(os.fspath(path))) as wire:
        sent = 0
        while wire.send(b"x" * 500_000):
            sent += 1
            assert sent < 1_000
        assert sent >= 2


def test_a_ping_is_answered(path: Path, impostor: socket.socket) -> None:
    with contextlib.closing(LocalWire(os.fspath(path))) as wire:
        connection, _ = impostor.accept()
        with connection:
            connection.sendall(zmtp.GREETING + zmtp.READY + b"\x04\x0a\x04PING\0\x01abc")
            connection.settimeout(PATIENCE_SECONDS)
            assert wire.receive() is None
            assert connection.recv(1_000).endswith(b"\x04PONGabc")


def test_a_fork_server_that_can_reach_sockets_has_no_library_for_them() -> None:
    program = "import sys, ganger.actors.job.process; assert 'zmq' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
