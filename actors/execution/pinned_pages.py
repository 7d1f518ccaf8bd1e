"""Pages of a fork server that each fork copies at once, because the kernel has them pinned.

How it works. A child writes into hundreds of pages that it shares with the server, if only to count
references. Each first write is a page fault, which costs more than the copy that it leads to. A
page that is pinned for a device may not be shared, so the kernel copies it within the fork, without
a fault later. A sample child finds out which pages a job writes; the server registers them as
buffers of an io_uring, which pins them, and never uses it for anything else.

Where the system has no io_uring, refuses it, or allows too little locked memory, nothing is pinned,
and children fault as ever.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

PAGES_MAX = 1_536
"""Most pages that are pinned: 6 MiB, less than users may lock by default."""

RANGES_MAX = 1_024
"""Most buffers that every kernel registers at once."""

MAPPING_BYTES_MAX = 256 * 1024 * 1024
"""Larger mappings, of users' modules, are not looked at."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_PRESENT, _EXCLUSIVE = 0x80, 0x01
"""In the last byte of an entry of ``/proc/self/pagemap``: in memory, and not shared."""

_SYS_IO_URING_SETUP, _SYS_IO_URING_REGISTER = 425, 427
_REGISTER_BUFFERS = 0
_PARAMETERS_BYTES = 120
_RANGE = struct.Struct("@PN")
"""The kernel's ``struct iovec``: address and length in bytes."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def pin(ranges: bytes) -> int | None:
    """Pin these ranges of this process's memory; the descriptor that holds the pins.

    None if the system refuses, or if there are no ranges. A child must close its copy.
    """
    ring = _new_ring() if ranges else None
    if ring is None:
        return None
    count = len(ranges) // _RANGE.size
    if _syscall(_SYS_IO_URING_REGISTER, ring, _REGISTER_BUFFERS, ranges, count) != 0:
        os.close(ring)
        return None
    return ring


def written_by(work: Callable[[], None]) -> bytes:
    """The ranges of this process's private memory into which ``work`` writes, for `pin`.

    A forked child calls it. Empty if the child fails, or the system has no io_uring. Raises
    `OSError` without descriptors or processes.
    """
    mappings = _writable_mappings()
    ours, theirs = os.pipe()
    with open(ours, "rb") as pipe:  # noqa: PTH123 - pathlib is not for the template
        try:
            pid = os.fork()
            if pid == 0:
                _be_sample(work, mappings, theirs)
        finally:
            os.close(theirs)
        found = pipe.read()
    os.waitpid(pid, 0)
    return found


def _be_sample(work: Callable[[], None], mappings: list[tuple[int, int]], pipe: int) -> None:
    # Every path ends in os._exit: no code of the caller may run in the child.
    try:
        work()
        found = _own_ranges(mappings)
        # Tried here first: a filter of system calls may end the process for it.
        if _new_ring() is not None:
            os.write(pipe, found)
    finally:
        os._exit(0)


def _new_ring() -> int | None:
    parameters = ctypes.create_string_buffer(_PARAMETERS_BYTES)
    ring = int(_syscall(_SYS_IO_URING_SETUP, 1, parameters))
    return ring if ring >= 0 else None


def _writable_mappings() -> list[tuple[int, int]]:
    """Start and end of each private mapping that this process may write."""
    found = []
    with open("/proc/self/maps", "rb") as file:  # noqa: PTH123 - pathlib is not for the template
        for line in file:
            bounds, rights, *_ = line.split()
            if rights.startswith(b"rw") and rights.endswith(b"p"):
                start, end = (int(bound, 16) for bound in bounds.split(b"-"))
                if end - start <= MAPPING_BYTES_MAX:
                    found.append((start, end))
    return found


def _own_ranges(mappings: list[tuple[int, int]]) -> bytes:
    """The pages of these mappings that no other process has, as ranges."""
    entries = []
    descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    for start, end in mappings:
        size = (end - start) // _PAGE * _ENTRY_BYTES
        entries.append(os.pread(descriptor, size, start // _PAGE * _ENTRY_BYTES))
    os.close(descriptor)
    runs: list[tuple[int, int]] = []
    left = PAGES_MAX
    for (start, _), mapped in zip(mappings, entries, strict=True):
        flags = mapped[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]
        for number, flag in enumerate(flags):
            if not left or flag & _PRESENT == 0 or flag & _EXCLUSIVE == 0:
                continue
            left -= 1
            page = start + number * _PAGE
            if runs and sum(runs[-1]) == page:
                runs[-1] = runs[-1][0], runs[-1][1] + _PAGE
            else:
                runs.append((page, _PAGE))
    return b"".join(_RANGE.pack(*run) for run in runs[:RANGES_MAX])
