"""Memory that this process has freed, and that its C library keeps for later.

The texts of many new jobs lie between other things. When they are freed, the C library keeps their
pages, unless it is asked for them.
"""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.CDLL(None)

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of ``mallopt``."""

_MIB = 1024 * 1024


def keep_in_one_place() -> None:
    """Let all threads share one heap, of which `give_back` reaches everything that is free.

    To be called before there are threads. A heap of each thread would keep room for the largest
    frames that passed there. Frames come from the heap, not from mappings of their own, which the
    system would have to fill with zeros for each.
    """
    mallopt = getattr(_LIBRARY, "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, 4 * _MIB)
        mallopt(_TRIM_THRESHOLD, 16 * _MIB)


def give_back() -> None:
    """Give free pages back to the system, where the C library can: 3 ms for 70 MiB."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
