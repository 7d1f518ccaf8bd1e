"""Frames over ZeroMQ sockets: the daemon's `Router`, the clients' `Dealer`. The home of zmq.

How it works. The daemon has one ROUTER socket at each of its doors: the local one (ipc, a socket
file that only its owner can reach) and, if wanted, the remote one (tcp with CURVE, for clients
whose public key it knows). Each lets in only as many as have descriptors (`entrance`,
`deafness`): libzmq ends the process when it cannot accept. A message is one frame each way;
anything else is dropped and counted. Everything a peer is known by (kernel credentials, key) is
read from the message itself, where libzmq puts it for each connection: nothing is remembered
under a peer's name. libzmq numbers the peers; one that chose its own number is not heard,
because it could choose that of another that has left, and get its answers. Monitor sockets tell
which connections end: `Router.take_left` names the peers that are gone.

Handshakes are answered here, in the same poll as the messages (ZAP, without a thread): the
remote door asks for the key on each new connection, so that a key is known as soon as it is
stored; both doors turn new peers away when there are too many.

Descriptors are edge-triggered: one that was reported is quiet until everything was read, and
*sending* may take the report away. So after every send look at `Router.has_more`. Sockets are
asked whether they have something (`_is_readable`): to try in vain raises an error, and costs
three times as much.

The client's DEALER is told of its connection by a monitor socket: it can only lose frames
when a connection is lost, and whoever uses it then sends again (`session`). It therefore
queues nothing while there is no connection (IMMEDIATE): everything would arrive twice.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from ...storage import descriptors, documents, errors, settings
from ...storage import keys as key_files
from ..client.session import LinkEvent
from .deafness import Deafness
from .entrance import Batch, Entrance
from .memory_guard import Hoarding, OwnSize
from .peers import Backlog, Connections, Credentials, Incoming, Kind, credentials

__all__ = ["BaseDealer", "Credentials", "Dealer", "Incoming", "Router", "Sent", "new_key_pair"]

RECEIVE_FRAMES_MAX = 256
"""Most messages that one call of `Router.receive` gives."""

RECEIVE_BYTES_MAX = settings.FRAMES_BYTES_OPEN_MAX
"""Bytes after which one call of `Router.receive` gives no further message."""

SEND_QUEUE_MAX = 50_000
"""Frames waiting for one peer above which it counts as gone: it does not read."""

SEND_QUEUE_BYTES_MAX = 4 * settings.FRAME_BYTES_MAX
"""Bytes waiting for one peer above which it counts as gone."""

SEND_QUEUES_BYTES_MAX = 8 * settings.FRAME_BYTES_MAX
"""Bytes waiting for all peers together, above which those that read slowly count as gone."""

RECEIVE_QUEUE_MAX = 1_000
"""Frames waiting to be read by a client, above which the daemon keeps them."""

DOOR_QUEUE_MAX = 8
"""Frames of one peer that libzmq reads ahead for the daemon; each may be of the largest size."""

HANDSHAKE_SECONDS = 10
"""How long a connection may take to say who it is."""

RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.05, 0.5
"""How long a client waits before it tries to connect again: doubled each time."""

REMOTE_HEARTBEAT_SECONDS = 5
"""Silence after which each end of a remote connection asks for a sign of life."""

LINGER_SECONDS = 0.1
"""How long a client that is closed may take to get its last frames out."""

_POLLIN = int(zmq.POLLIN)
_NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_PREFIXES: dict[bytes, Kind] = {b"L": "local", b"R": "remote"}
_GIVEN_IDENTITY_BYTES = 5
_MONITOR_ENDPOINT = "inproc://monitor-"


def new_key_pair() -> key_files.KeyPair:
    """A fresh CURVE key pair."""
    public, secret = zmq.curve_keypair()
    return key_files.KeyPair(public=public.decode(), secret=secret.decode())


class Sent(enum.Enum):
    """What came of `Router.send_between`."""

    SURELY = "the frame is on its way"
    AND_THERE_IS_MORE = "as well; the owner must be told to `receive`, no descriptor will say so"
    NOT = "the owner is at work, or the peer is gone or does not read: let the owner `send`"


class Router:
    """The daemon's doors. One thread owns them; nothing here blocks.

    Any other thread may call `send_between`: it sends if the owner is not at work here.

    ``remote`` is an endpoint such as ``tcp://0.0.0.0:7610``; then ``keys`` must be the
    directory of its keys (`storage.keys`). A door uses at most ``descriptors_max`` descriptors,
    by default its share of what the process may have; when it is full it is deaf until some
    connections have ended.
    """

    def __init__(
        self,
        local: Path,
        *,
        remote: str | None = None,
        keys: Path | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        self.dropped: collections.Counter[str] = collections.Counter()
        """How many messages and connections were turned away, by reason."""
        self.server_key: str | None = None
        """The public key that remote clients must know; None without a remote door."""
        self._local = local
        self._keys = keys
        if descriptors_max is None:
            descriptors_max = descriptors.own_budget(is_remote=remote is not None).listener
        self._descriptors_max = descriptors_max
        self._left: list[bytes] = []
        self._leaving: list[bytes] = []
        # Held by whoever uses a socket.
        self._using = threading.Lock()
        self._doors: dict[Kind, _Door] = {}
        self._order: list[_Door] = []
        self._size = OwnSize()
        self._hoarding = Hoarding(self._size.read())
        self._context = _context(0.0)
        # Frames that are not copied need a thread and sockets of pyzmq, made for the first one:
        # later there may be no descriptors for them.
        zmq.Frame(b"first", copy=False, copy_threshold=0)
        try:
            self._handshakes = self._context.socket(zmq.ROUTER)
            self._handshakes.bind("inproc://zeromq.zap.01")
            self._open_local(local)
            if remote is not None:
                self._open_remote(remote)
        except BaseException:
            self.close()
            raise

    @property
    def endpoints(self) -> list[str]:
        """Where clients find the doors, the local one first."""
        return [door.endpoint for door in self._doors.values()]

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; when some are ready, `receive`."""
        local = self._doors["local"]
        assert isinstance(local, _LocalDoor)
        return [local.entrance.fileno(), *(each.fileno() for each in self._sockets())]

    @property
    def has_more(self) -> bool:
        """Whether `receive` may find something now, whatever the descriptors say."""
        if self._leaving:
            return True
        with self._using:
            return any(map(_is_readable, self._sockets()))

    def receive(self, limit: int | None = None) -> list[Incoming]:
        """What has come in, up to a limit (then `has_more` stays true); empty if nothing.

        With a ``limit`` of 0 the descriptors are quiet afterwards, whatever there is.
        """
        with self._using:
            return self._receive(RECEIVE_FRAMES_MAX if limit is None else limit)

    def _receive(self, limit: int) -> list[Incoming]:
        self._follow_connections()
        leaving, self._leaving = self._leaving, []
        self._answer_handshakes()
        # The doors take turns at being first, so that a flood at one does not close the other.
        self._order.reverse()
        incoming: list[Incoming] = []
        for door in self._order:
            incoming += door.receive(limit - len(incoming))
        if all(door.is_emptied for door in self._order):
            # All that had come from those who left before has been read.
            self._left += leaving
        else:
            self._leaving += leaving
        for door in self._order:
            # Some are known only now, by what they said last.
            self._leaving += door.connections.take_left()
        return incoming

    @property
    def has_connections(self) -> bool:
        """Whether anybody is there; then `end_hoarders` and `keep_room` from time to time."""
        return any(door.connections.count or door.is_deaf for door in self._order)

    @property
    def look_seconds(self) -> float:
        """How long to wait before `end_hoarders` looks again."""
        return self._hoarding.look_seconds

    def end_hoarders(self) -> int:
        """End connections that may keep too much memory, if any does; how many were ended."""
        silent = {door: door.connections.take_silent() for door in self._order}
        size, now = self._size.read(), time.monotonic()
        if not self._hoarding.is_suspected(size, now):
            return 0
        ended = sum(door.end(found) for door in self._order for found in silent[door])
        if not ended:
            # What the ones before had kept is free by now.
            size = self._size.shrink()
        self._hoarding.ended(ended, size, now)
        return ended

    def keep_room(self) -> int:
        """End connections that never spoke, at doors that are full; how many were ended."""
        before = time.monotonic() - settings.UNHEARD_SECONDS
        with self._using:
            self._follow_connections()
            ended = 0
            for door in self._order:
                if not door.has_room:
                    ended += sum(map(door.end, door.connections.unheard(before)))
        return ended

    def take_left(self) -> list[bytes]:
        """Peers that have left since this was last asked; nothing more comes from them."""
        left, self._left = self._left, []
        if left:
            with self._using:
                for peer in left:
                    self._doors[_PREFIXES[peer[:1]]].backlog.forget(peer[1:])
        return left

    def send(self, peer: bytes, data: bytes) -> bool:
        """Send a frame to ``peer``; False if it is gone or does not read."""
        with self._using:
            door = self._door_of(peer)
            return door is not None and door.send(peer[1:], data)

    def send_between(self, peer: bytes, data: bytes) -> Sent:
        """As `send`, for any thread, unless the owner is at work: then it must send."""
        if not self._using.acquire(blocking=False):
            return Sent.NOT
        try:
            door = self._door_of(peer)
            if door is None or not door.send(peer[1:], data):
                return Sent.NOT
            return Sent.AND_THERE_IS_MORE if _is_readable(door.socket) else Sent.SURELY
        except (OSError, MemoryError, zmq.ZMQError):
            # No business of whoever answers: the owner will meet it too.
            return Sent.NOT
        finally:
            self._using.release()

    def close(self) -> None:
        """Close the doors; frames that wait for peers are lost. Twice is harmless."""
        # The socket file stays: by now, it might be that of a successor.
        with self._using:
            self._context.destroy()
            self._size.close()
            for door in self._order:
                door.close()
            self._doors.clear()
            self._order.clear()

    def put_local_back(self) -> bool:
        """Make the file of the local door again, if it is gone; connections that are open stay.

        Raises `GangerError` if it cannot be made.
        """
        if self._local.exists():
            return False
        documents.make_private_directory(self._local.parent)
        local = self._doors["local"]
        assert isinstance(local, _LocalDoor)
        with self._using, documents.storage_errors(self._local):
            local.put_back()
        return True

    def _door_of(self, peer: bytes) -> _Door | None:
        kind = _PREFIXES.get(peer[:1])
        return None if kind is None else self._doors.get(kind)

    def _open_local(self, path: Path) -> None:
        documents.make_private_directory(path.parent)
        door = _LocalDoor(path, self._context, self.dropped, self._descriptors_max)
        self._add(door)

    def _open_remote(self, endpoint: str) -> None:
        assert self._keys is not None
        key_files.known_keys(self._keys)
        pair = key_files.server_pair(self._keys, new_key_pair)
        self.server_key = pair.public
        door = _RemoteDoor(self._context, self.dropped, self._descriptors_max)
        self._add(door)
        door.socket.curve_server = True
        door.socket.curve_secretkey = pair.secret.encode()
        _set_heartbeat(door.socket)
        door.bind(endpoint)

    def _add(self, door: _Door) -> _Door:
        self._doors[door.kind] = door
        self._order.append(door)
        return door

    def _answer_handshakes(self) -> None:
        while _is_readable(self._handshakes):
            parts = self._handshakes.recv_multipart(zmq.NOBLOCK)
            # Sender, empty, version, number, domain, address, identity, mechanism, proof.
            domain, proof = parts[4], parts[8:]
            user = z85.encode(proof[0]) if domain == b"remote" and proof else b""
            status = self._judge(domain, user)
            user = user if status == _ADMITTED else b""
            self._handshakes.send_multipart([*parts[:4], *status, user, b""])

    def _judge(self, domain: bytes, key: bytes) -> tuple[bytes, bytes]:
        """Whether a connection may be made: status and text, as ZAP wants them."""
        door = self._doors["local" if domain == b"local" else "remote"]
        try:
            # The connection in question may be newer than what is known.
            self._follow_connections()
            if door.connections.count > door.peers_max:
                refusal = _TURNED_AWAY, b"too many peers"
            elif domain == b"local" or self._is_known(key.decode()):
                return _ADMITTED
            else:
                refusal = _REFUSED, b"unknown key"
        except errors.StorageError as error:
            refusal = _TURNED_AWAY, error.text.encode()
        self.dropped[refusal[1].decode()] += 1
        door.connections.turned_away()
        return refusal

    def _sockets(self) -> Iterator[zmq.Socket[bytes]]:
        for door in self._order:
            yield from (door.socket, door.monitor)
        if self._order:
            yield self._handshakes

    def _follow_connections(self) -> None:
        for door in self._order:
            door.follow_connections()
            self._leaving += door.connections.take_left()

    def _is_known(self, key: str) -> bool:
        return self._keys is not None and key_files.is_known(self._keys, key)


