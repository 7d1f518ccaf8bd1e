"""A client's connection at the local socket for asyncio: how `AsyncLocalDealer` waits.

The event loop watches the Unix socket itself. What comes is read at once and handed to the caller
in the loop's own turn; no task has to wake up for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...storage.access import keys
from .connection_event import ConnectionEvent
from .local_dealer import BaseLocalDealer, is_local

if TYPE_CHECKING:
    from .async_dealer import AsyncDealer

Heard = Callable[[bytes | ConnectionEvent], None]


class AsyncLocalDealer(BaseLocalDealer):
    """A client's connection to an endpoint ``ipc://PATH``, for one event loop."""

    def __init__(self, endpoint: str, pair: keys.KeyPair | None = None) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._is_interrupted = False
        self._heard: Heard | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = -1
        self._is_write_watched = False
        super().__init__(endpoint, pair)

    @property
    def has_unsent(self) -> bool:
        """Whether frames wait until the daemon reads."""
        return bool(self._unsent)

    def interrupt(self) -> None:
        """Let a `receive` that waits return at once."""
        self._is_interrupted = True
        self._wake()

    async def receive(
        self, timeout_seconds: float | None, heard: Heard | None = None
    ) -> bytes | ConnectionEvent | None:
        """The next frame or news; None when the time is over, or after `interrupt`.

        What comes while this waits goes to ``heard``, if that is given. Until `rest`, the event
        loop goes on reading.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._heard = heard
        while True:
            if (item := self.take()) is not None:
                return item
            if self._is_interrupted or (end is not None and time.monotonic() >= end):
                self._is_interrupted = False
                return None
            await self._news(self._patience_seconds(end))

    def rest(self) -> None:
        """Let the event loop forget the socket until the next `receive`."""
        self._heard = None
        self._unwatch()

    async def _news(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._watch(loop)
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._open:
            return
        if self._watched < 0:
            self._loop, self._watched = loop, self._open[0].fileno()
            loop.add_reader(self._watched, self._readable)
        if self._unsent and not self._is_write_watched:
            self._is_write_watched = True
            loop.add_writer(self._watched, self._writable)

    def _unwatch(self) -> None:
        if self._loop is None:
            return
        loop, descriptor = self._loop, self._watched
        self._loop, self._watched = None, -1
        if not loop.is_closed():
            loop.remove_reader(descriptor)
            if self._is_write_watched:
                loop.remove_writer(descriptor)
        self._is_write_watched = False

    def _readable(self) -> None:
        try:
            self._read()
            if self._heard is None:
                self._wake()
                return
            while (item := self._next()) is not None:
                self._heard(item)
            if not self._open:
                self._wake()
        except Exception as error:
            if self._waiter is None or self._waiter.done():
                raise
            self._waiter.set_exception(error)

    def _writable(self) -> None:
        self._write(b"")
        if not self._unsent and self._loop is not None and self._is_write_watched:
            self._is_write_watched = False
            self._loop.remove_writer(self._watched)
            # There may be more to send.
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _drop(self) -> None:
        # The loop must forget a descriptor before it is closed: the next socket may have its
        # number.
        self._unwatch()
        super()._drop()


def async_open_dealer(
    endpoint: str, pair: keys.KeyPair | None = None
) -> AsyncDealer | AsyncLocalDealer:
    """As `local_dealer.open_dealer`, for one event loop."""
    if is_local(endpoint):
        return AsyncLocalDealer(endpoint, pair)
    from .async_dealer import AsyncDealer  # noqa: PLC0415 - see there

    return AsyncDealer(endpoint, pair)
