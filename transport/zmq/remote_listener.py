"""The daemon's listener for clients on other machines: a ROUTER socket of libzmq, with CURVE.

libzmq accepts on a thread of its own, and ends the process when it cannot accept: the listener
accepts only as many connections as have descriptors (`accept_filter`). A monitor socket tells which
connections come and go.

Its descriptors are edge-triggered: after a report a descriptor is quiet until everything was read,
and *sending* may take the report away. A socket that was read until it was empty, was not used
since, and of which nothing is reported, has no message. The others are asked (`is_readable`): a
receive in vain raises an error, and costs three times as much.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import socket
import time

import zmq

from ...storage import errors, settings
from .accept_filter import AcceptFilter
from .listeners import RECEIVE_BYTES_MAX, Listener, can_wait
from .peers import Backlog, Incoming, remote_credentials
from .sockets import HANDSHAKE_SECONDS, SEND_QUEUE_MAX, is_readable, new_monitor, next_event

LISTENER_QUEUE_MAX = 8
"""Frames of one peer that libzmq reads ahead for the daemon; each may be of the largest size."""

_NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_GIVEN_IDENTITY_BYTES = 5

_EVENTS = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_LISTENING)

_EVENTS_UNREAD_MAX = 1
"""Unread events above which libzmq waits, beside its own 1,000."""


class RemoteListener(Listener):
    """One ROUTER socket, and the monitor that tells of its connections.

    libzmq accepts until the filter is set, or until so many of its events are unread that it waits:
    the descriptor budget covers them (`settings.ACCEPTED_UNSEEN_MAX`).
    """

    kind = "remote"

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        dropped: collections.Counter[str],
        descriptors_max: int,
    ) -> None:
        super().__init__(dropped, descriptors_max)
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True
        self.socket.zap_domain = self.kind.encode()
        self.socket.maxmsgsize = settings.FRAME_BYTES_MAX
        self.socket.sndhwm = SEND_QUEUE_MAX
        self.socket.rcvhwm = LISTENER_QUEUE_MAX
        self.socket.copy_threshold = 0
        self.backlog = Backlog()
        self.socket.handshake_ivl = HANDSHAKE_SECONDS * 1_000
        self._listens_at: int | None = None
        self.monitor = new_monitor(self.socket, self.kind, _EVENTS, _EVENTS_UNREAD_MAX)

    def bind(self, endpoint: str) -> None:
        """Open the listener at ``endpoint``."""
        self.socket.ipv6 = "[" in endpoint
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            reason = error.strerror
            if error.errno == errno.ENODEV:
                reason = "this machine has no address and no network interface of that name"
            elif error.errno == errno.EADDRINUSE:
                reason = "something else listens there already"
            elif error.errno == errno.EADDRNOTAVAIL:
                reason = "this machine does not have that address"
            raise errors.OperatorError(f"{endpoint}: {reason}") from error
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        # A descriptor reports nothing before a first read has found nothing.
        self.follow_connections()
        assert self._listens_at is not None
        self._accept_filter = AcceptFilter(self._listens_at)

    def filenos(self) -> list[int]:
        """The descriptors of the socket and of the monitor."""
        return [self.socket.fileno(), self.monitor.fileno()]

    @property
    def has_room(self) -> bool:
        """Whether there are descriptors for some more connections."""
        return self.connections.open_count + self._batch_max <= self._descriptors_max

    def _let_in(self) -> None:
        """Set or remove the filter."""
        if self._listens_at is not None and self.has_room is self.is_paused:
            # On a system without filters only the limit of unread events remains.
            with contextlib.suppress(OSError):
                self._accept_filter.set(is_paused=not self.is_paused)
            self.is_paused = not self.is_paused

    def look(self) -> bool:
        """Whether the socket has a message."""
        self.is_emptied = not is_readable(self.socket)
        return not self.is_emptied

    def follow_connections(self) -> None:
        """Read the events of the monitor, and accept connections for which there is room now."""
        while (event := next_event(self.monitor)) is not None:
            kind, descriptor, _ = event
            if kind == zmq.EVENT_ACCEPTED:
                self.connections.accepted(descriptor, time.monotonic())
            elif kind == zmq.EVENT_DISCONNECTED:
                self.connections.ended(descriptor)
            elif kind == zmq.EVENT_LISTENING:
                self._listens_at = descriptor
        self._let_in()

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
        self.connections.spoke.add(descriptor)
        if self.connections.is_new(descriptor, peer):
            # The event that ended the descriptor's earlier connection may be unread.
            self.follow_connections()
            self.connections.heard(descriptor, peer)
        address, user = str(frame.get("Peer-Address")), str(frame.get("User-Id"))
        return Incoming(peer, frame.bytes, remote_credentials(address, user))

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
            elif self._can_wait(receiver, len(data)):
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

    def _can_wait(self, receiver: bytes, size: int) -> bool:
        waiting = self.backlog.waiting(receiver)
        return can_wait(size, waiting, self.backlog.total() if waiting else 0)

    def forget(self, receiver: bytes) -> None:
        """A peer has left: nothing waits for it any more."""
        self.backlog.forget(receiver)

    def close(self) -> None:
        """Free the filter's descriptor; the sockets end with their context."""
        if self._listens_at is not None:
            self._accept_filter.close()

    def _has_accepted(self, connection: socket.socket) -> bool:
        """Whether a connection may be one of this listener."""
        name = connection.getsockname()
        return not isinstance(name, str) and self.endpoint.endswith(f":{name[1]}")

    def _skip_rest(self) -> None:
        while self.socket.recv(copy=False).more:
            pass
