"""What a job's process left running is ended, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys

from ganger.actors import sessions

LEAD = (
    "import os, subprocess, sys; os.setsid() if os.getsid(0) != os.getpid() else None;"
    "child = subprocess.Popen(['sleep', '600'], process_group=0);"
    "print(os.getpid(), child.pid, flush=True); sys.stdin.read()"
)


def started() -> tuple[subprocess.Popen[str], int]:
    """A leader of a session, and a member in a group of its own, as a job's command is."""
    leader = subprocess.Popen(
        [sys.executable, "-c", LEAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert leader.stdout is not None
    pid, member = map(int, leader.stdout.readline().split())
    assert pid == leader.pid
    return leader, member


def close(leader: subprocess.Popen[str]) -> None:
    leader.kill()
    leader.wait()
    for stream in (leader.stdin, leader.stdout):
        if stream is not None:
            stream.close()


def is_there(pid: int) -> bool:
    return sessions._lives(pid)


def test_a_dead_leader_leaves_nothing_behind() -> None:
    leader, member = started()
    close(leader)
    assert sessions.end_session(leader.pid) == [member]
    # Ended, and not only asked to.
    assert not is_there(member)
    assert sessions.end_session(leader.pid) == []


def test_while_the_leader_lives_nobody_is_touched() -> None:
    leader, member = started()
    assert sessions.end_session(leader.pid) == []
    assert is_there(member)
    close(leader)
    sessions.end_session(leader.pid)


def test_nobody_is_meant_by_no_number() -> None:
    for pid in (-1, 0, 1):
        assert sessions.end_session(pid) == []
    assert is_there(os.getpid())
