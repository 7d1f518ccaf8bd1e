"""A channel between the daemon and one job process: whole frames over an inherited socket pair.

Cheap to import, because the lean fork server does: sockets come from `_socket`, whose classes
`socket` wraps, because each fork would pay for the memory of `socket`, and each process for its
functions. A frame larger than one packet travels
in several, each with a byte in front that says whether more follow. A channel closes for good
when its other end is gone, or takes nothing within a limit (`ChannelClosedError`); its owner
then needs another way.
"""

from __future__ import annotations

import _socket
import contextlib
import select
import struct

PACKET_BYTES = 60_000
CONTROL_BYTES = 256
SEND_SECONDS = 5

End = _socket.socket
"""One end of a `pair`, or of a channel."""

_KIND = (_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0)

_LAST, _MORE = b"\x00", b"\x01"
_SEND_LIMIT = struct.pack("ll", SEND_SECONDS, 0)
_DESCRIPTOR = struct.Struct("i")
_RIGHTS_BYTES = _socket.CMSG_SPACE(4 * _DESCRIPTOR.size)


class ChannelClosedError(Exception):
    """The other end of the channel is gone, or does not read any more."""


class Channel:
    """One end of a `pair`. One thread receives; sending needs a lock if several do."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._parts: list[bytes] = []

    def fileno(self) -> int:
        """The descriptor, for a poll; -1 when closed."""
        return self._end.fileno()

    def wait(self, milliseconds: int | None) -> bool:
        """Wait until `receive` has something, or the channel is closed; False if time is up."""
        return bool(self._poll.poll(milliseconds))

    def send(self, frame: bytes) -> None:
        """Send a whole frame, or raise `ChannelClosedError`.

        A frame may then have been sent in part, so nothing may follow it: the channel ends.
        """
        try:
            start = 0
            while len(frame) - start > PACKET_BYTES:
                self._end.send(_MORE + frame[start : start + PACKET_BYTES], _socket.MSG_NOSIGNAL)
                start += PACKET_BYTES
            self._end.send(_LAST + frame[start:], _socket.MSG_NOSIGNAL)
        except OSError as error:
            self.give_up()
            raise ChannelClosedError(str(error)) from error
        except BaseException:
            # After an interruption between two parts, no other frame may follow.
            self.give_up()
            raise

    def give_up(self) -> None:
        """End the channel for both ends; each can still read what was sent."""
        # Not closed: another thread may poll the descriptor, and the shutdown wakes it.
        with contextlib.suppress(OSError):
            self._end.shutdown(_socket.SHUT_RDWR)

    def receive(self) -> bytes | None:
        """The next whole frame, or None if none is there yet; never blocks."""
        # An error for each look in vain would cost more than the poll.
        while self._poll.poll(0):
            try:
                packet = self._end.recv(PACKET_BYTES + 1, _socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # The other end was closed with unread data: the kernel reports that first, once.
                # Frames that it had sent before can still be read.
                continue
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not packet:
                raise ChannelClosedError("the other end was closed")
            is_last = packet[:1] == _LAST
            if is_last and not self._parts:
                return packet[1:]
            self._parts.append(packet[1:])
            if is_last:
                frame = b"".join(self._parts)
                self._parts.clear()
                return frame
        if self._end.fileno() < 0:
            # The poll has looked at a number that may be another file's by now.
            raise ChannelClosedError("this end was closed")
        return None

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def pair() -> tuple[End, End]:
    """Two connected ends, for a channel or for requests to a fork server."""
    ours, theirs = _socket.socketpair(*_KIND)
    for end in (ours, theirs):
        end.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, _SEND_LIMIT)
    return ours, theirs


def end_of(descriptor: int) -> End:
    """The end that a process has received, or inherited, as a bare descriptor."""
    return End(*_KIND, descriptor)


def send_with_descriptors(end: End, data: bytes, descriptors: list[int]) -> None:
    """Send one packet with open descriptors beside it."""
    rights = struct.pack(f"{len(descriptors)}i", *descriptors)
    end.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def receive_with_descriptors(end: End, flags: int = 0) -> tuple[bytes, list[int]]:
    """One packet and the descriptors beside it; empty data at the end of the connection."""
    # As socket.recv_fds, but without its import at each call, which is slow after a fork.
    data, beside, _, _ = end.recvmsg(CONTROL_BYTES, _RIGHTS_BYTES, flags | _socket.MSG_CMSG_CLOEXEC)
    # Not a comprehension: a fresh process pays for each function that it calls once.
    descriptors: list[int] = []
    for level, kind, rights in beside:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            for (number,) in _DESCRIPTOR.iter_unpack(rights):
                descriptors.append(number)
    return data, descriptors
