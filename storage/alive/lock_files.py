"""Proof of life: a process locks its lock file for as long as it lives.

How it works. The owner creates the file and holds an exclusive POSIX record lock on it. Other
processes try a shared, non-blocking lock. If the kernel refuses it, the owner lives. If the kernel
grants it, or the file is gone, an administrator may have cleaned up: then the owner is dead only if
the process whose identity is in the file's name (`process_identity`) has ended too, or says that it
serves another job by now. A name without an identity (a daemon's, or one of Ganger 1.1 and before)
has only the lock.

The files lie in the data directory. To create a file there is slow when many were deleted shortly
before, so the file of an ended process becomes a spare, which the next process renames. If the
disk refuses the file, a job's process has its identity alone.

Two traps of POSIX locks shape this module. A lock belongs to the process, so a process that
probes its own file finds it free: `_own` lists our own files, which count as alive. And closing
*any* descriptor of a file drops the process's lock on it: no other module opens lock files. A
child does not inherit the locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import time
from typing import TYPE_CHECKING

from .. import errors, settings
from ..disk import ownership
from . import process_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .process_identity import ProcessIdentity

_own: dict[str, int] = {}

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""

_ATTEMPTS_MAX = 100

_ORPHAN_LOOK_SECONDS = 0.01

_JOB_START = "job_"
_SPARE_START = "spare_"
_NO_DESCRIPTOR = -1
_JOB_ID_DIGITS_MAX = 18


class LockFile:
    """A lock file that this process holds. ``spare``: its name after `remove`, if it is kept."""

    def __init__(self, path: str, descriptor: int, spare: str | None = None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._spare = spare
        _own[path] = descriptor

    @property
    def descriptor(self) -> int:
        """The open file; negative if there is none."""
        return self._descriptor

    def remove(self) -> None:
        """Give up file and lock: the process is about to end, or leaves its job."""
        if _own.pop(self.path, None) is None:
            return
        # Without `contextlib`: a fresh process pays for each function that it calls once.
        try:
            if self._spare is None:
                os.unlink(self.path)
            else:
                os.rename(self.path, self._spare)
        except OSError:
            # The daemon removes the file like that of a killed process.
            pass
        if self._descriptor != _NO_DESCRIPTOR:
            os.close(self._descriptor)


def create(directory: str | os.PathLike[str], stem: str, *, spare: str | None = None) -> LockFile:
    """Create and lock ``directory/stem`` (with ``-1``, ``-2``... if that name is taken).

    A name is never used twice: readers must not take one owner for another. ``spare`` is the path
    of an unused file in the same directory, reserved for this process; it need not exist. Makes
    the directory again if it was deleted. Raises `StorageError` if the disk refuses, unless the
    name has an identity, which is proof enough.
    """
    start = f"{os.fspath(directory)}/{stem}"
    if spare is not None and (taken := _take_spare(spare, start)) is not None:
        return taken
    try:
        return _create(start, spare)
    except FileNotFoundError:
        # The folder was deleted.
        return _create_with_folder(os.fspath(directory), start, spare)
    except OSError as error:
        return _without_file(start, error)


def _take_spare(spare: str, path: str) -> LockFile | None:
    """The spare, renamed and locked; None if there is none, or another process probes it."""
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
        # Not its parents: where a queue was deleted, no job's process makes one anew.
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        return _create(start, spare)
    except OSError as error:
        return _without_file(start, error)


def _without_file(path: str, error: OSError) -> LockFile:
    """A lock file without a file: a full disk must not keep a daemon or a job from starting.

    A job's process has its identity as proof, and a daemon the lock on the queue directory.
    """
    if identity_of(path) is None and not is_daemons(path):
        raise errors.StorageError(ownership.explained(path, error)) from error
    return LockFile(path, _NO_DESCRIPTOR)


DAEMON_STEM = "ganger-daemon_"
"""Start of the name of a daemon's lock file."""


def daemon_stem(now: float) -> str:
    """Name of a daemon's lock file."""
    return f"{DAEMON_STEM}{int(now)}"


def is_daemons(path: str) -> bool:
    """Whether this is the name of a daemon's lock file, not of a job's."""
    return os.path.basename(path).startswith(DAEMON_STEM)


def job_stem(job_id: int, now: float, identity: ProcessIdentity) -> str:
    """Name of a job's lock file: as Ganeti's (``job_000001_1795224833``), and the identity.

    A job may get two processes within a second, if the first is refused: a late message about the
    first must not count for the second.
    """
    return f"{_JOB_START}{job_id:06d}_{int(now)}_{identity}"


def identity_of(path: str | os.PathLike[str]) -> ProcessIdentity | None:
    """The process's identity in the name of a job's lock file; None for other names.

    >>> identity_of("/l/job_000007_1795224833_4711.88123.1a2b3c4d")
    ProcessIdentity(pid=4711, start=88123, boot='1a2b3c4d')
    >>> identity_of("/l/job_000007_1795224833_5e6f7a8b")
    """
    name = os.path.basename(path)
    return process_identity.parse(name.rpartition("_")[2]) if name.startswith(_JOB_START) else None


