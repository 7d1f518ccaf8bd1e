"""The daemon's local listener: a Unix socket at which it speaks ZeroMQ's protocol itself.

To a client it behaves as a ROUTER socket of libzmq (`zmtp.Reader`), but no thread stands
between the sockets and the thread that owns the router: what comes is read when the owner reads,
and an answer goes to the kernel at once, from any thread with the router's lock. What the kernel
does not take waits here, up to the bounds of `listeners.can_wait`.

All sockets are in one poll (epoll), whose descriptor is all that the owner has to watch. It is
level-triggered: it reports as long as something waits, also after a send. While the owner may not
read, the connections that have something are taken out of the poll.
"""

from __future__ import annotations

import collections
import os
import select
import socket
import struct
import time
from collections import deque
from pathlib import Path

from ...storage import settings
from . import zmtp
from .accept_queue import AcceptQueue
from .listeners import RECEIVE_BYTES_MAX, Listener, can_wait
from .memory_guard import GROWTH_MAX_BYTES
from .peers import Credentials, Incoming
from .sockets import HANDSHAKE_SECONDS, SEND_QUEUE_MAX, TURNED_AWAY

_READ_BYTES = 64 * 1_024
"""How much is read at a time."""

KEPT_BYTES_MAX = GROWTH_MAX_BYTES // 2
"""What silent connections may keep together although the process has grown too much."""

_OWN_DESCRIPTORS = 2
"""What the listener has beside its connections."""

_WRITES_AT_ONCE = 64
"""Most frames of a peer that one call hands to the kernel."""

_CREDENTIALS = struct.Struct("3i")
_NAME_BYTES = 8
_NAMES = 2 ** (8 * _NAME_BYTES)
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class LocalPeer:
    """A connection, and what waits for it."""

    def __init__(self, connection: socket.socket, name: bytes) -> None:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        self.connection = connection
        self.descriptor = connection.fileno()
        self.name = name
        self.identity = Credentials(kind="local", uid=uid, pid=pid)
        self.reader = zmtp.Reader(settings.FRAME_BYTES_MAX)
        self.is_heard = False
        self.unsent: deque[bytes | memoryview] = deque()
        self.unsent_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """What the listener keeps for it: the beginning of a message, and what is not sent yet."""
        return self.reader.rest_bytes + self.unsent_bytes

    def write(self, data: bytes) -> int:
        """How many of these bytes the kernel has taken; all, if the connection is broken."""
        try:
            return self.connection.send(data, _FLAGS)
        except BlockingIOError:
            return 0
        except OSError:
            # They are lost with the connection, whose end shows when it is read.
            return len(data)

    def flush(self) -> int:
        """Send some of what waits; how many bytes of it are gone."""
        parts = [part for part, _ in zip(self.unsent, range(_WRITES_AT_ONCE), strict=False)]
        try:
            sent = self.connection.sendmsg(parts, (), _FLAGS)
        except BlockingIOError:
            return 0
        except OSError:
            sent = sum(map(len, parts))
        left = sent
        while left:
            first = self.unsent.popleft()
            if len(first) > left:
                self.unsent.appendleft(memoryview(first)[left:])
                left = 0
            else:
                left -= len(first)
        self.unsent_bytes -= sent
        return sent


