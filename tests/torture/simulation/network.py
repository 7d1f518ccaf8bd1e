"""Simulated ZeroMQ sockets: what `transport.zmq` says of its own, on the virtual clock.

Nothing is queued without a connection, and what was on its way is lost with it, from some
point on. A descriptor reports once what has come: a program that then does anything with the socket
is taken to know of it.
"""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from tests.torture.simulation.core import Core, Handle, Program

from ganger.transport.zmq.connection_event import ConnectionEvent
from ganger.transport.zmq.peers import Credentials, Incoming
from ganger.transport.zmq.router import Sent

RECONNECT_SECONDS_MAX = 0.5


class Notice(Handle):
    """The descriptor of a ZeroMQ socket: quiet until there is something it did not tell of."""

    def __init__(self, core: Core, program: Program) -> None:
        super().__init__(core, program)
        self._unreported: deque[float] = deque()

    def arrive(self, when: float) -> None:
        self._unreported.append(when)

    def report(self) -> None:
        """Any use of the socket reports all events so far to its owner."""
        now = self.core.clock.now
        self._unreported = deque(when for when in self._unreported if when > now)

    def due(self) -> float:
        return min(self._unreported, default=math.inf)


class _Number(int):
    """The number of an event descriptor, which knows what it stands for.

    The number sits in a finalizer, and so must not keep the descriptor's program alive.
    """

    notice: weakref.ref[Notice]


class SocketOs:
    """Stands for the module where the listener is woken by an event descriptor."""

    EFD_NONBLOCK = os.EFD_NONBLOCK
    EFD_CLOEXEC = os.EFD_CLOEXEC

    def eventfd(self, _count: int, _flags: int) -> int:
        core = Core.active
        assert core.current is not None
        notice = Notice(core, core.current.program)
        number = _Number(notice.number)
        number.notice = weakref.ref(notice)
        return number

    def eventfd_write(self, number: int, count: int) -> None:
        if isinstance(number, _Number):
            notice = number.notice()
            if notice is not None:
                notice.arrive(notice.core.clock.now)
        else:
            # Envelopes of tests outside of the world may end now as well.
            os.eventfd_write(number, count)

    def eventfd_read(self, number: _Number) -> None:
        notice = number.notice()
        if notice is not None:
            notice.report()

    def close(self, number: _Number) -> None:
        notice = number.notice()
        if notice is not None:
            notice.close()

    def geteuid(self) -> int:
        return os.geteuid()


class Caller(Protocol):
    """One end of a connection to the router. ``peer``: its name there; None: it has none now."""

    program: Program
    peer: bytes | None
    is_closed: bool

    def arrive(self, data: bytes) -> None:
        """The router has sent a frame."""

    def lose_connection(self) -> None:
        """The connection is gone, with the last of what was on its way."""


class Dealer:
    """Stands for `dealer.Dealer`."""

    def __init__(self) -> None:
        core = Core.active
        assert core.current is not None
        self.core = core
        self.program = core.current.program
        self.peer: bytes | None = None
        self.is_closed = False
        self._notice = Notice(core, self.program)
        self._frames: deque[tuple[float, bytes]] = deque()
        self._events: deque[tuple[float, ConnectionEvent]] = deque()
        self._last_at = 0.0
        self.program.closers.append(self.close)
        network = Network.of(core)
        network.callers.append(self)
        network.connect_later(self)

    def send(self, data: bytes) -> bool:
        self._notice.report()
        self.core.fault_point()
        if self.peer is None:
            return False
        router = Network.of(self.core).router
        assert router is not None
        router.arrive(self.peer, data)
        return True

    def take(self) -> bytes | ConnectionEvent | None:
        self._notice.report()
        now = self.core.clock.now
        if self._frames and self._frames[0][0] <= now:
            return self._frames.popleft()[1]
        if self._events and self._events[0][0] <= now:
            return self._events.popleft()[1]
        return None

    def due(self) -> float:
        """When there is something to take."""
        frames = self._frames[0][0] if self._frames else math.inf
        return min(frames, self._events[0][0] if self._events else math.inf)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            Network.of(self.core).leave(self)
            self._notice.close()

    # What the network does.

    def arrive(self, data: bytes) -> None:
        self._last_at = max(self._last_at, self.core.clock.now + self.core.delay())
        self._frames.append((self._last_at, data))
        self._notice.arrive(self._last_at)

    def happen(self, event: ConnectionEvent) -> None:
        self._last_at = max(self._last_at, self.core.clock.now + self.core.delay())
        self._events.append((self._last_at, event))
        self._notice.arrive(self._last_at)

    def lose_connection(self) -> None:
        """The connection is gone, with the last of what was on its way."""
        if self.peer is None:
            return
        self.peer = None
        for _ in range(self.core.dice.randint(0, len(self._frames))):
            self._frames.pop()
        self.happen(ConnectionEvent.LOST)


