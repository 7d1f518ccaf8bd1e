"""Real sockets: what gets through the doors, who is let in, and what a client learns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import zmq

from ganger.storage import errors, keys, settings
from ganger.transport import wire
from ganger.transport.async_wire import AsyncDealer
from ganger.transport.session import LinkEvent
from ganger.transport.wire import Credentials, Dealer, Incoming, Router

PATIENCE_SECONDS = 20
LOOPBACK = "tcp://127.0.0.1:*"
T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "socket"


@pytest.fixture
def router(path: Path) -> Iterator[Router]:
    with contextlib.closing(Router(path)) as router:
        yield router


@pytest.fixture
def remote(path: Path, tmp_path: Path) -> Iterator[Router]:
    with contextlib.closing(Router(path, remote=LOOPBACK, keys=tmp_path / "keys")) as router:
        yield router


@pytest.fixture
def dealer(path: Path) -> Iterator[Dealer]:
    with contextlib.closing(Dealer(f"ipc://{path}")) as dealer:
        yield dealer


def serve(router: Router, until: Callable[[], T]) -> T:
    """Run the doors as the daemon does, on their descriptors alone, until there is a result."""
    poll = select.poll()
    for descriptor in router.filenos():
        poll.register(descriptor, select.POLLIN)
    end = time.monotonic() + PATIENCE_SECONDS
    while not (result := until()):
        assert time.monotonic() < end, "nothing came"
        poll.poll(10)
    return result


def received(router: Router) -> Incoming:
    (incoming,) = serve(router, router.receive)
    return incoming


def link(router: Router, dealer: Dealer, wanted: LinkEvent) -> list[LinkEvent]:
    """The news that ``dealer`` gets, up to the one wanted."""
    news: list[LinkEvent] = []

    def look() -> bool:
        assert router.receive() == []
        while isinstance(item := dealer.take(), LinkEvent):
            news.append(item)
        return wanted in news

    serve(router, look)
    return news


def connect(router: Router, dealer: Dealer) -> None:
    link(router, dealer, LinkEvent.MADE)


def client(router: Router, pair: keys.KeyPair, server: str | None = None) -> Dealer:
    server = server or router.server_key
    return Dealer(router.endpoints[1], msgspec.structs.replace(pair, server=server))


# Frames.


def test_frames_go_both_ways(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    assert dealer.send(b"question")
    incoming = received(router)
    assert incoming.data == b"question"
    assert router.send(incoming.peer, b"answer")
    assert dealer.receive(PATIENCE_SECONDS) == b"answer"


def test_a_peer_keeps_its_name_and_two_peers_have_two(
    router: Router, dealer: Dealer, path: Path
) -> None:
    with contextlib.closing(Dealer(f"ipc://{path}")) as other:
        names = []
        connect(router, dealer)
        connect(router, other)
        for each in (dealer, other, dealer):
            assert each.send(b"x")
            names.append(received(router).peer)
    assert names[0] == names[2] != names[1]


def test_receiving_without_a_message_gives_nothing_at_once(router: Router) -> None:
    assert router.receive() == []
    assert not router.has_more


def test_a_turn_reads_a_bounded_number_and_says_that_there_is_more(
    router: Router, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "RECEIVE_FRAMES_MAX", 3)
    connect(router, dealer)
    for number in range(7):
        assert dealer.send(b"%d" % number)
    data: list[bytes] = []
    while len(data) < 7:
        part = serve(router, router.receive)
        assert len(part) <= 3
        data += [each.data for each in part]
    assert data == [b"%d" % number for number in range(7)]
    assert not router.has_more


def test_a_request_that_comes_while_answers_are_sent_is_not_overlooked(
    router: Router, dealer: Dealer
) -> None:
    # The report of the descriptor may be used up by the sending: `has_more` must tell.
    connect(router, dealer)
    dealer.send(b"first")
    peer = received(router).peer
    for number in range(200):
        dealer.send(b"%d" % number)
        got: list[Incoming] = []
        end = time.monotonic() + PATIENCE_SECONDS
        while not got:
            router.send(peer, b"x")
            if router.has_more:
                got = router.receive()
            assert time.monotonic() < end
        assert got[0].data == b"%d" % number


def test_an_answer_to_a_peer_that_has_left_is_refused(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    dealer.send(b"question")
    peer = received(router).peer
    dealer.close()
    serve(router, lambda: router.receive() or not router.send(peer, b"answer"))
    assert not router.send(b"", b"x")
    assert not router.send(b"Lnobody", b"x")
    assert not router.send(b"Rnobody", b"x")


def test_who_leaves_is_named_once_after_the_last_message(
    router: Router, dealer: Dealer, path: Path
) -> None:
    other = Dealer(f"ipc://{path}")
    with contextlib.closing(other):
        connect(router, dealer)
        connect(router, other)
        dealer.send(b"first")
        stayed = received(router).peer
        other.send(b"second")
        left = received(router).peer
        assert router.take_left() == []
        other.send(b"last words")
    assert received(router).data == b"last words"

    def look() -> list[bytes]:
        assert router.receive() == []
        return router.take_left()

    assert serve(router, look) == [left] != [stayed]
    assert router.take_left() == []


def test_nobody_has_left_before_everything_he_said_was_read(
    router: Router, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "RECEIVE_FRAMES_MAX", 2)
    connect(router, dealer)
    for number in range(7):
        dealer.send(b"%d" % number)
    dealer.close()
    # All of it has come, and the end as well.
    connections = router._order[0].connections

    def look() -> bool:
        router._follow_connections()
        return connections.count == 0

    serve(router, look)
    count = 0
    while not router.take_left():
        assert router.has_more
        count += len(router.receive())
    assert count == 7


def test_a_peer_known_to_have_left_is_more_to_receive(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    dealer.send(b"x")
    peer = received(router).peer
    dealer.close()

    def look() -> list[bytes]:
        router._follow_connections()
        return router._leaving

    serve(router, look)
    while router.has_more:
        assert router.receive() == []
    assert router.take_left() == [peer]


def test_a_peer_that_does_not_read_is_given_up_without_blocking(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "SEND_QUEUE_MAX", 10)
    monkeypatch.setattr(wire, "RECEIVE_QUEUE_MAX", 10)
    with (
        contextlib.closing(Router(path)) as router,
        contextlib.closing(Dealer(f"ipc://{path}")) as dealer,
    ):
        connect(router, dealer)
        dealer.send(b"question")
        peer = received(router).peer
        frame = bytes(1_000_000)
        # A few get into the queues of both sockets and of the kernel.
        assert not all(router.send(peer, frame) for _ in range(100))
        assert router.dropped["a peer that does not read"] == 1


def test_a_frame_above_the_limit_ends_the_connection_and_no_other(
    router: Router, dealer: Dealer, path: Path
) -> None:
    connect(router, dealer)
    with contextlib.closing(Dealer(f"ipc://{path}")) as other:
        connect(router, other)
        assert other.send(bytes(settings.FRAME_BYTES_MAX + 1))
        assert LinkEvent.LOST in link(router, other, LinkEvent.LOST)
        assert dealer.send(bytes(settings.FRAME_BYTES_MAX))
        assert len(received(router).data) == settings.FRAME_BYTES_MAX


def test_a_message_in_several_parts_is_dropped_and_counted(router: Router, path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(f"ipc://{path}")
        raw.send_multipart([b"", b"one", b"two"])
        raw.send_multipart([b"good"])
        assert received(router).data == b"good"
    assert router.dropped == {"several parts": 1}


def test_a_peer_that_chose_its_own_name_is_not_heard(router: Router, path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.routing_id = b"mine!"
        raw.connect(f"ipc://{path}")
        raw.send(b"x")
        serve(router, lambda: router.receive() or router.dropped)
    assert router.dropped == {"a name of its own": 1}


def test_garbage_at_the_door_disturbs_nobody(router: Router, dealer: Dealer, path: Path) -> None:
    connect(router, dealer)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        raw.settimeout(PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionError):
            while raw.recv(1000):
                pass
    assert dealer.send(b"still here")
    assert received(router).data == b"still here"


# The local door.


def test_the_kernel_says_who_a_local_peer_is(router: Router, dealer: Dealer) -> None:
    connect(router, dealer)
    dealer.send(b"x")
    assert received(router).identity == Credentials(kind="local", uid=os.geteuid(), pid=os.getpid())


def test_a_peer_in_another_process_is_told_apart(
    router: Router, dealer: Dealer, path: Path
) -> None:
    connect(router, dealer)
    child = os.posix_spawn(
        "/usr/bin/env",
        ["env", os.path.realpath("/proc/self/exe"), "-c", _CHILD, str(path)],
        {**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
    )
    try:
        incoming = received(router)
        assert (incoming.identity.pid, incoming.data) == (child, b"%d" % child)
    finally:
        router.send(incoming.peer, b"end")
        assert os.waitpid(child, 0)[1] == 0


_CHILD = """
import os, sys, zmq
with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
    socket.connect("ipc://" + sys.argv[1])
    socket.send(b"%d" % os.getpid())
    socket.recv()
