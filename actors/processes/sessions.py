"""Ends the processes that a dead job's process has left running, and no others.

A job's process leads its own session. Every process that its command starts belongs to that
session, unless it makes another, and has the identity of the job's process in its environment,
unless the command removes it. Either leads to the left-over processes.

A stored pid alone proves nothing: the identity says which process it was, and in which boot. While
a session lives, the kernel does not reuse its leader's pid; afterwards the pid may be that of a
foreign session. So a session counts as the job's if the daemon saw its leader end, or if one of its
processes can only be the job's: one with the identity in its environment, or a copy of the leader
that runs no other program. All must have ended before the job's locks are free.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from ...storage.alive import process_identity
from . import control_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.alive.process_identity import ProcessIdentity

END_SECONDS = 1.0
"""How long killed processes may take to end: no time, unless one of them waits in the kernel
for a device."""

_LOOK_SECONDS = 0.001

IDENTITY_VARIABLE = "GANGER_JOB_PROCESS"
"""The environment variable of a job's processes: the identity of the job's own process."""

_TEMPLATES = (b"\0ganger.actors.execution.template\0", b"\0ganger.actors.template\0")
"""In the command line of a fork server and its children: of this version, and of earlier ones."""


def end_left_over(
    leader: ProcessIdentity, *, was_seen_ending: bool = False, is_own: bool = False
) -> list[int]:
    """Kill the processes that ``leader`` left running; their pids.

    Some of the last may still live at the end. ``was_seen_ending``: this daemon held a pidfd of
    the leader until its end; ``is_own``: it also started the leader. Raises `OSError` if no
    descriptors are left to look with, or if a process runs as another user.
    """
    killed: list[int] = []
    if leader.boot != process_identity.boot() or process_identity.lives(leader):
        return killed
    deadline = time.monotonic() + END_SECONDS
    killed += control_groups.end(leader, deadline, is_near=is_own)
    # Repeatedly: a process may start another one before it is killed.
    while time.monotonic() < deadline:
        found, is_certain = _left_over(leader, is_session_known=was_seen_ending)
        if not found and is_certain:
            break
        if not found:
            # The kernel does not report when a program has begun.
            time.sleep(_LOOK_SECONDS)
        # A recognized session stays so: the remaining processes alone may prove nothing.
        was_seen_ending = was_seen_ending or any(
            _session(identity.pid) == leader.pid for identity in found
        )
        killed += [identity.pid for identity in found]
        kill_all(found, deadline)
    return killed


def _left_over(
    leader: ProcessIdentity, *, is_session_known: bool
) -> tuple[list[ProcessIdentity], bool]:
    """The processes that ``leader`` left running, and whether these are certainly all."""
    tagged, members = [], []
    is_certain = True
    proof = f"{IDENTITY_VARIABLE}={leader}".encode()
    for pid in _pids():
        identity = process_identity.of(pid)
        # A process older than the leader, or with its pid, is not the job's.
        if identity is None or identity.start < leader.start or identity.pid == leader.pid:
            continue
        environment = _read(pid, "environ")
        is_tagged = proof in environment.split(b"\0")
        is_certain &= bool(environment) or not process_identity.begins_program(pid)
        if _session(pid) == leader.pid:
            members.append(identity)
            is_session_known |= is_tagged or _is_forked(pid)
        elif is_tagged:
            tagged.append(identity)
    if process_identity.of(leader.pid) is not None:
        # Another process has the pid: the old session is over.
        return tagged, is_certain
    return [*tagged, *members] if is_session_known else tagged, is_certain


def kill_all(identities: Iterable[ProcessIdentity], deadline: float) -> None:
    """Kill these processes, and wait for their ends until ``deadline``.

    Raises `OSError` without descriptors or rights.
    """
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        waited_for = 0
        for identity in identities:
            try:
                pidfd = process_identity.open_pidfd(identity.pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, pidfd)
            # Check again: another process may have got the pid before `open_pidfd`.
            if process_identity.lives(identity):
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
    """A file of the process in /proc; empty if the process has ended, or is not readable."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - quick
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _is_forked(pid: int) -> bool:
    """Whether this is a fork server, or a child of one."""
    line = _read(pid, "cmdline")
    return any(template in line for template in _TEMPLATES)
