"""The daemon's listening sockets, local and remote, and the connections that they have let in.

A listener is one ROUTER socket and its monitor. It accepts only as many connections as have
descriptors (`accept_queue`, `accept_filter`): libzmq ends the process when it cannot accept. A
message is one frame each way; the listener drops and counts anything else. libzmq numbers the
peers. The listener ignores a peer that chose its own number: it could be the number of a peer that
has left, and get that one's replies.
"""

from __future__ import annotations

import collections
import contextlib
import socket
import time
from pathlib import Path

import zmq

from ...storage import errors, settings
from .accept_filter import AcceptFilter
from .accept_queue import AcceptQueue, Batch
from .peers import Backlog, Connections, Incoming, Kind, credentials
from .sockets import HANDSHAKE_SECONDS, SEND_QUEUE_MAX, is_readable, new_monitor, next_event

RECEIVE_BYTES_MAX = settings.FRAMES_BYTES_OPEN_MAX
"""Bytes after which one call of `Router.receive` gives no further message."""

SEND_QUEUE_BYTES_MAX = 4 * settings.FRAME_BYTES_MAX
"""Bytes waiting for one peer, above which it counts as gone."""

SEND_QUEUES_BYTES_MAX = 8 * settings.FRAME_BYTES_MAX
"""Bytes waiting for all peers together, above which slow readers count as gone."""

LISTENER_QUEUE_MAX = 8
"""Frames of one peer that libzmq reads ahead for the daemon; each may be of the largest size."""

_NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

PREFIXES: dict[bytes, Kind] = {b"L": "local", b"R": "remote"}

_GIVEN_IDENTITY_BYTES = 5


