"""A client's ZeroMQ connection for asyncio: how `AsyncDealer` waits. The rest is in `dealer`."""

from __future__ import annotations

import asyncio
import time

from ...storage.access import keys
from ..zmq.connection_event import ConnectionEvent
from .dealer import BaseDealer


class AsyncDealer(BaseDealer):
    """A client's connection, for one event loop.

    The task that receives must be the one that sends: sending may take away the report of a
    frame that has come in, and `receive` looks at the sockets only before it waits.
    """

    def __init__(self, endpoint: str, pair: keys.KeyPair | None = None) -> None:
        super().__init__(endpoint, pair)
        self._waiter: asyncio.Future[None] | None = None
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Let a `receive` that waits return at once."""
        self._is_interrupted = True
        self._wake()

    async def receive(self, timeout_seconds: float | None) -> bytes | ConnectionEvent | None:
        """The next frame or news; None when the time is over, or after `interrupt`."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if (item := self.take()) is not None:
                return item
            if self._is_interrupted or (end is not None and time.monotonic() >= end):
                self._is_interrupted = False
                return None
            await self._readable(self.patience_seconds(end))

    async def _readable(self, seconds: float | None) -> None:
        # The loop watches the descriptors only during this wait: a ready one stays ready until
        # the sockets are read.
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        descriptors = self.filenos()
        for descriptor in descriptors:
            loop.add_reader(descriptor, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
