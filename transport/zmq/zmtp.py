"""The wire protocol of ZeroMQ (ZMTP 3, without encryption) as a client speaks it. No sockets.

Source: the specification ZMTP/3.1 (https://rfc.zeromq.org/spec/37/). A client on the same machine
speaks it itself: libzmq hands every frame to a thread of its own and back, which costs a wake-up
of a thread each way.
"""

from __future__ import annotations

import struct
from collections import deque

from .connection_event import ConnectionEvent

_SIGNATURE_FIRST, _SIGNATURE_LAST = 0xFF, 0x7F
_SIGNATURE_BYTES = 10
_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)
_VERSION_BYTE, _VERSION_MIN = 10, 3

_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_MAX = 255
_SHORT_HEAD_BYTES = 2
_LONG_HEAD = struct.Struct(">BQ")

_NO_MECHANISM = b"NULL".ljust(20, b"\0")

_READY_BODY = (
    b"\x05READY\x0bSocket-Type" + struct.pack(">I6s", 6, b"DEALER") + b"\x08Identity\0\0\0\0"
)

GREETING = (
    bytes([_SIGNATURE_FIRST, *bytes(8), _SIGNATURE_LAST, _VERSION_MIN, 0])
    + _NO_MECHANISM
    + bytes(32)
    + bytes([_COMMAND, len(_READY_BODY)])
    + _READY_BODY
)
"""What a client sends first: its greeting, and that it is ready."""


class ProtocolError(Exception):
    """The other end does not speak ZMTP 3 without encryption, or sends what is too large."""


def framed(data: bytes) -> bytes:
    """A message of one frame, as it goes over the connection."""
    if len(data) > _SHORT_MAX:
        return _LONG_HEAD.pack(_LONG, len(data)) + data
    return bytes((0, len(data))) + data


class Reader:
    """Takes a connection's bytes apart. A frame may have ``frame_bytes_max`` bytes."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.items: deque[bytes | ConnectionEvent] = deque()
        """The frames and events that have come."""
        self.answers: list[bytes] = []
        """What the protocol itself has to answer: to be sent, and removed from here."""
        self.refusal: bytes | None = None
        """The status with which the other end has refused the connection."""
        self.is_ready = False
        """Whether the handshake is over."""
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        # So many bytes of the buffer have to be there before it can be taken apart.
        self._wanted = 0
        self._is_greeted = False
        self._is_within_message = False

    def feed(self, data: bytes) -> None:
        """Take in what has come; raises `ProtocolError`."""
        buffer: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return
            buffer, self._buffer = self._buffer, bytearray()
        start = 0
        if not self._is_greeted:
            _check_greeting(buffer)
            if len(buffer) < _GREETING_BYTES:
                self._buffer, self._wanted = bytearray(buffer), 0
                return
            self._is_greeted = True
            start = _GREETING_BYTES
        start = self._take_frames(buffer, start)
        if start < len(buffer):
            self._buffer = bytearray(buffer[start:])

    def _take_frames(self, buffer: bytes | bytearray, start: int) -> int:
        """Take the whole frames from ``start`` on; where the rest begins."""
        size, wanted = len(buffer), _SHORT_HEAD_BYTES
        while start + wanted <= size:
            flags, body, length = buffer[start], start + wanted, buffer[start + 1]
            if flags & _LONG:
                body = start + _LONG_HEAD.size
                if body > size:
                    wanted = _LONG_HEAD.size
                    break
                length = _LONG_HEAD.unpack_from(buffer, start)[1]
            if length > self._frame_bytes_max:
                raise ProtocolError(f"a frame of {length} bytes")
            end = body + length
            if end > size:
                wanted = end - start
                break
            self._take(flags, bytes(buffer[body:end]))
            start = end
        self._wanted = wanted
        return start

    def _take(self, flags: int, body: bytes) -> None:
        if flags & _COMMAND:
            self._obey(body)
        elif not self.is_ready:
            raise ProtocolError("a message before the handshake was over")
        else:
            # A message of several frames is none of ours: the first one counts, as in `Dealer`.
            if not self._is_within_message:
                self.items.append(body)
            self._is_within_message = bool(flags & _MORE)

    def _obey(self, body: bytes) -> None:
        name = body[1 : 1 + body[0]] if body else b""
        rest = body[1 + len(name) :]
        if name == b"READY" and not self.is_ready:
            self.is_ready = True
            self.items.append(ConnectionEvent.MADE)
        elif name == b"ERROR" and not self.is_ready:
            self.refusal = rest[1 : 1 + rest[0]] if rest else b""
        elif name == b"PING":
            # Two bytes of it are a time; the rest is sent back.
            pong = b"\x04PONG" + rest[2:]
            self.answers.append(bytes((_COMMAND, len(pong))) + pong)


def _check_greeting(found: bytes | bytearray) -> None:
    """Raise `ProtocolError` as soon as it is certain that this is no greeting of ours."""
    is_signed = found[0] == _SIGNATURE_FIRST
    if len(found) >= _SIGNATURE_BYTES:
        is_signed &= found[_SIGNATURE_BYTES - 1] == _SIGNATURE_LAST
    if not is_signed:
        raise ProtocolError("no greeting of ZeroMQ")
    if len(found) > _VERSION_BYTE and found[_VERSION_BYTE] < _VERSION_MIN:
        raise ProtocolError(f"version {found[_VERSION_BYTE]} of ZeroMQ's protocol")
    if len(found) >= _MECHANISM.stop and found[_MECHANISM] != _NO_MECHANISM:
        raise ProtocolError("encrypted")
