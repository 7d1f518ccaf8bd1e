"""Checks that a file system suits a data directory: its locks must prove that a process lives.

And has btrfs write over the journal in its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

from .. import errors

if TYPE_CHECKING:
    from pathlib import Path

NETWORKED = frozenset(
    {
        *("afs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "glusterfs"),
        *("gfs2", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs"),
    }
)
"""Kinds of file systems that several machines share.

A lock there may be lost while its process lives, and the pid of a process on another machine means
nothing on this one.
"""

_FLOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock``: type, whence, start, length, pid."""

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""The kernel's ``FS_IOC_GETFLAGS`` and ``FS_IOC_SETFLAGS``."""

_NO_COPY_ON_WRITE = 0x00800000
"""Its ``FS_NOCOW_FL``; btrfs gives it to each new file in a folder that has it."""

_FLAGS = struct.Struct("l")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_MOUNT_FIELDS_MIN = 5


def require_locks(directory: Path) -> None:
    """Raise `DataDirectoryError` unless locks in ``directory`` prove that their owner lives.

    Tries nothing if it cannot create a file, on a full disk for example.
    """
    kind = kind_of(directory)
    if kind in NETWORKED:
        raise errors.DataDirectoryError(
            f"{directory}: lies on a network file system ({kind}); its locks do not prove that a "
            "process lives. Use a directory on a disk of this machine"
        )
    trial = f"{directory}/.lock-trial-{os.getpid()}"
    try:
        descriptors = [os.open(trial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)]
    except OSError:
        return
    try:
        descriptors.append(os.open(trial, os.O_RDWR | os.O_CLOEXEC))
        is_seen = _sees_lock(*descriptors)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise errors.StorageError(f"{directory}: {error.strerror}") from error
        is_seen = False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(trial)
    if not is_seen:
        raise errors.DataDirectoryError(
            f"{directory}: its file system ({kind or 'of unknown kind'}) has no file locks, which "
            "prove that a process lives. Use a directory on another file system"
        )


def write_in_place(folder: Path) -> None:
    """Have new files in the folder written over in their place, as on most file systems.

    btrfs writes a changed block elsewhere, for which a full disk has no room. If it refuses, that
    stays so.
    """
    if kind_of(folder) != "btrfs":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            [flags] = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(_FLAGS.size)))
            fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(flags | _NO_COPY_ON_WRITE))
        finally:
            os.close(descriptor)


def _sees_lock(holder: int, asker: int) -> bool:
    """Whether the second descriptor sees a lock that the first one holds."""
    fcntl.lockf(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # A lock of the open file (OFD) conflicts with a lock of the process, even of the same one.
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    answer = _FLOCK.unpack(fcntl.fcntl(asker, fcntl.F_OFD_GETLK, question))
    return bool(answer[0] != fcntl.F_UNLCK)


def kind_of(directory: Path | str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """The kind of the file system, as ``mount`` calls it; None if it is unknown."""
    wanted = os.path.realpath(directory)
    best, found = -1, None
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    for line in lines:
        place, _, source = line.partition(" - ")
        fields = place.split()
        if len(fields) < _MOUNT_FIELDS_MIN or not source:
            continue
        point = _unescaped(fields[4])
        is_above = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # A later mount at the same place hides the earlier one.
        if is_above and len(point) >= best:
            best, found = len(point), source.split()[0]
    return found


def _unescaped(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