class Listener:
    """One ROUTER socket, and the monitor that tells of its connections."""

    kind: Kind
    events = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
    """The events that the monitor tells."""
    events_unread_max = 0
    """Unread events above which libzmq waits, beside its own 1,000; 0: no limit."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        dropped: collections.Counter[str],
        descriptors_max: int,
        per_connection: int = 1,
    ) -> None:
        kind = self.kind
        self._descriptors_max = descriptors_max
        self._batch_max = min(settings.ACCEPTED_AT_ONCE, max(2, descriptors_max // 16))
        self.peers_max = min(
            settings.PEERS_MAX, (descriptors_max - 2 * self._batch_max - 2) // per_connection
        )
        """Connections above which the handshake of a further one is refused."""
        self.is_paused = False
        """Whether the listener accepts no connection now."""
        self.endpoint = ""
        self._dropped = dropped
        self._prefix = next(prefix for prefix, name in PREFIXES.items() if name == kind)
        self.connections = Connections()
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True
        self.socket.zap_domain = kind.encode()
        self.socket.maxmsgsize = settings.FRAME_BYTES_MAX
        self.socket.sndhwm = SEND_QUEUE_MAX
        self.socket.rcvhwm = LISTENER_QUEUE_MAX
        self.socket.copy_threshold = 0
        self.backlog = Backlog()
        self.is_emptied = False
        """Whether `receive` found no further message, and nothing has used the socket since."""
        self.socket.handshake_ivl = HANDSHAKE_SECONDS * 1_000
        self._listens_at: int | None = None
        self.monitor = new_monitor(self.socket, kind, self.events, self.events_unread_max)

    @property
    def has_room(self) -> bool:
        """Whether there are descriptors for some more connections."""
        return self.connections.open_count + self._batch_max <= self._descriptors_max

    def let_in(self) -> None:
        """Accept the connections that wait if there is room; otherwise pause until there is."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the listener has beside its sockets."""

    def look(self) -> bool:
        """Whether the socket has a message."""
        self.is_emptied = not is_readable(self.socket)
        return not self.is_emptied

    def follow_connections(self) -> None:
        """Read the events of the monitor, and accept connections for which there is room now."""
        while (event := next_event(self.monitor)) is not None:
            kind, descriptor, endpoint = event
            if kind == zmq.EVENT_ACCEPTED:
                self.connections.accepted(descriptor, time.monotonic())
                self._came(descriptor, endpoint)
            elif kind == zmq.EVENT_DISCONNECTED:
                self.connections.ended(descriptor)
                self._went(descriptor)
            elif kind == zmq.EVENT_LISTENING:
                self._listens_at = descriptor
        self.let_in()

    def receive(self, limit: int) -> list[Incoming]:
        """Up to ``limit`` messages."""
        incoming: list[Incoming] = []
        bytes_read = 0
        while self.look() and len(incoming) < limit and bytes_read < RECEIVE_BYTES_MAX:
            sender = self.socket.recv(zmq.NOBLOCK)
            frame = self.socket.recv(copy=False)
            bytes_read += len(frame)
            if frame.more:
                self._skip_rest()
                self._dropped["several parts"] += 1
            elif len(sender) != _GIVEN_IDENTITY_BYTES or sender[0] != 0:
                self._dropped["a name of its own"] += 1
            else:
                incoming.append(self._incoming(self._prefix + sender, frame))
        return incoming

    def _incoming(self, peer: bytes, frame: zmq.Frame) -> Incoming:
        descriptor = int(frame.get("__fd"))
        self.connections.spoke(descriptor)
        if self.connections.is_new(descriptor, peer):
            # The event that ended the descriptor's earlier connection may be unread.
            self.follow_connections()
            self.connections.heard(descriptor, peer)
        address, user = str(frame.get("Peer-Address")), str(frame.get("User-Id"))
        return Incoming(peer, frame.bytes, credentials(self.kind, address, user))

    def end(self, descriptor: int) -> bool:
        """End a connection; False if it has ended already.

        libzmq owns the descriptor, and reads the end as if the other side had closed.
        """
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            return False
        try:
            # The number may belong to another file by now.
            is_ours = self._has_accepted(connection)
            if is_ours:
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
        finally:
            connection.detach()
        return is_ours

    def send(self, receiver: bytes, data: bytes) -> bool:
        """Send a frame; False if the receiver is gone or too much waits for it."""
        # Sending may take away the report of the descriptor.
        self.is_emptied = False
        is_marked = self.backlog.wants_mark(receiver, len(data))
        try:
            if not is_marked:
                self.socket.send(receiver, _NOBLOCK_MORE)
                self.socket.send(data, zmq.NOBLOCK)
            elif self._has_room(receiver, len(data)):
                # Making the frame can fail: do it first, as half a message spoils the next one.
                frame = zmq.Frame(data, copy=False, track=True)
                self.socket.send(receiver, _NOBLOCK_MORE)
                self.socket.send(frame, zmq.NOBLOCK, copy=False, track=True)
                assert frame.tracker is not None
                self.backlog.marked(receiver, frame.tracker)
            else:
                raise zmq.Again  # noqa: TRY301 - as libzmq does when its own queue is full
        except zmq.Again:
            self._dropped["a peer that does not read"] += 1
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.backlog.forget(receiver)
            return False
        return True

    def _has_room(self, receiver: bytes, size: int) -> bool:
        waiting = self.backlog.waiting(receiver)
        if waiting == 0:
            return True
        if waiting + size > SEND_QUEUE_BYTES_MAX:
            return False
        return self.backlog.total() + size <= SEND_QUEUES_BYTES_MAX

    def _skip_rest(self) -> None:
        while self.socket.recv(copy=False).more:
            pass

    def _came(self, descriptor: int, endpoint: str) -> None:
        """A connection was made, where libzmq listens at ``endpoint``."""

    def _went(self, descriptor: int) -> None:
        """A connection has ended."""

    def _has_accepted(self, connection: socket.socket) -> bool:
        """Whether a connection may be one of this listener."""
        raise NotImplementedError


