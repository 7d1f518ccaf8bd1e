"""A line between hosts and their master that can be cut: in both directions, or in one.

It stands on loopback, where no packet can be lost, and behaves as TCP does: what is sent during a
cut arrives behind it, unless the connection ends before. `break_all` ends all connections.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Literal

LOOK_SECONDS = 0.02
_CHUNK = 65_536

Direction = Literal["up", "down"]
"""Towards the master, and from it."""


class CutLine:
    """Listens at ``endpoint``, and passes on what comes to ``target``."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: dict[Direction, threading.Event] = {"up": threading.Event()}
        self._open["down"] = threading.Event()
        self.mend()
        self._sockets: set[socket.socket] = set()
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *directions: Direction) -> None:
        """Nothing goes in these directions until `mend`."""
        for one in directions:
            self._open[one].clear()

    def mend(self) -> None:
        """Everything goes again."""
        for one in self._open.values():
            one.set()

    def break_all(self) -> None:
        """End every connection."""
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        self._is_closed = True
        self.mend()
        # A thread that waits in `accept` goes on only then.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_all()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._sockets |= {near, far}
            for one, other, direction in ((near, far, "up"), (far, near, "down")):
                pump = threading.Thread(
                    target=self._pump, args=(one, other, direction), daemon=True
                )
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([source], [], [], None)
                # A cut holds what has come, and what comes.
                while not self._open[direction].wait(LOOK_SECONDS):
                    if self._is_closed:
                        return
                data = source.recv(_CHUNK) if ready else b""
                if not data:
                    break
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._sockets -= {source}
        source.close()
