"""What deletes old segments of the journal: a flush of the file system, a check, then the cut."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Check = Callable[[Sequence["Path"]], None]
"""Raises `StorageError` unless these segments may go."""


def unchecked(_: Sequence[Path]) -> None:
    """Whoever cuts has made sure by other means."""


class Cut:
    """The old segments of a journal, to delete after a flush of the file system."""

    def __init__(self, directory: Path, descriptor: int, old: list[Path], check: Check) -> None:
        self._directory = directory
        # This is a duplicate: the journal may close its own meanwhile.
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        self._check = check
        self.old = old
        """The old segments, oldest first."""

    def give_up(self) -> None:
        """Delete nothing more, and close what is open."""
        self._close()

    def carry_out(self) -> None:
        """Flush, check, then delete. Call it once. `StorageError` if one of these fails."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """As `carry_out`, step by step."""
        try:
            flush_file_system(self._directory, self._descriptor)
        finally:
            self._close()
        yield
        self._check(self.old)
        yield
        for path in self.old:
            with documents.storage_errors(path), contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def flush_file_system(path: Path, watched: int | None = None) -> None:
    """Make everything on the file system that holds ``path`` durable (syncfs).

    ``watched`` is a descriptor that was opened before the data was written: the kernel may not
    report an earlier write error to a new one.
    """
    if watched is not None:
        _sync(path, watched)
        return
    with documents.storage_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync(path, descriptor)
    finally:
        os.close(descriptor)


def _sync(path: Path, descriptor: int) -> None:
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise errors.StorageError(f"{path}: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)
