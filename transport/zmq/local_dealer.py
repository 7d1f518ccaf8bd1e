"""A client's end of its connection at the local socket, for threads: `LocalDealer`.

`async_local_dealer` waits in asyncio. Both speak ZeroMQ's protocol (`zmtp`) over the Unix socket
themselves, on the thread that waits. With
libzmq each frame passes a thread of its own, which has to wake up, and wakes the other one up: a
round trip takes 0.05 instead of 0.14 ms. What it does is what `dealer.Dealer` does, but for what
takes place while no thread is in a call: a lost connection is noticed, and made anew, in the next
call, and what has come stays in the kernel until then.
"""

from __future__ import annotations

import select
import socket
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.access import keys as key_files
from . import zmtp
from .connection_event import ConnectionEvent

if TYPE_CHECKING:
    from .dealer import Dealer

RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.05, 0.5
"""How long a client waits before it tries to connect again: doubled each time."""

HANDSHAKE_SECONDS = 10
"""How long the handshake of a connection may take."""

LINGER_SECONDS = 0.1
"""How long a client that is closed may take to get its last frames out."""

UNSENT_BYTES_MAX = 2 * settings.FRAME_BYTES_MAX
"""Bytes that wait for the daemon to read, above which the client keeps further frames."""

_SCHEME = "ipc://"
_READ_BYTES = 256 * 1_024
_REFUSED = b"400"


def is_local(endpoint: str) -> bool:
    """Whether a `LocalDealer` can connect to ``endpoint``."""
    return endpoint.startswith(_SCHEME)


class BaseLocalDealer:
    """What `LocalDealer` and `async_local_dealer.AsyncLocalDealer` share: everything but waiting.

    A connection to an endpoint ``ipc://PATH``.
    """

    refuses_when_lost = True
    """The kernel takes nothing for a connection whose other end is closed."""

    def __init__(self, endpoint: str, pair: key_files.KeyPair | None = None) -> None:
        assert pair is None, "the kernel proves who is at a local socket"
        self.endpoint = ""
        self._address: str | bytes = ""
        # What comes before anything that the reader has: the beginning of a connection, or the
        # rest and the end of one.
        self._events: deque[bytes | ConnectionEvent] = deque()
        self._reader: zmtp.Reader | None = None
        self._handshake_ends = 0.0
        self._retry_at: float | None = None
        self._pause = RECONNECT_SECONDS_MIN
        self._unsent = bytearray()
        # The socket, if there is one: in a list, so that it can be closed when this object is gone.
        self._open: list[socket.socket] = []
        self._forgotten = weakref.finalize(self, _close_all, self._open)
        self.move(endpoint)

    def move(self, endpoint: str) -> None:
        """Connect to ``endpoint`` from now on; to the same one again if it refused."""
        path = endpoint.removeprefix(_SCHEME)
        address = "\0" + path[1:] if path.startswith("@") else path
        if (
            not is_local(endpoint)
            or not 0 < len(address.encode()) <= settings.SOCKET_PATH_BYTES_MAX
        ):
            text = f"endpoint {endpoint!r}: expected ipc://PATH or tcp://HOST:PORT"
            raise errors.BadRequestError(text)
        self._drop()
        self._events.clear()
        self.endpoint, self._address = endpoint, address
        self._pause = RECONNECT_SECONDS_MIN
        self._retry_at = 0.0

    def send(self, data: bytes) -> bool:
        """Send a frame; False while there is no connection, or too much waits for the daemon.

        False also if the daemon has closed the connection, before a read has shown that.
        """
        reader = self._reader
        if reader is None or not reader.is_ready or len(self._unsent) > UNSENT_BYTES_MAX:
            return False
        return self._write(zmtp.framed(data))

    def take(self) -> bytes | ConnectionEvent | None:
        """The next frame or news of the connection, if there is any now."""
        if (item := self._next()) is not None:
            return item
        if self._reader is None:
            self._connect_if_due()
        else:
            if self._unsent:
                self._write(b"")
            self._read()
        return self._next()

    def close(self) -> None:
        """Close; frames already sent get a moment to leave. Twice is harmless."""
        self._forgotten.detach()
        end = time.monotonic() + LINGER_SECONDS
        while self._unsent and self._open and (left := end - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._open[0], select.POLLOUT)
            if not poll.poll(left * 1_000):
                break
            self._write(b"")
        self._drop()
        self._retry_at = None

    # ------------------------------------------------------------ waiting

    def _next(self) -> bytes | ConnectionEvent | None:
        if self._events:
            return self._events.popleft()
        if self._reader is not None and self._reader.items:
            return self._reader.items.popleft()
        return None

    def _patience_seconds(self, end: float | None) -> float | None:
        """How long to wait for something to read before ``end``; None: as long as it takes."""
        ends = [end] if end is not None else []
        if not self._open:
            if self._retry_at is not None:
                ends.append(self._retry_at)
        elif self._reader is not None and not self._reader.is_ready:
            ends.append(self._handshake_ends)
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    # ------------------------------------------------------------ the connection

    def _connect_if_due(self) -> None:
        if self._retry_at is None or time.monotonic() < self._retry_at:
            return
        self._retry_at = None
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            one.connect(self._address)
        except OSError:
            # Nothing listens there, or too many wait there already.
            one.close()
            self._retry_later()
            return
        self._open.append(one)
        self._handshake_ends = time.monotonic() + HANDSHAKE_SECONDS
        self._reader = zmtp.Reader(settings.FRAME_BYTES_MAX)
        self._events.append(ConnectionEvent.REACHED)
        self._write(zmtp.GREETING)

    def _retry_later(self) -> None:
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(RECONNECT_SECONDS_MAX, 2 * self._pause)

    def _read(self) -> None:
        reader = self._reader
        assert reader is not None
        while not reader.items:
            try:
                data = self._open[0].recv(_READ_BYTES)
            except BlockingIOError:
                if not reader.is_ready and time.monotonic() >= self._handshake_ends:
                    self._lose()
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
                return
            try:
                reader.feed(data)
            except zmtp.ProtocolError:
                self._lose()
                return
            while reader.answers:
                self._write(reader.answers.pop(0))
            if reader.refusal is not None:
                self._be_refused(reader.refusal)
                return

    def _write(self, data: bytes) -> bool:
        """Send these bytes after those that wait; False if the connection is broken.

        Its end shows when it is read. What waited is lost with it.
        """
        if self._unsent:
            self._unsent += data
            with memoryview(self._unsent) as view:
                sent = self._sent(view)
            if sent is None:
                self._unsent.clear()
                return False
            del self._unsent[:sent]
            return True
        sent = self._sent(data)
        if sent is None:
            return False
        if sent < len(data):
            self._unsent += data[sent:]
        return True

    def _sent(self, data: bytes | memoryview) -> int | None:
        """How many of these bytes the kernel has taken; None if the connection is broken."""
        try:
            return self._open[0].send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0
        except OSError:
            return None

    def _lose(self) -> None:
        """The connection is gone."""
        reader = self._reader
        assert reader is not None
        self._events += reader.items
        if reader.is_ready:
            self._pause = RECONNECT_SECONDS_MIN
        else:
            self._events.append(ConnectionEvent.FAILED)
        self._events.append(ConnectionEvent.LOST)
        self._drop()
        self._retry_later()

    def _be_refused(self, status: bytes) -> None:
        self._drop()
        if status == _REFUSED:
            self._events.append(ConnectionEvent.REFUSED)
        else:
            self._events.append(ConnectionEvent.TURNED_AWAY)
            self._retry_at = time.monotonic() + RECONNECT_SECONDS_MAX
        self._events.append(ConnectionEvent.LOST)

    def _drop(self) -> None:
        _close_all(self._open)
        self._reader = None
        self._unsent.clear()


