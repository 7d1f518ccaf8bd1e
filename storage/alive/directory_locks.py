"""The lock on a queue directory: a daemon holds it while it lives, ``ganger fsck`` while it works.

`lock_files` says how locks prove life, and what to mind when their files are opened.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import time
from typing import TYPE_CHECKING

from .. import errors, settings
from ..disk import ownership
from . import lock_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_ORPHAN_LOOK_SECONDS = 0.01


class DirectoryLock:
    """The exclusive lock on a queue directory, which the daemon holds while it lives.

    It locks the directory itself as well as the lock file, which a user can delete: another daemon
    could then lock a new file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The directory first: with it locked, no other daemon makes the file meanwhile.
        self._directory = _hold_orphaned_directory(path, fcntl.LOCK_EX, _taken)
        try:
            self._descriptor = _hold_file(path)
        except BaseException:
            os.close(self._directory)
            raise
        lock_files.own_files[os.fspath(path)] = self._descriptor

    @property
    def directory_descriptor(self) -> int:
        """While any process has this open file, no other daemon gets the directory."""
        return self._directory

    def keep(self) -> bool:
        """Make the lock file again if it was deleted; returns whether that was needed.

        Raises `DirectoryLostError` if the directory was deleted or replaced, or if another process
        holds the lock file: the directory may be another daemon's now. If the disk refuses the
        file, the lock on the directory is enough.
        """
        try:
            if _is_same(self._descriptor, self._path):
                return False
            if not _is_same(self._directory, self._path.parent):
                text = f"{self._path.parent}: deleted or replaced while the daemon ran"
                raise errors.DirectoryLostError(text)
            fresh = _hold_file(self._path)
        except errors.DirectoryLockedError as error:
            raise errors.DirectoryLostError(error.text) from error
        except (OSError, errors.StorageError):
            return False
        stale, self._descriptor = self._descriptor, fresh
        lock_files.own_files[os.fspath(self._path)] = fresh
        os.close(stale)
        return True

    def release(self) -> None:
        """Give the directory up."""
        for path, descriptor in list(lock_files.own_files.items()):
            if descriptor == self._descriptor:
                del lock_files.own_files[path]
                os.close(descriptor)
                os.close(self._directory)


def _hold_orphaned_directory(
    path: Path,
    kind: int,
    refusal: Callable[[Path], str],
    when_waiting: Callable[[], None] = lambda: None,
) -> int:
    """The locked directory of this lock file; waits for the end of a process without a daemon.

    ``when_waiting`` is called once if there is one.
    """
    deadline = time.monotonic() + settings.ORPHAN_SECONDS
    is_told = False
    while True:
        try:
            return _hold_directory(path.parent, kind, refusal(path))
        except errors.DirectoryLockedError:
            if (
                time.monotonic() > deadline
                or lock_files.locked_by(path)
                or lock_files.locked_by(path, start=1)
            ):
                raise
            if not is_told:
                when_waiting()
                is_told = True
            # The system wakes no waiting process for a lock within some time.
            select.select([], [], [], _ORPHAN_LOOK_SECONDS)


def _hold_directory(directory: Path, kind: int, refusal: str) -> int:
    """A descriptor with a lock on the directory itself; the lock ends with its last copy."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise errors.StorageError(ownership.explained(directory, error)) from error
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno != errno.EWOULDBLOCK:
            raise errors.StorageError(ownership.explained(directory, error)) from error
        raise errors.DirectoryLockedError(refusal) from error
    return descriptor


def _hold_file(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise errors.StorageError(ownership.explained(path, error)) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise errors.StorageError(ownership.explained(path, error)) from error
        raise errors.DirectoryLockedError(_taken(path)) from error
    return descriptor


def _taken(path: Path) -> str:
    return f"{path.parent}: another daemon uses this queue directory"


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether the path still names the file of this descriptor."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


class OfflineLock:
    """Keeps every daemon out of a queue directory while a command checks or repairs it.

    Without ``to_write`` it changes nothing: it makes no lock file, and needs no right to write.
    If there is no lock file, the lock on the directory keeps daemons out, except those of earlier
    versions: `confirm` finds out whether one has started. The lock covers the whole directory, but
    not the lock file's first byte, by which `holder` recognizes a daemon.
    """

    def __init__(
        self, path: Path, *, to_write: bool, when_waiting: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for the end of what a killed daemon left; then ``when_waiting`` is called once."""
        self._path = path
        self._descriptor: int | None = None
        kind = fcntl.LOCK_EX if to_write else fcntl.LOCK_SH
        self._directory = _hold_orphaned_directory(path, kind, _used, when_waiting)
        try:
            self._hold_file(kind, to_write=to_write)
        except BaseException:
            os.close(self._directory)
            raise

    def _hold_file(self, kind: int, *, to_write: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if to_write else os.O_RDONLY
        try:
            descriptor = os.open(self._path, flags | os.O_CLOEXEC, 0o640)
        except FileNotFoundError:
            return
        except OSError as error:
            raise errors.StorageError(ownership.explained(self._path, error)) from error
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 0, 1)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise errors.StorageError(ownership.explained(self._path, error)) from error
            raise errors.DirectoryLockedError(_used(self._path)) from error
        self._descriptor = lock_files.own_files[os.fspath(self._path)] = descriptor

    def confirm(self) -> None:
        """Raise `DirectoryLockedError` if a daemon may have started: the findings may be wrong."""
        if self._descriptor is None and self._path.exists():
            raise errors.DirectoryLockedError(_used(self._path))

    def release(self) -> None:
        """Let daemons in again."""
        if self._descriptor is not None:
            del lock_files.own_files[os.fspath(self._path)]
            os.close(self._descriptor)
            self._descriptor = None
        if self._directory != lock_files.NO_DESCRIPTOR:
            os.close(self._directory)
            self._directory = lock_files.NO_DESCRIPTOR


def _used(path: Path) -> str:
    pid = lock_files.holder(path)
    who = "another process works on" if pid is None else f"a daemon (pid {pid}) uses"
    return f"{path.parent}: {who} this queue directory"
