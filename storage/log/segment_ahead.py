"""The next segment of the journal, made before it is needed, by another thread.

How it works. The segment has its final name at once, and is full of zeros: a replay finds no
record in it. So whatever happens meanwhile (a crash, a loss of power, another daemon) leaves an
empty segment at most, which counts for nothing and goes with the next cut. The journal takes the
segment if it is whole and durable by then; otherwise it makes one itself, under another number.
"""

from __future__ import annotations

import contextlib
import enum
import os
import threading
import weakref
from typing import TYPE_CHECKING

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from pathlib import Path

_PIECE_BYTES = 512 * 1024


class _Stage(enum.Enum):
    UNDER_WAY = "under way"
    READY = "whole and durable"
    OVER = "taken, given up, or failed"


class SegmentAhead:
    """A segment that is being made. One thread calls `carry_out`, the journal's calls the rest."""

    def __init__(self, path: Path, number: int, size: int) -> None:
        """``size``: how many zeros it gets."""
        self.number = number
        self.size = size
        self._path = path
        self._lock = threading.Lock()
        self._stage = _Stage.UNDER_WAY
        self._descriptor = -1

    def carry_out(self) -> None:
        """Make it durable. `StorageError` if that fails: then there is no such segment."""
        if self._is_over():
            return
        with documents.storage_errors(self._path):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(self._path, flags, documents.FILE_MODE)
            except OSError:
                # A file of that name belongs to another program.
                self._end()
                raise
            try:
                self._fill(descriptor)
                documents.flush_directory(self._path.parent)
            except BaseException:
                self._end()
                self._discard(descriptor)
                raise
        with self._lock:
            if is_wanted := self._stage is _Stage.UNDER_WAY:
                self._stage, self._descriptor = _Stage.READY, descriptor
                # The journal of a component that hangs never closes it.
                self._close = weakref.finalize(self, os.close, descriptor)
        if not is_wanted:
            self._discard(descriptor)

    def take(self) -> int | None:
        """The descriptor, which is the caller's from now on; None: the segment is not to be had."""
        with self._lock:
            stage, self._stage = self._stage, _Stage.OVER
            if stage is not _Stage.READY:
                return None
            self._close.detach()
            return self._descriptor

    def give_up(self) -> None:
        """It is not needed: delete it, now or as soon as it is made."""
        descriptor = self.take()
        if descriptor is not None:
            self._discard(descriptor)

    def _fill(self, descriptor: int) -> None:
        """Flush piece by piece: a large flush would hold up those of the journal."""
        for start in range(0, self.size, _PIECE_BYTES):
            if self._is_over():
                return
            zeros = bytes(min(_PIECE_BYTES, self.size - start))
            documents.write_all_at(descriptor, zeros, start)
            os.fdatasync(descriptor)

    def _is_over(self) -> bool:
        with self._lock:
            return self._stage is _Stage.OVER

    def _end(self) -> None:
        with self._lock:
            self._stage = _Stage.OVER

    def _discard(self, descriptor: int) -> None:
        # What cannot be deleted is empty, and goes with the next cut.
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(descriptor)


def is_blank(path: Path) -> bool:
    """Whether a segment has no record, because it was made ahead and never used."""
    try:
        with documents.storage_errors(path), open(path, "rb") as file:
            return not file.read(_HEAD_BYTES).strip(b"\0")
    except errors.StorageError:
        return False


_HEAD_BYTES = 8
