"""Keeps replaced files as spares for the next replacement, so that replacing files deletes none.

How it works. On ext4, creating a file gets slow when many were deleted shortly before, and each
replacement by rename deletes one. So a writer writes the new version into a spare file, and
exchanges the two names in one step; the spare then is the old version. A spare rests before it is
written again, because a reader may still have the old version open. The rest is short if the kernel
says that no process has: otherwise a burst of jobs would have to create all the files that it needs
in its first second. Spares lie in the directory of the files that they replace.

While its owner has nothing else to do, it makes a few spares ahead: then the file of a new job need
not be created while its process waits for it.

A spare has one user at a time: the daemon's pool, or the process that borrowed it.

A spare must not hold a page that the disk has refused. The kernel counts that page as clean; ext4
knows its block as allocated and never written, and a second write into the page does not change
that. So the flush after it goes well, and when the page leaves the memory, the block reads as
zeros. After a failed flush nobody knows which pages it were: all spares go (`InodePool.renew`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING

from .. import settings
from ..disk import documents

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = ".spare-"
_THINNED_AT_ONCE = 2


class BorrowedInodes:
    """The few spares lent to a process that replaces one file again and again."""

    def __init__(self, paths: list[str]) -> None:
        self._resting: deque[tuple[float, str]] = deque()
        for path in paths:
            self._resting.append((0.0, path))

    def take(self) -> str | None:
        """A rested spare; None if there is none."""
        if not self._resting:
            return None
        until, path = self._resting[0]
        left = until - time.monotonic()
        if left > 0:
            if left > settings.TEMPORARY_REST_SECONDS - settings.UNREAD_REST_SECONDS:
                return None
            if not _is_unread(path):
                return None
        self._resting.popleft()
        return path

    def give_back(self, path: str) -> None:
        """Take back the spare; it is free after a rest."""
        self._resting.append((time.monotonic() + settings.TEMPORARY_REST_SECONDS, path))


class InodePool(BorrowedInodes):
    """The spares of one directory, owned by one process."""

    def __init__(self, directory: str) -> None:
        super().__init__([])
        self._directory = directory
        # Not the pid alone: a successor may get the same one, while a job of the predecessor
        # still writes into a borrowed spare.
        self._stem = f"{PREFIX}{os.getpid()}-{time.time_ns():x}"
        self._made = 0
        self._fresh: deque[str] = deque()
        self._refused_until = 0.0

    def clear(self, names: Iterable[str] | None = None) -> None:
        """Delete the spares of an earlier owner. The user of a borrowed one makes it anew.

        ``names``: what the directory held, if that is known.
        """
        for name in os.listdir(self._directory) if names is None else names:
            if name.startswith(PREFIX):
                # A directory that lay in a file's place is not ours to delete.
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(f"{self._directory}/{name}")

    def take(self) -> str:
        """The path of a rested spare, of one made ahead, or of a file that does not exist yet."""
        if (rested := super().take()) is not None:
            return rested
        return self._fresh.popleft() if self._fresh else self._new_name()

    def _new_name(self) -> str:
        self._made += 1
        return f"{self._directory}/{self._stem}-{self._made}"

    @property
    def is_short(self) -> bool:
        """Whether to make spares ahead."""
        if len(self._fresh) >= settings.SPARES_AHEAD:
            return False
        return time.monotonic() >= self._refused_until

    def make_ahead(self) -> None:
        """Make one spare ahead. If the disk refuses, the pool is not short for a while."""
        path = self._new_name()
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, documents.FILE_MODE))
        except OSError:
            self._refused_until = time.monotonic() + settings.SPARES_REFUSED_SECONDS
        else:
            self._fresh.append(path)

    def give_back(self, path: str) -> None:
        if len(self._resting) >= settings.SPARE_INODES_MAX:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        super().give_back(path)
        self._thin_out()

    def close(self) -> None:
        """Delete the spares that are not lent. The next owner deletes the others."""
        while self._resting:
            self.delete(self._resting.popleft()[1])
        while self._fresh:
            self.delete(self._fresh.popleft())

    def renew(self) -> None:
        """Delete all spares, lent ones too: the disk may have refused a page of any.

        Who has borrowed one makes a new file under its name. `StorageError` if one stays.
        """
        self.close()
        with documents.storage_errors(self._directory):
            self.clear()

    def _thin_out(self) -> None:
        """Delete a few that were long unused: a burst of writes needs many, and passes."""
        limit = time.monotonic() - settings.SPARE_KEEP_SECONDS
        for _ in range(_THINNED_AT_ONCE):
            if not self._resting or self._resting[0][0] > limit:
                return
            self.delete(self._resting.popleft()[1])

    def delete(self, path: str) -> None:
        """Delete a spare that `take` gave, or one that is left over."""
        # It is not needed any more: a failure to delete it harms nothing.
        with contextlib.suppress(OSError):
            os.unlink(path)


def _is_unread(path: str) -> bool:
    """Whether the kernel says that no process has the file open; False if it does not say.

    It gives a lease for writing only on a file that no other process has open.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A process that opens the file within the lease would end this one by a SIGIO.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