"""


def _import_path() -> list[str]:
    return [str(Path(zmq.__file__).parents[1])]


@pytest.mark.usefixtures("router")
def test_the_socket_is_for_its_owner_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_closing_takes_nothing_from_a_successor(path: Path, dealer: Dealer) -> None:
    first = Router(path)
    with contextlib.closing(Router(path)) as second:
        first.close()
        first.close()
        connect(second, dealer)


def test_the_socket_file_of_a_killed_daemon_is_no_hindrance(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    Router(path).close()


def test_a_path_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120) / "socket"
    with pytest.raises(errors.DataDirectoryError, match="too long for a socket"):
        Router(long)


def test_a_crowd_is_turned_away_until_some_leave(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "PEERS_MAX", 2)
    with contextlib.ExitStack() as stack:
        router = stack.enter_context(contextlib.closing(Router(path)))
        first, second, third = (
            stack.enter_context(contextlib.closing(Dealer(f"ipc://{path}"))) for _ in range(3)
        )
        crowd = [each for each in (first, second, third) if made(router, each)]
        assert len(crowd) == 2
        (outside,) = {first, second, third} - set(crowd)
        outside.move(outside.endpoint)
        assert not made(router, outside)
        crowd[0].close()
        serve(router, lambda: router.receive() or router._order[0].connections.count == 1)
        outside.move(outside.endpoint)
        assert made(router, outside)
        assert router.dropped == {"too many peers": 2}


def made(router: Router, dealer: Dealer) -> bool:
    """Whether the next handshake of ``dealer`` succeeds."""
    news: list[LinkEvent] = []

    def look() -> bool:
        router.receive()
        while isinstance(item := dealer.take(), LinkEvent):
            news.append(item)
        return LinkEvent.MADE in news or LinkEvent.TURNED_AWAY in news

    serve(router, look)
    return LinkEvent.MADE in news


def test_who_was_turned_away_comes_again_by_himself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "PEERS_MAX", 0)
    monkeypatch.setattr(wire, "RECONNECT_SECONDS_MAX", 0.01)
    with (
        contextlib.closing(Router(path)) as router,
        contextlib.closing(Dealer(f"ipc://{path}")) as dealer,
    ):
        assert not made(router, dealer)
        router._peers_max = 1
        while not made(router, dealer):
            pass


# The remote door.


def test_a_known_key_comes_in_and_is_named(remote: Router, tmp_path: Path) -> None:
    pair = wire.new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    with contextlib.closing(client(remote, pair)) as dealer:
        connect(remote, dealer)
        dealer.send(b"x")
        incoming = received(remote)
        assert incoming.identity == Credentials(kind="remote", key=pair.public, address="127.0.0.1")
        assert remote.send(incoming.peer, b"answer")
        assert dealer.receive(PATIENCE_SECONDS) == b"answer"


def test_an_unknown_key_is_refused_and_told_so(remote: Router) -> None:
    with contextlib.closing(client(remote, wire.new_key_pair())) as dealer:
        assert LinkEvent.MADE not in link(remote, dealer, LinkEvent.REFUSED)
        assert not dealer.send(b"x")
    assert remote.dropped == {"unknown key": 1}


def test_a_key_authorised_while_the_daemon_runs_is_known_at_once(
    remote: Router, tmp_path: Path
) -> None:
    pair = wire.new_key_pair()
    with contextlib.closing(client(remote, pair)) as dealer:
        link(remote, dealer, LinkEvent.REFUSED)
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    with contextlib.closing(client(remote, pair)) as dealer:
        connect(remote, dealer)


def test_a_client_with_the_wrong_server_key_does_not_get_in(remote: Router, tmp_path: Path) -> None:
    pair = wire.new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    with contextlib.closing(client(remote, pair, wire.new_key_pair().public)) as dealer:
        assert LinkEvent.MADE not in link(remote, dealer, LinkEvent.FAILED)


def test_a_client_without_a_key_does_not_get_in(remote: Router) -> None:
    with contextlib.closing(Dealer(remote.endpoints[1])) as dealer:
        assert LinkEvent.MADE not in link(remote, dealer, LinkEvent.FAILED)


def test_a_bad_key_file_is_named_when_the_door_opens(path: Path, tmp_path: Path) -> None:
    keys.authorise(tmp_path / "keys", wire.new_key_pair().public, "good")
    (tmp_path / "keys" / "clients" / "bad.pub").write_text("rubbish")
    with pytest.raises(errors.StorageError, match=r"bad\.pub"):
        Router(path, remote=LOOPBACK, keys=tmp_path / "keys")
    # The local door does not stay open behind it.
    with contextlib.closing(Dealer(f"ipc://{path}")) as dealer:
        assert dealer.receive(0.1) is None


def test_both_doors_are_open_at_once(remote: Router, dealer: Dealer, tmp_path: Path) -> None:
    pair = wire.new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    connect(remote, dealer)
    with contextlib.closing(client(remote, pair)) as far:
        connect(remote, far)
        kinds = []
        for each in (dealer, far, dealer):
            each.send(b"x")
            kinds.append(received(remote).identity.kind)
    assert kinds == ["local", "remote", "local"]


def test_a_flood_at_one_door_does_not_close_the_other(
    remote: Router, dealer: Dealer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "RECEIVE_FRAMES_MAX", 2)
    pair = wire.new_key_pair()
    keys.authorise(tmp_path / "keys", pair.public, "somebody")
    connect(remote, dealer)
    with contextlib.closing(client(remote, pair)) as far:
        connect(remote, far)
        for _ in range(10):
            dealer.send(b"near")
            far.send(b"far")
        for door in remote._doors.values():
            assert door.socket.poll(PATIENCE_SECONDS * 1_000)
        first, second = (remote.receive()[0].identity.kind for _ in range(2))
        assert {first, second} == {"local", "remote"}


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:notaport", "tcp://256.0.0.1:1", "x"])
def test_an_endpoint_that_cannot_be_opened_is_named(
    path: Path, tmp_path: Path, endpoint: str
) -> None:
    with pytest.raises(errors.OperatorError, match=f"^{endpoint}: "):
        Router(path, remote=endpoint, keys=tmp_path / "keys")


# The client's end.


def test_a_client_learns_of_loss_and_return(path: Path, dealer: Dealer) -> None:
    with contextlib.closing(Router(path)) as first:
        connect(first, dealer)
    assert dealer.receive(PATIENCE_SECONDS) is LinkEvent.LOST
    with contextlib.closing(Router(path)) as second:
        assert link(second, dealer, LinkEvent.MADE) == [LinkEvent.REACHED, LinkEvent.MADE]


def test_without_a_connection_nothing_is_queued(path: Path, dealer: Dealer) -> None:
    assert not dealer.send(b"lost")
    with contextlib.closing(Router(path)) as router:
        connect(router, dealer)
        dealer.send(b"sent")
        assert received(router).data == b"sent"


def test_what_came_before_the_loss_is_read_before_the_loss(path: Path, dealer: Dealer) -> None:
    with contextlib.closing(Router(path)) as first:
        connect(first, dealer)
        dealer.send(b"x")
        peer = received(first).peer
        for number in range(5):
            first.send(peer, b"%d" % number)
        # The first one is here, so the others are on their way.
        assert dealer.receive(PATIENCE_SECONDS) == b"0"
        got = [dealer.receive(PATIENCE_SECONDS) for _ in range(4)]
    got.append(dealer.receive(PATIENCE_SECONDS))
    assert got == [b"1", b"2", b"3", b"4", LinkEvent.LOST]


def test_a_frame_that_comes_while_the_news_is_read_goes_before_it(
    router: Router, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(router, dealer)
    dealer.send(b"x")
    peer = received(router).peer

    def slowly() -> LinkEvent:
        router.send(peer, b"late")
        assert dealer._socket.poll(PATIENCE_SECONDS * 1_000)
        return LinkEvent.LOST

    monkeypatch.setattr(dealer, "_next_event", slowly)
    assert [dealer.take(), dealer.take()] == [b"late", LinkEvent.LOST]


def test_a_client_follows_the_daemon_to_another_place(
    router: Router, dealer: Dealer, tmp_path: Path
) -> None:
    connect(router, dealer)
    with contextlib.closing(Router(tmp_path / "run" / "other")) as other:
        dealer.move(other.endpoints[0])
        connect(other, dealer)
        assert dealer.send(b"x")
        assert received(other).data == b"x"
        assert router.receive() == []


def test_receive_gives_up_in_time(dealer: Dealer) -> None:
    assert dealer.receive(0) is None
    began = time.monotonic()
    assert dealer.receive(0.05) is None
    assert 0.05 <= time.monotonic() - began < PATIENCE_SECONDS


@pytest.mark.parametrize("endpoint", ["nonsense", "tcp://", "udp://x"])
def test_an_endpoint_that_is_none_is_named(endpoint: str) -> None:
    with pytest.raises(errors.BadRequestError, match="expected ipc://PATH or tcp://HOST:PORT"):
        Dealer(endpoint)


def test_a_waiting_task_is_woken_by_a_frame_by_news_and_by_an_interruption(path: Path) -> None:
    async def scene() -> list[object]:
        got: list[object] = []
        loop = asyncio.get_running_loop()
        with contextlib.closing(AsyncDealer(f"ipc://{path}")) as dealer:
            # Until somebody opens the door there is nothing to wake it but this.
            loop.call_soon(dealer.interrupt)
            got.append(await dealer.receive(PATIENCE_SECONDS))
            with contextlib.closing(Router(path)) as router:
                serving = loop.create_task(echo(router))
                got += [await dealer.receive(PATIENCE_SECONDS) for _ in range(2)]
                assert dealer.send(b"x")
                # Sending may take the report of a frame away, so a receiver looks again.
                got += [await dealer.receive(PATIENCE_SECONDS) for _ in range(2)]
                await serving
            got.append(await dealer.receive(PATIENCE_SECONDS))
            got.append(await dealer.receive(0.01))
        return got

    async def echo(router: Router) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        for descriptor in router.filenos():
            loop.add_reader(descriptor, ready.set)
        try:
            while not (messages := router.receive()):
                if not router.has_more:
                    ready.clear()
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await ready.wait()
            for each in messages:
                router.send(each.peer, each.data)
        finally:
            for descriptor in router.filenos():
                loop.remove_reader(descriptor)

    assert asyncio.run(scene()) == [
        None, LinkEvent.REACHED, LinkEvent.MADE, None, b"x", LinkEvent.LOST, None,
    ]  # fmt: skip
