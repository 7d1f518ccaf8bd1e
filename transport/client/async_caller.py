"""How the client for asyncio waits for replies; `caller` is its twin for threads.

One task connects and does what time brings while requests are under way, and ends when none is.
Meanwhile a call sends its frame itself, and the event loop hands replies over as they come.
"""

# ruff: noqa: ASYNC109 - the deadline of a call is told to the daemon
from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence

from ...storage import errors
from ..messages import Request
from ..zmq.async_dealer import AsyncDealer
from ..zmq.connection_event import ConnectionEvent
from . import forks, spans
from .connection import Connection
from .following import Following, PartT_co
from .in_flight import ReplyT

CALLS_MAX = 1_000
"""Most calls under way at once; more wait for their turn."""


class AsyncCaller:
    """Makes requests over a connection, for the tasks of one event loop.

    ``timeout_seconds`` is the deadline of a call that gives none of its own.
    """

    def __init__(
        self, connect: Callable[[], Connection[AsyncDealer]], timeout_seconds: float
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._connection = connect()
        self._places = asyncio.Semaphore(CALLS_MAX)
        self._pumping: asyncio.Task[None] | None = None
        # When the task wakes up by itself.
        self._wakes_at = -math.inf
        self._is_closed = False
        self._is_inherited = False
        forks.call_in_child(self._forked)

    def _forked(self) -> None:
        """In a forked child: the event loop is the parent's, and so is the connection."""
        self._is_inherited = self._is_closed = True
        forks.keep_untouched((self._connection, self._pumping))

    async def close(self) -> None:
        """End what is under way, and the connection. Twice is harmless."""
        self._is_closed = True
        if self._is_inherited:
            return
        pumping, self._pumping = self._pumping, None
        if pumping is not None:
            pumping.cancel()
            await asyncio.wait([pumping])
        self._connection.close(RuntimeError("the client was closed"), time.monotonic())

    async def call(
        self, message: Request[ReplyT], timeout: float | None, *, is_lasting: bool = False
    ) -> ReplyT:
        """Make a request and wait for its reply.

        ``is_lasting``: the reply may take its time, so the call takes no place of other ones.
        """
        self._check_open()
        seconds = self._timeout_seconds if timeout is None else spans.checked(timeout, "timeout")
        deadline = time.monotonic() + seconds
        if is_lasting:
            return await self._call(message, deadline)
        if self._places.locked():
            await self._wait_for_place(deadline)
        else:
            await self._places.acquire()
        try:
            return await self._call(message, deadline)
        finally:
            self._places.release()

    async def _call(self, message: Request[ReplyT], deadline: float) -> ReplyT:
        session = self._connection.session
        call = session.request(message, now=time.monotonic(), deadline=deadline)
        done = asyncio.get_running_loop().create_future()
        call.changed = functools.partial(_set, done)
        try:
            self._pump()
            await done
        finally:
            if not call.is_done:
                session.forget(call)
                if not self._is_closed:
                    # The daemon may have to hear of that.
                    self._pump()
        return call.result()

    async def _wait_for_place(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._places.acquire()
        except TimeoutError as error:
            raise errors.DeadlineError("too many other calls were under way") from error

    async def call_all(
        self,
        messages: Sequence[Request[ReplyT]],
        timeout: float | None,
    ) -> list[ReplyT]:
        """Make several requests at once and wait for their replies."""
        return await asyncio.gather(*(self.call(message, timeout) for message in messages))

    async def follow(
        self,
        begin: Callable[..., Following[PartT_co]],
        *,
        timeout: float | None,
        pause: float | None,
    ) -> AsyncIterator[PartT_co | None]:
        """The parts of what ``begin(session, now=..., deadline=...)`` makes, until it is over.

        None comes after each ``pause`` in which the daemon was there and no part came.
        """
        self._check_open()
        pause = spans.checked(pause, "pause")
        seconds = spans.checked(timeout, "timeout")
        session = self._connection.session
        now = time.monotonic()
        following = begin(session, now=now, deadline=None if seconds is None else now + seconds)
        news = asyncio.Event()
        following.call_when_changed(news.set)
        try:
            while True:
                news.clear()
                part = following.take(time.monotonic())
                if part is not None:
                    yield part
                elif following.is_over:
                    return
                else:
                    self._pump()
                    if not await _happened(news, pause) and session.is_connected:
                        yield None
        finally:
            for request in following.pending:
                session.forget(request)
            if not self._is_closed:
                self._pump()

    def _check_open(self) -> None:
        if self._is_inherited:
            raise RuntimeError(forks.INHERITED)
        if self._is_closed:
            raise RuntimeError("the client was closed")

    def _pump(self) -> None:
        """Have the task look at what is new, or start it."""
        if self._is_inherited:
            raise RuntimeError(forks.INHERITED)
        if self._pumping is None or self._pumping.done():
            if not self._is_idle():
                self._pumping = asyncio.get_running_loop().create_task(self._pump_until_idle())
        elif (socket := self._connection.open_socket) is not None:
            self._exchange(socket)

    def _heard(self, item: bytes | ConnectionEvent) -> None:
        """Take in what has come while the task waits."""
        self._connection.take(item, time.monotonic())
        if (socket := self._connection.open_socket) is not None:
            self._exchange(socket)

    def _exchange(self, socket: AsyncDealer) -> None:
        """Send what can be sent; have the task do what is left."""
        self._connection.flush(time.monotonic())
        session = self._connection.session
        is_left = session.wake_at < self._wakes_at or session.wants_new_socket
        if is_left or session.is_idle or not session.is_connected:
            socket.interrupt()

    async def _pump_until_idle(self) -> None:
        socket: AsyncDealer | None = None
        try:
            while not self._is_idle():
                now = time.monotonic()
                socket = self._connection.socket(now)
                self._connection.work(socket, now)
                if self._is_idle():
                    return
                seconds = self._connection.wait_seconds(now)
                self._wakes_at = math.inf if seconds is None else now + seconds
                item = await socket.receive(seconds, self._heard)
                # Until it waits again it looks at everything anyway.
                self._wakes_at = -math.inf
                if item is not None:
                    self._connection.take(item, time.monotonic())
        except Exception as error:  # noqa: BLE001 - every caller that waits raises it
            self._connection.session.fail_all(error)
        finally:
            self._wakes_at = -math.inf
            if socket is not None and not self._is_inherited:
                socket.rest()

    def _is_idle(self) -> bool:
        return self._connection.session.is_idle


async def _happened(news: asyncio.Event, seconds: float | None) -> bool:
    """Wait for news, if ``seconds`` are given for so long; whether there are any."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
