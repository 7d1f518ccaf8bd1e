"""A disk that refuses: calls of the operating system that fail while a test says so."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ganger.storage import errors


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
def refusing_flushes() -> Iterator[None]:
    """Meanwhile the journal cannot flush the file system."""

    def fail(path: Path, _: int | None = None) -> NoReturn:
        raise errors.StorageError(f"{path}: no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ganger.storage.queue_files.journal.flush_file_system", fail)
        yield