class _Door:
    """One ROUTER socket, and the monitor that tells of its connections."""

    kind: Kind
    events = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
    """What the monitor tells of."""
    events_unread_max = 0
    """Events above which libzmq waits until they are read, beside its own 1,000; 0: no limit."""

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
        """Connections above which further ones are told that there are too many."""
        self.is_deaf = False
        """Whether nobody is let in now."""
        self.endpoint = ""
        self._dropped = dropped
        self._prefix = next(prefix for prefix, name in _PREFIXES.items() if name == kind)
        self.connections = Connections()
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True
        self.socket.zap_domain = kind.encode()
        self.socket.maxmsgsize = settings.FRAME_BYTES_MAX
        self.socket.sndhwm = SEND_QUEUE_MAX
        self.socket.rcvhwm = DOOR_QUEUE_MAX
        self.socket.copy_threshold = 0
        self.backlog = Backlog()
        self.is_emptied = False
        """Whether the last `receive` found no further message."""
        self.socket.handshake_ivl = HANDSHAKE_SECONDS * 1_000
        self._listens_at: int | None = None
        self.monitor = _monitor(self.socket, kind, self.events, self.events_unread_max)

    @property
    def has_room(self) -> bool:
        """Whether some connections more have descriptors."""
        return self.connections.open_count + self._batch_max <= self._descriptors_max

    def let_in(self) -> None:
        """Let in those who wait if there is room; be deaf until there is some again."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the door has beside its sockets."""

    def follow_connections(self) -> None:
        """Read what the monitor has to tell, and let in those for whom there is room now."""
        while (event := _monitor_event(self.monitor)) is not None:
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
        while True:
            self.is_emptied = not _is_readable(self.socket)
            if self.is_emptied or len(incoming) >= limit or bytes_read >= RECEIVE_BYTES_MAX:
                return incoming
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

    def _incoming(self, peer: bytes, frame: zmq.Frame) -> Incoming:
        descriptor = int(frame.get("__fd"))
        self.connections.spoke(descriptor)
        if self.connections.is_new(descriptor, peer):
            # The descriptor may have been another's, whose end has not been read.
            self.follow_connections()
            self.connections.heard(descriptor, peer)
        address, user = str(frame.get("Peer-Address")), str(frame.get("User-Id"))
        return Incoming(peer, frame.bytes, credentials(self.kind, address, user))

    def end(self, descriptor: int) -> bool:
        """End a connection; False if it has ended already.

        libzmq has the descriptor, and notices the end as if it were the other side's.
        """
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            return False
        try:
            # The number may be another file's by now.
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
        is_marked = self.backlog.wants_mark(receiver, len(data))
        try:
            if not is_marked:
                self.socket.send(receiver, _NOBLOCK_MORE)
                self.socket.send(data, zmq.NOBLOCK)
            elif self._has_room(receiver, len(data)):
                # What can fail comes first: half a message would spoil the next one.
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
        """Whether a connection may be one of this door."""
        raise NotImplementedError


