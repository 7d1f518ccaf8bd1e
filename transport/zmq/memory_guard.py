"""Which memory is kept by connections whose message does not end, and when to end them.

libzmq reads a message into memory as it comes and hands it over when it is complete. How
large a message may be it limits, not how many parts of one it keeps, nor how much all
connections together. Nobody is told of what it keeps; it only shows in the size of the process.
So that is looked at often: when it has grown too much, the connections on which no message was
completed lately are ended. One that keeps much is always among them, because nothing else can be
said on it meanwhile; the others connect again, and send again what was not answered. If the
process is as large afterwards, it was something else that grew.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os

from ...storage import settings

LOOK_SECONDS = 0.025
"""How often to look. A fast sender fills some 40 MiB meanwhile."""

LOOK_SECONDS_SUSPECTED = 0.01
"""How often while connections are being ended."""

GROWTH_MAX_BYTES = 6 * settings.FRAME_BYTES_MAX
"""How much the process may grow before connections are ended."""

CALM_SECONDS = 60.0
"""For how long a size that was explained otherwise counts, after it has shrunk again."""


class MemoryGuard:
    """Judges the size of the process. Sizes in bytes, times in monotonic seconds."""

    def __init__(self, size: int) -> None:
        self._level, self._level_until = size, -math.inf
        self._found_nobody = False
        self.look_seconds = LOOK_SECONDS
        """How long to wait before the next look."""

    def is_suspected(self, size: int, now: float) -> bool:
        """Whether the process has grown so much that silent connections are to be ended."""
        if size < self._level and now >= self._level_until:
            self._level = size
        is_suspected = size - self._level > GROWTH_MAX_BYTES
        self._found_nobody = self._found_nobody and is_suspected
        self.look_seconds = LOOK_SECONDS_SUSPECTED if is_suspected else LOOK_SECONDS
        return is_suspected

    def ended(self, count: int, size: int, now: float) -> None:
        """So many connections were ended because of the suspicion."""
        if count or not self._found_nobody:
            self._found_nobody = not count
            return
        if not self.is_suspected(size, now):
            return
        # Twice in a row nobody was there who could keep it: the daemon itself has grown.
        self._level, self._level_until = size, now + CALM_SECONDS
        self._found_nobody = False


class ProcessMemory:
    """The memory of this process that is in use, in bytes."""

    def __init__(self) -> None:
        self._descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._library = ctypes.CDLL(None)

    def read(self) -> int:
        """The size now."""
        return int(os.pread(self._descriptor, 200, 0).split()[1]) * mmap.PAGESIZE

    def shrink(self) -> int:
        """Give back to the system what is free, where the C library can; the size after that."""
        trim = getattr(self._library, "malloc_trim", None)
        if trim is not None:
            trim(0)
        return self.read()

    def close(self) -> None:
        """Free the descriptor. Twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
