"""Memory that this process has freed, and that its C library keeps for later.

The texts of many new jobs lie between other things. When they are freed, the C library keeps their
pages, unless it is asked for them.
"""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.CDLL(None)


def give_back() -> None:
    """Give free pages back to the system, where the C library can: 3 ms for 70 MiB."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
