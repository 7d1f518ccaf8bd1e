"""Proof of life: a lock file is locked for as long as the process that made it lives.

How it works. The owner creates the file and holds an exclusive POSIX record lock on it;
everybody else asks with a shared, non-blocking one. If that is granted, or the file is
gone, the owner is dead. Nothing else counts: no pid, no time.

Two traps of POSIX locks shape this file. They belong to the process, so a process that
probes its own file would find it free: own files are known here and count as alive. And
closing *any* descriptor of a file drops the process's lock on it: so no other module opens
lock files. A child does not inherit the lock (and must not believe in its parent's files:
`forget_inherited`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from . import errors, ownership

if TYPE_CHECKING:
    from pathlib import Path

_own: dict[str, int] = {}

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""

_ATTEMPTS_MAX = 100

_JOB_START = "job_"


class LockFile:
    """A lock file this process holds."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        _own[path] = descriptor

    def remove(self) -> None:
        """Delete the file and give up the lock: the process says itself that it has ended."""
        if _own.pop(self.path, None) is None:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        os.close(self._descriptor)


def create(directory: str | os.PathLike[str], stem: str) -> LockFile:
    """Create and lock ``directory/stem`` (with ``-1``, ``-2``... if that name is taken).

    A name is never used twice, so that whoever reads it cannot take one owner for another.
    """
    start = f"{os.fspath(directory)}/{stem}"
    for number in range(_ATTEMPTS_MAX):
        path = f"{start}-{number}" if number else start
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise errors.StorageError(ownership.explained(path, error)) from error
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return LockFile(path, descriptor)
    raise errors.StorageError(f"{directory}/{stem}: {_ATTEMPTS_MAX} files of this name exist")


DAEMON_STEM = "ganger-daemon_"
"""How the name of a daemon's lock file begins."""


def daemon_stem(now: float) -> str:
    """Name of a daemon's lock file."""
    return f"{DAEMON_STEM}{int(now)}"


def is_daemons(path: str) -> bool:
    """Whether this is the name of a daemon's lock file, not of a job's."""
    return os.path.basename(path).startswith(DAEMON_STEM)


def job_stem(job_id: int, now: float) -> str:
    """Name of a job's lock file: as Ganeti's (``job_000001_1795224833``), and a random part.

    Two processes of one job may be made within a second, when the first is refused: what is told
    late of the one must not be taken for the other.
    """
    return f"{_JOB_START}{job_id:06d}_{int(now)}_{os.urandom(4).hex()}"


def is_dead(path: str | os.PathLike[str]) -> bool:
    """Whether the owner of the lock file is dead. Any error while asking means: not dead."""
    if os.fspath(path) in _own:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def holder(path: str | os.PathLike[str]) -> int | None:
    """The pid of the process that holds the lock file, as the kernel knows it; None: nobody.

    Who works on a queue directory offline does not hold its lock file (`OfflineLock`).
    """
    if os.fspath(path) in _own:
        return os.getpid()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    finally:
        os.close(descriptor)
    return None if answer[0] == fcntl.F_UNLCK else int(answer[4])


def remove_dead(path: str | os.PathLike[str]) -> None:
    """Delete the lock file of a dead owner; harmless if it is gone, or its owner lives."""
    if not is_dead(path):
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise errors.StorageError(ownership.explained(path, error)) from error


def remove_dead_jobs(directory: str | os.PathLike[str]) -> None:
    """Delete the lock files in ``directory`` that dead processes of jobs have left behind.

    Not while a process of a job is being made: a file that it has made and not locked yet would
    count as dead. What cannot be found or deleted now, for want of descriptors say, goes when a
    daemon starts.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.startswith(_JOB_START):
            with contextlib.suppress(errors.StorageError):
                remove_dead(os.path.join(directory, name))


def forget_inherited() -> None:
    """In a child: the parent's lock files are not ours. Their descriptors are closed."""
    for descriptor in _own.values():
        os.close(descriptor)
    _own.clear()


class DirectoryLock:
    """The exclusive lock on a queue directory, held for the daemon's life."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise errors.StorageError(ownership.explained(path, error)) from error
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise errors.StorageError(ownership.explained(path, error)) from error
            message = f"{path.parent}: another daemon uses this queue directory"
            raise errors.DirectoryLockedError(message) from error
        _own[os.fspath(path)] = self._descriptor

    def release(self) -> None:
        """Give the directory up."""
        for path, descriptor in list(_own.items()):
            if descriptor == self._descriptor:
                del _own[path]
                os.close(descriptor)


class OfflineLock:
    """Keeps every daemon out of a queue directory while somebody looks at it, or repairs it.

    Who only looks changes nothing: it makes no lock file, and needs no right to write. Where
    there is none, no daemon can be kept out; `confirm` says whether one has come.
    The first byte stays free, so that nobody is taken for a daemon (see `holder`).
    """

    def __init__(self, path: Path, *, to_write: bool) -> None:
        self._path = path
        self._descriptor: int | None = None
        flags = os.O_RDWR | os.O_CREAT if to_write else os.O_RDONLY
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o640)
        except FileNotFoundError:
            return
        except OSError as error:
            raise errors.StorageError(ownership.explained(path, error)) from error
        kind = fcntl.LOCK_EX if to_write else fcntl.LOCK_SH
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 0, 1)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise errors.StorageError(ownership.explained(path, error)) from error
            raise errors.DirectoryLockedError(self._refusal()) from error
        self._descriptor = _own[os.fspath(path)] = descriptor

    def confirm(self) -> None:
        """Raise `DirectoryLockedError` if a daemon may have come: what was seen may be wrong."""
        if self._descriptor is None and self._path.exists():
            raise errors.DirectoryLockedError(self._refusal())

    def release(self) -> None:
        """Let daemons in again."""
        if self._descriptor is not None:
            del _own[os.fspath(self._path)]
            os.close(self._descriptor)
            self._descriptor = None

    def _refusal(self) -> str:
        pid = holder(self._path)
        who = "somebody else works on" if pid is None else f"a daemon (pid {pid}) uses"
        return f"{self._path.parent}: {who} this queue directory"
