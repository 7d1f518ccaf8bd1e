"""The local listener, as peers see it that speak ZeroMQ's protocol, or something else."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from tests.transport.zmq.routers import PATIENCE_SECONDS, connect, connected_peer, received, serve

from ganger.storage import settings
from ganger.transport.zmq import listeners, local_listener, zmtp
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.local_listener import LocalListener
from ganger.transport.zmq.router import Router, Sent

HELLO = zmtp.GREETING + zmtp.ready(b"DEALER")
"""What a client sends first."""

LARGE = 1_000_000
PING = b"\x04\x0a\x04PING\0\x01abc"
PONG = b"\x04\x08\x04PONGabc"


class Raw:
    """A connection that says what a test wants."""

    def __init__(self, router: Router, path: Path) -> None:
        self._router = router
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.fspath(path))
        self.socket.setblocking(False)  # noqa: FBT003 - positional in the standard library
        self.heard = b""

    def say(self, data: bytes) -> None:
        """Send all of it, while the router reads."""

        def sent() -> bool:
            nonlocal data
            assert not self._router.receive()
            with contextlib.suppress(BlockingIOError):
                data = data[self.socket.send(data) :]
            return not data

        serve(self._router, sent)

    def hears(self, end: bytes) -> None:
        """Read until the last bytes are these; nothing at all: the end of the connection."""

        def look() -> bool:
            self._router.receive()
            with contextlib.suppress(BlockingIOError):
                try:
                    data = self.socket.recv(1_000_000)
                except ConnectionError:
                    data = b""
                if not data:
                    assert not end, "the connection has ended"
                    return True
                self.heard += data
            return bool(end) and self.heard.endswith(end)

        serve(self._router, look)


@pytest.fixture
def raw(router: Router, path: Path) -> Iterator[Raw]:
    raw = Raw(router, path)
    with raw.socket:
        yield raw


def local_of(router: Router) -> LocalListener:
    listener = router._listeners["local"]
    assert isinstance(listener, LocalListener)
    return listener


# The protocol.


def test_each_end_greets_and_says_that_it_is_ready(raw: Raw) -> None:
    raw.hears(zmtp.GREETING)
    raw.say(HELLO)
    raw.hears(zmtp.READY)
    assert raw.heard == zmtp.GREETING + zmtp.READY


def test_a_peer_may_say_each_byte_alone(router: Router, raw: Raw) -> None:
    said = HELLO + zmtp.framed(b"x" * 300)
    for number in range(len(said) - 1):
        raw.say(said[number : number + 1])
    raw.socket.send(said[-1:])
    assert received(router).data == b"x" * 300


def test_a_ping_is_answered_between_messages(router: Router, raw: Raw) -> None:
    raw.say(HELLO)
    raw.hears(zmtp.READY)
    raw.socket.send(PING + zmtp.framed(b"x") + PING)
    assert received(router).data == b"x"
    raw.hears(PONG + PONG)


@pytest.mark.parametrize("minor", [0, 1])
def test_peers_of_either_minor_version_are_served(router: Router, raw: Raw, minor: int) -> None:
    greeting = bytearray(HELLO)
    greeting[11] = minor
    raw.socket.send(bytes(greeting) + zmtp.framed(b"x"))
    assert received(router).data == b"x"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x01\0",
        zmtp.GREETING[:12] + b"CURVE".ljust(20, b"\0") + bytes(32),
        zmtp.GREETING + zmtp.framed(b"a message before the handshake"),
        zmtp.GREETING + b"\x06" + struct.pack(">Q", 100_000),
        zmtp.GREETING + b"\x04\x0a\x05READY\x03abc",
        zmtp.GREETING + b"\x04\x0f\x05READY\x03abc\0\0\0\x09x",
        zmtp.GREETING + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\3SUB",
        zmtp.GREETING + b"\x04\x0a\x05ERROR\x03500",
        HELLO + b"\x02" + struct.pack(">Q", settings.FRAME_BYTES_MAX + 1),
        HELLO + b"\x02" + struct.pack(">Q", 2**64 - 1),
        HELLO + b"\x04\x20\x04PING" + bytes(27),
    ],
)
def test_what_is_not_the_protocol_ends_the_connection_and_no_other(
    router: Router, dealer: Dealer, raw: Raw, said: bytes
) -> None:
    connect(router, dealer)
    raw.say(said)
    raw.hears(b"")
    assert local_of(router).connections.open_count == 1
    assert dealer.send(b"x")
    assert received(router).data == b"x"


def test_a_message_of_parts_that_are_too_large_together_ends_the_connection(
    router: Router, raw: Raw
) -> None:
    raw.say(HELLO)
    part = b"\x03" + struct.pack(">Q", LARGE) + bytes(LARGE)
    with contextlib.suppress(ConnectionError):
        for _ in range(settings.FRAME_BYTES_MAX // LARGE + 1):
            raw.say(part)
    raw.hears(b"")
    assert router.dropped == {}


def test_a_client_of_libzmq_with_heartbeats_stays(router: Router, path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.heartbeat_ivl = 10
        peer.heartbeat_timeout = 5_000
        peer.connect(f"ipc://{path}")
        peer.send(b"x")
        named = received(router).peer
        pings: list[bytes] = []
        feed = zmtp.Reader.feed

        def counted(reader: zmtp.Reader, data: bytes) -> None:
            pings.extend([data] if b"PING" in data else [])
            feed(reader, data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zmtp.Reader, "feed", counted)
            serve(router, lambda: router.receive() or len(pings) >= 3)
        assert router.send(named, b"y")
        assert peer.poll(PATIENCE_SECONDS * 1_000)
        assert peer.recv() == b"y"


def test_a_req_socket_is_told_nothing_and_counted(router: Router, path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as peer:
        peer.linger = 0
        peer.connect(f"ipc://{path}")
        peer.send(b"x")
        serve(router, lambda: router.receive() or router.dropped)
    assert router.dropped == {"several parts": 1}


# What is bounded.


def test_a_handshake_that_takes_too_long_is_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_listener, "HANDSHAKE_SECONDS", 0.2)
    with contextlib.closing(Router(path)) as router:
        slow, quick = Raw(router, path), Raw(router, path)
        with slow.socket, quick.socket:
            slow.say(HELLO[:70])
            quick.say(HELLO)
            quick.hears(zmtp.READY)

            def look() -> bool:
                router.receive()
                router.end_unheard()
                return router._listeners["local"].connections.open_count == 1

            serve(router, look)
            slow.hears(b"")
            quick.say(PING)
            quick.hears(PONG)


def test_what_a_peer_does_not_read_waits_in_order_up_to_a_limit(
    router: Router, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SEND_QUEUE_BYTES_MAX", 5 * LARGE)
    raw.socket.send(HELLO + zmtp.framed(b"x"))
    peer = received(router).peer
    count = 0
    while router.send(peer, bytes([count]) * LARGE):
        count += 1
    local = local_of(router)
    assert 5 <= count <= 6
    assert 4 * LARGE < local._unsent_bytes <= 5 * LARGE
    assert router.dropped == {"a peer that does not read": 1}
    # Another thread's answer does not overtake.
    assert router.try_send(peer, b"end") is Sent.YES
    raw.hears(b"\0\3end")
    frames = b"".join(zmtp.framed(bytes([number]) * LARGE) for number in range(count))
    assert raw.heard.endswith(frames + zmtp.framed(b"end"))
    assert local._unsent_bytes == 0
    # Nothing is reported any more.
    assert not local._poll.poll(0)


def test_so_many_frames_wait_for_a_peer_that_does_not_read(
    router: Router, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_listener, "SEND_QUEUE_MAX", 3)
    raw.socket.send(HELLO + zmtp.framed(b"x"))
    peer = received(router).peer
    assert router.send(peer, bytes(LARGE))
    assert [router.send(peer, b"x") for _ in range(3)] == [True, True, False]


def test_pings_of_a_peer_that_reads_no_answer_end_its_connection(
    router: Router, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SEND_QUEUE_BYTES_MAX", LARGE)
    raw.say(HELLO)
    local = local_of(router)
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            raw.say(PING * 10_000)
    assert (local._unsent_bytes, local.connections.open_count) == (0, 0)


def test_what_waited_for_a_peer_goes_with_it(router: Router, raw: Raw) -> None:
    raw.socket.send(HELLO + zmtp.framed(b"x"))
    peer = received(router).peer
    assert router.send(peer, bytes(LARGE))
    local = local_of(router)
    assert local._unsent_bytes
    raw.socket.close()
    serve(router, lambda: router.receive() or router.take_left() == [peer])
    assert (local._unsent_bytes, local.connections.open_count) == (0, 0)


def test_messages_read_at_once_are_received_in_parts_and_before_the_end(
    router: Router, raw: Raw, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(router, dealer)
    raw.socket.send(HELLO + b"".join(zmtp.framed(b"%d" % each) for each in range(7)))
    raw.socket.close()
    dealer.send(b"other")
    found: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr("ganger.transport.zmq.router.RECEIVE_FRAMES_MAX", 2)

        def look() -> bool:
            came = router.receive()
            assert len(came) <= 2
            found.extend(each.data for each in came)
            # Those of the other peer do not wait until all of these are read.
            return bool(router.take_left())

        serve(router, look)
    found.remove(b"other")
    assert found == [b"%d" % each for each in range(7)]


def test_a_peer_never_has_the_name_of_an_earlier_listeners(path: Path) -> None:
    names = set()
    for _ in range(3):
        with (
            contextlib.closing(Router(path)) as router,
            contextlib.closing(Dealer(f"ipc://{path}")) as dealer,
        ):
            names.add(connected_peer(router, dealer))
    assert len(names) == 3


# While the owner may not read.


def test_while_nothing_is_read_the_descriptor_tells_of_new_events_once(
    router: Router, path: Path
) -> None:
    with (
        contextlib.closing(Dealer(f"ipc://{path}")) as one,
        contextlib.closing(Dealer(f"ipc://{path}")) as other,
        contextlib.closing(Dealer(f"ipc://{path}")) as third,
    ):
        for each in (one, other, third):
            connect(router, each)
        third.send(b"first")
        peer = received(router).peer
        poll = select.poll()
        poll.register(router.filenos()[0], select.POLLIN)
        # One after the other: two messages may come together, or the second after a look.
        for sender, data in ((one, b"x"), (third, b"y")):
            sender.send(data)
            assert poll.poll(PATIENCE_SECONDS * 1_000)
            assert router.receive(limit=0) == []
            assert poll.poll(0) == []
        # It may be answered, and may leave, meanwhile.
        assert router.send(peer, bytes(LARGE))
        one.close()
        assert poll.poll(0) == []
        other.send(b"z")
        assert poll.poll(PATIENCE_SECONDS * 1_000)
        assert router.receive(limit=0) == []
        assert poll.poll(0) == []
        assert router.has_more
        found: list[bytes] = []

        def look() -> bool:
            found.extend(each.data for each in router.receive())
            return len(found) == 3

        serve(router, look)
        assert sorted(found) == [b"x", b"y", b"z"]
        assert serve(router, lambda: router.receive() or third.take()) == bytes(LARGE)
        serve(router, lambda: router.receive() or len(router.take_left()) == 1)


def test_a_connection_that_must_wait_can_be_ended(router: Router, dealer: Dealer) -> None:
    peer = connected_peer(router, dealer)
    dealer.send(b"x")
    local = local_of(router)
    serve(router, lambda: router.receive(limit=0) or local._quiet)
    [descriptor] = local._by_descriptor
    assert local.end(descriptor)
    assert not local.end(descriptor)
    serve(router, lambda: router.receive() or router.take_left() == [peer])
