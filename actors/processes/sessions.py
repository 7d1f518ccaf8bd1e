"""Ends what the dead process of a job has left running, and nobody else.

A job's process is the leader of a session of its own, which everything that its command starts
belongs to unless that makes one of its own; and what a command starts has the mark of the job's
process in its environment, unless it is taken out. Either leads to what was left.

A stored number is never believed alone. The mark says which process was meant, and in which boot.
A session keeps its leader's number from being given to others, but when the session is over, too,
the number may be that of a stranger's session. So a session counts as the job's if the daemon saw
its leader end, or if one of its processes can only be the job's: one with the mark in its
environment, or a copy of the leader that runs no other program.
All must have ended before the job's locks are free.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from ...storage import process_identity
from . import control_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.process_identity import ProcessIdentity

END_SECONDS = 1.0
"""How long processes may take to end: the kernel does it at once, unless one of them waits in
the kernel for a device."""

MARK_VARIABLE = "GANGER_JOB_PROCESS"
"""In the environment of what a job starts: the mark of the job's process."""

_TEMPLATES = (b"\0ganger.actors.execution.template\0", b"\0ganger.actors.template\0")
"""In the command line of a fork server and its children: of this version, and of earlier ones."""


def end_left_over(
    leader: ProcessIdentity, *, was_seen_ending: bool = False, is_own: bool = False
) -> list[int]:
    """Kill what the process left running; those that were found, the last ones unended.

    ``was_seen_ending``: this daemon held a pidfd of it until now; ``is_own``: and started it.
    Raises `OSError` if nobody can look, because no descriptors are left, or if one of them runs as
    another user.
    """
    killed: list[int] = []
    if leader.boot != process_identity.boot() or process_identity.lives(leader):
        return killed
    deadline = time.monotonic() + END_SECONDS
    killed += control_groups.end(leader, deadline, is_near=is_own)
    # Again and again, because one that is not seen yet may be started by one that is.
    while time.monotonic() < deadline:
        found = _left_over(leader, is_session_known=was_seen_ending)
        if not found:
            break
        # Once a session is known it stays known: what is left of it may prove nothing alone.
        was_seen_ending = was_seen_ending or any(_session(mark.pid) == leader.pid for mark in found)
        killed += [mark.pid for mark in found]
        kill_all(found, deadline)
    return killed


def _left_over(leader: ProcessIdentity, *, is_session_known: bool) -> list[ProcessIdentity]:
    marked, members = [], []
    proof = f"{MARK_VARIABLE}={leader}".encode()
    for pid in _pids():
        mark = process_identity.of(pid)
        # One that is older than the leader, or is the number's next owner, is none of its own.
        if mark is None or mark.start < leader.start or mark.pid == leader.pid:
            continue
        is_marked = proof in _read(pid, "environ").split(b"\0")
        if _session(pid) == leader.pid:
            members.append(mark)
            is_session_known |= is_marked or _is_forked(pid)
        elif is_marked:
            marked.append(mark)
    if process_identity.of(leader.pid) is not None:
        # The number has another owner: the session of the old one is over.
        return marked
    return [*marked, *members] if is_session_known else marked


def kill_all(marks: Iterable[ProcessIdentity], deadline: float) -> None:
    """Kill these processes, and wait for their ends until ``deadline``.

    Raises `OSError` if that is refused: for want of descriptors, or to a user who is not root.
    """
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        waited_for = 0
        for mark in marks:
            try:
                pidfd = os.pidfd_open(mark.pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, pidfd)
            # Looked at again: the number may have become another's before it was held.
            if process_identity.lives(mark):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    poll.register(pidfd, select.POLLIN)
                    waited_for += 1
        while waited_for and (left := deadline - time.monotonic()) > 0:
            for pidfd, _ in poll.poll(max(1, round(left * 1_000))):
                poll.unregister(pidfd)
                waited_for -= 1


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - quick


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _read(pid: int, name: str) -> bytes:
    """What /proc says; nothing of what has ended, or may not be looked at."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - quick
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _is_forked(pid: int) -> bool:
    """Whether this is a fork server, or a child of one."""
    line = _read(pid, "cmdline")
    return any(template in line for template in _TEMPLATES)
