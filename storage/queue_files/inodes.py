"""Keeps replaced files as spares for the next replacement, so that replacing files deletes none.

How it works. On ext4, creating a file gets slow when many were deleted shortly before, and each
replacement by rename deletes one. So a writer writes the new version into a spare file, and
exchanges the two names in one step; the spare then is the old version. A spare rests before it is
written again, because a reader may still have the old version open. Spares lie in the directory of
the files that they replace.

A spare has one user at a time: the daemon's pool, or the process that borrowed it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque

from .. import settings

PREFIX = ".spare-"
_THINNED_AT_ONCE = 2


class BorrowedInodes:
    """The few spares lent to a process that replaces one file again and again."""

    def __init__(self, paths: list[str]) -> None:
        self._resting = deque((0.0, path) for path in paths)

    def take(self) -> str | None:
        """A rested spare; None if there is none."""
        if self._resting and self._resting[0][0] <= time.monotonic():
            return self._resting.popleft()[1]
        return None

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

    def clear(self) -> None:
        """Delete the spares of an earlier owner. The user of a borrowed one makes it anew."""
        for name in os.listdir(self._directory):
            if name.startswith(PREFIX):
                # A directory that lay in a file's place is not ours to delete.
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(f"{self._directory}/{name}")

    def take(self) -> str:
        """The path of a rested spare, or of a file that does not exist yet."""
        if (rested := super().take()) is not None:
            return rested
        self._made += 1
        return f"{self._directory}/{self._stem}-{self._made}"

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
            self._delete(self._resting.popleft()[1])

    def _thin_out(self) -> None:
        """Delete a few that were long unused: a burst of writes needs many, and passes."""
        limit = time.monotonic() - settings.SPARE_KEEP_SECONDS
        for _ in range(_THINNED_AT_ONCE):
            if not self._resting or self._resting[0][0] > limit:
                return
            self._delete(self._resting.popleft()[1])

    def _delete(self, path: str) -> None:
        # It is not needed any more: a failure to delete it harms nothing.
        with contextlib.suppress(OSError):
            os.unlink(path)
