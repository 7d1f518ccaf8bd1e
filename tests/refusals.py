"""What the system refuses: calls of the operating system that fail while a test says so."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ganger.storage import errors
from ganger.storage.disk import documents
from ganger.storage.log import cut


def refuse(patch: pytest.MonkeyPatch, *calls: str, number: int = errno.ENOSPC) -> list[str]:
    """Let these calls fail until ``patch`` is undone; the list names each call that was made."""
    made: list[str] = []

    def failing(call: str) -> Callable[..., NoReturn]:
        def fail(*_: object, **__: object) -> NoReturn:
            made.append(call)
            raise OSError(number, os.strerror(number))

        return fail

    for call in calls:
        patch.setattr(os, call, failing(call))
    return made


GONE = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""The ways in which kernels say that no process has the pid of which a pidfd is asked for."""


def let_go(patch: pytest.MonkeyPatch, going: int, number: int) -> None:
    """Nobody gets a pidfd of the process ``going``: it is gone, as the kernel says so."""
    open_real = os.pidfd_open  # noqa: TID251 - stands for the kernel

    def open_pidfd(pid: int) -> int:
        if pid == going:
            raise OSError(number, os.strerror(number))
        return open_real(pid)

    patch.setattr(os, "pidfd_open", open_pidfd)


@contextlib.contextmanager
def refusing(*calls: str, number: int = errno.ENOSPC) -> Iterator[list[str]]:
    """These calls fail meanwhile; the list names each call that was made."""
    with pytest.MonkeyPatch.context() as patch:
        yield refuse(patch, *calls, number=number)


@contextlib.contextmanager
def filling(room: int) -> Iterator[None]:
    """The disk takes ``room`` more bytes by `os.pwrite` meanwhile, and flushes nothing."""
    write, left = os.pwrite, room

    def write_some(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:left], offset)
        left -= written
        return written

    with pytest.MonkeyPatch.context() as patch:
        refuse(patch, "fdatasync")
        patch.setattr(os, "pwrite", write_some)
        yield


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Meanwhile nothing is free: files can be written over and removed, but neither grow nor be."""
    write, open_real = os.pwrite, os.open

    def write_over(descriptor: int, data: bytes, offset: int) -> int:
        room = os.fstat(descriptor).st_size - offset
        if room <= 0 < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:room], offset)

    def open_old(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT and not os.path.lexists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open_real(path, flags, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", write_over)
        patch.setattr(os, "open", open_old)
        yield


@contextlib.contextmanager
def refusing_flushes() -> Iterator[None]:
    """Meanwhile the journal cannot flush the file system."""

    def fail(path: Path, _: int | None = None) -> NoReturn:
        raise errors.StorageError(f"{path}: no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ganger.storage.log.cut.flush_file_system", fail)
        yield


class OneRefusal:
    """The disk refuses one change, the one with the number ``place``, and works again at once.

    Only changes within `watching` count. ``made`` names them. ``unflushed`` is the folder whose
    flush was refused and not repeated since.
    """

    def __init__(self, patch: pytest.MonkeyPatch, place: int, number: int = errno.EIO) -> None:
        self.made: list[str] = []
        self.unflushed: str | None = None
        self._place = place
        self._number = number
        self._is_watching = False
        for call in ("write", "pwrite", "fdatasync", "fsync", "ftruncate", "rename", "mkdir"):
            patch.setattr(os, call, self._counting(call, getattr(os, call)))
        patch.setattr(os, "open", self._counting("open", os.open, self._creates))
        swap = "ganger.storage.disk.documents._swap"
        patch.setattr(swap, self._counting("exchange", documents._swap))
        flush = "ganger.storage.log.cut.flush_file_system"
        patch.setattr(flush, self._counting("syncfs", cut.flush_file_system))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count, and refuse, the changes made meanwhile."""
        before, self._is_watching = self._is_watching, True
        try:
            yield
        finally:
            self._is_watching = before

    @property
    def has_come(self) -> bool:
        """Whether there was a change to refuse."""
        return len(self.made) >= self._place

    def _counting(
        self, call: str, real: Callable[..., Any], is_change: Callable[..., bool] = lambda *_: True
    ) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            if self._is_watching and is_change(*given):
                self.made.append(call)
                if len(self.made) == self._place:
                    self.unflushed = _folder(given[0]) if call == "fsync" else None
                    text = os.strerror(self._number)
                    raise (
                        errors.StorageError(text)
                        if call == "syncfs"
                        else OSError(self._number, text)
                    )
            if call == "syncfs" or (call == "fsync" and _folder(given[0]) == self.unflushed):
                self.unflushed = None
            return real(*given, **named)

        return counted

    @staticmethod
    def _creates(_: object, flags: int, *__: object) -> bool:
        return bool(flags & os.O_CREAT)


def _folder(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