class _LocalDoor(_Door):
    """The door at a socket file. libzmq gets connections by the batch (`entrance`)."""

    kind = "local"

    def __init__(
        self,
        path: Path,
        context: zmq.Context[zmq.Socket[bytes]],
        dropped: collections.Counter[str],
        descriptors_max: int,
    ) -> None:
        # A connection that comes alone has a batch of its own.
        super().__init__(context, dropped, descriptors_max, per_connection=2)
        self._batches: dict[str, Batch] = {}
        self._batch_of: dict[int, Batch] = {}
        self._last: Batch | None = None
        self.entrance = Entrance(path, self._batch_max - 1)
        self.endpoint = f"ipc://{path}"
        self.follow_connections()

    @property
    def has_room(self) -> bool:
        """Whether another batch has descriptors."""
        used = self.connections.open_count + len(self._batches)
        return used + self._batch_max + 2 <= self._descriptors_max

    def let_in(self) -> None:
        """Hand the next batch over when the one before is in."""
        for batch in [batch for batch in self._batches.values() if batch.is_over]:
            self.socket.unbind(batch.endpoint)
            del self._batches[batch.endpoint]
        if self._last is not None:
            self._last.look()
        is_ready = self._last is None or self._last.is_in
        self.is_deaf = not self.has_room
        if is_ready and not self.is_deaf and self.entrance.has_waiting:
            is_ready = False
            try:
                self._hand_over()
            except OSError:
                # There is no socket for now, or no place for its file: we look again.
                self.is_deaf = True
        self.entrance.watch(is_wanted=is_ready and not self.is_deaf)

    def put_back(self) -> None:
        """Make the socket file again; `OSError` if it cannot be made."""
        self.entrance.replace(self._batches)

    def _hand_over(self) -> None:
        batch, descriptor = self.entrance.take(self._batches)
        self._batches[batch.endpoint] = self._last = batch
        self.socket.setsockopt(zmq.USE_FD, descriptor)
        # libzmq closes the descriptor.
        self.socket.bind(batch.endpoint)

    def close(self) -> None:
        """Free the entrance."""
        self.entrance.close()
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
        return self.entrance.has_accepted(connection.getsockname())


