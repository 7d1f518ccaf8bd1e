"""Proof of life: a lock file is locked for as long as the process that made it lives.

How it works. The owner creates the file and holds an exclusive POSIX record lock on it;
everybody else asks with a shared, non-blocking one. If that is refused, the owner lives. If it
is granted, or the file is gone, somebody may have cleaned up: the owner is dead only if the
process whose mark is part of the file's name (`processes`) has ended too. A name without a mark
(a daemon's, or one of Ganger 1.1 and before) has nothing but the lock.

The files lie in the data directory, where nobody cleans up. To create a file there is slow when
many were deleted shortly before, so the file of a process that has ended is kept for the next one
under the name of a spare. If the disk refuses the file, a process has its mark alone.

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

from . import errors, ownership, process_identity

if TYPE_CHECKING:
    from pathlib import Path

    from .process_identity import ProcessIdentity

_own: dict[str, int] = {}

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""

_ATTEMPTS_MAX = 100

_JOB_START = "job_"
_SPARE_START = "spare_"
_NO_DESCRIPTOR = -1


class LockFile:
    """A lock file this process holds. ``spare``: the name that it is kept under afterwards."""

    def __init__(self, path: str, descriptor: int, spare: str | None = None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._spare = spare
        _own[path] = descriptor

    def remove(self) -> None:
        """Give up file and lock: the process says itself that it has ended."""
        if _own.pop(self.path, None) is None:
            return
        # It may be gone, or the disk refuse; then it is removed like that of a killed process.
        with contextlib.suppress(OSError):
            if self._spare is None:
                os.unlink(self.path)
            else:
                os.rename(self.path, self._spare)
        if self._descriptor != _NO_DESCRIPTOR:
            os.close(self._descriptor)


def create(directory: str | os.PathLike[str], stem: str, *, spare: str | None = None) -> LockFile:
    """Create and lock ``directory/stem`` (with ``-1``, ``-2``... if that name is taken).

    A name is never used twice, so that whoever reads it cannot take one owner for another.
    ``spare`` is the path of an unused file in the same directory, which nobody else takes; it need
    not exist. A directory that somebody has deleted is made again. Raises `StorageError` if the
    disk refuses, unless the name has a mark, which is proof enough.
    """
    start = f"{os.fspath(directory)}/{stem}"
    if spare is not None and (taken := _take_spare(spare, start)) is not None:
        return taken
    try:
        return _create(start, spare)
    except FileNotFoundError:
        # Somebody has deleted the folder.
        return _create_with_folder(os.fspath(directory), start, spare)
    except OSError as error:
        return _without_file(start, error)


def _take_spare(spare: str, path: str) -> LockFile | None:
    """The spare under another name; None if there is none, or somebody asks who holds it."""
    try:
        descriptor = os.open(spare, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(spare, path)
    except OSError:
        os.close(descriptor)
        return None
    return LockFile(path, descriptor, spare)


def _create(start: str, spare: str | None) -> LockFile:
    for number in range(_ATTEMPTS_MAX):
        path = f"{start}-{number}" if number else start
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return LockFile(path, descriptor, spare)
    raise errors.StorageError(f"{start}: {_ATTEMPTS_MAX} files of this name exist")


def _create_with_folder(directory: str, start: str, spare: str | None) -> LockFile:
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        return _create(start, spare)
    except OSError as error:
        return _without_file(start, error)


def _without_file(path: str, error: OSError) -> LockFile:
    """A disk that is full must keep no daemon from starting, and no job whose process has a mark.

    Nobody needs a daemon's file: the lock on the queue directory keeps others out.
    """
    if mark_of(path) is None and not is_daemons(path):
        raise errors.StorageError(ownership.explained(path, error)) from error
    return LockFile(path, _NO_DESCRIPTOR)


DAEMON_STEM = "ganger-daemon_"
"""How the name of a daemon's lock file begins."""


def daemon_stem(now: float) -> str:
    """Name of a daemon's lock file."""
    return f"{DAEMON_STEM}{int(now)}"


def is_daemons(path: str) -> bool:
    """Whether this is the name of a daemon's lock file, not of a job's."""
    return os.path.basename(path).startswith(DAEMON_STEM)


def job_stem(job_id: int, now: float, mark: ProcessIdentity) -> str:
    """Name of a job's lock file: as Ganeti's (``job_000001_1795224833``), and the process's mark.

    Two processes of one job may be made within a second, when the first is refused: what is told
    late of the one must not be taken for the other.
    """
    return f"{_JOB_START}{job_id:06d}_{int(now)}_{mark}"


