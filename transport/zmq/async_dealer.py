"""A client's ZeroMQ connection for asyncio: how `AsyncDealer` waits. The rest is in `dealer`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ...storage.access import keys
from .connection_event import ConnectionEvent
from .dealer import BaseDealer

Heard = Callable[[bytes | ConnectionEvent], None]


class AsyncDealer(BaseDealer):
    """A client's connection, for one event loop."""

    def __init__(self, endpoint: str, pair: keys.KeyPair | None = None) -> None:
        super().__init__(endpoint, pair)
        self._waiter: asyncio.Future[None] | None = None
        self._is_interrupted = False
        self._heard: Heard | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looks = False

    def send(self, data: bytes) -> bool:
        if self._loop is not None and not self._looks:
            # To send may take away the report of a frame that has come in.
            self._looks = True
            self._loop.call_soon(self._look)
        return super().send(data)

    def interrupt(self) -> None:
        """Let a `receive` that waits return at once."""
        self._is_interrupted = True
        self._wake()

    async def receive(
        self, timeout_seconds: float | None, heard: Heard | None = None
    ) -> bytes | ConnectionEvent | None:
        """The next frame or news; None when the time is over, or after `interrupt`.

        What comes while this waits goes to ``heard``, if that is given, in the event loop's own
        turn. Until `rest`, the event loop watches the descriptors.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._heard = heard
        while True:
            if (item := self.take()) is not None:
                return item
            if self._is_interrupted or (end is not None and time.monotonic() >= end):
                self._is_interrupted = False
                return None
            await self._news(self.patience_seconds(end))

    def rest(self) -> None:
        """Let the event loop forget the descriptors until the next `receive`."""
        self._heard = None
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            for descriptor in self.filenos():
                loop.remove_reader(descriptor)

    def close(self) -> None:
        # The loop must forget a descriptor before it is closed: the next socket may have its
        # number.
        self.rest()
        super().close()

    async def _news(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            for descriptor in self.filenos():
                loop.add_reader(descriptor, self._look)
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _look(self) -> None:
        heard, waiter = self._heard, self._waiter
        if heard is None or waiter is None:
            self._looks = False
            self._wake()
            return
        self._looks = True
        try:
            # A task that was woken already reads the rest itself.
            while not waiter.done() and (item := self.take()) is not None:
                heard(item)
        except Exception as error:
            if waiter.done():
                raise
            waiter.set_exception(error)
        finally:
            self._looks = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
