"""Follows what the process of a job starts, wherever it goes, and ends what is left of it.

How it works. The process makes itself a child sub-reaper: what loses its parent becomes its
child, also in a session of its own. So everything that it started, and that still lives, is below
it, and a kill of all children, until there are none, ends it all. A child that has not been waited
for keeps its number, so no stranger can be hit.

The system call is made through ctypes, which is imported only when something is to be started: a
job that starts nothing does not pay for it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from ...storage import process_identity
from ...storage.opcodes import KilledError

if TYPE_CHECKING:
    from ...storage.opcodes import Opcode, OperationContext

LOOK_SECONDS = 1.0
"""How long to wait for the ends of killed processes before they are killed again."""

_SET_CHILD_SUBREAPER = 36

_is_following = False


def is_followed(opcode: Opcode) -> bool | None:
    """Whether what the opcode starts is ended with it; None if it starts nothing."""
    if opcode.built_in and opcode.op_id != "OP_EXEC":
        return None
    return not getattr(opcode, "leave_running", False)


def follow(*, is_wanted: bool = True) -> None:
    """From now on this process gets what loses its parent below it; or no longer.

    Raises `OSError` if the system refuses.
    """
    global _is_following  # noqa: PLW0603 - as it is in the kernel: one for the process
    if _is_following == is_wanted:
        return
    import ctypes  # noqa: PLC0415 - see above

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    _is_following = is_wanted


def end_all(context: OperationContext) -> int:
    """End everything that this process has started and followed; how many there were.

    Returns when nothing is left: what cannot be killed (it runs as another user, or waits in the
    kernel for a device) is waited for.
    """
    count = 0
    while _has_children():
        found = {pid: _pidfd(pid) for pid in _children()}
        for pid in found:
            # Nobody but us waits for it, so the number is still its own.
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                continue
        waited_for = [pidfd for pidfd in found.values() if pidfd is not None]
        try:
            context.poll(waited_for, LOOK_SECONDS)
        except KilledError:
            # That is what is being done.
            continue
        finally:
            for pidfd in waited_for:
                os.close(pidfd)
        count += _reap(found)
    return count


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - quick
    return [pid for pid in pids if process_identity.parent(pid) == own]


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        # No descriptor is left: then it is looked at again after a while.
        return None


def _reap(pids: dict[int, int | None]) -> int:
    ended = 0
    for pid in pids:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None:
            ended += 1
    return ended
