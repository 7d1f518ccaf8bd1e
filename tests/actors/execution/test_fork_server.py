"""The fork server: what its children inherit, and that spares are there."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.faults.harness import wait_until_gone

from ganger.actors.execution import fork_server, fork_servers, prewarming
from ganger.actors.job import process
from ganger.actors.job.daemon_link import DaemonLink
from ganger.actors.processes import channels, fork_protocol, machine
from ganger.storage import settings
from ganger.storage.alive import process_identity
from ganger.storage.disk import paths
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 30.0


class Server:
    """A real fork server of the lean template, and the daemon's end of the talk with it."""

    def __init__(self, folder: Path) -> None:
        places = paths.Places(folder / "data", folder)
        places.lock_files.mkdir(parents=True)
        self.process, self.end = fork_servers.fork_server("lean", places)
        self._as_seen = psutil.Process(self.process.pid)

    def close(self) -> None:
        children = self.children()
        self.end.close()
        self.process.wait(timeout=SECONDS)
        wait_until_gone(*(child.pid for child in children))

    def children(self) -> list[psutil.Process]:
        return self._as_seen.children()

    def start_job(self, job_id: int) -> tuple[channels.End, int]:
        """Ask for a process; this end of its channel, and its pid.

        When it is there, what the server had to do before is done too.
        """
        ours, theirs = channels.pair()
        with contextlib.closing(theirs):
            fork_protocol.request(self.end, job_id, theirs.fileno())
        reply = fork_protocol.receive_reply(self.end)
        assert reply is not None
        told_id, pid, pidfd = reply
        assert told_id == job_id
        os.close(pidfd)
        return ours, pid


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


def test_spares_are_made_again_when_few_are_left(server: Server) -> None:
    used = settings.SPARE_CHILDREN - settings.SPARE_CHILDREN_LEFT
    started = [server.start_job(number + 1) for number in range(used + 1)]
    pids = {pid for _, pid in started}
    assert len(pids) == used + 1
    children = server.children()
    assert len(children) == settings.SPARE_CHILDREN + used
    for end, _ in started:
        end.close()
    # A job's process whose daemon is gone before the hand-over ends.
    assert pids <= {child.pid for child in children}
    wait_until_gone(*pids)


