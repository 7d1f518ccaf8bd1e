"""Puts files on this host: entirely or not at all, with mode and owner, if its settings allow it.

How it works. The content goes into a file without a name in the directory of the target, so that
nothing is left of it if this process is killed. When all is there, flushed, with its checksum, mode
and owner, it gets a name beside the target and is renamed.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import hashlib
import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...storage.disk import documents, paths
from ...storage.nodes import task_settings
from ...storage.nodes.named_calls import FileStored
from ...storage.opcodes import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...storage.nodes.task_settings import TaskSettings

_NEW_MODE = 0o644
_NO_GROUP = 2**32 - 1
"""Numbers of groups are smaller: this one leaves a file's group as it is."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a file gets besides its content; None: as the file that it replaces, or the usual."""

    mode: int | None = None
    owner: str | None = None
    group: str | None = None
    sha256: str | None = None
    """What the content must have."""


def check(path: str, data: Path) -> str:
    """The path without links in its directory; `NotAllowedError` if node.toml forbids it."""
    directory, name = os.path.split(path)
    real = f"{os.path.realpath(directory).rstrip('/')}/{name}"
    _settings(data).check_path(real)
    return real


def put(pages: Iterable[bytes], target: str, kept: Kept, data: Path) -> FileStored:
    """Make these pages the content of ``target``. `OperationError` names the file and the reason.

    ``data``: the data directory of the host's daemon, whose settings say what is allowed.
    """
    path = check(target, data)
    directory, name = os.path.split(path)
    if name in {"", ".", ".."}:
        raise OperationError("OpExecError", f"{target}: is a directory")
    try:
        mode, uid, gid = _wanted(path, kept, data)
        with _unnamed(directory, name) as (descriptor, temporary):
            size, digest = _write(descriptor, pages)
            if kept.sha256 not in {None, digest}:
                text = f"{target}: the checksum of what has come is not that of the file"
                raise OperationError("OpExecError", text)
            if (uid, gid) != (-1, -1):
                os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            beside = Path(temporary or _named(descriptor, directory, name))
            try:
                beside.rename(path)
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
        documents.flush_directory(directory)
    except OSError as error:
        raise refused(target, error) from error
    return FileStored(path=path, size=size, sha256=digest)


def refused(path: str, error: OSError) -> OperationError:
    """What is said if the system refuses."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OperationError("OpExecError", f"{path}: {reason}")


def _settings(data: Path) -> TaskSettings:
    return task_settings.read(paths.Places(data, data).node_settings)


def _wanted(path: str, kept: Kept, data: Path) -> tuple[int, int, int]:
    """Mode, user and group of the file; -1: as the system has it."""
    mode, uid, gid = _NEW_MODE, -1, -1
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, "")
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            # A rename would take a device or a pipe away from all who use it.
            raise OperationError("OpExecError", f"{path}: is no regular file")
        if stat.S_ISREG(found.st_mode):
            mode = stat.S_IMODE(found.st_mode) & 0o777
            if os.geteuid() == 0:
                uid, gid = found.st_uid, found.st_gid
    if kept.owner is not None:
        user = _account(kept.owner)
        if user.pw_uid != os.geteuid():
            _settings(data).check_owner(kept.owner, user.pw_name)
        uid, gid = user.pw_uid, user.pw_gid
    if kept.group is not None:
        gid = _group(kept.group)
    return mode if kept.mode is None else kept.mode, uid, gid


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise OperationError("OpExecError", f"this host has no user {user!r}") from error


def _group(group: str) -> int:
    unknown = OperationError("OpExecError", f"this host has no group {group!r}")
    if group.isdecimal():
        # A number needs no name.
        if int(group) >= _NO_GROUP:
            raise unknown
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise unknown from error


def _write(descriptor: int, pages: Iterable[bytes]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for page in pages:
        documents.write_all(descriptor, page)
        digest.update(page)
        size += len(page)
    return size, digest.hexdigest()


@contextlib.contextmanager
def _unnamed(directory: str, name: str) -> Iterator[tuple[int, str]]:
    """A new file in the directory: its descriptor, and its name if the system has no unnamed."""
    temporary = ""
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}:
            raise
        start = f"{directory}/{documents.TEMPORARY_PREFIX}{name}"
        temporary, descriptor = documents.make_temporary(start, 0o600)
    try:
        yield descriptor, temporary
    except BaseException:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _named(descriptor: int, directory: str, name: str) -> str:
    """Give the file a name beside the target."""
    number = 0
    while True:
        beside = f"{directory}/{documents.TEMPORARY_PREFIX}{name}.{os.getpid()}.{number}"
        try:
            # Without a descriptor of a folder, Python does not follow the link.
            os.link(f"/proc/self/fd/{descriptor}", beside, src_dir_fd=descriptor)
        except FileExistsError:
            # A process that had our pid has left it.
            number += 1
        else:
            return beside
