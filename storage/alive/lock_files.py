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
probes its own file finds it free: `own_files` lists our own files, which count as alive. And
closing *any* descriptor of a file drops the process's lock on it: no module opens lock files but
this one and `directory_locks`. A child does not inherit the locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from .. import errors
from ..disk import ownership
from . import process_identity

if TYPE_CHECKING:
    from .process_identity import ProcessIdentity

own_files: dict[str, int] = {}
"""The files that this process has locked, with their descriptors."""

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""

_ATTEMPTS_MAX = 100


_JOB_START = "job_"
_SPARE_START = "spare_"
NO_DESCRIPTOR = -1
_JOB_ID_DIGITS_MAX = 18


class LockFile:
    """A lock file that this process holds. ``spare``: its name after `remove`, if it is kept."""

    def __init__(self, path: str, descriptor: int, spare: str | None = None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._spare = spare
        own_files[path] = descriptor

    @property
    def descriptor(self) -> int:
        """The open file; negative if there is none."""
        return self._descriptor

    def remove(self) -> None:
        """Give up file and lock: the process is about to end, or leaves its job."""
        if own_files.pop(self.path, None) is None:
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
        if self._descriptor != NO_DESCRIPTOR:
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
    return LockFile(path, NO_DESCRIPTOR)


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
    if os.fspath(path) in own_files or _is_locked(os.fspath(path)):
        return False
    return _owner(path) is None


def _owner(path: str | os.PathLike[str]) -> ProcessIdentity | None:
    """The process of the file's name, if it lives and has not left the job of that name."""
    identity = identity_of(path)
    if identity is None:
        return None
    job_id = job_of(path)
    if job_id is not None:
        is_owner = process_identity.serves(identity, job_id)
    else:
        is_owner = process_identity.lives(identity)
    return identity if is_owner else None


def job_of(path: str | os.PathLike[str]) -> int | None:
    """The job in the name of a lock file; None for other names.

    >>> job_of("/l/job_000007_1795224833_4711.88123.1a2b3c4d")
    7
    """
    name = os.path.basename(path)
    job_id = name.removeprefix(_JOB_START).partition("_")[0]
    is_named = name.startswith(_JOB_START) and job_id.isdecimal()
    return int(job_id) if is_named and len(job_id) <= _JOB_ID_DIGITS_MAX else None


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
    if os.fspath(path) in own_files:
        return os.getpid()
    pid = locked_by(path)
    if pid is None and (owner := _owner(path)) is not None:
        return owner.pid
    return pid


def locked_by(path: str | os.PathLike[str], *, start: int = 0) -> int | None:
    """The pid of the process with a record lock on this byte; None if there is none."""
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


def living_of_job(directory: str | os.PathLike[str], job_id: int) -> str | None:
    """The lock file in ``directory`` of the process that serves this job; None: there is none."""
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    start = f"{_JOB_START}{job_id:06d}_"
    paths = (os.path.join(directory, name) for name in names if name.startswith(start))
    return next((path for path in paths if not is_dead(path)), None)


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
