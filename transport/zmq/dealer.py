"""A client's end of its connection, for threads: `Dealer`. `async_dealer` waits in asyncio.

A monitor socket tells the DEALER of its connection. Frames are lost only with a connection, and
then the session sends again. So while there is no connection the socket queues nothing
(IMMEDIATE): every frame would arrive twice.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import time
import weakref

import zmq

from ...storage import errors, settings
from ...storage.access import keys as key_files
from .connection_event import ConnectionEvent
from .sockets import (
    EVENTS,
    HANDSHAKE_SECONDS,
    POLLIN,
    REFUSED,
    SEND_QUEUE_MAX,
    is_readable,
    new_context,
    new_monitor,
    next_event,
    set_heartbeat,
)

RECEIVE_QUEUE_MAX = 1_000
"""Frames waiting to be read by a client, above which the daemon keeps them."""

RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.05, 0.5
"""How long a client waits before it tries to connect again: doubled each time."""

LINGER_SECONDS = 0.1
"""How long a client that is closed may take to get its last frames out."""


_CONNECTION_EVENTS: dict[int, ConnectionEvent] = {
    zmq.EVENT_CONNECTED: ConnectionEvent.REACHED,
    zmq.EVENT_HANDSHAKE_SUCCEEDED: ConnectionEvent.MADE,
    zmq.EVENT_DISCONNECTED: ConnectionEvent.LOST,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: ConnectionEvent.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: ConnectionEvent.FAILED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: ConnectionEvent.FAILED,
}


DESCRIPTORS = 16
"""More descriptors than a connection takes. libzmq ends the process if it gets too few."""

_given_up: list[object] = []
"""Contexts and connections that cannot be ended; they go with the process."""


class BaseDealer:
    """What `Dealer` and `async_dealer.AsyncDealer` share: everything but waiting.

    ``pair`` is the client's own key, with the daemon's public one, for a remote listener.
    """

    def __init__(self, endpoint: str, pair: key_files.KeyPair | None = None) -> None:
        self.endpoint = ""
        self._event: ConnectionEvent | None = None
        self._retry_at: float | None = None
        _require_descriptors()
        self._context = new_context(LINGER_SECONDS)
        try:
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.immediate = True
            self._socket.maxmsgsize = settings.FRAME_BYTES_MAX
            self._socket.sndhwm = SEND_QUEUE_MAX
            self._socket.rcvhwm = RECEIVE_QUEUE_MAX
            self._socket.reconnect_ivl = int(RECONNECT_SECONDS_MIN * 1_000)
            self._socket.reconnect_ivl_max = int(RECONNECT_SECONDS_MAX * 1_000)
            self._socket.handshake_ivl = HANDSHAKE_SECONDS * 1_000
            if pair is not None:
                assert pair.server is not None
                self._socket.curve_serverkey = pair.server.encode()
                self._socket.curve_publickey = pair.public.encode()
                self._socket.curve_secretkey = pair.secret.encode()
                set_heartbeat(self._socket)
            self._monitor = new_monitor(self._socket, "line", sum(_CONNECTION_EVENTS))
            self.move(endpoint)
        except Exception:
            self._context.destroy(linger=0)
            raise
        except BaseException:
            # Ctrl-C may have come before pyzmq knew of a socket that libzmq has made already. To
            # end the context would be to wait for that socket for ever.
            _given_up.append(self._context)
            raise
        self._descriptor = self._socket.fileno()
        # Not at the end of the process, and not in a child of it.
        sockets = (self._socket, self._monitor)
        self._forgotten = weakref.finalize(self, _end, self._context, sockets, os.getpid())
        self._forgotten.atexit = False

    def move(self, endpoint: str) -> None:
        """Connect to ``endpoint`` from now on; to the same one again if it refused."""
        self._retry_at = None
        if self.endpoint:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(self.endpoint)
        self._socket.ipv6 = "[" in endpoint
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            text = f"endpoint {endpoint!r}: expected ipc://PATH or tcp://HOST:PORT"
            raise errors.BadRequestError(text) from error
        self.endpoint = endpoint

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading beside others; when one is ready, `receive`."""
        return [self._socket.fileno(), self._monitor.fileno()]

    def send(self, data: bytes) -> bool:
        """Send a frame; False while there is no connection (or its queue is full)."""
        # When libzmq sends it reads its news of connections only now and then, but always when it
        # has nothing to receive: after a `take` in vain this knows the state of the connection.
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    @property
    def has_more(self) -> bool:
        """Whether there is something to `take` now, whatever the descriptors say: after a send."""
        return is_readable(self._socket) or is_readable(self._monitor)

    @property
    def is_intact(self) -> bool:
        """Whether the process has left libzmq's descriptors open. Daemons close all there are."""
        try:
            return stat.S_IFMT(os.fstat(self._descriptor).st_mode) == 0
        except OSError:
            return False

    def give_up(self) -> None:
        """Leave a connection that is not intact: libzmq would end the process over it."""
        self._forgotten.detach()
        _given_up.append(self)

    def close(self) -> None:
        """Close; frames already sent get a moment to leave. Twice is harmless."""
        self._forgotten.detach()
        self._context.destroy()

    def take(self) -> bytes | ConnectionEvent | None:
        """The next frame or news of the connection, if there is any now."""
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self.move(self.endpoint)
        # Frames go before news. Nothing was sent yet on a connection that was just made, so frames
        # that are here now belong to the connection before it.
        data = self._data()
        if data is None and self._event is None:
            self._event = self._next_news()
            if self._event is not None:
                data = self._data()
        if data is not None:
            return data
        event, self._event = self._event, None
        return event

    def patience_seconds(self, end: float | None) -> float | None:
        """How long to wait for something to `take` before ``end``; None: as long as it takes."""
        ends = [each for each in (end, self._retry_at) if each is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _data(self) -> bytes | None:
        # As `is_readable`, without a call: each request looks here three times.
        if not int(self._socket.getsockopt(EVENTS)) & POLLIN:
            return None
        return self._socket.recv_multipart(zmq.NOBLOCK)[0]

    def _next_news(self) -> ConnectionEvent | None:
        while int(self._monitor.getsockopt(EVENTS)) & POLLIN:
            event = next_event(self._monitor)
            assert event is not None
            kind, value, _ = event
            if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value != int(REFUSED):
                # libzmq takes every refusal as final, and does not connect again.
                self._retry_at = time.monotonic() + RECONNECT_SECONDS_MAX
                return ConnectionEvent.TURNED_AWAY
            if kind in _CONNECTION_EVENTS:
                return _CONNECTION_EVENTS[kind]
        return None


def _require_descriptors() -> None:
    """Raise `OSError` if too few files may be opened."""
    made: list[int] = []
    try:
        made.extend(os.eventfd(0, os.EFD_CLOEXEC) for _ in range(DESCRIPTORS))
    finally:
        for descriptor in made:
            os.close(descriptor)


def _end(
    context: zmq.Context[zmq.Socket[bytes]], sockets: tuple[zmq.Socket[bytes], ...], pid: int
) -> None:
    """End a connection that was garbage-collected without having been closed.

    pyzmq would do that itself, but in no certain order: a context that goes before its sockets
    waits for them for ever. This call holds them both until they are closed.
    """
    if os.getpid() == pid:
        for socket in sockets:
            socket.close(linger=0)
        context.term()


class Dealer(BaseDealer):
    """A client's connection, for one thread."""

    def __init__(self, endpoint: str, pair: key_files.KeyPair | None = None) -> None:
        super().__init__(endpoint, pair)
        # Of the descriptors: after a `take` in vain they report what comes.
        self._poll = select.poll()
        for descriptor in self.filenos():
            self._poll.register(descriptor, select.POLLIN)
        self._waker: int | None = None

    def receive(
        self, timeout_seconds: float | None, waker: int | None = None
    ) -> bytes | ConnectionEvent | None:
        """The next frame or news of the connection; None when the time is over.

        None also when the descriptor ``waker`` is readable: always the same one.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        if waker is not None and waker != self._waker:
            self._poll.register(waker, select.POLLIN)
            self._waker = waker
        while True:
            if (item := self.take()) is not None:
                return item
            if end is not None and time.monotonic() >= end:
                return None
            patience = self.patience_seconds(end)
            ready = self._poll.poll(None if patience is None else int(patience * 1_000) + 1)
            if any(descriptor == waker for descriptor, _ in ready):
                return None
