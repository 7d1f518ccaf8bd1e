"""A job's connection to a listener of this machine: it speaks ZeroMQ's protocol itself.

Job processes are forked warm, and serve one job after the other: libzmq would cost each of them its
import, memory, and threads that the next job may not find. So there is no thread here: what comes
is read in `receive`, and the descriptor is level-triggered. Nothing waits for the other end's part
of the handshake: our listeners take what follows on ours (`zmtp.Reader`), and who refuses us ends
the connection.

Cheap to import, as `actors.processes.channels` is.
"""

from __future__ import annotations

import _socket
import select
import time
from collections import deque

from ...storage import settings
from . import zmtp
from .connection_event import ConnectionEvent

RECONNECT_SECONDS = 0.05
"""How long to wait before another attempt to connect."""

UNSENT_BYTES_MAX = 2 * settings.FRAME_BYTES_MAX
"""Bytes that wait for the other end to read, above which `LocalWire.send` refuses."""

_READ_BYTES = 256 * 1024
_FLAGS = _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL


class LocalWire:
    """A connection to the socket file ``path``, made anew whenever it is lost. For one thread.

    `receive` tells of each connection but the first one, if that is made at once.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._end: _socket.socket | None = None
        self._reader = zmtp.Reader(settings.FRAME_BYTES_MAX)
        self._unsent = bytearray()
        self._news: deque[bytes | ConnectionEvent] = deque()
        self._retry_at = 0.0
        self._connect()

    def descriptors(self) -> dict[int, int]:
        """What to poll, and for what, while waiting for something to `receive`."""
        if self._end is None:
            return {}
        wanted = select.POLLIN | select.POLLOUT if self._unsent else select.POLLIN
        return {self._end.fileno(): wanted}

    @property
    def has_news(self) -> bool:
        """Whether `receive` finds something of which no descriptor reports."""
        return bool(self._news or self._reader.items)

    def send(self, data: bytes) -> bool:
        """Send a frame; False while there is no connection, or too much waits to be sent."""
        if self._end is None or len(self._unsent) > UNSENT_BYTES_MAX:
            return False
        self._write(zmtp.framed(data))
        return True

    def receive(self) -> bytes | ConnectionEvent | None:
        """The next frame or news of the connection; None if there is none now."""
        if not self.has_news:
            if self._end is None:
                if time.monotonic() >= self._retry_at and self._connect():
                    self._news.append(ConnectionEvent.MADE)
            else:
                self._write(b"")
                self._read(self._end)
        if self._news:
            return self._news.popleft()
        return self._reader.items.popleft() if self._reader.items else None

    def close(self) -> None:
        """Close; twice is harmless."""
        if self._end is not None:
            self._end.close()
            self._end = None
        self._retry_at = float("inf")

    def _connect(self) -> bool:
        end = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
        try:
            end.connect(self._path)
        except OSError:
            # Nothing listens there, or too many wait there already.
            end.close()
            self._retry_at = time.monotonic() + RECONNECT_SECONDS
            return False
        self._end = end
        self._reader = zmtp.Reader(settings.FRAME_BYTES_MAX)
        self._write(zmtp.GREETING + zmtp.ready(b"DEALER"))
        return True

    def _read(self, end: _socket.socket) -> None:
        reader = self._reader
        while not reader.items:
            try:
                data = end.recv(_READ_BYTES, _socket.MSG_DONTWAIT)
                if data:
                    reader.feed(data)
            except BlockingIOError:
                return
            except (OSError, zmtp.ProtocolError):
                data = b""
            if not data:
                self._lose(end)
                return
            while reader.answers:
                self._write(reader.answers.pop(0))

    def _write(self, data: bytes) -> None:
        """Send these bytes after those that wait. A broken connection shows when it is read."""
        assert self._end is not None
        if self._unsent:
            self._unsent += data
            data = bytes(self._unsent)
        if not data:
            return
        try:
            sent = self._end.send(data, _FLAGS)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(data)
        self._unsent = bytearray(data[sent:])

    def _lose(self, end: _socket.socket) -> None:
        self._news += self._reader.items
        self._reader.items.clear()
        self._news.append(ConnectionEvent.LOST)
        self._unsent.clear()
        end.close()
        self._end = None
        self._retry_at = time.monotonic() + RECONNECT_SECONDS
