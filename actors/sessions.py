"""Ends what a job's process left running when it died without a word.

Each job's process leads a session of its own, and its commands are members of it. They must have
ended before anybody else gets the locks under which they work. A session's number is not used
again while it has members, so that nobody else's processes can be hit: where a process with the
leader's number lives, the number has been given to somebody new, and no member is left.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

END_SECONDS = 5.0
"""How long processes that got a SIGKILL are waited for; longer ones hang in the kernel."""

_ZOMBIE = "Z"


def end(leader: int | None) -> list[int]:
    """End every member of the session of a dead ``leader``, and wait for it; their numbers.

    Does nothing while the leader lives.
    """
    ended: list[int] = []
    if leader is None or leader <= 1 or _is_alive(leader):
        return ended
    deadline = time.monotonic() + END_SECONDS
    # Again and again, because a member may have started others meanwhile.
    while (members := _members(leader)) and time.monotonic() < deadline:
        for pid in members:
            ended += _kill(pid, deadline)
    return ended


def _members(leader: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if pid != leader and _session(pid) == leader]


def _session(pid: int) -> int | None:
    try:
        session = os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
    return session if _is_alive(pid) else None


def _is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[0] != _ZOMBIE
    except (FileNotFoundError, ProcessLookupError):
        return False


def _kill(pid: int, deadline: float) -> list[int]:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return []
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(max(0, round((deadline - time.monotonic()) * 1_000)))
    except (ProcessLookupError, PermissionError):
        return []
    finally:
        os.close(pidfd)
    return [pid]