class _RemoteDoor(_Door):
    """The door for clients elsewhere, which is made deaf when it is full.

    libzmq accepts until then, or until so many of its events are unread that it waits: the
    budget knows of them (`settings.ACCEPTED_UNSEEN_MAX`).
    """

    kind = "remote"
    events = int(_Door.events | zmq.EVENT_LISTENING)
    events_unread_max = 1

    def bind(self, endpoint: str) -> None:
        """Open the door at ``endpoint``."""
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise errors.OperatorError(f"{endpoint}: {error.strerror}") from error
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        # A descriptor reports nothing before somebody has looked and found nothing.
        self.follow_connections()
        assert self._listens_at is not None
        self._deafness = Deafness(self._listens_at)

    def let_in(self) -> None:
        """Listen or not."""
        if self.has_room is self.is_deaf:
            # Where the system knows no filters only the limit of unread events remains.
            with contextlib.suppress(OSError):
                self._deafness.set(is_deaf=not self.is_deaf)
            self.is_deaf = not self.is_deaf

    def close(self) -> None:
        """Free the descriptor."""
        if self._listens_at is not None:
            self._deafness.close()

    def _has_accepted(self, connection: socket.socket) -> bool:
        name = connection.getsockname()
        return not isinstance(name, str) and self.endpoint.endswith(f":{name[1]}")


