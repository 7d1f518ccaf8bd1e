"""Simulated socket pairs and what waits for them: same methods, virtual delay, closed by death.

A pair behaves as a Unix socket pair of packets: what was sent arrives in order, the end
after it; sending to an end that is gone fails at once.
"""

from __future__ import annotations

import math
import select
import socket
import struct
from collections import deque
from typing import Self

from tests.torture.simulation.core import Core, Handle, ProcessHandle, Program

_INT = struct.Struct("i")


class _Side:
    """One end of a pair, whatever number of descriptors there are of it."""

    def __init__(self) -> None:
        self.count = 0
        self.inbox: deque[tuple[float, bytes, tuple[_Side | Program, ...]]] = deque()
        self.end_at = math.inf
        self.last_at = 0.0
        self.is_shut = False
        self.peer: _Side

    def release(self, core: Core) -> None:
        self.count -= 1
        if self.count == 0:
            self.peer.hear_end(core)
            self.drop_inbox(core)

    def drop_inbox(self, core: Core) -> None:
        for _, _, rights in self.inbox:
            for right in rights:
                if isinstance(right, _Side):
                    right.release(core)
        self.inbox.clear()

    def hear_end(self, core: Core) -> None:
        self.end_at = min(self.end_at, max(self.last_at, core.clock.now + core.delay()))


class End(Handle):
    """A descriptor of one end of a pair."""

    def __init__(self, core: Core, program: Program, side: _Side) -> None:
        super().__init__(core, program)
        self.side = side
        side.count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def due(self) -> float:
        return self.side.inbox[0][0] if self.side.inbox else self.side.end_at

    def send(self, data: bytes, _flags: int = 0) -> int:
        self.sendmsg([data])
        return len(data)

    def sendmsg(
        self, buffers: list[bytes], ancillary: list[tuple[int, int, bytes]] | None = None
    ) -> int:
        core = self.core
        core.fault_point()
        peer = self.side.peer
        if self.is_closed or self.side.is_shut or peer.count == 0:
            raise BrokenPipeError
        rights: list[_Side | Program] = []
        for _, _, packed in ancillary or ():
            for (number,) in _INT.iter_unpack(packed):
                rights.append(_target(core.handles[number]))
        peer.last_at = max(peer.last_at, core.clock.now + core.delay())
        peer.inbox.append((peer.last_at, b"".join(buffers), tuple(rights)))
        self.program.said_at = max(self.program.said_at, peer.last_at)
        return len(buffers[0])

    def recv(self, _size: int, _flags: int = 0) -> bytes:
        return self.recvmsg(0)[0]

    def recvmsg(
        self, _size: int, _ancillary: int = 0, _flags: int = 0
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        if self.is_closed:
            raise OSError("closed")
        now = self.core.clock.now
        if self.side.inbox and self.side.inbox[0][0] <= now:
            _, data, rights = self.side.inbox.popleft()
            numbers = [self._receive(right) for right in rights]
            packed = struct.pack(f"{len(numbers)}i", *numbers)
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if numbers else []
            return data, beside, 0, None
        if not self.side.inbox and self.side.end_at <= now:
            return b"", [], 0, None
        raise BlockingIOError

    def _receive(self, right: _Side | Program) -> int:
        if isinstance(right, Program):
            return ProcessHandle(self.core, self.program, right).number
        end = End(self.core, self.program, right)
        right.count -= 1
        return end.number

    def shutdown(self, _how: int) -> None:
        """Nothing goes through any more, in either direction."""
        for side in (self.side, self.side.peer):
            side.is_shut = True
            side.hear_end(self.core)

    def close(self) -> None:
        if not self.is_closed:
            super().close()
            self.side.release(self.core)


def _target(handle: Handle) -> _Side | Program:
    if isinstance(handle, End):
        handle.side.count += 1
        return handle.side
    target = getattr(handle, "target", None)
    assert isinstance(target, Program)
    return target


def pair() -> tuple[End, End]:
    """Stands for `channels.pair`."""
    core = Core.active
    assert core.current is not None
    left, right = _Side(), _Side()
    left.peer, right.peer = right, left
    program = core.current.program
    return End(core, program, left), End(core, program, right)


class Poll:
    """Stands for `select.poll` in a job's process, which steps aside while it waits."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def register(self, descriptor: int | Handle, _mask: int) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        assert number >= 0
        self._numbers.append(number)

    def poll(self, milliseconds: int | None) -> list[tuple[int, int]]:
        core = Core.active
        task = core.current
        deadline = math.inf if milliseconds is None else core.clock.now + milliseconds / 1000
        if milliseconds != 0:
            assert task is not None
            task.park(self._numbers, deadline)  # type: ignore[attr-defined]
        elif task is not None:
            # A system call takes its time; without this, waiting for the last half of a
            # millisecond would take for ever.
            core.clock.now += 0.0002
        now = core.clock.now
        found = []
        for number in self._numbers:
            handle = core.handles.get(number)
            if handle is None:
                found.append((number, select.POLLNVAL))
            elif handle.due() <= now:
                found.append((number, select.POLLIN))
        return found
