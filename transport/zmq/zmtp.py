"""The wire protocol of ZeroMQ (ZMTP 3, without encryption), as a ROUTER speaks it. No sockets.

Source: the specification ZMTP/3.1 (https://rfc.zeromq.org/spec/37/). The daemon's local listener
speaks it itself; clients are sockets of libzmq, or of any other library of ZeroMQ.
"""

from __future__ import annotations

import struct
from collections import deque

_SIGNATURE_FIRST, _SIGNATURE_LAST = 0xFF, 0x7F
_SIGNATURE_BYTES = 10
_GREETING_BYTES = 64
_MECHANISM = slice(12, 32)
_VERSION_BYTE, _VERSION_MIN = 10, 3

_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_MAX = 255
_SHORT_HEAD_BYTES = 2
_LONG_HEAD = struct.Struct(">BQ")
_VALUE_HEAD = struct.Struct(">I")

HANDSHAKE_FRAME_BYTES_MAX = 8 * 1_024
"""The largest frame before the handshake is over."""

_PING_BYTES_MAX = 2 + 16
"""What a PING may carry: a time, and what is sent back."""

_TALKING_TO_ROUTER = frozenset((b"DEALER", b"REQ", b"ROUTER"))

_NO_MECHANISM = b"NULL".ljust(20, b"\0")


def _command(body: bytes) -> bytes:
    return bytes((_COMMAND, len(body))) + body


def ready(socket_type: bytes) -> bytes:
    """What an end says when its greeting is over: what kind of socket it is."""
    value = _VALUE_HEAD.pack(len(socket_type)) + socket_type
    return _command(b"\x05READY\x0bSocket-Type" + value + b"\x08Identity\0\0\0\0")


GREETING = (
    bytes([_SIGNATURE_FIRST, *bytes(8), _SIGNATURE_LAST, _VERSION_MIN, 0])
    + _NO_MECHANISM
    + bytes(32)
)
"""What each end sends first."""

READY = ready(b"ROUTER")
"""The daemon is ready."""


class ProtocolError(Exception):
    """The peer does not speak ZMTP 3 without encryption, or sends what is too large."""


def framed(data: bytes) -> bytes:
    """A message of one frame, as it goes over the connection."""
    if len(data) > _SHORT_MAX:
        return _LONG_HEAD.pack(_LONG, len(data)) + data
    return bytes((0, len(data))) + data


def refused(status: bytes) -> bytes:
    """The daemon refuses the connection, with a ``status`` of three digits."""
    return _command(b"\x05ERROR" + bytes((len(status),)) + status)


class Reader:
    """Takes a peer's bytes apart, as a ROUTER does. A frame may have ``frame_bytes_max`` bytes."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.answers: list[bytes] = []
        """What the protocol itself has to answer: to be sent, and removed from here."""
        self.is_ready = False
        """Whether the peer has said that it is ready."""
        self.items: deque[bytes] = deque()
        """The messages that have come. One of several parts is dropped."""
        self.dropped = 0
        """Messages that were dropped since the owner reset this."""
        self.has_own_name = False
        """Whether the peer chose a name itself."""
        self._parts_bytes = 0
        self._frame_bytes_max = frame_bytes_max
        self._limit = HANDSHAKE_FRAME_BYTES_MAX
        self._buffer = bytearray()
        # So many bytes of the buffer have to be there before it can be taken apart.
        self._wanted = 0
        self._is_greeted = False

    @property
    def rest_bytes(self) -> int:
        """The size of the beginning of a frame whose rest has not come yet."""
        return len(self._buffer)

    def forget_rest(self) -> None:
        """Free the beginning of a frame: the rest will not come."""
        self._buffer = bytearray()

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
            if length > self._limit:
                raise ProtocolError(f"a frame of {length} bytes")
            end = body + length
            if end > size:
                wanted = end - start
                break
            self._take(flags, _part(buffer, body, end))
            start = end
        self._wanted = wanted
        return start

    def _take(self, flags: int, body: bytes) -> None:
        if flags & _COMMAND:
            self._obey(body)
        elif not self.is_ready:
            raise ProtocolError("a message before the handshake was over")
        else:
            self._take_part(body, is_last=not flags & _MORE)

    def _obey(self, body: bytes) -> None:
        name = body[1 : 1 + body[0]] if body else b""
        rest = body[1 + len(name) :]
        if name == b"READY" and not self.is_ready:
            self.is_ready = True
            self._limit = self._frame_bytes_max
            self._be_ready(rest)
        elif name == b"ERROR" and not self.is_ready:
            raise ProtocolError(f"refused by the peer: {rest!r}")
        elif name == b"PING":
            if len(rest) > _PING_BYTES_MAX:
                raise ProtocolError(f"a PING of {len(rest)} bytes")
            # Two bytes of it are a time; the rest is sent back.
            self.answers.append(_command(b"\x04PONG" + rest[2:]))

    def _take_part(self, body: bytes, *, is_last: bool) -> None:
        if is_last and not self._parts_bytes:
            self.items.append(body)
            return
        # All parts together have the limit of a frame, or a message without end never ends.
        self._parts_bytes += _SHORT_HEAD_BYTES + len(body)
        if self._parts_bytes > self._frame_bytes_max:
            raise ProtocolError("a message of too many parts")
        if is_last:
            self._parts_bytes = 0
            self.dropped += 1

    def _be_ready(self, properties: bytes) -> None:
        place, found = 0, {}
        while place < len(properties):
            name_end = place + 1 + properties[place]
            value = name_end + _VALUE_HEAD.size
            if value > len(properties):
                raise ProtocolError("properties that are cut off")
            end = value + _VALUE_HEAD.unpack_from(properties, name_end)[0]
            if end > len(properties):
                raise ProtocolError("properties that are cut off")
            found[properties[place + 1 : name_end].lower()] = properties[value:end]
            place = end
        if found.get(b"socket-type", b"DEALER") not in _TALKING_TO_ROUTER:
            raise ProtocolError("a socket that cannot talk to a ROUTER")
        self.has_own_name = bool(found.get(b"identity"))


def _part(buffer: bytes | bytearray, start: int, end: int) -> bytes:
    if isinstance(buffer, bytes):
        return buffer[start:end]
    # Copied once: frames that come in pieces are large.
    with memoryview(buffer) as view:
        return bytes(view[start:end])


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