class LocalListener(Listener):
    """The listener at a socket file. libzmq gets connections by the batch (`accept_queue`)."""

    kind = "local"

    def __init__(
        self,
        path: Path,
        context: zmq.Context[zmq.Socket[bytes]],
        dropped: collections.Counter[str],
        descriptors_max: int,
    ) -> None:
        # A connection that comes alone needs a second descriptor, for its batch.
        super().__init__(context, dropped, descriptors_max, per_connection=2)
        self._batches: dict[str, Batch] = {}
        self._batch_of: dict[int, Batch] = {}
        self._last: Batch | None = None
        self.accept_queue = AcceptQueue(path, self._batch_max - 1)
        self.endpoint = f"ipc://{path}"
        self.follow_connections()

    @property
    def has_room(self) -> bool:
        """Whether there are descriptors for another batch."""
        used = self.connections.open_count + len(self._batches)
        return used + self._batch_max + 2 <= self._descriptors_max

    def let_in(self) -> None:
        """Hand the next batch to libzmq when the one before is in."""
        for batch in [batch for batch in self._batches.values() if batch.is_over]:
            self.is_emptied = False
            self.socket.unbind(batch.endpoint)
            del self._batches[batch.endpoint]
        if self._last is not None:
            self._last.look()
        is_ready = self._last is None or self._last.is_in
        self.is_paused = not self.has_room
        if is_ready and not self.is_paused and self.accept_queue.has_waiting:
            is_ready = False
            try:
                self._hand_over()
            except OSError:
                # There is no socket now, or no place for its file: the next event tries again.
                self.is_paused = True
        self.accept_queue.watch(is_wanted=is_ready and not self.is_paused)

    def put_back(self) -> None:
        """Make the socket file again; `OSError` if it cannot be made."""
        self.accept_queue.replace(self._batches)

    def _hand_over(self) -> None:
        batch, descriptor = self.accept_queue.take(self._batches)
        self._batches[batch.endpoint] = self._last = batch
        self.socket.setsockopt(zmq.USE_FD, descriptor)
        # libzmq closes the descriptor.
        self.is_emptied = False
        self.socket.bind(batch.endpoint)

    def close(self) -> None:
        """Free the accept queue."""
        self.accept_queue.close()
        if self._last is not None:
            self._last.close()

    def _came(self, descriptor: int, endpoint: str) -> None:
        self._went(descriptor)
        batch = self._batches.get(endpoint)
        if batch is not None:
            batch.came()
            self._batch_of[descriptor] = batch

    def _went(self, descriptor: int) -> None:
        batch = self._batch_of.pop(descriptor, None)
        if batch is not None:
            batch.went()

    def _has_accepted(self, connection: socket.socket) -> bool:
        return self.accept_queue.has_accepted(connection.getsockname())


class RemoteListener(Listener):
    """The listener for clients on other machines. A full one gets an `AcceptFilter`.

    libzmq accepts until then, or until so many of its events are unread that it waits: the
    descriptor budget covers them (`settings.ACCEPTED_UNSEEN_MAX`).
    """

    kind = "remote"
    events = int(Listener.events | zmq.EVENT_LISTENING)
    events_unread_max = 1

    def bind(self, endpoint: str) -> None:
        """Open the listener at ``endpoint``."""
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise errors.OperatorError(f"{endpoint}: {error.strerror}") from error
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        # A descriptor reports nothing before a first read has found nothing.
        self.follow_connections()
        assert self._listens_at is not None
        self._accept_filter = AcceptFilter(self._listens_at)

    def let_in(self) -> None:
        """Set or remove the filter."""
        if self.has_room is self.is_paused:
            # On a system without filters only the limit of unread events remains.
            with contextlib.suppress(OSError):
                self._accept_filter.set(is_paused=not self.is_paused)
            self.is_paused = not self.is_paused

    def close(self) -> None:
        """Free the descriptor."""
        if self._listens_at is not None:
            self._accept_filter.close()

    def _has_accepted(self, connection: socket.socket) -> bool:
        name = connection.getsockname()
        return not isinstance(name, str) and self.endpoint.endswith(f":{name[1]}")
