"""Files of lines: appends one, reads from the last one on, cuts off what is behind one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .documents import FILE_MODE, storage_errors, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK_BYTES = 65_536


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Add ``line`` and an end of line, not flushed; `StorageError` if it fails.

    A line that was written in part is ended first.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    with storage_errors(path):
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
            write_all(descriptor, (b"\n" if is_torn else b"") + line + b"\n")
        finally:
            os.close(descriptor)


def last_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of a file, from the last one on; none if there is no file. Reads what is asked."""
    with storage_errors(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        try:
            for line, _ in _lines_backwards(descriptor):
                yield line
        finally:
            os.close(descriptor)


def _lines_backwards(descriptor: int) -> Iterator[tuple[bytes, int]]:
    """Each line that is not empty, and the offset behind it, from the last line on."""
    size = os.fstat(descriptor).st_size
    end, rest = size, b""
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        first, *whole = (os.pread(descriptor, end - begin, begin) + rest).split(b"\n")
        start = begin + len(first) + 1 + sum(len(line) + 1 for line in whole)
        for line in reversed(whole):
            start -= len(line) + 1
            if line:
                yield line, min(start + len(line) + 1, size)
        end, rest = begin, first
    if rest:
        yield rest, min(len(rest) + 1, size)


def cut_behind(path: str | os.PathLike[str], is_kept: Callable[[bytes], bool]) -> None:
    """Cut off what lies behind the last line that ``is_kept``; not flushed. `StorageError`."""
    with storage_errors(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        try:
            ends = (end for line, end in _lines_backwards(descriptor) if is_kept(line))
            os.ftruncate(descriptor, next(ends, 0))
        finally:
            os.close(descriptor)
