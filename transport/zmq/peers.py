"""Which peers are connected to the daemon's listeners, as far as libzmq tells. No sockets.

A monitor names connections by descriptor, and a message carries the descriptor of its connection:
together they say which peer has left.
"""

from __future__ import annotations

import collections
import functools
from typing import Literal, Protocol

import msgspec

Kind = Literal["local", "remote"]


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a message: the kernel names a local peer, CURVE a remote one."""

    kind: Kind
    uid: int | None = None
    pid: int | None = None
    key: str | None = None
    address: str = ""


class Incoming(msgspec.Struct, frozen=True):
    """A message from a peer. ``peer`` names the connection, and never names another one."""

    peer: bytes
    data: bytes
    identity: Credentials


class SendTracker(Protocol):
    """Tells whether a frame, and all that were sent before it, has left this process."""

    @property
    def done(self) -> bool:
        """Whether it has."""


class Backlog:
    """How many bytes wait for each peer to read them.

    Only some frames are marked, so that the others cost nothing: up to ``MARK_BYTES`` of a peer
    are not counted.
    """

    MARK_BYTES = 64 * 1_024

    def __init__(self) -> None:
        self._unmarked: collections.Counter[bytes] = collections.Counter()
        self._marked: dict[bytes, collections.deque[tuple[int, SendTracker]]] = {}

    def wants_mark(self, peer: bytes, size: int) -> bool:
        """Count a frame for ``peer``; whether this one is to be marked."""
        self._unmarked[peer] += size
        return self._unmarked[peer] >= self.MARK_BYTES

    def marked(self, peer: bytes, mark: SendTracker) -> None:
        """The frame counted last was sent with this mark."""
        line = self._marked.setdefault(peer, collections.deque())
        line.append((self._unmarked.pop(peer, 0), mark))

    def waiting(self, peer: bytes) -> int:
        """Bytes that wait for this peer, without those that are not marked yet."""
        line = self._marked.get(peer)
        if line is None:
            return 0
        while line and line[0][1].done:
            line.popleft()
        if not line:
            del self._marked[peer]
        return sum(size for size, _ in line)

    def total(self) -> int:
        """Bytes that wait for all peers together."""
        return sum(self.waiting(peer) for peer in list(self._marked))

    def forget(self, peer: bytes) -> None:
        """The peer has left; what waited for it is dropped."""
        self._unmarked.pop(peer, None)
        self._marked.pop(peer, None)


class Connections:
    """The connections of one listener."""

    def __init__(self) -> None:
        self._peers: dict[int, bytes | None] = {}
        self._last_peers: dict[int, bytes] = {}
        self.lasting: bytes | None = None
        """A peer that is never silent."""
        # Turned away, but still connected; libzmq does not say which connection it was.
        self._leaving_count = 0
        self.left: list[bytes] = []
        """The peers that have left since `take_left`."""
        self.spoke: set[int] = set()
        """The connections that have completed a message since `take_silent`, or came since."""
        # Those that have completed no message, and when they came.
        self._unheard: dict[int, float] = {}

    @property
    def count(self) -> int:
        """How many there are, without those whose handshake was refused."""
        return len(self._peers) - self._leaving_count

    @property
    def open_count(self) -> int:
        """How many have a descriptor."""
        return len(self._peers)

    def descriptor_of(self, peer: bytes) -> int | None:
        """The descriptor of this peer's connection, if it has one."""
        found = (descriptor for descriptor, one in self._peers.items() if one == peer)
        return next(found, None)

    def accepted(self, descriptor: int, now: float = 0.0) -> None:
        """A connection was made at ``now``."""
        self._peers[descriptor] = None
        self.spoke.add(descriptor)
        self._unheard[descriptor] = now

    def unheard(self, before: float) -> list[int]:
        """Connections from before then on which no message was ever completed."""
        return [descriptor for descriptor, since in self._unheard.items() if since <= before]

    def turned_away(self) -> None:
        """One of the connections will end soon, if it has not ended already."""
        self._leaving_count = min(len(self._peers), self._leaving_count + 1)

    def ended(self, descriptor: int) -> None:
        """A connection has ended."""
        peer = self._peers.pop(descriptor, None)
        self._unheard.pop(descriptor, None)
        self._leaving_count = max(0, self._leaving_count - 1)
        if peer is not None:
            self._name_left(descriptor, peer)

    def is_new(self, descriptor: int, peer: bytes) -> bool:
        """Whether no message of ``peer`` came before, at this descriptor."""
        return self._peers.get(descriptor) != peer

    def take_silent(self) -> list[int]:
        """Connections that neither began nor completed a message since the last call."""
        spoke, self.spoke = self.spoke, set()
        return [
            descriptor
            for descriptor, peer in self._peers.items()
            if descriptor not in spoke and (peer is None or peer != self.lasting)
        ]

    def heard(self, descriptor: int, peer: bytes) -> None:
        """The first message of ``peer`` came by this descriptor; it may be its last, read late."""
        self._unheard.pop(descriptor, None)
        gone = peer
        if descriptor in self._peers:
            booked = self._peers[descriptor]
            if booked is None or _is_later(peer, booked):
                self._peers[descriptor] = peer
                gone = booked or peer
            if gone == self._peers[descriptor]:
                return
        # Two peers have had the descriptor: the earlier one has left.
        if self._last_peers.get(descriptor) != gone:
            self._name_left(descriptor, gone)

    def take_left(self) -> list[bytes]:
        """The peers that have left since the last call."""
        left, self.left = self.left, []
        return left

    def _name_left(self, descriptor: int, peer: bytes) -> None:
        self._last_peers[descriptor] = peer
        self.left.append(peer)


def _is_later(peer: bytes, other: bytes) -> bool:
    """Whether ``peer`` came after ``other``: libzmq counts them, and begins again at 2**32."""
    number, before = int.from_bytes(peer[-4:]), int.from_bytes(other[-4:])
    return 0 < (number - before) % 2**32 < 2**31


@functools.lru_cache(maxsize=4_096)
def remote_credentials(address: str, key: str) -> Credentials:
    """The identity in what libzmq says of a connection: its address, and the key it showed."""
    return Credentials(kind="remote", key=key, address=address)
