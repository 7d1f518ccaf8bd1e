"""Space that is kept on the disk: a reserve for the queue, and what output leaves free.

Two lines of defence. Output, of which there may be any amount, is stored only while more than
`kept_bytes` are free: what the queue writes is small beside that. If the disk is full all the same,
because another program fills it say, the queue gives up its reserve, a file of zeros, and has the
space for what gives more space back.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from typing import NamedTuple

from .. import errors
from . import documents, paths

BYTES_MAX = 8 * 1024 * 1024
"""The reserve on a large disk."""

BYTES_MIN = 256 * 1024
"""The reserve on a small one: archiving and purging a job needs less."""

START_BYTES = 64 * 1024
"""What a daemon that starts may need until it is ready: it replaces small files."""

_PART = 64
"""Between the two, this part of the disk."""

_KEPT_TIMES = 4
"""Output leaves free this multiple of the reserve."""

_LOW_PART = 4
"""With less than this part of it free, the disk is full."""

FILES_MIN = 64
"""With fewer files to be had, the disk is full, too: some file systems have only so many."""

REMEDY = (
    "remove jobs that have ended (if none has, cancel some first), or free space elsewhere on this "
    "disk"
)
"""What helps when the disk is full; errors say it to users."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Space(NamedTuple):
    """The bytes of a file system: those that its users may still write, and all."""

    free: int
    total: int


def space_at(path: str | os.PathLike[str]) -> Space:
    """The space of the file system with this path. `StorageError`."""
    with documents.storage_errors(path):
        found = os.statvfs(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def _lacks_files(found: os.statvfs_result) -> bool:
    """Whether the file system has no room for further files."""
    return found.f_files > 0 and found.f_favail < FILES_MIN


def reserve_bytes(total: int) -> int:
    """How large the reserve is on a file system of this size.

    >>> [reserve_bytes(mib * 2**20) // 2**10 for mib in (6, 64, 100_000)]
    [256, 1024, 8192]
    """
    return max(BYTES_MIN, min(BYTES_MAX, total // _PART))


def kept_bytes(total: int) -> int:
    """How much output leaves free on a file system of this size."""
    return _KEPT_TIMES * reserve_bytes(total)


def is_low(space: Space) -> bool:
    """Whether the disk counts as full: less is free than a quarter of the reserve.

    >>> is_low(Space(free=64 * 2**10 - 1, total=6 * 2**20)), is_low(Space(2**16, 6 * 2**20))
    (True, False)
    """
    return space.free < reserve_bytes(space.total) // _LOW_PART


def check_room(path: str, size: int) -> None:
    """Raise `StorageError` unless the disk has room for this much output, and what is kept."""
    free, total = space_at(path)
    if free - size < kept_bytes(total):
        raise errors.DiskFullError(
            f"{path}: the disk is nearly full: the {free // 1024} KiB that are free are kept for "
            "the queue"
        )


def is_full(error: BaseException | None) -> bool:
    """Whether the disk has refused a write because it is full, or the user's quota is used up."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__
    return False


def give_to_job(queue: str) -> None:
    """Give the reserve in this queue directory to a job whose end has no room on the full disk."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(queue, paths.RESERVE))


def give_to_start(path: str | os.PathLike[str]) -> None:
    """If the disk is full, give the reserve at this path to the daemon that starts."""
    with contextlib.suppress(errors.StorageError, OSError):
        if is_low(space_at(os.path.dirname(path))):
            os.unlink(path)


def keep_for_start(path: str | os.PathLike[str]) -> None:
    """Make the reserve for the next start, as large as there is room for."""
    with contextlib.suppress(errors.StorageError, OSError):
        size = min(START_BYTES, space_at(os.path.dirname(path)).free)
        if size and not os.path.lexists(path):
            _allocate(os.fspath(path), size)


def _allocate(path: str, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, documents.FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


class Reserve:
    """The reserve of one queue: a file, allocated and never read."""

    def __init__(self, path: str, *, is_kept: bool = True) -> None:
        """``is_kept``: False: there is none, and none is missed."""
        self._path = path
        self._is_kept = is_kept
        self.size = 0
        """The bytes of the file; 0: it was given up, or was not made yet."""

    @property
    def is_missing(self) -> bool:
        """Whether the disk had no room for it when `make` last tried, or it was given up."""
        return self._is_kept and not self.size

    def make(self, taken: int = 0) -> bool:
        """Make it if there is room for it and as much again; whether it is there, or not missed.

        ``taken``: bytes that are free, and that what was promised will take.

        A file system that cannot allocate, or that refuses for another reason than its space, has
        no reserve, and none is missed.
        """
        if not self.is_missing:
            return True
        try:
            free, total = space_at(os.path.dirname(self._path))
            wanted = reserve_bytes(total)
            if self._allocated() >= wanted:
                self.size = wanted
                return True
            if free - taken < 2 * wanted:
                return False
            with documents.storage_errors(self._path):
                _allocate(self._path, wanted)
            self.size = wanted
        except errors.StorageError as error:
            self._remove()
            self._is_kept = is_full(error)
            return not self._is_kept
        return True

    def room(self, taken: int = 0) -> float:
        """How many bytes more the disk takes before it counts as full; below 0: it does now.

        Without an end if that cannot be found out. ``taken``: bytes that are free, and that what
        was promised will take.
        """
        try:
            # Each submission looks, so there is one call for bytes and files.
            found = os.statvfs(os.path.dirname(self._path))
        except OSError:
            return math.inf
        if _lacks_files(found):
            return -1
        total = found.f_blocks * found.f_frsize
        return found.f_bavail * found.f_frsize - taken - reserve_bytes(total) // _LOW_PART

    def look(self) -> None:
        """Look whether the process of a job has given it up (`give_to_job`)."""
        if self.size and not os.path.lexists(self._path):
            self.size = 0

    def give_up(self) -> None:
        """Give its space to those who write now."""
        self.size = 0
        self._remove()

    def _allocated(self) -> int:
        with contextlib.suppress(OSError):
            return os.lstat(self._path).st_blocks * 512
        return 0

    def _remove(self) -> None:
        # If it stays, there is only less space.
        with contextlib.suppress(OSError):
            os.unlink(self._path)
