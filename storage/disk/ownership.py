"""Which user owns a data directory, and which other users may write into it.

The daemon runs the commands that it finds in the queue. A daemon of another user than the
queue's owner would run them with its own rights, and leave files that the owner cannot use. So
every command that starts a daemon or writes calls `require_own` first: the queue and its files
must belong to the present user (or to root), and no other user may write into them.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from .. import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .paths import Places

_ROOT = 0
_FILES_TOLD = 1_000


def user(uid: int) -> str:
    """The user as error texts name it: ``alice (uid 1000)``."""
    name = user_name(uid)
    return f"uid {uid}" if name is None else f"{name} (uid {uid})"


def explained(path: str | os.PathLike[str], error: OSError) -> str:
    """The system's error text for ``path``; if it denies access, with the owner of the file."""
    text = f"{os.fspath(path)}: {error.strerror or error}"
    if error.errno not in (errno.EACCES, errno.EPERM):
        return text
    found = _denying(os.path.abspath(path))
    if found is None:
        return text
    place, uid = found
    named = "it" if place == os.path.abspath(path) else place
    return f"{text} ({named} belongs to {user(uid)}, and this is {user(os.geteuid())})"


def command(places: Places, words: str) -> str:
    """The command line for the subcommand ``words`` (such as ``up``) on this data directory."""
    return f"ganger --data {_quoted(places.data)} {words}"


def require_own(
    places: Places, words: str, looked_at: Callable[[int], None] = lambda _: None
) -> None:
    """Raise `NotOwnerError` unless the present user owns the queue, and no other may write to it.

    ``words`` is the subcommand that the owner should run instead, such as ``up``. Missing files
    count as owned. ``looked_at`` is called again and again with the number of files so far.
    """
    own = os.geteuid()
    for count, (path, status) in enumerate(_entries(places)):
        if not count % _FILES_TOLD:
            looked_at(count)
        if status.st_uid == own and not status.st_mode & stat.S_IWOTH:
            continue
        if not _is_ours(path, status, places):
            text = f"{path}: belongs to {user(status.st_uid)}, and this is {user(os.geteuid())}"
            how = _run_as(status.st_uid, command(places, words))
            raise errors.NotOwnerError(f"{text}; run it as its owner: {how}")
        if _is_world_writable(status):
            text = f"{path}: every user may write into it, and so run commands as"
            me, mended = user(os.geteuid()), f"chmod o-w {_quoted(path)}"
            raise errors.NotOwnerError(f"{text} {me}; look what is in it, then: {mended}")


def require_readable(path: str | os.PathLike[str]) -> None:
    """Raise `StorageError`, with the owner, unless this user may read this file or directory."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise errors.StorageError(explained(path, error)) from error


def require_admitted(socket: str) -> None:
    """Raise `NotAllowedError`, with the owner, if this user may not connect to the socket."""
    try:
        os.stat(socket)
        is_admitted = os.access(socket, os.W_OK, effective_ids=True)
    except PermissionError:
        is_admitted = False
    except OSError:
        # There is no socket: the caller finds that out when it connects.
        return
    if not is_admitted:
        denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise errors.NotAllowedError(explained(socket, denied))


def group_warnings(places: Places) -> list[str]:
    """A sentence for each directory into which a whole group of users may write.

    A group with the user's own name or number counts as the user's private one.
    """
    return [
        f"{path}: group {_group(status.st_gid)} may write into it, and so run commands as "
        f"{user(status.st_uid)}; chmod g-w {_quoted(path)} if it should not"
        for path, status in _directories(places)
        if status.st_mode & stat.S_IWGRP and not _is_private_group(status)
    ]


def queue_owner(places: Places) -> int | None:
    """The uid of the queue's owner; None if there is no queue."""
    try:
        return os.stat(places.queue).st_uid
    except OSError:
        return None


def misowned_paths(places: Places, owner: int) -> list[tuple[str, int]]:
    """Each path that ``owner``, the owner of the queue, does not own, and the uid that does."""
    return [
        (path, status.st_uid)
        for path, status in _entries(places)
        if status.st_uid != owner
        and not (path == os.fspath(places.data) and status.st_uid == _ROOT)
    ]


