"""A channel between the daemon and one job process: whole frames over an inherited socket pair.

Cheap to import, because the lean fork server does. A frame larger than one packet travels
in several, each with a byte in front that says whether more follow. A channel that cannot
be written to within a limit, or whose other end is gone, is closed for good: whoever holds
it then finds another way (`ChannelClosedError`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

PACKET_BYTES = 60_000
CONTROL_BYTES = 256
SEND_SECONDS = 5

_LAST, _MORE = b"\x00", b"\x01"


class ChannelClosedError(Exception):
    """The other end of the channel is gone, or does not read any more."""


class Channel:
    """One end of a channel. One thread receives; sending needs a lock if several do."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._parts: list[bytes] = []
        seconds = struct.pack("ll", SEND_SECONDS, 0)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)

    def fileno(self) -> int:
        """The descriptor, for a poll; -1 when closed."""
        return self._end.fileno()

    def send(self, frame: bytes) -> None:
        """Send a whole frame; `ChannelClosedError` if that cannot be done.

        A frame may then have been sent in part, so nothing may follow it: the channel ends.
        """
        try:
            start = 0
            while len(frame) - start > PACKET_BYTES:
                self._end.send(_MORE + frame[start : start + PACKET_BYTES], socket.MSG_NOSIGNAL)
                start += PACKET_BYTES
            self._end.send(_LAST + frame[start:], socket.MSG_NOSIGNAL)
        except OSError as error:
            # Not closed: another thread may be polling the descriptor, and learns of it so.
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)
            raise ChannelClosedError(str(error)) from error

    def receive(self) -> bytes | None:
        """The next whole frame, or None if none is there yet; never blocks."""
        while True:
            try:
                packet = self._end.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not packet:
                raise ChannelClosedError("the other end was closed")
            self._parts.append(packet[1:])
            if packet[:1] == _LAST:
                frame = b"".join(self._parts)
                self._parts.clear()
                return frame

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends, for a channel or for requests to a fork server."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_with_descriptors(end: socket.socket, data: bytes, descriptors: list[int]) -> None:
    """Send one packet with open descriptors beside it."""
    socket.send_fds(end, [data], descriptors)


def receive_with_descriptors(end: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """One packet and the descriptors beside it; empty data at the end of the connection."""
    data, descriptors, _, _ = socket.recv_fds(end, CONTROL_BYTES, 4, flags)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional in the standard library
    return data, descriptors