def spare_path(directory: str, server: int, number: int) -> str:
    """The path of the spare for the ``number``-th process of the fork server ``server`` (pid)."""
    return f"{directory}/{_SPARE_START}{server}_{number}"


def is_spare(path: str | os.PathLike[str]) -> bool:
    """Whether this is the name of a spare, which no process uses now."""
    return os.path.basename(path).startswith(_SPARE_START)


def remove_spares(directory: str) -> None:
    """Delete all spares. Errors of the disk are ignored: processes do without spares."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(_SPARE_START):
                with contextlib.suppress(OSError):
                    os.unlink(f"{directory}/{name}")


def is_dead(path: str | os.PathLike[str]) -> bool:
    """Whether the owner of the lock file is dead. After any error, it is not."""
    if os.fspath(path) in _own or _is_locked(os.fspath(path)):
        return False
    return _owner(path) is None


def _owner(path: str | os.PathLike[str]) -> ProcessIdentity | None:
    """The process of the file's name, if it lives and has not left the job of that name."""
    identity = identity_of(path)
    if identity is None:
        return None
    job_id = os.path.basename(path)[len(_JOB_START) :].partition("_")[0]
    if job_id.isdecimal() and len(job_id) <= _JOB_ID_DIGITS_MAX:
        is_owner = process_identity.serves(identity, int(job_id))
    else:
        is_owner = process_identity.lives(identity)
    return identity if is_owner else None


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        # No file can have such a path.
        return error.errno != errno.ENAMETOOLONG
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # Another process may have renamed this file, a spare, for itself meanwhile.
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
    """The pid of the process that holds the lock file, from the kernel; None if none does.

    An `OfflineLock` does not count as a holder.
    """
    if os.fspath(path) in _own:
        return os.getpid()
    pid = _locked_by(path)
    if pid is None and (owner := _owner(path)) is not None:
        return owner.pid
    return pid


def _locked_by(path: str | os.PathLike[str], *, start: int = 0) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    finally:
        os.close(descriptor)
    return None if answer[0] == fcntl.F_UNLCK else int(answer[4])


def is_elsewhere(path: str | os.PathLike[str], directory: str | os.PathLike[str]) -> bool:
    """Whether the owner holds its file in the data directory of another folder than ``directory``.

    Then the data directory of ``directory`` is a copy of that one. False if it is not known.
    """
    owner = _owner(path)
    if owner is None:
        return False
    name, files = os.path.basename(path), f"/proc/{owner.pid}/fd"
    # The owner may end, or the path of its file lead nowhere from here.
    with contextlib.suppress(OSError):
        for number in os.listdir(files):
            held = os.readlink(f"{files}/{number}")
            if os.path.basename(held) == name:
                there = os.path.dirname(os.path.dirname(held))
                return not os.path.samefile(there, os.path.dirname(directory))
    return False


def remove_dead(path: str | os.PathLike[str]) -> None:
    """Delete the lock file if its owner is dead; harmless if the file is gone."""
    if is_dead(path):
        remove_known_dead(path)


def remove_known_dead(path: str | os.PathLike[str]) -> None:
    """Delete a lock file whose owner `is_dead` has found dead; harmless if the file is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise errors.StorageError(ownership.explained(path, error)) from error


def remove_dead_jobs(directory: str | os.PathLike[str]) -> None:
    """Delete the lock files in ``directory`` that dead processes of jobs have left.

    Call it only while no job's process starts: a new file that is not locked yet would count as
    dead. Errors (too few descriptors) are ignored: the next start of a daemon deletes the others.
    """
    _remove_dead(directory, _JOB_START)


def remove_dead_daemons(directory: str | os.PathLike[str]) -> None:
    """Delete the lock files in ``directory`` that dead processes of a daemon have left.

    Call it only while no process of the daemon starts. Errors are ignored, as by
    `remove_dead_jobs`.
    """
    _remove_dead(directory, DAEMON_STEM)


def _remove_dead(directory: str | os.PathLike[str], start: str) -> None:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if name.startswith(start):
            with contextlib.suppress(errors.StorageError):
                remove_dead(os.path.join(directory, name))


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
        _own[os.fspath(path)] = self._descriptor

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
            if time.monotonic() > deadline or _locked_by(path) or _locked_by(path, start=1):
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
        self._descriptor = _own[os.fspath(self._path)] = descriptor

    def confirm(self) -> None:
        """Raise `DirectoryLockedError` if a daemon may have started: the findings may be wrong."""
        if self._descriptor is None and self._path.exists():
            raise errors.DirectoryLockedError(_used(self._path))

    def release(self) -> None:
        """Let daemons in again."""
        if self._descriptor is not None:
            del _own[os.fspath(self._path)]
            os.close(self._descriptor)
            self._descriptor = None
        if self._directory != _NO_DESCRIPTOR:
            os.close(self._directory)
            self._directory = _NO_DESCRIPTOR


def _used(path: Path) -> str:
    pid = holder(path)
    who = "another process works on" if pid is None else f"a daemon (pid {pid}) uses"
    return f"{path.parent}: {who} this queue directory"