_LINK_EVENTS: dict[int, LinkEvent] = {
    zmq.EVENT_CONNECTED: LinkEvent.REACHED,
    zmq.EVENT_HANDSHAKE_SUCCEEDED: LinkEvent.MADE,
    zmq.EVENT_DISCONNECTED: LinkEvent.LOST,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: LinkEvent.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: LinkEvent.FAILED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: LinkEvent.FAILED,
}


class BaseDealer:
    """What `Dealer` and `async_wire.AsyncDealer` share: everything but waiting.

    ``pair`` is the client's own key, with the daemon's public one, for a remote door.
    """

    def __init__(self, endpoint: str, pair: key_files.KeyPair | None = None) -> None:
        self.endpoint = ""
        self._event: LinkEvent | None = None
        self._retry_at: float | None = None
        self._context = _context(LINGER_SECONDS)
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
                _set_heartbeat(self._socket)
            self._monitor = _monitor(self._socket, "line", sum(_LINK_EVENTS))
            self.move(endpoint)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def move(self, endpoint: str) -> None:
        """Connect to ``endpoint`` from now on; to the same one again if it refused."""
        self._retry_at = None
        if self.endpoint:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(self.endpoint)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            text = f"endpoint {endpoint!r}: expected ipc://PATH or tcp://HOST:PORT"
            raise errors.BadRequestError(text) from error
        self.endpoint = endpoint

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading, for who waits for other things too: then `receive`."""
        return [self._socket.fileno(), self._monitor.fileno()]

    def send(self, data: bytes) -> bool:
        """Send a frame; False while there is no connection (or its queue is full)."""
        # libzmq looks for news of connections only now and then when it sends, but always when
        # it has nothing to receive: after `take` found nothing, this knows all there is.
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Close; frames already sent get a moment to leave. Twice is harmless."""
        self._context.destroy()

    def take(self) -> bytes | LinkEvent | None:
        """The next frame or news of the connection, if there is any now."""
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self.move(self.endpoint)
        # Frames go before news. On a connection just made nothing was asked yet, so frames
        # that are there now belong to the one before, and must not seem to come after it.
        data = self._data()
        if data is None and self._event is None:
            self._event = self._next_event()
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
        if not _is_readable(self._socket):
            return None
        return self._socket.recv_multipart(zmq.NOBLOCK)[0]

    def _next_event(self) -> LinkEvent | None:
        while (event := _monitor_event(self._monitor)) is not None:
            kind, value, _ = event
            if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value != int(_REFUSED):
                # libzmq takes every refusal for the last word, and does not come back.
                self._retry_at = time.monotonic() + RECONNECT_SECONDS_MAX
                return LinkEvent.TURNED_AWAY
            if kind in _LINK_EVENTS:
                return _LINK_EVENTS[kind]
        return None


