"""The client that speaks ZeroMQ's protocol itself, at the daemon's router and at impostors."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.client.both_clients import Aside
from tests.transport.zmq.routers import PATIENCE_SECONDS, connect, link, received, serve

from ganger.storage import errors, settings
from ganger.transport.zmq import local_dealer, zmtp
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.local_dealer import LocalDealer
from ganger.transport.zmq.router import Router

REACHED, MADE, LOST = ConnectionEvent.REACHED, ConnectionEvent.MADE, ConnectionEvent.LOST
FAILED, TURNED_AWAY = ConnectionEvent.FAILED, ConnectionEvent.TURNED_AWAY


@pytest.fixture
def local(path: Path) -> Iterator[LocalDealer]:
    with contextlib.closing(LocalDealer(f"ipc://{path}")) as dealer:
        yield dealer


@pytest.fixture
def impostor(path: Path) -> Iterator[socket.socket]:
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))
        listening.listen()
        yield listening


def test_a_frame_goes_there_and_back(router: Router, local: LocalDealer) -> None:
    connect(router, local)
    for data in (b"", b"x", b"y" * 255, b"z" * 256, b"w" * 70_000):
        assert local.send(data)
        incoming = received(router)
        assert incoming.data == data
        assert incoming.identity.uid == os.geteuid()
        assert incoming.identity.pid == os.getpid()
        assert router.send(incoming.peer, data)
        assert local.receive(PATIENCE_SECONDS) == data


def test_a_client_learns_of_loss_and_return(path: Path, local: LocalDealer) -> None:
    with contextlib.closing(Router(path)) as first:
        connect(first, local)
    assert local.receive(PATIENCE_SECONDS) is LOST
    assert not local.send(b"lost")
    with contextlib.closing(Router(path)) as second:
        assert link(second, local, MADE) == [REACHED, MADE]
        assert local.send(b"sent")
        assert received(second).data == b"sent"


def test_a_frame_for_a_daemon_that_has_gone_is_refused_before_the_loss_is_read(
    path: Path, local: LocalDealer
) -> None:
    with contextlib.closing(Router(path)) as router:
        connect(router, local)
    assert not local.send(b"lost")
    assert local.receive(PATIENCE_SECONDS) is LOST


def test_frames_that_wait_for_a_daemon_that_has_gone_are_lost_with_the_connection(
    impostor: socket.socket, local: LocalDealer
) -> None:
    with _greeted(impostor, local):
        while not local._unsent:
            assert local.send(b"x" * 1_000_000)
    assert not local.send(b"y")
    assert not local._unsent
    assert local.receive(PATIENCE_SECONDS) is LOST


def test_a_client_that_waits_sends_the_rest_and_does_so_at_its_next_connection(
    path: Path, local: LocalDealer
) -> None:
    data = os.urandom(settings.FRAME_BYTES_MAX)
    for _ in range(2):
        with contextlib.closing(Router(path)) as router:
            connect(router, local)
            peer = _peer(router, local)
            router.send(peer, b"before")
            assert local.receive(PATIENCE_SECONDS) == b"before"
            assert local.send(data)
            assert local._unsent
            waiting = Aside(lambda: local.receive(PATIENCE_SECONDS))
            assert received(router).data == data
            router.send(peer, b"after")
            assert waiting.result() == b"after"
        assert local.receive(PATIENCE_SECONDS) is LOST


def test_what_came_before_the_loss_is_read_before_the_loss(path: Path, local: LocalDealer) -> None:
    with contextlib.closing(Router(path)) as router:
        connect(router, local)
        local.send(b"x")
        peer = received(router).peer
        for number in range(5):
            router.send(peer, b"%d" % number)
        # The context sends what is in its queues before it ends.
        assert local.receive(PATIENCE_SECONDS) == b"0"
        time.sleep(0.05)
    got = [local.receive(PATIENCE_SECONDS) for _ in range(5)]
    assert got == [b"1", b"2", b"3", b"4", LOST]


def test_the_largest_frame_passes_although_the_daemon_reads_late(
    router: Router, local: LocalDealer
) -> None:
    connect(router, local)
    data = os.urandom(settings.FRAME_BYTES_MAX)
    assert local.send(data)
    assert local.send(b"after")
    assert local._unsent

    def look() -> list[bytes]:
        assert local.take() is None
        got.extend(each.data for each in router.receive())
        return got if len(got) == 2 else []

    got: list[bytes] = []
    assert serve(router, look) == [data, b"after"]
    router.send(_peer(router, local), data)
    assert serve(router, lambda: router.receive() or local.take()) == data


def _peer(router: Router, local: LocalDealer) -> bytes:
    local.send(b"who")
    return received(router).peer


def test_a_daemon_that_reads_nothing_is_not_sent_without_limit(
    impostor: socket.socket, local: LocalDealer
) -> None:
    with _greeted(impostor, local):
        for _ in range(100):
            if not local.send(b"x" * 1_000_000):
                break
        assert len(local._unsent) <= local_dealer.UNSENT_BYTES_MAX + 1_000_100
        assert not local.send(b"x")


@contextlib.contextmanager
def _greeted(impostor: socket.socket, local: LocalDealer) -> Iterator[socket.socket]:
    assert local.take() is REACHED
    theirs, _ = impostor.accept()
    with theirs:
        theirs.sendall(zmtp.GREETING)
        assert local.receive(PATIENCE_SECONDS) is MADE
        yield theirs


def test_a_client_follows_the_daemon_to_another_place(
    router: Router, local: LocalDealer, tmp_path: Path
) -> None:
    connect(router, local)
    with contextlib.closing(Router(tmp_path / "run" / "other")) as other:
        local.move(other.endpoints[0])
        connect(other, local)
        assert local.send(b"x")
        assert received(other).data == b"x"
        assert router.receive() == []


def test_a_daemon_with_too_many_connections_is_tried_again(
    path: Path, local: LocalDealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(Router(path)) as router:
        monkeypatch.setattr(router._listeners["local"], "peers_max", 0)
        assert link(router, local, LOST) == [REACHED, TURNED_AWAY, LOST]
        monkeypatch.undo()
        assert link(router, local, MADE) == [REACHED, MADE]


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" + bytes(8) + b"\x7f\x01\x00",
        zmtp.GREETING[:12] + b"CURVE".ljust(20, b"\0") + bytes(32),
        zmtp.GREETING[:64] + zmtp.framed(b"a message before the handshake"),
        zmtp.GREETING + b"\x02" + (settings.FRAME_BYTES_MAX + 1).to_bytes(8),
        b"",
    ],
    ids=["HTTP", "version 1", "encrypted", "not ready", "too large", "nothing"],
)
def test_who_speaks_otherwise_is_left(
    impostor: socket.socket, local: LocalDealer, said: bytes
) -> None:
    assert local.take() is REACHED
    theirs, _ = impostor.accept()
    with theirs:
        theirs.sendall(said)
    news: list[object] = []
    while not news or news[-1] is not LOST:
        news.append(local.receive(PATIENCE_SECONDS))
    assert news[-2:] in ([FAILED, LOST], [MADE, LOST])
    assert not local.send(b"x")
    assert local.receive(PATIENCE_SECONDS) is REACHED


@pytest.mark.usefixtures("impostor")
def test_a_silent_handshake_is_given_up(
    local: LocalDealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_dealer, "HANDSHAKE_SECONDS", 0.02)
    got = [local.receive(PATIENCE_SECONDS) for _ in range(3)]
    assert got == [REACHED, FAILED, LOST]


def test_bytes_may_come_one_by_one(impostor: socket.socket, local: LocalDealer) -> None:
    assert local.take() is REACHED
    theirs, _ = impostor.accept()
    stream = zmtp.GREETING + zmtp.framed(b"short") + zmtp.framed(b"l" * 300) + b"\x01\x01a\x00\x01b"
    with theirs:
        items = []
        for byte in stream + zmtp.framed(b"next"):
            theirs.send(bytes([byte]))
            if (item := local.take()) is not None:
                items.append(item)
    assert items == [MADE, b"short", b"l" * 300, b"a", b"next"]


def test_a_ping_is_answered(impostor: socket.socket, local: LocalDealer) -> None:
    with _greeted(impostor, local) as theirs:
        theirs.recv(10_000)
        theirs.sendall(b"\x04\x0a\x04PING\x00\x01abc")
        assert local.take() is None
        assert theirs.recv(100) == b"\x04\x08\x04PONGabc"


def test_another_thread_wakes_the_one_that_waits(local: LocalDealer) -> None:
    waker = os.eventfd(0)
    try:
        timer = threading.Timer(0.02, os.eventfd_write, (waker, 1))
        timer.start()
        assert local.receive(PATIENCE_SECONDS, waker) is None
        timer.join()
    finally:
        os.close(waker)


def test_receive_gives_up_in_time(local: LocalDealer) -> None:
    assert local.receive(0) is None
    began = time.monotonic()
    assert local.receive(0.05) is None
    assert 0.05 <= time.monotonic() - began < PATIENCE_SECONDS


def test_what_was_sent_leaves_although_the_client_is_closed(
    impostor: socket.socket, path: Path
) -> None:
    local = LocalDealer(f"ipc://{path}")
    with _greeted(impostor, local) as theirs:
        local.send(b"x" * 2_000_000)
        found: list[int] = []

        def read() -> None:
            while data := theirs.recv(1_000_000):
                found.append(len(data))

        reader = threading.Thread(target=read)
        reader.start()
        local.close()
        local.close()
        reader.join()
    assert sum(found) > 2_000_000


def test_a_client_that_is_thrown_away_closes_its_connection(
    impostor: socket.socket, path: Path
) -> None:
    local = LocalDealer(f"ipc://{path}")
    assert local.take() is REACHED
    theirs, _ = impostor.accept()
    with theirs:
        assert theirs.recv(10_000) == zmtp.GREETING
        del local
        assert theirs.recv(100) == b""


@pytest.mark.parametrize("endpoint", ["ipc://", "tcp://127.0.0.1:1", "ipc://" + "x" * 200])
def test_an_endpoint_that_is_none_is_named(endpoint: str) -> None:
    with pytest.raises(errors.BadRequestError, match="expected ipc://PATH or tcp://HOST:PORT"):
        LocalDealer(endpoint)
