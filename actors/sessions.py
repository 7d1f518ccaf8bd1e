"""Ends what the dead process of a job has left running.

A job's process is the leader of a session of its own, which everything that its command
starts belongs to (unless that makes one of its own). A number is not given to another
process as long as a session has it, so what is found under the number of a dead leader was
the job's. It must have ended before the job's locks are free.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

END_SECONDS = 1.0
"""How long the processes of a session may take to end: the kernel does it at once, unless
one of them waits in the kernel for a device."""


def end_session(leader: int) -> list[int]:
    """Kill every process of the session; those that were found, the last ones unended.

    Raises `OSError` if nobody can look, because no descriptors are left.
    """
    killed: list[int] = []
    if leader <= 0 or _lives(leader):
        # The leader lives, or its number has another process: then the session is over.
        return killed
    deadline = time.monotonic() + END_SECONDS
    # Again and again, because one that is not seen yet may be started by one that is.
    while time.monotonic() < deadline and not _lives(leader) and (members := _members(leader)):
        killed += members
        _kill(leader, members, deadline)
    return killed


def _members(leader: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if _session(pid) == leader and _lives(pid)]


def _kill(leader: int, members: list[int], deadline: float) -> None:
    with contextlib.ExitStack() as stack:
        held = []
        for pid in members:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, pidfd)
            # Looked at again: the number may have become another's before it was held.
            if _session(pid) == leader:
                held.append(pidfd)
        if _lives(leader):
            # The session was over meanwhile, and its number is another's.
            return
        poll = select.poll()
        for pidfd in held:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poll.register(pidfd, select.POLLIN)
        waited_for = len(held)
        while waited_for and (left := deadline - time.monotonic()) > 0:
            for pidfd, _ in poll.poll(max(1, round(left * 1_000))):
                poll.unregister(pidfd)
                waited_for -= 1


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended (reaped or not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return text.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False