class LocalListener(Listener):
    """The listener at a socket file. Its owner holds the router's lock in each call."""

    kind = "local"

    def __init__(self, path: Path, dropped: collections.Counter[str], descriptors_max: int) -> None:
        super().__init__(dropped, descriptors_max)
        self.endpoint = f"ipc://{path}"
        self._by_name: dict[bytes, LocalPeer] = {}
        self._by_descriptor: dict[int, LocalPeer] = {}
        self._unsent_bytes = 0
        # Not the names of an earlier listener: components may still know its peers.
        self._count = int.from_bytes(os.urandom(_NAME_BYTES), "big")
        # Those whose handshake is not over, and when it must be: the oldest is the first one.
        self._handshakes: dict[int, float] = {}
        # Those of which messages were read, but not received yet.
        self._waiting: deque[LocalPeer] = deque()
        # Those that are not in the poll, as they have something that must wait.
        self._quiet: list[LocalPeer] = []
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._queue = AcceptQueue(path, 4 * self._batch_max - 1)
        self._poll = select.epoll()
        self._poll.register(self._queue.fileno(), select.EPOLLIN)

    def filenos(self) -> list[int]:
        """The descriptor of the poll."""
        return [self._poll.fileno()]

    @property
    def has_room(self) -> bool:
        """Whether there is a descriptor for another connection."""
        return self.connections.open_count + _OWN_DESCRIPTORS < self._descriptors_max

    def look(self) -> bool:
        """Whether there is something to `receive`."""
        self.is_emptied = not (self._waiting or self._quiet or self._poll.poll(0, 1))
        return not self.is_emptied

    def follow_connections(self) -> None:
        """End the connections whose handshake takes too long; accept again if there is room."""
        if self._handshakes:
            now = time.monotonic()
            while self._handshakes:
                descriptor, end = next(iter(self._handshakes.items()))
                if end > now:
                    break
                self._drop(self._by_descriptor[descriptor])
        self._let_in()

    def put_back(self) -> None:
        """Make the socket file again; `OSError` if it cannot be made."""
        self._pause()
        try:
            self._queue.replace()
        finally:
            self._let_in()

    def receive(self, limit: int) -> list[Incoming]:
        """Up to ``limit`` messages. With 0 the descriptor is quiet about what waits."""
        if limit <= 0:
            self._be_quiet()
            return []
        if self._quiet:
            self._listen_again()
        incoming: list[Incoming] = []
        self.is_emptied = True
        waiting, self._waiting = self._waiting, deque()
        for peer in waiting:
            self._take(peer, limit, incoming)
        if self._waiting:
            return incoming
        bytes_read = 0
        for descriptor, events in self._poll.poll(0):
            if len(incoming) >= limit or bytes_read >= RECEIVE_BYTES_MAX:
                self.is_emptied = False
                break
            reported = self._by_descriptor.get(descriptor)
            if reported is None:
                self._accept()
                continue
            if events & select.EPOLLOUT:
                self._flush(reported)
            if events != select.EPOLLOUT:
                bytes_read += self._read(reported)
                self._take(reported, limit, incoming)
        return incoming

    def send(self, receiver: bytes, data: bytes) -> bool:
        """Send a frame; False if the receiver is gone or too much waits for it."""
        peer = self._by_name.get(receiver)
        if peer is None:
            return False
        if not self._write(peer, zmtp.framed(data)):
            self._dropped["a peer that does not read"] += 1
            return False
        return True

    def end(self, descriptor: int) -> bool:
        """End a connection; False if it has ended already."""
        peer = self._by_descriptor.get(descriptor)
        if peer is None:
            return False
        self._drop(peer)
        return True

    def suspects(self, silent: list[int]) -> list[int]:
        """Those that keep something, if all of these together keep much: a client may be silent.

        It waits for its reply, and ended it would only send its request once more.
        """
        peers = filter(None, map(self._by_descriptor.get, silent))
        kept = {peer.descriptor: size for peer in peers if (size := peer.kept_bytes)}
        return list(kept) if sum(kept.values()) > KEPT_BYTES_MAX else []

    def forget(self, receiver: bytes) -> None:
        """Nothing to do: what waited for a peer went with its connection."""

    def close(self) -> None:
        """Close all connections; the kernel keeps what was sent. Twice is harmless."""
        for peer in self._by_descriptor.values():
            if peer.unsent:
                peer.flush()
            peer.connection.close()
        self._by_descriptor.clear()
        self._by_name.clear()
        self._queue.close()
        self._poll.close()

    # ------------------------------------------------------------ connections

    def _accept(self) -> None:
        for _ in range(settings.ACCEPTED_AT_ONCE):
            if not self.has_room:
                self._pause()
                return
            try:
                connection = self._queue.accept()
            except BlockingIOError:
                return
            except OSError:
                # There is no descriptor now: the next look tries again.
                self._pause()
                return
            self._come(connection)

    def _come(self, connection: socket.socket) -> None:
        self._count = (self._count + 1) % _NAMES
        peer = LocalPeer(connection, self._count.to_bytes(_NAME_BYTES, "big"))
        now = time.monotonic()
        self._by_name[peer.name] = self._by_descriptor[peer.descriptor] = peer
        self._handshakes[peer.descriptor] = now + HANDSHAKE_SECONDS
        self.connections.accepted(peer.descriptor, now)
        self._poll.register(peer.descriptor, select.EPOLLIN)
        self._write(peer, zmtp.GREETING)

    def _greet(self, peer: LocalPeer) -> None:
        """The peer is ready: let it in, or say why not."""
        del self._handshakes[peer.descriptor]
        if self.connections.count <= self.peers_max:
            self._write(peer, zmtp.READY)
            return
        self._dropped["too many peers"] += 1
        self._write(peer, zmtp.refused(TURNED_AWAY))
        self._drop(peer)

    def _drop(self, peer: LocalPeer) -> None:
        """End a connection. Messages of it that were read are still received."""
        if self._by_descriptor.pop(peer.descriptor, None) is None:
            return
        del self._by_name[peer.name]
        self._handshakes.pop(peer.descriptor, None)
        if peer in self._quiet:
            self._quiet.remove(peer)
        else:
            self._poll.unregister(peer.descriptor)
        peer.connection.close()
        peer.reader.forget_rest()
        self._unsent_bytes -= peer.unsent_bytes
        peer.unsent.clear()
        peer.unsent_bytes = 0
        self.connections.ended(peer.descriptor)
        self._let_in()

    def _let_in(self) -> None:
        if self.is_paused and self.has_room:
            self._poll.register(self._queue.fileno(), select.EPOLLIN)
            self.is_paused = False

    def _pause(self) -> None:
        if not self.is_paused:
            self._poll.unregister(self._queue.fileno())
            self.is_paused = True

    def _be_quiet(self) -> None:
        """Take those out of the poll that have something to read."""
        self.is_emptied = False
        for descriptor, events in self._poll.poll(0):
            peer = self._by_descriptor.get(descriptor)
            if peer is None:
                self._accept()
                continue
            if events & select.EPOLLOUT:
                self._flush(peer)
            if events & ~select.EPOLLOUT:
                self._poll.unregister(descriptor)
                self._quiet.append(peer)

    def _listen_again(self) -> None:
        quiet, self._quiet = self._quiet, []
        for peer in quiet:
            self._poll.register(peer.descriptor, _events(peer))

    # ------------------------------------------------------------ reading

    def _read(self, peer: LocalPeer) -> int:
        """Read what has come; how many bytes."""
        bytes_read = 0
        while bytes_read < RECEIVE_BYTES_MAX:
            try:
                count = peer.connection.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                count = 0
            bytes_read += count
            if not count or not self._feed(peer, count):
                self._drop(peer)
                break
            if count < _READ_BYTES or peer.reader.items:
                break
        return bytes_read

    def _feed(self, peer: LocalPeer, count: int) -> bool:
        """Take in the first bytes of the buffer; False if the connection must end."""
        reader = peer.reader
        is_right = True
        try:
            reader.feed(bytes(self._view[:count]))
        except zmtp.ProtocolError:
            is_right = False
        if reader.is_ready and peer.descriptor in self._handshakes:
            self._greet(peer)
            if peer.descriptor not in self._by_descriptor:
                reader.items.clear()
                return True
        if reader.dropped:
            self._dropped["several parts"] += reader.dropped
            reader.dropped = 0
        if reader.items and reader.has_own_name:
            self._dropped["a name of its own"] += len(reader.items)
            reader.items.clear()
        if reader.items:
            self.connections.spoke.add(peer.descriptor)
            if not peer.is_heard:
                peer.is_heard = True
                self.connections.heard(peer.descriptor, self._prefix + peer.name)
        if reader.answers:
            answers, reader.answers = b"".join(reader.answers), []
            is_right = self._write(peer, answers) and is_right
        return is_right

    def _take(self, peer: LocalPeer, limit: int, incoming: list[Incoming]) -> None:
        """Receive messages of a peer that were read, up to the limit."""
        items, name, identity = peer.reader.items, self._prefix + peer.name, peer.identity
        while items and len(incoming) < limit:
            incoming.append(Incoming(name, items.popleft(), identity))
        if items:
            self._waiting.append(peer)
            self.is_emptied = False

    # ------------------------------------------------------------ writing

    def _write(self, peer: LocalPeer, data: bytes) -> bool:
        """Send these bytes after those that wait; False if too much does."""
        if not peer.unsent:
            sent = peer.write(data)
            if sent == len(data):
                return True
            self._keep(peer, memoryview(data)[sent:] if sent else data)
            self._watch(peer)
            return True
        if len(peer.unsent) >= SEND_QUEUE_MAX:
            return False
        if not can_wait(len(data), peer.unsent_bytes, self._unsent_bytes):
            return False
        self._keep(peer, data)
        return True

    def _keep(self, peer: LocalPeer, data: bytes | memoryview) -> None:
        peer.unsent.append(data)
        peer.unsent_bytes += len(data)
        self._unsent_bytes += len(data)

    def _flush(self, peer: LocalPeer) -> None:
        self._unsent_bytes -= peer.flush()
        if not peer.unsent:
            self._watch(peer)

    def _watch(self, peer: LocalPeer) -> None:
        """Have the poll report what concerns this peer now."""
        if peer not in self._quiet:
            self._poll.modify(peer.descriptor, _events(peer))


def _events(peer: LocalPeer) -> int:
    return select.EPOLLIN | select.EPOLLOUT if peer.unsent else select.EPOLLIN