def test_a_child_that_another_thread_reaps_keeps_no_other_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A daemon that begins anew ends its children; the threads that watch over them go on."""
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    before, after, killed = children
    listed = [psutil.Process(child.pid) for child in children]
    before.kill()
    before.wait()
    kill = listed[1].kill

    def kill_and_reap() -> None:
        kill()
        after.wait()

    monkeypatch.setattr(listed[1], "kill", kill_and_reap)
    monkeypatch.setattr(psutil.Process, "children", lambda _: listed)
    machine.end_child_processes()
    with pytest.raises(ChildProcessError):
        os.waitpid(killed.pid, os.WNOHANG)
    killed.wait()


def ask(server: Server, pid: int) -> int:
    """What the server says of how a process has ended."""
    fork_protocol.ask_status(server.end, pid)
    reply = fork_protocol.receive_reply(server.end)
    assert reply is not None
    request, status, _ = reply
    asked = [fork_protocol.asked_status(one) for one in (request, 0, 7)]
    assert asked == [pid, None, None]
    return status


def test_the_server_reports_the_status_of_a_child(server: Server) -> None:
    channel, pid = server.start_job(7)
    with contextlib.closing(channel):
        assert ask(server, pid) == fork_protocol.UNKNOWN
        channel.settimeout(SECONDS)
        assert channel.recv(channels.PACKET_BYTES)
        # It has greeted, and leads the session of all that it will start.
        assert os.getsid(pid) == pid
        pidfd = process_identity.open_pidfd(pid)
        os.kill(pid, signal.SIGUSR1)
        select.select([pidfd], [], [], SECONDS)
        os.close(pidfd)
        # The child was the only one at the other end of its channel.
        while channel.recv(channels.PACKET_BYTES):
            pass
    # Whether or not the server has noticed it by now, and for every request.
    assert os.waitstatus_to_exitcode(ask(server, pid)) == -signal.SIGUSR1
    assert os.waitstatus_to_exitcode(ask(server, pid)) == -signal.SIGUSR1
    assert ask(server, os.getpid()) == fork_protocol.UNKNOWN
    other, _ = server.start_job(8)
    other.close()


def test_it_remembers_a_limited_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ENDED_CHILDREN_KEPT", 2)
    daemon, ours = channels.pair()
    with contextlib.closing(daemon), contextlib.closing(ours):
        subject = fork_server.ForkServer(daemon, str(tmp_path), str(tmp_path))
        pids = []
        for code in (5, 6, 7):
            if (pid := os.fork()) == 0:
                os._exit(code)
            pids.append(pid)
            pidfd = process_identity.open_pidfd(pid)
            subject._children[pidfd] = pid, 0
            subject._poll.register(pidfd, select.POLLIN)
            select.select([pidfd], [], [], SECONDS)
            subject._reap(pidfd)
            subject._reap(pidfd)
        known = [subject._status_of(pid) for pid in pids]
    assert known == [fork_protocol.UNKNOWN, 6 << 8, 7 << 8]


def test_a_spare_child_serves_the_job_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "livelocks").mkdir()
    daemon, _daemons = channels.pair()
    subject = fork_server.ForkServer(daemon, str(tmp_path / "livelocks"), "")
    ours, theirs = channels.pair()
    job_end, jobs_end = channels.pair()
    fork_protocol.request(ours, 7, jobs_end.fileno())
    jobs_end.close()
    # There is no hand-over: it greets, and ends.
    job_end.shutdown(socket.SHUT_WR)
    subject._serve_request(theirs, 1)
    theirs.detach()
    greeting = channels.Channel(job_end).receive()
    assert greeting is not None
    assert b"livelocks/job_000007_" in greeting
    for end in (daemon, _daemons, ours, job_end):
        end.close()
    assert [path.name for path in (tmp_path / "livelocks").iterdir()] == [f"spare_{os.getpid()}_1"]


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[fork_server.ForkServer]:
    daemon, other = channels.pair()
    with contextlib.closing(daemon), contextlib.closing(other):
        yield fork_server.ForkServer(
            daemon, str(tmp_path / "livelocks"), str(tmp_path / "dry_runs")
        )


def test_a_server_learns_from_jobs_like_those_of_its_children(
    subject: fork_server.ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = []
    run = process.run_process

    def run_process(job_id: int, link: DaemonLink, folder: str, **others: Any) -> None:
        run(job_id, link, folder, **others)
        job = jobs.decode_job((Path(folder) / "job-0").read_bytes())
        # Code that has learned from a link of another class must learn anew in each child.
        served.append((type(link), job.ops[-1].status))

    monkeypatch.setattr(process, "run_process", run_process)
    subject.learn(2)
    assert served == [(DaemonLink, JobStatus.SUCCESS)] * 4
    # Neither the files of real jobs were used, nor is anything left.
    assert [path.name for path in tmp_path.iterdir()] == ["dry_runs"]
    assert list((tmp_path / "dry_runs").iterdir()) == []


def test_the_lean_template_has_no_library_that_it_does_not_use(server: Server) -> None:
    end, _ = server.start_job(1)
    end.close()
    mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "msgspec" in mapped
    for library in ("_hashlib.", "libcrypto", "_cmsgpack", "zmq"):
        assert library not in mapped


def test_a_dry_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with prewarming.PreparedRuns(str(tmp_path), 2):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_does_not_bring_back_the_folder_of_a_daemon_that_has_ended(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError):
        prewarming.PreparedRuns(str(tmp_path / "run" / "rehearsals"), 1)
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_behind_is_cleared_up(tmp_path: Path) -> None:
    folder = tmp_path / "dry_runs"
    prewarming.clear(str(folder))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    # One of them had the number that this process has now.
    for pid in (ended.pid, os.getpid(), os.getppid()):
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "job-0").touch()
    prewarming.clear(str(folder))
    assert [path.name for path in folder.iterdir()] == [str(os.getppid())]
    with prewarming.PreparedRuns(str(folder), 1):
        pass


def test_two_may_clear_up_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dry_runs"
    left = folder / str(os.getpid())
    left.mkdir(parents=True)
    (left / "job-0").touch()
    real = os.listdir

    def remove_first(path: str) -> list[str]:
        names = real(path)
        monkeypatch.setattr(os, "listdir", real)
        prewarming._remove(path)
        return names

    monkeypatch.setattr(
        os, "listdir", lambda path: real(path) if path != str(left) else remove_first(path)
    )
    prewarming.clear(str(folder))
    assert list(folder.iterdir()) == []


def test_without_a_process_more_the_spares_that_are_there_must_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, other = channels.pair()
    subject = fork_server.ForkServer(daemon, str(tmp_path), str(tmp_path))

    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError):
        subject._make_spares()
    subject._spares = [fork_server._Spare(other, pid=0, pidfd=0)]
    subject._make_spares()
    assert len(subject._spares) == 1
    daemon.close()
    other.close()


@pytest.mark.parametrize(("call", "made"), [("fork", 2), ("pidfd_open", 0)])
def test_spares_that_cannot_be_made_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, made: int
) -> None:
    daemon, other = channels.pair()
    subject = fork_server.ForkServer(daemon, str(tmp_path), str(tmp_path))
    before = fork_server._open_descriptors()
    fork, pids, calls = os.fork, [], itertools.count()

    def noted_fork() -> int:
        if call == "fork" and next(calls) >= made:
            raise BlockingIOError("no more processes")
        pids.append(fork())
        return pids[-1]

    def refuse(_: int) -> int:
        raise BlockingIOError("no more descriptors")

    monkeypatch.setattr(os, "fork", noted_fork)
    if call == "pidfd_open":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    with contextlib.nullcontext() if made else pytest.raises(BlockingIOError):
        subject._make_spares()
    assert len(subject._spares) == made
    own = {number for spare in subject._spares for number in (spare.end.fileno(), spare.pidfd)}
    assert fork_server._open_descriptors() == before | own
    # A number that no child has is free again; so is its spare lock file.
    assert sorted(subject._free_numbers) == list(range(made + 1, settings.SPARE_CHILDREN + 1))
    for spare in subject._spares.copy():
        spare.end.close()
        select.select([spare.pidfd], [], [], SECONDS)
        subject._reap(spare.pidfd)
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    assert pids
    daemon.close()
    other.close()


def test_ranges_leave_out_what_is_kept() -> None:
    end = 2**31 - 1
    assert fork_server._ranges_without({0, 1, 2}) == [(3, end)]
    assert fork_server._ranges_without({0, 2, 3, 9}) == [(1, 2), (4, 9), (10, end)]
    assert fork_server._ranges_without(set()) == [(0, end)]


CLOSING = """
import os, socket
from ganger.actors.processes import channels
from ganger.actors.execution import fork_server
module, hole = os.open("/", 0), os.open("/", 0)
users = os.open("/", 0)
os.close(hole)
daemon, other = channels.pair()
other_number = other.detach()
subject = fork_server.ForkServer(daemon, "", "")
in_hole, middle, last = (os.open("/", 0) for _ in range(3))
subject._highest = last
names = {"module": module, "users": users, "daemon": daemon.fileno(), "other": other_number,
         "in_hole": in_hole, "middle": middle, "last": last, "output": 1}
for kept in ("in_hole", "middle", "last"):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    subject._close_all_but(names[kept])
    print(kept, *sorted(one for one, number in names.items() if fork_server._is_open(number)))
    break
"""


def test_a_child_keeps_what_a_users_module_has_opened_and_nothing_of_the_server() -> None:
    found = subprocess.run(
        [sys.executable, "-c", CLOSING], capture_output=True, text=True, check=True
    )
    users = {"module", "other", "output", "users"}
    assert [line.split() for line in found.stdout.splitlines()] == [
        [kept, *sorted({kept} | users)] for kept in ("in_hole", "middle", "last")
    ]
