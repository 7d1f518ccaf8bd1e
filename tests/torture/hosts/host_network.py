"""The network between hosts and their master: it loses, repeats, reorders and cuts.

Frames go over connections, as ZeroMQ has them: one is lost without a word only if a connection ends
later. A cut lets nothing through, in both directions or in one; after the time of a heartbeat each
end finds for itself that the connection is gone.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.peers import Credentials, Incoming

if TYPE_CHECKING:
    from tests.torture.hosts.agenda import Agenda
    from tests.torture.hosts.side import Side

    from ganger.storage.access.keys import KeyPair

HEARTBEAT_SECONDS = 4.0
RECONNECT_SECONDS_MAX = 0.5
ENDPOINT = "tcp://10.0.0.1:7611"


class Connection:
    """One, from a host to the hub. ``ended`` has the ends that know that it is over."""

    def __init__(self, peer: bytes, dealer: Dealer, router: Router) -> None:
        self.peer = peer
        self.dealer = dealer
        self.router = router
        self.ended: set[str] = set()
        self.last = {"up": 0.0, "down": 0.0}


class Network:
    """All connections. ``cut``: the directions that let nothing through, by the host's key."""

    active: ClassVar[Network]

    def __init__(self, agenda: Agenda, master: Side) -> None:
        Network.active = self
        self.agenda = agenda
        self.master = master
        self.sides: dict[str, Side] = {}
        """The hosts by their public keys."""
        self.hub: Router | None = None
        self.cuts: dict[str, set[str]] = {}
        self.delay_seconds = 0.002
        self.repeat_chance = self.reorder_chance = 0.0
        self._peers = itertools.count(1)
        self.connections: dict[bytes, Connection] = {}

    # Connections.

    def connect(self, dealer: Dealer, attempt: int) -> None:
        """Try; again later if nobody is there."""
        if dealer.is_closed or dealer.attempt != attempt or dealer.connection is not None:
            return
        hub = self.hub
        if hub is None or self.cuts.get(dealer.key):
            dealer.try_later()
        elif hub.knows is not None and not hub.knows(dealer.key):
            dealer.happen(ConnectionEvent.REFUSED)
        else:
            made = Connection(b"R%05d" % next(self._peers), dealer, hub)
            self.connections[made.peer] = dealer.connection = made
            dealer.happen(ConnectionEvent.MADE)

    def end(self, connection: Connection, knows: str = "") -> None:
        """The connection is over; the ends hear of it one after the other. One may know it."""
        for one in ("up", "down"):
            if one == knows:
                self._told(connection, one)
            else:
                seconds = self.agenda.dice.uniform(0.0, 0.01)
                self.agenda.later(seconds, functools.partial(self._told, connection, one))

    def _told(self, connection: Connection, end: str) -> None:
        """``up``: the hub hears that it is over, ``down``: the host."""
        if end in connection.ended:
            return
        connection.ended.add(end)
        if end == "up":
            connection.router.lose(connection.peer)
        else:
            connection.dealer.lose(connection)
        if len(connection.ended) > 1:
            self.connections.pop(connection.peer, None)

    def cut(self, key: str, directions: set[str], seconds: float) -> None:
        """Nothing goes in these directions for a while."""
        self.cuts[key] = directions
        for one in list(self.connections.values()):
            if one.dealer.key == key:
                for end in ("up", "down"):
                    wait = HEARTBEAT_SECONDS + self.agenda.dice.uniform(0.0, 2.0)
                    if wait < seconds:
                        self.agenda.later(wait, functools.partial(self._told, one, end))
        self.agenda.later(seconds, functools.partial(self._mend, key, directions))

    def _mend(self, key: str, directions: set[str]) -> None:
        if self.cuts.get(key) is directions:
            del self.cuts[key]
        # What was lost meanwhile is lost for good: TCP would have sent it again, or ended.
        for one in list(self.connections.values()):
            if one.dealer.key == key:
                self.end(one)

    # Frames.

    def carry(self, connection: Connection, direction: str, data: bytes) -> None:
        """Send a frame: it arrives later, perhaps twice, perhaps not at all."""
        dice = self.agenda.dice
        times = 1
        if dice.random() < self.repeat_chance:
            self.agenda.injected["frame repeated"] += 1
            times = 2
        for _ in range(times):
            at = self.agenda.now + dice.expovariate(1.0 / self.delay_seconds)
            if dice.random() < self.reorder_chance:
                self.agenda.injected["frame reordered"] += 1
                at += self.delay_seconds * 10
            else:
                at = connection.last[direction] = max(at, connection.last[direction])
            arrive = functools.partial(self._arrive, connection, direction, data)
            self.agenda.later(at - self.agenda.now, arrive)

    def _arrive(self, connection: Connection, direction: str, data: bytes) -> None:
        if direction in self.cuts.get(connection.dealer.key, ()):
            self.agenda.injected["frame lost"] += 1
        elif direction in connection.ended:
            self.agenda.injected["frame lost with its connection"] += 1
        elif direction == "up":
            connection.router.take_in(connection, data)
        else:
            connection.dealer.take_in(data)


