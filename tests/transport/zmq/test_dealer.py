"""The client's end on real sockets: what it learns, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import zmq
from tests.transport.zmq.routers import PATIENCE_SECONDS, connect, link, received

from ganger.storage import errors
from ganger.transport.zmq import dealer as dealers
from ganger.transport.zmq.async_dealer import AsyncDealer
from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.dealer import Dealer
from ganger.transport.zmq.router import Router

Say = Callable[[bytes], Any]


def test_a_client_learns_of_loss_and_return(path: Path, dealer: Dealer) -> None:
    with contextlib.closing(Router(path)) as first:
        connect(first, dealer)
    assert dealer.receive(PATIENCE_SECONDS) is ConnectionEvent.LOST
    with contextlib.closing(Router(path)) as second:
        assert link(second, dealer, ConnectionEvent.MADE) == [
            ConnectionEvent.REACHED,
            ConnectionEvent.MADE,
        ]


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
    assert got == [b"1", b"2", b"3", b"4", ConnectionEvent.LOST]


def test_a_frame_that_comes_while_the_news_is_read_goes_before_it(
    router: Router, dealer: Dealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(router, dealer)
    dealer.send(b"x")
    peer = received(router).peer

    def slowly() -> ConnectionEvent:
        router.send(peer, b"late")
        assert dealer._socket.poll(PATIENCE_SECONDS * 1_000)
        return ConnectionEvent.LOST

    monkeypatch.setattr(dealer, "_next_news", slowly)
    assert [dealer.take(), dealer.take()] == [b"late", ConnectionEvent.LOST]


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


def test_a_waiting_task_is_woken_by_a_frame_by_news_and_by_an_interruption(
    path: Path,
) -> None:
    async def scene() -> list[object]:
        got: list[object] = []
        loop = asyncio.get_running_loop()
        with contextlib.closing(AsyncDealer(f"ipc://{path}")) as dealer:
            # Before a router listens only this can wake it.
            loop.call_soon(dealer.interrupt)
            got.append(await dealer.receive(PATIENCE_SECONDS))
            with contextlib.closing(Router(path)) as router:
                serving = loop.create_task(echo(router))
                got += [await dealer.receive(PATIENCE_SECONDS) for _ in range(2)]
                assert dealer.send(b"x")
                got.append(await dealer.receive(PATIENCE_SECONDS))
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
        None, ConnectionEvent.REACHED, ConnectionEvent.MADE, b"x", ConnectionEvent.LOST, None,
    ]  # fmt: skip


def run(path: Path, scene: Callable[[AsyncDealer, Say], Coroutine[Any, Any, None]]) -> None:
    """Run the scene with a connected dealer, and what says something at the other end."""
    path.parent.mkdir(exist_ok=True)
    context = zmq.Context()
    theirs = context.socket(zmq.ROUTER)
    theirs.bind(f"ipc://{path}")

    async def whole() -> None:
        with contextlib.closing(AsyncDealer(f"ipc://{path}")) as dealer:
            while await dealer.receive(PATIENCE_SECONDS) is not ConnectionEvent.MADE:
                pass
            assert dealer.send(b"here I am")
            peer, _ = theirs.recv_multipart()
            await asyncio.wait_for(
                scene(dealer, lambda data: theirs.send_multipart([peer, data])), PATIENCE_SECONDS
            )

    try:
        asyncio.run(whole())
    finally:
        context.destroy(linger=0)


def test_what_comes_while_a_task_waits_is_handed_over_in_order(path: Path) -> None:
    async def scene(dealer: AsyncDealer, say: Say) -> None:
        said = [b"one", b"two" * 500_000, b"three"]
        heard: list[bytes | ConnectionEvent] = []

        def hear(item: bytes | ConnectionEvent) -> None:
            heard.append(item)
            # To send may take away the report of what comes next.
            assert dealer.send(b"heard")
            if len(heard) == len(said):
                dealer.interrupt()

        waiting = asyncio.create_task(dealer.receive(None, hear))
        await asyncio.sleep(0)
        for data in said:
            say(data)
        assert await waiting is None
        assert heard == said

    run(path, scene)


def test_after_a_rest_nothing_is_read_until_the_next_receive(path: Path) -> None:
    async def scene(dealer: AsyncDealer, say: Say) -> None:
        heard: list[bytes | ConnectionEvent] = []
        assert await dealer.receive(0.01, heard.append) is None
        dealer.rest()
        say(b"late")
        assert select.select(dealer.filenos(), [], [], PATIENCE_SECONDS)[0]
        for _ in range(5):
            await asyncio.sleep(0)
        assert heard == []
        assert await dealer.receive(PATIENCE_SECONDS) == b"late"

    run(path, scene)


def test_an_error_of_the_listener_reaches_the_task(path: Path) -> None:
    def fail(item: object) -> None:
        raise RuntimeError(item)

    async def scene(dealer: AsyncDealer, say: Say) -> None:
        waiting = asyncio.create_task(dealer.receive(None, fail))
        await asyncio.sleep(0)
        say(b"x")
        with pytest.raises(RuntimeError, match="x"):
            await waiting

    run(path, scene)


COLLECTED = """
import asyncio, gc, sys
from ganger.transport.zmq.async_dealer import AsyncDealer
from ganger.transport.zmq.dealer import Dealer
async def forget():
    for kind in (Dealer, AsyncDealer):
        for _ in range(3):
            dealer = kind("ipc://" + sys.argv[1])
            # A cycle: the collector ends its parts in whatever order it likes.
            dealer.itself = dealer
            del dealer
            gc.collect()
asyncio.run(forget())
print("done")
"""


def test_a_connection_that_was_never_closed_can_be_collected(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COLLECTED, str(tmp_path / "socket")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_an_interruption_while_a_socket_is_made_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C comes when libzmq has made the socket, and nobody has it yet."""
    made: list[zmq.Socket[bytes]] = []

    def interrupted(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
        made.append(zmq.Socket(context, kind))
        context._sockets.clear()
        raise KeyboardInterrupt

    monkeypatch.setattr(zmq.Context, "socket", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Dealer("ipc:///nowhere/socket")
    monkeypatch.undo()
    made.pop().close(linger=0)
    given_up = dealers._given_up.pop()
    assert isinstance(given_up, zmq.Context)
    given_up.term()
