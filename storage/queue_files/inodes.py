"""Inodes kept for the next replacement of a file, so that replacing files frees none.

How it works. On ext4, creating a file gets slow when many were deleted shortly before, and
each replacement by rename deletes one. So a replaced version is not deleted: the new version
is written into a spare file, and the two names are exchanged in one step; the spare then is
the old version. A spare rests before it is written again, because somebody may still be
reading the old version through an open descriptor. Spares lie beside the files they serve.

A spare has one user at a time: the pool of the daemon, or the process it was lent to.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque

from .. import settings

PREFIX = ".spare-"
_THINNED_AT_ONCE = 2


class InodePool:
    """The spares of one directory, owned by one process."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._resting: deque[tuple[float, str]] = deque()
        # Not the pid alone: a successor may have the same one, and a job of the
        # predecessor may still write into what was lent to it.
        self._stem = f"{PREFIX}{os.getpid()}-{time.time_ns():x}"
        self._made = 0

    def clear(self) -> None:
        """Delete what an earlier owner left behind. One that is still lent is made anew."""
        for name in os.listdir(self._directory):
            if name.startswith(PREFIX):
                # A directory that somebody had put in a file's place is left to him.
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(f"{self._directory}/{name}")

    def take(self) -> str:
        """The path of a spare that has rested, or of a file that does not exist yet."""
        if self._resting and self._resting[0][0] <= time.monotonic():
            return self._resting.popleft()[1]
        self._made += 1
        return f"{self._directory}/{self._stem}-{self._made}"

    def give_back(self, path: str) -> None:
        """The spare at ``path`` is free again, after a rest."""
        if len(self._resting) >= settings.SPARE_INODES_MAX:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        self._resting.append((time.monotonic() + settings.TEMPORARY_REST_SECONDS, path))
        self._thin_out()

    def close(self) -> None:
        """Delete those that are nobody's. What is lent is deleted by the next owner."""
        while self._resting:
            self._delete(self._resting.popleft()[1])

    def _thin_out(self) -> None:
        """Delete a few that have not been needed for long: a burst needs many, and passes."""
        limit = time.monotonic() - settings.SPARE_KEEP_SECONDS
        for _ in range(_THINNED_AT_ONCE):
            if not self._resting or self._resting[0][0] > limit:
                return
            self._delete(self._resting.popleft()[1])

    def _delete(self, path: str) -> None:
        # Nobody is served by it any more: that it cannot be deleted harms nothing.
        with contextlib.suppress(OSError):
            os.unlink(path)


class BorrowedInodes:
    """The few spares lent to a process that replaces one file again and again."""

    def __init__(self, paths: list[str]) -> None:
        self._resting = deque((0.0, path) for path in paths)

    def take(self) -> str | None:
        """A spare that has rested; None if there is none."""
        if self._resting and self._resting[0][0] <= time.monotonic():
            return self._resting.popleft()[1]
        return None

    def give_back(self, path: str) -> None:
        """The spare may be used again after a rest."""
        self._resting.append((time.monotonic() + settings.TEMPORARY_REST_SECONDS, path))
