"""The daemon's end of all connections: `Router`, with its listeners.

How it works. The daemon has one listener at the local socket (ipc, a file that only its owner can
reach; `local_listener` speaks ZeroMQ's protocol itself) and, if wanted, one at a remote endpoint
(tcp with CURVE, for clients whose public key it knows; `remote_listener` leaves it to libzmq). Each
message comes with the identity of its peer (kernel credentials, key). `Router.take_left` names the
peers that are gone.

The router answers the handshakes of the remote listener itself, in the same poll as the messages
(ZAP, without a thread). It looks up the key of each new remote connection, so a key counts as soon
as it is stored. Both listeners turn new peers away when there are too many.

Descriptors of the remote listener are edge-triggered: *sending* may take a report away. So after
every send look at `Router.has_more`.
"""

from __future__ import annotations

import collections
import enum
import math
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import zmq
from zmq.utils import z85

from ...storage import errors, settings
from ...storage.access import keys as key_files
from ...storage.disk import descriptors, documents
from .listeners import PREFIXES, Listener
from .local_listener import LocalListener
from .memory_guard import MemoryGuard, ProcessMemory
from .peers import Incoming, Kind
from .remote_listener import RemoteListener
from .sockets import (
    ADMITTED,
    REFUSED,
    TURNED_AWAY,
    is_readable,
    new_context,
    new_key_pair,
    set_heartbeat,
)

_UNKNOWN = REFUSED, b"unknown key"

_REFUSED_MAX = 10
"""So many of the last refused keys are kept for the log."""

_REFUSED_SECONDS = 1.0
"""How often they are told."""

RECEIVE_FRAMES_MAX = 256
"""Most messages that one call of `Router.receive` gives."""


class Sent(enum.Enum):
    """Whether `Router.try_send` has sent the frame."""

    YES = "the frame is on its way"
    YES_AND_READ_ON = "the frame is on its way; have the owner `receive`: no descriptor reports"
    NO = "the owner is at work, or the peer is gone or does not read: let the owner `send`"


