"""The asyncio client that speaks ZeroMQ's protocol itself: what it sends, hears and forgets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transport.zmq.routers import PATIENCE_SECONDS

from ganger.transport.zmq import zmtp
from ganger.transport.zmq.async_local_dealer import AsyncLocalDealer
from ganger.transport.zmq.connection_event import ConnectionEvent

REACHED, MADE, LOST = ConnectionEvent.REACHED, ConnectionEvent.MADE, ConnectionEvent.LOST
Scene = Callable[[AsyncLocalDealer, socket.socket], Coroutine[Any, Any, None]]


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as impostor:
        impostor.bind(os.fspath(path))
        impostor.listen()
        yield impostor


def run(listening: socket.socket, scene: Scene) -> None:
    """Run the scene with a dealer, and the other end of its connection."""

    async def whole() -> None:
        endpoint = f"ipc://{listening.getsockname()}"
        with contextlib.closing(AsyncLocalDealer(endpoint)) as dealer:
            theirs = await greeted(dealer, listening)
            with theirs:
                await asyncio.wait_for(scene(dealer, theirs), PATIENCE_SECONDS)

    asyncio.run(whole())


async def greeted(dealer: AsyncLocalDealer, listening: socket.socket) -> socket.socket:
    assert await dealer.receive(PATIENCE_SECONDS) is REACHED
    theirs, _ = listening.accept()
    theirs.sendall(zmtp.GREETING)
    assert await dealer.receive(PATIENCE_SECONDS) is MADE
    theirs.settimeout(0)
    return theirs


def test_what_comes_while_it_waits_is_handed_over_in_order(listening: socket.socket) -> None:
    async def scene(dealer: AsyncLocalDealer, theirs: socket.socket) -> None:
        heard: list[bytes | ConnectionEvent] = []
        enough = asyncio.Event()

        def hear(item: bytes | ConnectionEvent) -> None:
            heard.append(item)
            if item is LOST:
                enough.set()

        waiting = asyncio.create_task(dealer.receive(None, hear))
        await asyncio.sleep(0)
        for data in (b"one", b"two" * 500_000, b"three"):
            await asyncio.get_running_loop().sock_sendall(theirs, zmtp.framed(data))
        theirs.close()
        await enough.wait()
        assert heard == [b"one", b"two" * 500_000, b"three", LOST]
        # It connects anew by itself.
        assert await waiting is REACHED

    run(listening, scene)


def test_frames_that_the_daemon_does_not_read_are_sent_when_it_does(
    listening: socket.socket,
) -> None:
    async def scene(dealer: AsyncLocalDealer, theirs: socket.socket) -> None:
        frame = zmtp.framed(b"x" * 1_000_000)
        for _ in range(3):
            assert dealer.send(b"x" * 1_000_000)
        assert dealer.has_unsent
        waiting = asyncio.create_task(dealer.receive(PATIENCE_SECONDS))
        size = 0
        whole = len(zmtp.GREETING) + 3 * len(frame)
        while size < whole:
            size += len(await asyncio.get_running_loop().sock_recv(theirs, 1_000_000))
        theirs.close()
        assert await waiting is LOST
        assert size == whole

    run(listening, scene)


def test_after_a_rest_nothing_is_read_until_the_next_receive(listening: socket.socket) -> None:
    async def scene(dealer: AsyncLocalDealer, theirs: socket.socket) -> None:
        heard: list[bytes | ConnectionEvent] = []
        assert await dealer.receive(0.01, heard.append) is None
        dealer.rest()
        theirs.sendall(zmtp.framed(b"late"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert heard == []
        assert await dealer.receive(PATIENCE_SECONDS) == b"late"

    run(listening, scene)


def test_the_loop_has_forgotten_a_descriptor_before_another_socket_gets_its_number(
    listening: socket.socket,
) -> None:
    async def scene(dealer: AsyncLocalDealer, theirs: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        number = dealer._open[0].fileno()
        dealer.close()
        with pytest.raises(KeyError, match="not registered"):
            loop._selector.get_key(number)  # type: ignore[attr-defined]
        theirs.close()

    run(listening, scene)


def test_an_error_of_the_listener_reaches_the_task(listening: socket.socket) -> None:
    def fail(item: object) -> None:
        raise RuntimeError(item)

    async def scene(dealer: AsyncLocalDealer, theirs: socket.socket) -> None:
        waiting = asyncio.create_task(dealer.receive(PATIENCE_SECONDS, fail))
        await asyncio.sleep(0)
        theirs.sendall(zmtp.framed(b"x"))
        with pytest.raises(RuntimeError, match="x"):
            await waiting

    run(listening, scene)
