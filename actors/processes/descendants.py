"""Follows the processes that a job starts, wherever they go, and ends those that are left.

How it works. The job's process makes itself a child sub-reaper: a process that loses its parent
becomes its child, also in a session of its own. So all live processes that it started are below
it, and killing its children until there are none ends them all. A child keeps its pid until it
is waited for, so no kill can hit a stranger.

The system call goes through ctypes. Only a job that starts processes imports it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from ...storage.alive import process_identity
from ...storage.opcodes import KilledError

if TYPE_CHECKING:
    from ...storage.opcodes import Opcode, OperationContext

LOOK_SECONDS = 1.0
"""How long to wait for killed processes to end before killing again."""

_SET_CHILD_SUBREAPER = 36
_ALL_CHILDREN = 0x40000000
"""Also those that end without a signal to their parent (``__WALL``): libraries make such ones."""

_STARTING = ("OP_EXEC", "OP_NODE_CALL")
"""Ganger's own opcodes that start processes: those of commands, and of calls of packages."""

_is_following = False


def is_followed(opcode: Opcode) -> bool | None:
    """Whether the opcode's processes end with it; None if it starts none here."""
    if opcode.built_in and (opcode.op_id not in _STARTING or _runs_elsewhere(opcode)):
        return None
    return not getattr(opcode, "leave_running", False)


def _runs_elsewhere(opcode: Opcode) -> bool:
    return getattr(opcode, "node", None) is not None or bool(getattr(opcode, "nodes", None))


def follow(*, is_wanted: bool = True) -> None:
    """Be a child sub-reaper from now on, or no longer. `OSError` if the system refuses."""
    global _is_following  # noqa: PLW0603 - as it is in the kernel: one for the process
    if not (is_wanted or _is_following):
        return
    # Also if it was one: an earlier operation in this process may have changed that.
    import ctypes  # noqa: PLC0415 - see above

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    _is_following = is_wanted


def end_all(context: OperationContext) -> int:
    """End all descendants of this process; their number.

    Returns when none is left. It waits for those that it cannot kill: they run as another user,
    or wait in the kernel for a device.
    """
    count = 0
    while has_children():
        found = {pid: _pidfd(pid) for pid in _children()}
        for pid in found:
            # Only this process waits for it, so the pid is still its own; where the operation
            # ignores SIGCHLD, the kernel reaps it.
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        waited_for = [pidfd for pidfd in found.values() if pidfd is not None]
        try:
            context.poll(waited_for, LOOK_SECONDS)
        except KilledError:
            # The kill goes on anyway.
            continue
        finally:
            for pidfd in waited_for:
                os.close(pidfd)
        count += _reap(found)
    return count


def has_children() -> bool:
    """Whether this process has a child, ended or not: while it is a sub-reaper, any descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _ALL_CHILDREN)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - quick
    return [pid for pid in pids if process_identity.parent(pid) == own]


def _pidfd(pid: int) -> int | None:
    try:
        return process_identity.open_pidfd(pid)
    except OSError:
        # No descriptor is left: the next look finds it again.
        return None


def _reap(pids: dict[int, int | None]) -> int:
    ended = 0
    for pid in pids:
        try:
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | _ALL_CHILDREN)
        except ChildProcessError:
            # The kernel has reaped it.
            ended += 1
        else:
            ended += status is not None
    return ended