class Dealer(BaseDealer):
    """A client's connection, for one thread."""

    def __init__(self, endpoint: str, pair: key_files.KeyPair | None = None) -> None:
        super().__init__(endpoint, pair)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def receive(self, timeout_seconds: float | None) -> bytes | LinkEvent | None:
        """The next frame or news of the connection; None when the time is over."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if (item := self.take()) is not None:
                return item
            if end is not None and time.monotonic() >= end:
                return None
            patience = self.patience_seconds(end)
            self._poller.poll(None if patience is None else int(patience * 1_000) + 1)


# Statuses of ZAP. 300, for passing reasons, is not used: libzmq leaves some of those
# connections hanging until the time for the handshake is over.
_ADMITTED = b"200", b"OK"
_REFUSED = b"400"
_TURNED_AWAY = b"500"


def _is_readable(asked: zmq.Socket[bytes]) -> bool:
    """Whether ``asked`` has a message; it looks at all news first. Cheaper than to try and fail."""
    return bool(int(asked.getsockopt(zmq.EVENTS)) & _POLLIN)


def _context(linger_seconds: float) -> zmq.Context[zmq.Socket[bytes]]:
    """A context; when it ends, what its sockets have not sent by then is kept for so long.

    They have this from the start: a connection that is lost with unsent frames just before the
    end takes the time that holds then, and that is for ever unless somebody says otherwise.
    """
    context = zmq.Context()
    context.linger = round(linger_seconds * 1_000)
    return context


def _set_heartbeat(socket: zmq.Socket[bytes]) -> None:
    socket.heartbeat_ivl = REMOTE_HEARTBEAT_SECONDS * 1_000
    socket.heartbeat_timeout = 3 * REMOTE_HEARTBEAT_SECONDS * 1_000


def _monitor(
    socket: zmq.Socket[bytes], name: str, events: int, unread_max: int = 0
) -> zmq.Socket[bytes]:
    endpoint = _MONITOR_ENDPOINT + name
    socket.monitor(endpoint, events)
    monitor: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
    # With a limit, a monitor that is not read for long stops all traffic.
    monitor.rcvhwm = unread_max
    monitor.connect(endpoint)
    return monitor


def _monitor_event(monitor: zmq.Socket[bytes]) -> tuple[int, int, str] | None:
    if not _is_readable(monitor):
        return None
    event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))
    return event["event"], event["value"], event["endpoint"].decode()
