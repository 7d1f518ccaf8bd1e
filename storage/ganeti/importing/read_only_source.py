"""Reads directories and files of Ganeti, and leaves no trace there: not even a time of access.

The kernel lets only the owner of a file, and root, read it without a new time of access; for
other users the mount decides. Opens plain files only: to open a pipe is to wait for a writer, and
a link may lead anywhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple, Self

from ... import errors
from ...disk import documents, ownership

if TYPE_CHECKING:
    from types import TracebackType

FILE_BYTES_MAX = 256 * 1024 * 1024
"""Largest file that is read: no job and no configuration is nearly as large."""

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""


class Stamp(NamedTuple):
    """What tells one state of a file or directory from the next one."""

    inode: int
    modified: int
    changed: int
    size: int


class Folder:
    """An open directory: its names, and its plain files. `StorageError` if it cannot be opened."""

    def __init__(self, path: str) -> None:
        self.path = path
        with documents.storage_errors(path):
            self._descriptor = _open(path, os.O_DIRECTORY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    @property
    def stamp(self) -> Stamp:
        """The state of the directory: it changes with each name that comes or goes."""
        return _stamp(os.fstat(self._descriptor))

    def names(self) -> list[str]:
        """Everything in it, sorted."""
        with documents.storage_errors(self.path):
            return sorted(os.listdir(self._descriptor))

    def is_directory(self, name: str) -> bool:
        """Whether this is a directory, or a link to one."""
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self._descriptor).st_mode)
        except OSError:
            return False

    def read(self, name: str) -> bytes:
        """The content of a plain file; `StorageError` if it is anything else, or too large."""
        return _read(name, f"{self.path}/{name}", os.O_NOFOLLOW, self._descriptor)


class Content(NamedTuple):
    """What a file holds, and the state in which it was read."""

    data: bytes
    stamp: Stamp
    mode: int


def read(path: str) -> Content | None:
    """The content of a file, also behind a link; None if there is none. `StorageError`."""
    if not os.path.lexists(path):
        return None
    # The state before it is read: a change while it is read must show.
    with documents.storage_errors(path):
        status = os.stat(path)
    data = _read(path, path, 0, None)
    return Content(data, _stamp(status), stat.S_IMODE(status.st_mode))


def stamp_of(path: str) -> Stamp | None:
    """The present state of a file or directory; None if there is none."""
    try:
        return _stamp(os.stat(path))
    except OSError:
        return None


def holder(path: str) -> int | None:
    """The pid of the process that holds a lock on this file, 0 if the kernel names none.

    None if no process does, or if there is no such file. `StorageError` if that cannot be known.
    """
    try:
        descriptor = _open(path, 0)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise errors.StorageError(ownership.explained(path, error)) from error
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    except OSError as error:
        raise errors.StorageError(ownership.explained(path, error)) from error
    finally:
        os.close(descriptor)
    # Of a lock of another pid namespace the kernel tells no pid.
    return None if answer[0] == fcntl.F_UNLCK else max(0, int(answer[4]))


def _read(name: str, path: str, flags: int, folder: int | None) -> bytes:
    with documents.storage_errors(path):
        try:
            descriptor = _open(name, flags, folder)
        except OSError as error:
            if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
                raise errors.StorageError(f"{path}: not a plain file") from error
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise errors.StorageError(f"{path}: not a plain file")
            if status.st_size > FILE_BYTES_MAX:
                raise errors.StorageError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
            # A file gives less than is asked for only at its end.
            return os.read(descriptor, status.st_size + 1)
        finally:
            os.close(descriptor)


def _open(path: str, flags: int, folder: int | None = None) -> int:
    flags |= os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=folder)
    except PermissionError:
        return os.open(path, flags, dir_fd=folder)


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
