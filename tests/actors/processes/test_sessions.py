"""Left-over processes of a job end, and no others."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import wait_for_end
from tests.programs import Program
from tests.refusals import GONE, let_go

from ganger.actors.processes import sessions
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAD = """
import os, subprocess, sys
from ganger.storage.alive import process_identity
identity = process_identity.own()
how, *words = sys.argv[1].split()
env = {"GANGER_JOB_PROCESS": str(identity)} if "marked" in words else {}
kind = {"group": {"process_group": 0}, "session": {"start_new_session": True}}[how]
child = subprocess.Popen(["/bin/sleep", "600"], env=env, stdout=subprocess.DEVNULL, **kind)
print(identity, child.pid, flush=True)
sys.stdin.read()
"""


KTHREADD = 2
"""The parent of kernel threads."""


class Leader(Program):
    """A leader of a session, with something that it started: ``how`` says how."""

    def __init__(self, how: str) -> None:
        super().__init__(LEAD, how, leads_session=True)
        identity, member = self.line.split()
        found = process_identity.parse(identity)
        assert found is not None
        self.identity, self.member = found, int(member)
        self._member = process_identity.open_pidfd(self.member)
        # `Popen` returns when the program is certain, a moment before it shows.
        deadline = time.monotonic() + 30.0
        while process_identity.begins_program(self.member):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def die(self) -> None:
        super().end()

    @property
    def has_member(self) -> bool:
        return process_identity.of(self.member) is not None

    def end(self) -> None:
        self.die()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._member, signal.SIGKILL)
        wait_for_end(self._member)


@pytest.fixture
def leader(request: pytest.FixtureRequest) -> Iterator[Leader]:
    leader = Leader(getattr(request, "param", "group marked"))
    yield leader
    leader.end()


@pytest.mark.parametrize("leader", ["group marked", "session marked"], indirect=True)
def test_what_has_the_mark_of_a_dead_leader_is_ended(leader: Leader) -> None:
    leader.die()
    assert sessions.end_left_over(leader.identity) == [leader.member]
    # Ended, and not only asked to.
    assert not leader.has_member
    assert sessions.end_left_over(leader.identity) == []


@pytest.mark.parametrize("leader", ["session marked"], indirect=True)
def test_a_process_that_begins_a_program_is_looked_at_again(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.die()
    looks = 0
    read, begins = sessions._read, process_identity.begins_program

    def read_late(pid: int, name: str) -> bytes:
        nonlocal looks
        looks += pid == leader.member
        return b"" if pid == leader.member and looks < 3 else read(pid, name)

    monkeypatch.setattr(sessions, "_read", read_late)
    assert not begins(leader.member)
    monkeypatch.setattr(
        process_identity, "begins_program", lambda pid: pid == leader.member or begins(pid)
    )
    assert sessions.end_left_over(leader.identity) == [leader.member]


@pytest.mark.parametrize("number", GONE)
def test_a_process_that_goes_before_it_is_killed_keeps_no_other_alive(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    member = process_identity.of(leader.member)
    assert member is not None
    let_go(monkeypatch, leader.identity.pid, number)
    sessions.kill_all([leader.identity, member], time.monotonic() + 10)
    assert not leader.has_member


def test_a_kernel_thread_begins_no_program() -> None:
    threads = [pid for pid in sessions._pids() if process_identity.parent(pid) == KTHREADD]
    if not threads:
        pytest.skip("kernel threads do not show here")
    assert not any(process_identity.begins_program(pid) for pid in threads)


@pytest.mark.parametrize("leader", ["group"], indirect=True)
def test_a_session_whose_leader_was_seen_ending_is_ended_without_any_mark(leader: Leader) -> None:
    leader.die()
    member = process_identity.of(leader.member)
    assert member is not None
    # What is older than the leader is not its own; what began in the same tick is.
    for start, ended in ((member.start + 1, []), (member.start, [leader.member])):
        identity = leader.identity._replace(start=start)
        assert sessions.end_left_over(identity, was_seen_ending=True) == ended
        assert leader.has_member == (not ended)


@pytest.mark.parametrize("leader", ["group"], indirect=True)
def test_a_session_of_which_nothing_is_known_is_a_strangers(leader: Leader) -> None:
    leader.die()
    assert sessions.end_left_over(leader.identity) == []
    assert leader.has_member


@pytest.mark.parametrize("leader", ["group marked", "session marked"], indirect=True)
@pytest.mark.parametrize("other", ["start", "boot"])
def test_a_reused_pid_leads_to_no_kill(leader: Leader, other: str) -> None:
    leader.die()
    identity = leader.identity
    identity = (
        identity._replace(start=identity.start - 1)
        if other == "start"
        else identity._replace(boot="0ther")
    )
    assert sessions.end_left_over(identity) == []
    assert leader.has_member


@pytest.mark.parametrize("leader", ["group"], indirect=True)
def test_a_session_that_began_before_the_process_did_is_a_strangers(leader: Leader) -> None:
    leader.die()
    later = leader.identity._replace(start=leader.identity.start + 1_000_000)
    assert sessions.end_left_over(later, was_seen_ending=True) == []
    assert leader.has_member


def test_while_the_leader_lives_no_process_is_killed(leader: Leader) -> None:
    assert sessions.end_left_over(leader.identity, was_seen_ending=True) == []
    assert leader.has_member


def test_the_next_owner_of_the_number_is_not_touched(leader: Leader) -> None:
    earlier = leader.identity._replace(start=leader.identity.start - 1)
    assert sessions.end_left_over(earlier, was_seen_ending=True) == []
    assert leader.has_member
