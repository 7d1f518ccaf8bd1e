"""What a killed process left running is ended through its control group, of either version."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NoReturn

import pytest
from tests.programs import Program
from tests.refusals import GONE, let_go

from ganger.actors.processes import control_groups
from ganger.storage.alive import process_identity

START = """
import subprocess, sys
from ganger.actors.processes import control_groups
from ganger.storage.alive import process_identity
identity = process_identity.own()
control_groups.places = lambda: (sys.argv[1],)
assert control_groups.enter(identity)
child = subprocess.Popen(
    ["/bin/sleep", "600"], env={}, start_new_session=True, stdout=subprocess.DEVNULL
)
print(identity, child.pid, flush=True)
sys.stdin.readline()
"""

PLACES = control_groups.places()


def may_make(place: str) -> bool:
    path = f"{place}/ganger-trial-{os.getpid()}"
    try:
        os.mkdir(path)
    except OSError:
        return False
    os.rmdir(path)
    return True


WRITABLE = [place for place in PLACES if may_make(place)]


@pytest.mark.skipif(not WRITABLE, reason="no control group may be made here")
@pytest.mark.parametrize("place", WRITABLE)
def test_what_a_killed_process_left_in_its_group_is_ended(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(control_groups, "places", lambda: (place,))
    with Program(START, place) as process:
        text, child = process.line.split()
    identity = process_identity.parse(text)
    assert identity is not None
    assert process_identity.of(int(child)) is not None
    assert control_groups.end(identity, time.monotonic() + 10) == [int(child)]
    assert process_identity.of(int(child)) is None
    assert not os.path.exists(f"{place}/{control_groups.PREFIX}{identity}")
    assert control_groups.end(identity, time.monotonic() + 10) == []


@pytest.mark.parametrize("number", GONE)
def test_a_member_that_goes_before_it_is_killed_keeps_no_other_alive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """In a group of the first version, whose members are killed one by one."""
    group, going = os.fspath(tmp_path), os.getppid()
    with subprocess.Popen(["sleep", "600"]) as other:
        (tmp_path / "cgroup.procs").write_text(f"{going}\n{other.pid}\n")
        let_go(monkeypatch, going, number)
        control_groups._kill(group, control_groups._members(group))
        assert other.wait() == -signal.SIGKILL


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV])
def test_a_group_that_is_removed_before_its_members_are_killed_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    def write(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(control_groups, "_write", write)
    control_groups._kill(os.fspath(tmp_path), [])


def test_without_a_place_that_may_be_written_there_is_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_groups, "places", lambda: ("/proc", "/nowhere"))
    assert not control_groups.enter(process_identity.own())
    control_groups.leave()
    control_groups.remove(process_identity.own())
    control_groups.remove_empty()