class Router:
    """The daemon's listeners. One thread owns them; nothing here blocks.

    Any other thread may call `try_send`: it sends unless the owner is at work here.

    ``local``: the socket's file; None: no local listener.
    ``remote`` is an endpoint such as ``tcp://0.0.0.0:7610``; then ``keys`` must be the
    directory of its keys (`storage.access.keys`). ``knows`` says whether a key (Z85) may connect;
    without it, the files of clients in ``keys`` do. A listener uses at most ``descriptors_max``
    descriptors, by default its share of what the process may have. A full listener accepts no
    connection until some have ended.
    """

    def __init__(
        self,
        local: Path | None,
        *,
        remote: str | None = None,
        keys: Path | None = None,
        knows: Callable[[str], bool] | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        self.dropped: collections.Counter[str] = collections.Counter()
        """How many messages and connections were turned away, by reason."""
        self._refused: collections.deque[tuple[str, str]] = collections.deque(maxlen=_REFUSED_MAX)
        self._refused_told = -math.inf
        self.server_key: str | None = None
        """The public key that remote clients must know; None without a remote listener."""
        self._local = local
        self._keys = keys
        self._knows = knows
        if descriptors_max is None:
            descriptors_max = descriptors.own_budget(
                is_remote=remote is not None, wishes={}
            ).listener
        self._descriptors_max = descriptors_max
        self._left: list[bytes] = []
        self._leaving: list[bytes] = []
        # The owner was told to read on, and has not done so yet.
        self._is_told = False
        # A thread holds it while it uses a socket.
        self._using = threading.Lock()
        self._listeners: dict[Kind, Listener] = {}
        self._by_descriptor: dict[int, Listener] = {}
        self._order: list[Listener] = []
        self._size = ProcessMemory()
        self._memory_guard = MemoryGuard(self._size.read())
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        try:
            if local is not None:
                self._open_local(local)
            if remote is not None:
                self._open_remote(remote)
        except BaseException:
            self.close()
            raise

    @property
    def endpoints(self) -> list[str]:
        """Where clients find the listeners, the local one first."""
        return [listener.endpoint for listener in self._listeners.values()]

    def filenos(self) -> list[int]:
        """Descriptors to poll for reading; when some are ready, `receive`."""
        found = [number for listener in self._listeners.values() for number in listener.filenos()]
        if self._context is not None:
            found.append(self._handshakes.fileno())
        return found

    @property
    def has_more(self) -> bool:
        """Whether `receive` finds something now of which no descriptor may tell."""
        if self._leaving:
            return True
        with self._using:
            self._is_told = False
            return any(not listener.is_emptied and listener.look() for listener in self._order)

    def receive(
        self, limit: int | None = None, reported: Collection[int] | None = None
    ) -> list[Incoming]:
        """What has come in, up to a limit (then `has_more` stays true); empty if nothing.

        With a ``limit`` of 0 the descriptors are quiet afterwards, whatever there is. ``reported``:
        the descriptors that are readable; None: they were not polled.
        """
        with self._using:
            self._is_told = False
            return self._receive(RECEIVE_FRAMES_MAX if limit is None else limit, reported)

    def _receive(self, limit: int, reported: Collection[int] | None) -> list[Incoming]:
        if reported is None or not self._by_descriptor.keys() >= set(reported):
            # Connections came or went.
            self._follow_connections()
            self._answer_handshakes()
            for listener in self._order:
                listener.is_emptied = False
        for descriptor in reported or ():
            if (one := self._by_descriptor.get(descriptor)) is not None:
                one.is_emptied = False
        leaving, self._leaving = self._leaving, []
        # The listeners take turns at being first, so that a flood at one does not close the other.
        self._order.reverse()
        incoming: list[Incoming] = []
        for listener in self._order:
            if not listener.is_emptied or leaving:
                incoming += listener.receive(limit - len(incoming))
        if all(listener.is_emptied for listener in self._order):
            # Everything from the peers that left before has been read.
            self._left += leaving
        else:
            self._leaving += leaving
        for listener in self._order:
            if listener.connections.left:
                # A late message has just shown that these peers left.
                self._leaving += listener.connections.take_left()
        return incoming

    @property
    def has_connections(self) -> bool:
        """Whether there is a connection; then call `guard_memory` and `end_unheard` regularly."""
        return any(listener.connections.count or listener.is_paused for listener in self._order)

    @property
    def look_seconds(self) -> float:
        """How long to wait before the next `guard_memory`."""
        return self._memory_guard.look_seconds

    def guard_memory(self, kept: int = 0) -> int:
        """If the process has grown too much, end the silent connections; how many were ended.

        ``kept``: the bytes that it may keep on purpose.
        """
        silent = {listener: listener.connections.take_silent() for listener in self._order}
        size, now = self._size.read(), time.monotonic()
        if not self._memory_guard.is_suspected(size, now, kept):
            return 0
        with self._using:
            ended = sum(
                listener.end(one)
                for listener in self._order
                for one in listener.suspects(silent[listener])
            )
        if not ended:
            # What earlier ended connections had kept is free by now.
            size = self._size.shrink()
        self._memory_guard.ended(ended, size, now, kept)
        return ended

    def end_unheard(self) -> int:
        """At full listeners, end the connections that never sent a message; how many were ended."""
        before = time.monotonic() - settings.UNHEARD_SECONDS
        with self._using:
            self._follow_connections()
            ended = 0
            for listener in self._order:
                if not listener.has_room:
                    ended += sum(map(listener.end, listener.connections.unheard(before)))
        return ended

    def take_left(self) -> list[bytes]:
        """Peers that have left since the last call; nothing more comes from them."""
        left, self._left = self._left, []
        if left:
            with self._using:
                for peer in left:
                    self._listeners[PREFIXES[peer[:1]]].forget(peer[1:])
        return left

    def keep(self, peer: bytes) -> None:
        """Never end the connection of this local peer for its silence."""
        self._listeners["local"].connections.lasting = peer

    def end(self, peer: bytes) -> bool:
        """End the connection of ``peer``; False if it has ended already."""
        with self._using:
            listener = self._listener_of(peer)
            descriptor = None if listener is None else listener.connections.descriptor_of(peer)
            return listener is not None and descriptor is not None and listener.end(descriptor)

    def send(self, peer: bytes, data: bytes) -> bool:
        """Send a frame to ``peer``; False if it is gone or does not read."""
        with self._using:
            listener = self._listener_of(peer)
            return listener is not None and listener.send(peer[1:], data)

    def try_send(self, peer: bytes, data: bytes) -> Sent:
        """As `send`, for any thread, unless the owner is at work: then the owner must send."""
        if not self._using.acquire(blocking=False):
            return Sent.NO
        try:
            listener = self._listener_of(peer)
            if listener is None or not listener.send(peer[1:], data):
                return Sent.NO
            return Sent.YES_AND_READ_ON if self._is_news(listener) else Sent.YES
        except (OSError, MemoryError, zmq.ZMQError):
            # The owner meets the same error, and handles it.
            return Sent.NO
        finally:
            self._using.release()

    def _is_news(self, listener: Listener) -> bool:
        """Whether the owner has to be told, after a send, that there is something to read."""
        if listener.kind == "local":
            # Its descriptor goes on to report.
            return False
        if self._is_told:
            # The owner has not read since: it will look at this listener as well.
            listener.is_emptied = False
            return False
        self._is_told = listener.look()
        return self._is_told

    def close(self) -> None:
        """Close the listeners; frames that wait for peers are lost. Twice is harmless."""
        # The socket file stays: it may be a successor's by now.
        with self._using:
            if self._context is not None:
                self._context.destroy()
            self._size.close()
            for listener in self._order:
                listener.close()
            self._listeners.clear()
            self._order.clear()

    def restore_local_socket(self) -> bool:
        """Make the file of the local listener again, if it is gone; open connections stay.

        Raises `GangerError` if it cannot be made.
        """
        if self._local is None or self._local.exists():
            return False
        documents.make_private_directory(self._local.parent)
        local = self._listeners["local"]
        assert isinstance(local, LocalListener)
        with self._using, documents.storage_errors(self._local):
            local.put_back()
        return True

    def _listener_of(self, peer: bytes) -> Listener | None:
        kind = PREFIXES.get(peer[:1])
        return None if kind is None else self._listeners.get(kind)

    def _open_local(self, path: Path) -> None:
        documents.make_private_directory(path.parent)
        self._add(LocalListener(path, self.dropped, self._descriptors_max))

    def _open_remote(self, endpoint: str) -> None:
        assert self._keys is not None
        if self._knows is None:
            key_files.known_keys(self._keys)
        pair = key_files.server_pair(self._keys, new_key_pair)
        self.server_key = pair.public
        self._context = new_context(0.0)
        # pyzmq makes a thread and sockets for the first frame that is not copied. Later there may
        # be no descriptors for them.
        zmq.Frame(b"first", copy=False, copy_threshold=0)
        self._handshakes = self._context.socket(zmq.ROUTER)
        self._handshakes.bind("inproc://zeromq.zap.01")
        listener = RemoteListener(self._context, self.dropped, self._descriptors_max)
        self._add(listener)
        listener.socket.curve_server = True
        listener.socket.curve_secretkey = pair.secret.encode()
        set_heartbeat(listener.socket)
        listener.bind(endpoint)

    def _add(self, listener: Listener) -> None:
        self._listeners[listener.kind] = listener
        self._order.append(listener)
        # Reports of the others are read as reports of connections.
        self._by_descriptor[listener.filenos()[0]] = listener

    def _answer_handshakes(self) -> None:
        while self._context is not None and is_readable(self._handshakes):
            parts = self._handshakes.recv_multipart(zmq.NOBLOCK)
            # Sender, empty, version, number, domain, address, identity, mechanism, proof.
            proof = parts[8:]
            user = z85.encode(proof[0]) if proof else b""
            status = self._judge(user)
            if status == _UNKNOWN:
                self._refused.append((key_files.to_hex(user.decode()), parts[5].decode()))
            user = user if status == ADMITTED else b""
            self._handshakes.send_multipart([*parts[:4], *status, user, b""])

    def _judge(self, key: bytes) -> tuple[bytes, bytes]:
        """Whether a remote connection may be made: status and text, as ZAP wants them."""
        listener = self._listeners["remote"]
        try:
            # The monitors may not have been read since the connection came.
            self._follow_connections()
            if listener.connections.count > listener.peers_max:
                refusal = TURNED_AWAY, b"too many peers"
            elif self._is_known(key.decode()):
                return ADMITTED
            else:
                refusal = _UNKNOWN
        except errors.StorageError as error:
            refusal = TURNED_AWAY, error.text.encode()
        self.dropped[refusal[1].decode()] += 1
        listener.connections.turned_away()
        return refusal

    def _follow_connections(self) -> None:
        for listener in self._order:
            listener.follow_connections()
            self._leaving += listener.connections.take_left()

    def _is_known(self, key: str) -> bool:
        if self._knows is not None:
            return self._knows(key)
        return self._keys is not None and key_files.name_of(self._keys, key) is not None

    def take_refused(self) -> list[tuple[str, str]]:
        """The last unknown keys that were shown since the last call, and from where.

        ``dropped`` counts all of them: a flood shows few here.
        """
        now = time.monotonic()
        if not self._refused or now < self._refused_told + _REFUSED_SECONDS:
            return []
        self._refused_told = now
        refused = list(self._refused)
        self._refused.clear()
        return refused