class LocalDealer(BaseLocalDealer):
    """A client's connection to an endpoint ``ipc://PATH``, for one thread."""

    def __init__(self, endpoint: str, pair: key_files.KeyPair | None = None) -> None:
        self._poll = select.poll()
        self._polled: tuple[socket.socket | None, int | None, bool] = (None, None, False)
        super().__init__(endpoint, pair)

    def receive(
        self, timeout_seconds: float | None, waker: int | None = None
    ) -> bytes | ConnectionEvent | None:
        """The next frame or news of the connection; None when the time is over.

        None also when the descriptor ``waker`` is readable.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if (item := self._next()) is not None:
                return item
            # The kernel knows whether there is something to read: ask it once, and for how long.
            if self._wait(end, waker):
                return None
            if (item := self.take()) is not None:
                return item
            if end is not None and time.monotonic() >= end:
                return None

    def _wait(self, end: float | None, waker: int | None) -> bool:
        """Wait until there may be something to `take`; whether ``waker`` is readable."""
        polled = (self._open[0] if self._open else None, waker, bool(self._unsent))
        if polled != self._polled:
            self._polled, self._poll = polled, _poll_of(*polled)
        patience = self._patience_seconds(end)
        if patience is not None:
            patience = int(patience * 1_000) + 1 if patience else 0
        found = self._poll.poll(patience)
        return waker is not None and waker in dict(found)


def open_dealer(endpoint: str, pair: key_files.KeyPair | None = None) -> Dealer | LocalDealer:
    """A client's connection, for one thread. `BadRequestError`: nothing can be at ``endpoint``."""
    if is_local(endpoint):
        return LocalDealer(endpoint, pair)
    from .dealer import Dealer  # noqa: PLC0415 - libzmq takes a fifth of a short client's time

    return Dealer(endpoint, pair)


def _poll_of(
    one: socket.socket | None,
    waker: int | None,
    has_unsent: bool,  # noqa: FBT001 - as `LocalDealer` keeps it
) -> select.poll:
    poll = select.poll()
    if one is not None:
        poll.register(one, select.POLLIN | select.POLLOUT if has_unsent else select.POLLIN)
    if waker is not None:
        poll.register(waker, select.POLLIN)
    return poll


def _close_all(sockets: list[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()