def world_writable_paths(places: Places) -> list[str]:
    """Directories and files into which every user may write."""
    return [path for path, status in _entries(places) if _is_world_writable(status)]


def _entries(places: Places) -> Iterator[tuple[str, os.stat_result]]:
    """Each existing file that decides what the daemon runs; for a link, its target too."""
    yield from _directories(places)
    of_rapi = (places.rapi_users, places.rapi_certificate)
    of_config = (places.config, places.config_copy)
    for path in (*of_config, places.locks, places.lock_journal, *of_rapi):
        yield from _statuses(os.fspath(path))
    of_keys = (places.keys, places.keys / "clients")
    journals = (places.journal, places.config_journal)
    for directory in (places.queue, *journals, places.spool, places.ssconf, *of_keys):
        yield from _files(os.fspath(directory))


def _directories(places: Places) -> Iterator[tuple[str, os.stat_result]]:
    of_queue = (places.queue, places.journal, places.spool)
    of_config = (places.config_journal, places.ssconf)
    of_keys = (places.keys, places.keys / "clients")
    for path in (places.data, *of_queue, *of_config, *of_keys, places.rapi_users.parent):
        yield from _statuses(os.fspath(path))


def _statuses(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The status of the file; if it is a link, that of its target too."""
    try:
        status = os.lstat(path)
        yield path, status
        if stat.S_ISLNK(status.st_mode):
            yield path, os.stat(path)
    except OSError:
        # Missing, or in a directory that we may not enter: opening the file fails with a reason.
        return


def _files(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    # One system call for each: the queue may have a hundred thousand.
    lstat, kind_of = os.lstat, stat.S_IFMT
    for name in names:
        path = f"{directory}/{name}"
        try:
            status = lstat(path)
        except OSError:
            continue
        kind = kind_of(status.st_mode)
        if kind == stat.S_IFLNK:
            if not os.path.isdir(path):
                yield from _statuses(path)
        elif kind != stat.S_IFDIR:
            yield path, status


def _is_ours(path: str, status: os.stat_result, places: Places) -> bool:
    me = os.geteuid()
    if status.st_uid == me:
        return True
    # A file of root inside is unreadable at worst, but only root may run root's queue.
    return status.st_uid == _ROOT and path != os.fspath(places.queue)


def _is_world_writable(status: os.stat_result) -> bool:
    is_kept = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return is_kept and bool(status.st_mode & stat.S_IWOTH)


def _is_private_group(status: os.stat_result) -> bool:
    name = user_name(status.st_uid)
    return status.st_gid == status.st_uid or (name is not None and name == _group(status.st_gid))


def _denying(path: str) -> tuple[str, int] | None:
    """The part of the path that another user owns and probably denies; None: there is none."""
    place = path
    while True:
        try:
            uid = os.lstat(place).st_uid
        except OSError:
            uid = None
        if uid is not None and uid != os.geteuid():
            # A directory of root that all may enter denies only what is in it.
            return place, uid
        if uid is not None and place != path:
            return None
        if place == "/":
            return None
        place = os.path.dirname(place)


def _run_as(uid: int, line: str) -> str:
    import shutil  # noqa: PLC0415

    name = user_name(uid)
    if shutil.which("sudo") is None and os.geteuid() == _ROOT:
        return f"setpriv --reuid {uid} --regid {_main_group(uid)} --clear-groups {line}"
    return f"sudo -u {name or _quoted(f'#{uid}')} {line}"


# Only a refusal imports these modules: fork servers and their children do without.


def _quoted(text: str | os.PathLike[str]) -> str:
    import shlex  # noqa: PLC0415

    return shlex.quote(os.fspath(text))


def user_name(uid: int) -> str | None:
    """The name of the user with this number; None: it has none."""
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _main_group(uid: int) -> int:
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


def _group(gid: int) -> str:
    import grp  # noqa: PLC0415

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
