"""Which opcodes' processes are followed, and that nothing of them is left; each in a process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from ganger.actors.processes import descendants
from ganger.storage import opcodes

FOLLOW = """
import os, signal, subprocess, sys, time
from ganger.actors.processes import descendants
from ganger.actors.operations.local_context import LocalContext
from ganger.storage.alive import process_identity

descendants.follow(is_wanted=sys.argv[1] == "followed")
script = "setsid sh -c 'setsid sleep 600 & echo $! $$; exec sleep 600' &"
shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
pids = [int(word) for word in shell.stdout.readline().split()]
shell.wait()
if sys.argv[2:] == ["unreaped"]:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
count = descendants.end_all(LocalContext())
left = [pid for pid in pids if process_identity.of(pid) is not None]
for pid in left:
    os.kill(pid, 9)
print(count, len(left))
"""


SILENT = """
import ctypes, os, time
from ganger.actors.processes import descendants
from ganger.actors.operations.local_context import LocalContext
from ganger.storage.alive import process_identity

descendants.follow()
library = ctypes.CDLL(None)
child = library.syscall(CLONE, 0, 0, 0, 0, 0)
if child == 0:
    time.sleep(600)
count = descendants.end_all(LocalContext())
print(count, process_identity.of(child) is None, descendants.has_children())
"""

AGAIN = """
import ctypes
from ganger.actors.processes import descendants

library, found = ctypes.CDLL(None), ctypes.c_int()
descendants.follow()
library.prctl(36, 0, 0, 0, 0)
descendants.follow()
library.prctl(37, ctypes.byref(found), 0, 0, 0)
print(found.value)
"""

CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The number of the system call clone(2)."""


def _printed(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(CLONE is None, reason="the number of the call is not known here")
def test_a_child_that_ends_without_a_signal_is_ended_as_well() -> None:
    assert _printed(SILENT.replace("CLONE", str(CLONE))) == "1 True False"


def test_the_next_job_of_a_process_is_followed_also_if_one_has_ended_that() -> None:
    assert _printed(AGAIN) == "1"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["followed"], "2 0"),
        (["not followed"], "0 2"),
        # The operation ignores SIGCHLD, so the kernel reaps them.
        (["followed", "unreaped"], "2 0"),
    ],
    ids=" ".join,
)
def test_what_a_process_started_is_ended_wherever_it_went_if_it_is_followed(
    how: list[str], expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW, *how], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == expected, done.stderr


def test_only_what_starts_processes_is_followed_and_only_if_they_are_not_to_stay() -> None:
    command = {"OP_ID": "OP_EXEC", "argv": ["true"]}
    assert descendants.is_followed(opcodes.parse(command)) is True
    assert descendants.is_followed(opcodes.parse(command | {"leave_running": True})) is False
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0}
    assert descendants.is_followed(opcodes.parse(delay)) is None


@pytest.mark.parametrize("where", [{"node": "web1"}, {"nodes": ["web1", "web2"]}])
def test_what_runs_on_nodes_alone_starts_nothing_here(where: dict[str, object]) -> None:
    command = {"OP_ID": "OP_EXEC", "argv": ["true"]}
    assert descendants.is_followed(opcodes.parse(command | where)) is None
    call = {"OP_ID": "OP_NODE_CALL", "call": "version"}
    assert descendants.is_followed(opcodes.parse(call)) is True
    assert descendants.is_followed(opcodes.parse(call | where)) is None