class Router:
    """Stands for `wire.Router`."""

    def __init__(
        self,
        local: Path,
        *,
        remote: object = None,
        keys: object = None,
        descriptors_max: object = None,  # noqa: ARG002 - here are none
    ) -> None:
        core = Core.active
        assert core.current is not None
        assert (remote, bool(keys)) == (None, True)
        self.core = core
        self.endpoints = [f"ipc://{local}"]
        self.program = core.current.program
        self.peers: dict[bytes, Caller] = {}
        self._notice = Notice(core, self.program)
        self._incoming: dict[bytes, deque[tuple[float, bytes | None]]] = {}
        self._left: list[bytes] = []
        self._identities: dict[bytes, Credentials] = {}
        self.is_closed = False
        self.program.closers.append(self.close)
        Network.of(core).open(self)

    def filenos(self) -> list[int]:
        return [self._notice.number]

    @property
    def has_more(self) -> bool:
        self._notice.report()
        now = self.core.clock.now
        return any(line and line[0][0] <= now for line in self._incoming.values())

    def receive(
        self,
        limit: int | None = None,
        reported: list[int] | None = None,  # noqa: ARG002 - all are looked at
    ) -> list[Incoming]:
        if limit == 0:
            return []
        self._notice.report()
        now = self.core.clock.now
        found: list[Incoming] = []
        for peer, line in list(self._incoming.items()):
            while line and line[0][0] <= now:
                _, data = line.popleft()
                if data is None:
                    self._left.append(peer)
                    del self._incoming[peer]
                else:
                    found.append(Incoming(peer, data, self._identities[peer]))
        return found

    has_connections = False
    look_seconds = 1.0

    def guard_memory(self, _kept: int = 0) -> int:
        return 0

    def end_unheard(self) -> int:
        return 0

    def take_refused(self) -> list[tuple[str, str]]:
        """Nobody comes from elsewhere, with a key."""
        return []

    def take_left(self) -> list[bytes]:
        left, self._left = self._left, []
        return left

    def send(self, peer: bytes, data: bytes) -> bool:
        self._notice.report()
        self.core.fault_point()
        caller = self.peers.get(peer)
        if caller is None or caller.peer != peer or caller.is_closed:
            return False
        caller.arrive(data)
        return True

    def try_send(self, peer: bytes, data: bytes) -> Sent:
        """As the real one, whose owner is at work now and then."""
        if self.core.dice.random() < 0.3 or not self.send(peer, data):
            return Sent.NO
        return Sent.YES_AND_READ_ON if self.has_more else Sent.YES

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._notice.close()
            Network.of(self.core).close(self)

    # What the network does.

    def welcome(self, peer: bytes, caller: Caller) -> None:
        """There is a connection, of a process that the kernel knows."""
        self.peers[peer] = caller
        pid = caller.program.pid
        self._identities[peer] = Credentials(kind="local", uid=os.geteuid(), pid=pid)

    def arrive(self, peer: bytes, data: bytes | None) -> None:
        """A frame is on its way from ``peer``; None: the end of its connection."""
        line = self._incoming.setdefault(peer, deque())
        when = max(line[-1][0] if line else 0.0, self.core.clock.now + self.core.delay())
        line.append((when, data))
        self._notice.arrive(when)
        if data is None:
            self.peers.pop(peer, None)

    def lose_tail(self, peer: bytes) -> None:
        line = self._incoming.get(peer, deque())
        for _ in range(self.core.dice.randint(0, len(line))):
            line.pop()


class Network:
    """The one router there may be, and all programs that want to reach it."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.router: Router | None = None
        self.callers: list[Caller] = []
        self.documents: Any = None
        """The socket of LUXI."""
        self._names = itertools.count(1)

    @classmethod
    def of(cls, core: Core) -> Network:
        """The network of this world."""
        if core.network is None:
            core.network = cls(core)
        network: Network = core.network
        return network

    def open(self, router: Router) -> None:
        assert self.router is None, "two daemons serve one socket"
        self.router = router
        for caller in self.callers:
            self.connect_later(caller)

    def close(self, router: Router) -> None:
        if self.router is router:
            self.router = None
            for caller in self.callers:
                caller.lose_connection()

    def connect_later(self, caller: Caller) -> None:
        """Those of libzmq connect anew by themselves."""
        router = self.router

        def connect() -> None:
            assert isinstance(caller, Dealer)
            if router is self.router and not caller.is_closed and caller.peer is None:
                self.connect(caller)
                caller.happen(ConnectionEvent.REACHED)
                caller.happen(ConnectionEvent.MADE)

        if router is not None and isinstance(caller, Dealer):
            seconds = self.core.dice.uniform(0.0, RECONNECT_SECONDS_MAX)
            self.core.later(seconds, connect, "message")

    def connect(self, caller: Caller) -> None:
        """There is a connection now."""
        assert self.router is not None
        caller.peer = b"L%05d" % next(self._names)
        self.router.welcome(caller.peer, caller)

    def cut(self, caller: Caller) -> None:
        """A connection breaks; it is made again soon."""
        if self.router is not None and caller.peer is not None:
            self.router.lose_tail(caller.peer)
            self.router.arrive(caller.peer, None)
            caller.lose_connection()
            self.connect_later(caller)

    def leave(self, caller: Caller) -> None:
        """It is closed. With its program, what was on its way is lost from some point on."""
        self.callers.remove(caller)
        if self.router is not None and caller.peer is not None:
            if not caller.program.is_alive:
                self.router.lose_tail(caller.peer)
            self.router.arrive(caller.peer, None)


class NoDocuments:
    """Stands for the socket of WConfD, at which nobody calls in this world."""

    needs_looks = False
    file = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def open(self, _mode: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""