def mark_of(path: str | os.PathLike[str]) -> ProcessIdentity | None:
    """The mark in the name of a job's lock file; None for other names.

    >>> mark_of("/l/job_000007_1795224833_4711.88123.1a2b3c4d")
    ProcessIdentity(pid=4711, start=88123, boot='1a2b3c4d')
    >>> mark_of("/l/job_000007_1795224833_5e6f7a8b")
    """
    name = os.path.basename(path)
    return process_identity.parse(name.rpartition("_")[2]) if name.startswith(_JOB_START) else None


def spare_path(directory: str, server: int, number: int) -> str:
    """Where the ``number``-th process of the fork server with pid ``server`` finds a spare."""
    return f"{directory}/{_SPARE_START}{server}_{number}"


def is_spare(path: str | os.PathLike[str]) -> bool:
    """Whether this is the name of a file that nobody uses now."""
    return os.path.basename(path).startswith(_SPARE_START)


def remove_spares(directory: str) -> None:
    """Delete all spares; whoever wants one makes it anew. A refusing disk is not heeded."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(_SPARE_START):
                with contextlib.suppress(OSError):
                    os.unlink(f"{directory}/{name}")


def is_dead(path: str | os.PathLike[str]) -> bool:
    """Whether the owner of the lock file is dead. Any error while asking means: not dead."""
    if os.fspath(path) in _own or _is_locked(os.fspath(path)):
        return False
    mark = mark_of(path)
    return mark is None or not process_identity.lives(mark)


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # Meanwhile it may have become the file of another process, under another name.
        return _has_name(descriptor, path)
    finally:
        os.close(descriptor)
    return False


def _has_name(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def holder(path: str | os.PathLike[str]) -> int | None:
    """The pid of the process that holds the lock file, as the kernel knows it; None: nobody.

    Who works on a queue directory offline does not hold its lock file (`OfflineLock`).
    """
    if os.fspath(path) in _own:
        return os.getpid()
    pid = _locked_by(path)
    if pid is None and (mark := mark_of(path)) is not None and process_identity.lives(mark):
        return mark.pid
    return pid


def _locked_by(path: str | os.PathLike[str]) -> int | None:
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
    if is_dead(path):
        remove_known_dead(path)


def remove_known_dead(path: str | os.PathLike[str]) -> None:
    """Delete the lock file of an owner of whom `is_dead` was true; harmless if it is gone."""
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
        if descriptor != _NO_DESCRIPTOR:
            os.close(descriptor)
    _own.clear()


class DirectoryLock:
    """The exclusive lock on a queue directory, held for the daemon's life.

    It is on the directory itself too: the lock file can be deleted, and another daemon could lock
    a new one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # In this order: whoever holds the directory has nobody to fear when it makes the file.
        self._directory = _hold_directory(path.parent, fcntl.LOCK_EX, _taken(path))
        try:
            self._descriptor = _hold_file(path)
        except BaseException:
            os.close(self._directory)
            raise
        _own[os.fspath(path)] = self._descriptor

    def keep(self) -> bool:
        """Make the lock file again if somebody has deleted it; whether that was needed.

        Raises `DirectoryLostError` if the directory was deleted or replaced, or if somebody else
        holds the lock file: another daemon may use what lies there now. A disk that refuses the
        file is not heeded: the directory is held.
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
        _own[os.fspath(self._path)] = fresh
        os.close(stale)
        return True

    def release(self) -> None:
        """Give the directory up."""
        for path, descriptor in list(_own.items()):
            if descriptor == self._descriptor:
                del _own[path]
                os.close(descriptor)
                os.close(self._directory)


def _hold_directory(directory: Path, kind: int, refusal: str) -> int:
    """A descriptor with a lock on the directory itself; it ends with the last copy of it."""
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
    """Whether this is still what has the name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


class OfflineLock:
    """Keeps every daemon out of a queue directory while somebody looks at it, or repairs it.

    Who only looks changes nothing: it makes no lock file, and needs no right to write. Where
    there is none, the lock on the directory keeps daemons out. Those of earlier versions do not
    know that one; `confirm` says whether one has come.
    The first byte stays free, so that nobody is taken for a daemon (see `holder`).
    """

    def __init__(self, path: Path, *, to_write: bool) -> None:
        self._path = path
        self._descriptor: int | None = None
        kind = fcntl.LOCK_EX if to_write else fcntl.LOCK_SH
        self._directory = _hold_directory(path.parent, kind, self._refusal())
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
            raise errors.DirectoryLockedError(self._refusal()) from error
        self._descriptor = _own[os.fspath(self._path)] = descriptor

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
        if self._directory != _NO_DESCRIPTOR:
            os.close(self._directory)
            self._directory = _NO_DESCRIPTOR

    def _refusal(self) -> str:
        pid = holder(self._path)
        who = "somebody else works on" if pid is None else f"a daemon (pid {pid}) uses"
        return f"{self._path.parent}: {who} this queue directory"