class Dealer:
    """Stands for the host's end: the methods that `NodeLink` calls."""

    def __init__(self, endpoint: str, pair: KeyPair) -> None:
        self.endpoint = endpoint
        self.key = pair.public
        self.network = Network.active
        self.connection: Connection | None = None
        self.is_closed = False
        self.attempt = 0
        self._inbox: deque[bytes | ConnectionEvent] = deque()
        self.try_later()

    def try_later(self) -> None:
        seconds = self.network.agenda.dice.uniform(0.01, RECONNECT_SECONDS_MAX)
        attempt = functools.partial(self.network.connect, self, self.attempt)
        self.network.agenda.later(seconds, attempt)

    def happen(self, item: bytes | ConnectionEvent) -> None:
        self._inbox.append(item)
        self.network.sides[self.key].read("node_link")

    def take_in(self, data: bytes) -> None:
        if not self.is_closed:
            self.happen(data)

    def lose(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
            if not self.is_closed:
                self.happen(ConnectionEvent.LOST)
                self.try_later()

    def filenos(self) -> list[int]:
        return [1]

    def take(self) -> bytes | ConnectionEvent | None:
        return self._inbox.popleft() if self._inbox else None

    def send(self, data: bytes) -> bool:
        if self.connection is None or "down" in self.connection.ended:
            return False
        self.network.carry(self.connection, "up", data)
        return True

    def move(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.attempt += 1
        if self.connection is not None:
            self.network.end(self.connection, "down")
        else:
            self.try_later()

    def close(self) -> None:
        self.is_closed = True
        if self.connection is not None:
            self.network.end(self.connection, "down")


class Router:
    """Stands for the hub's end: the methods that `NodeHub` calls."""

    has_more = has_connections = False
    look_seconds = 1e9
    server_key = "server"
    endpoints = (ENDPOINT,)

    def __init__(self, _local: object, *, knows: Any = None, **_: object) -> None:
        self.knows = knows
        self.network = Network.active
        self.network.hub = self
        self._inbox: list[Incoming] = []
        self._left: list[bytes] = []

    def take_in(self, connection: Connection, data: bytes) -> None:
        identity = Credentials(kind="remote", key=connection.dealer.key, address="10.0.0.9")
        self._inbox.append(Incoming(connection.peer, data, identity))
        self.network.master.read("node_hub")

    def lose(self, peer: bytes) -> None:
        self._left.append(peer)
        self.network.master.read("node_hub")

    def filenos(self) -> list[int]:
        return [1]

    def receive(self, *_: object, **__: object) -> list[Incoming]:
        found, self._inbox = self._inbox, []
        return found

    def take_left(self) -> list[bytes]:
        left, self._left = self._left, []
        return left

    def take_refused(self) -> list[tuple[str, str]]:
        return []

    def guard_memory(self) -> int:
        return 0

    def end_unheard(self) -> int:
        return 0

    def send(self, peer: bytes, data: bytes) -> bool:
        found = self.network.connections.get(peer)
        if found is None or found.router is not self or "up" in found.ended:
            return False
        self.network.carry(found, "down", data)
        return True

    def end(self, peer: bytes) -> bool:
        found = self.network.connections.get(peer)
        if found is None:
            return False
        self.network.end(found, "up")
        return True

    def close(self) -> None:
        if self.network.hub is self:
            self.network.hub = None
        for one in list(self.network.connections.values()):
            if one.router is self:
                self.network.end(one, "up")
