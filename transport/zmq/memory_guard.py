"""Decides when to end connections that keep memory with a message that does not end.

libzmq reads a message into memory as it comes and hands it over when it is complete. It limits
the size of a message, but neither the number of its parts nor the memory of all connections
together. What it keeps shows only in the size of the process. So the guard reads that size often.
When it has grown too much, the router ends the connections on which no message was completed
lately. A connection that keeps much is always among them: nothing else can come on it meanwhile.
The other remote clients connect again and repeat their requests. If the process is as large
afterwards, something else has grown. The local listener knows what it keeps for each connection:
a local client that waits for its reply keeps nothing, and stays.
"""

from __future__ import annotations

import math
import mmap
import os

from ...storage import settings
from ...storage.disk import free_memory

LOOK_SECONDS = 0.025
"""How often to read the size. A fast sender fills some 40 MiB meanwhile."""

LOOK_SECONDS_SUSPECTED = 0.01
"""How often while the router ends connections."""

GROWTH_MAX_BYTES = 6 * settings.FRAME_BYTES_MAX
"""How much the process may grow before the router ends connections."""

CALM_SECONDS = 60.0
"""How long a size with another cause stays the level after the process has shrunk."""


class MemoryGuard:
    """Judges the size of the process. Sizes in bytes, times in monotonic seconds."""

    def __init__(self, size: int) -> None:
        self._level, self._level_until = size, -math.inf
        self._found_none = False
        self.look_seconds = LOOK_SECONDS
        """How long to wait before the next look."""

    def is_suspected(self, size: int, now: float, kept: int = 0) -> bool:
        """Whether the process has grown so much that silent connections are to be ended.

        ``kept``: the bytes that it may keep on purpose, for a long queue.
        """
        if size < self._level and now >= self._level_until:
            self._level = size
        is_suspected = size - self._level > GROWTH_MAX_BYTES + kept
        self._found_none = self._found_none and is_suspected
        self.look_seconds = LOOK_SECONDS_SUSPECTED if is_suspected else LOOK_SECONDS
        return is_suspected

    def ended(self, count: int, size: int, now: float, kept: int = 0) -> None:
        """The router has ended ``count`` connections because of the suspicion."""
        if count or not self._found_none:
            self._found_none = not count
            return
        if not self.is_suspected(size, now, kept):
            return
        # Twice in a row there was no connection that could keep it: the daemon itself has grown.
        self._level, self._level_until = size, now + CALM_SECONDS
        self._found_none = False


class ProcessMemory:
    """The memory of this process that is in use, in bytes."""

    def __init__(self) -> None:
        self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> int:
        """The size now."""
        return int(os.pread(self._descriptor, 200, 0).split()[1]) * mmap.PAGESIZE

    def shrink(self) -> int:
        """Give back to the system what is free, where the C library can; the size after that."""
        free_memory.give_back()
        return self.read()

    def close(self) -> None:
        """Free the descriptor. Twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
