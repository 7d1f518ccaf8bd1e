"""Ends a process together with the process that has started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1

FAILED_EXIT_CODE = 1
"""Of a process whose daemon is gone."""


def end_with(pid: int) -> None:
    """Have the kernel kill this process when the thread of its parent ``pid`` ends that started it.

    Ends it now if the parent has ended already.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != pid:
        sys.exit(FAILED_EXIT_CODE)
