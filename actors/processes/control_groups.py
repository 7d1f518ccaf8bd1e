"""A control group for each job that starts processes, where the system lets this user make one.

How it works. Before its first command the process of a job makes a group within its present one,
and moves there. Every process that it starts belongs to the group, also with another session,
environment or parent. If the job's process is killed, the daemon finds the group by the
process's identity and ends all processes in it. Both versions of control groups work; of the first,
it uses a hierarchy that changes nothing by itself.

Where a process may make no group (in most containers, and for users without a delegated one),
only `descendants` and `sessions` find the processes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import time
from typing import TYPE_CHECKING

from ...storage.alive import process_identity

if TYPE_CHECKING:
    from ...storage.alive.process_identity import ProcessIdentity

PREFIX = "ganger-job-"
"""How the names of groups begin; the identity of the job's process follows."""

LOOK_SECONDS = 0.01
"""How often to look whether the killed processes of a group have ended."""

_HIERARCHIES = ("freezer", "pids")
_MEMBERS = "cgroup.procs"
_NO_GROUP = (errno.ENOENT, errno.ENODEV)
"""What the kernel says of a file of a group that is removed: before it is opened, and after."""
_POINT_FIELD, _ROOT_FIELD = 4, 3

_entered: str | None = None


@functools.cache
def places() -> tuple[str, ...]:
    """The directories of this process's groups, the second version's first."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:  # noqa: PTH123 - quick
            own = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mountinfo", encoding="utf-8") as file:  # noqa: PTH123 - quick
            mounts = [line.split() for line in file if " - cgroup" in line]
    except (OSError, UnicodeDecodeError):
        return ()
    found = []
    for wanted in ("", *_HIERARCHIES):
        paths = [path for _, names, path in own if wanted in names.split(",")]
        for mount in mounts:
            kind, _, options = mount[mount.index("-") + 1 :][:3]
            is_wanted = kind == "cgroup2" if not wanted else wanted in options.split(",")
            if is_wanted and paths and paths[0].startswith(mount[_ROOT_FIELD].rstrip("/")):
                below = paths[0][len(mount[_ROOT_FIELD].rstrip("/")) :]
                found.append(mount[_POINT_FIELD] + below.rstrip("/"))
    return tuple(found)


def enter(identity: ProcessIdentity) -> bool:
    """Move this process into a group of its own; False if it cannot."""
    global _entered  # noqa: PLW0603 - as it is in the kernel: one for the process
    if _entered is not None:
        return True
    for place in places():
        path = f"{place}/{PREFIX}{identity}"
        with contextlib.suppress(OSError):
            os.mkdir(path)  # noqa: PTH102 - pathlib is slow to import
            try:
                _write(f"{path}/{_MEMBERS}", b"0")
            except OSError:
                os.rmdir(path)  # noqa: PTH106 - likewise
                continue
            _entered = place
            return True
    return False


def has_entered() -> bool:
    """Whether this process is in a group of its own."""
    return _entered is not None


def leave() -> None:
    """Move this process back to its first group, so that new processes outlive the job."""
    global _entered  # noqa: PLW0603 - see above
    if _entered is not None:
        with contextlib.suppress(OSError):
            _write(f"{_entered}/{_MEMBERS}", b"0")
            _entered = None


def remove(identity: ProcessIdentity) -> None:
    """Remove the empty group of a process that has ended in order, if there is one."""
    for place in places():
        with contextlib.suppress(OSError):
            os.rmdir(f"{place}/{PREFIX}{identity}")  # noqa: PTH106 - once for each job


def remove_empty() -> None:
    """Remove the empty groups of processes that were killed together with their daemon."""
    for place in places():
        with contextlib.suppress(OSError):
            for name in os.listdir(place):  # noqa: PTH208 - quick
                if name.startswith(PREFIX):
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{place}/{name}")  # noqa: PTH106 - likewise


def end(identity: ProcessIdentity, deadline: float, *, is_near: bool = False) -> list[int]:
    """Kill the members of a dead process's group until it is empty, or ``deadline``; their pids.

    ``is_near``: the group can only be where this process makes its own. Raises `OSError` if the
    system refuses.
    """
    found: list[int] = []
    for group in _groups(f"{PREFIX}{identity}", is_near=is_near):
        while members := _members(group):
            found += [pid for pid in members if pid not in found]
            _kill(group, members)
            if time.monotonic() >= deadline:
                break
            select.select([], [], [], LOOK_SECONDS)
        with contextlib.suppress(OSError):
            os.rmdir(group)  # noqa: PTH106 - quick
    return found


def _groups(name: str, *, is_near: bool) -> list[str]:
    """Every directory of this name: an earlier daemon may have run in another group."""
    near = [path for place in places() if os.path.isdir(path := f"{place}/{name}")]  # noqa: PTH112
    if near or is_near:
        return near
    found = []
    for top in {f"{place}/".partition("/cgroup/")[0] + "/cgroup" for place in places()}:
        for folder, names, _ in os.walk(top):
            if name in names:
                found.append(f"{folder}/{name}")
    return found


def _members(group: str) -> list[int]:
    try:
        with open(f"{group}/{_MEMBERS}", encoding="ascii") as file:  # noqa: PTH123 - quick
            return [int(line) for line in file]
    except OSError as error:
        if error.errno not in _NO_GROUP:
            raise
        return []


def _kill(group: str, members: list[int]) -> None:
    try:
        _write(f"{group}/cgroup.kill", b"1")
    except OSError as error:
        if error.errno not in _NO_GROUP:
            raise
    else:
        return
    # The first version: one by one. Check the pid again: it may be another process's by now.
    import signal  # noqa: PLC0415 - rarely needed

    for pid in members:
        identity = process_identity.of(pid)
        with contextlib.suppress(ProcessLookupError):
            pidfd = process_identity.open_pidfd(pid)
            try:
                is_alive = identity is not None and process_identity.lives(identity)
                if is_alive and pid in _members(group):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
