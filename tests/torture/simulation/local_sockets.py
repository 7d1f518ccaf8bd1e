"""Simulated sockets of a job's process at the daemon's local listener, below `local_wire`.

They carry the bytes of ZeroMQ's protocol. A descriptor reports as long as there is something to
read. Nobody connects them anew.
"""

from __future__ import annotations

import math
import socket
from collections import deque

from tests.torture.simulation.core import Core, Handle
from tests.torture.simulation.network import Network

from ganger.storage import settings
from ganger.transport.zmq import zmtp

CROWD_CHANCE = 0.1
"""How likely too many wait at the listener."""


class LocalSocket(Handle):
    """Stands for a stream socket. ``peer``: its name at the router, while it is connected."""

    def __init__(self, _family: int, _kind: int) -> None:
        core = Core.active
        assert core.current is not None
        super().__init__(core, core.current.program)
        self.peer: bytes | None = None
        self._said = zmtp.Reader(settings.FRAME_BYTES_MAX)
        self._arriving: deque[tuple[float, bytes]] = deque()
        self._last_at = 0.0
        Network.of(core).callers.append(self)

    def connect(self, _path: str) -> None:
        network = Network.of(self.core)
        if network.router is None:
            raise ConnectionRefusedError
        has_disturbances = self.core.has_faults and self.core.character.disturbance_chance
        if has_disturbances and self.core.dice.random() < CROWD_CHANCE:
            raise BlockingIOError
        network.connect(self)
        self._hear(zmtp.GREETING + zmtp.READY)

    def due(self) -> float:
        return self._arriving[0][0] if self._arriving else math.inf

    def send(self, data: bytes, _flags: int) -> int:
        self.core.fault_point()
        router = Network.of(self.core).router
        if self.peer is None or router is None:
            raise BrokenPipeError
        self._said.feed(data)
        while self._said.items:
            router.arrive(self.peer, self._said.items.popleft())
        return len(data)

    def recv(self, size: int, _flags: int) -> bytes:
        if self.due() > self.core.clock.now:
            raise BlockingIOError
        when, data = self._arriving.popleft()
        if rest := data[size:]:
            self._arriving.appendleft((when, rest))
        return data[:size]

    def close(self) -> None:
        if not self.is_closed:
            super().close()
            Network.of(self.core).leave(self)

    # What the network does.

    def arrive(self, data: bytes) -> None:
        self._hear(zmtp.framed(data))

    def lose_connection(self) -> None:
        """What was on its way arrives up to some byte, and then the end."""
        if self.peer is None:
            return
        self.peer = None
        left = b""
        for _ in range(self.core.dice.randint(0, len(self._arriving))):
            _, left = self._arriving.pop()
        if left:
            self._hear(left[: self.core.dice.randrange(len(left))])
        self._hear(b"")

    def _hear(self, data: bytes) -> None:
        self._last_at = max(self._last_at, self.core.clock.now + self.core.delay())
        self._arriving.append((self._last_at, data))


class Module:
    """Stands for the module ``_socket``."""

    AF_UNIX = socket.AF_UNIX
    SOCK_STREAM = socket.SOCK_STREAM
    SOCK_NONBLOCK = socket.SOCK_NONBLOCK
    MSG_DONTWAIT = socket.MSG_DONTWAIT
    MSG_NOSIGNAL = socket.MSG_NOSIGNAL
    socket = LocalSocket
