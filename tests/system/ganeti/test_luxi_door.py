"""LUXI's socket of a real daemon: who gets in, and who may do what."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from tests.faults.harness import LOOK_SECONDS, Daemon, until
from tests.system.ganeti.wconfd import Wconfd, call

from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import SocketState

NOBODY = pwd.getpwnam("nobody")
GROUP = grp.getgrnam("mail")
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": False, "reason": []}

CALLER = """
import json, os, socket, sys
os.setgroups(json.loads(sys.argv[3]))
os.setgid(int(sys.argv[4]))
os.setuid(int(sys.argv[5]))
end = socket.socket(socket.AF_UNIX)
end.connect(sys.argv[1])
end.sendall(sys.argv[2].encode() + bytes([3]))
data = b""
while not data.endswith(bytes([3])):
    data += end.recv(65536)
print(data[:-1].decode())
"""

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


@pytest.fixture(scope="module", name="daemon")
def one_daemon() -> Iterator[Daemon]:
    # Not among pytest's folders: each run of pytest closes these to other users.
    with tempfile.TemporaryDirectory(prefix="ganger-luxi-") as name:
        yield from _daemon_in(Path(name))


def _daemon_in(folder: Path) -> Iterator[Daemon]:
    folder.chmod(0o755)
    options = ["--luxi-socket", str(folder / "run/ganeti-query"), "--luxi-anonymous-reads"]
    if os.geteuid() == 0:
        options += ["--luxi-group", GROUP.gr_name]
    with Daemon(folder, *options) as daemon:
        yield daemon


@pytest.fixture(name="path")
def path_of_the_socket(daemon: Daemon) -> Path:
    return daemon.folder / "run/ganeti-query"


@pytest.fixture(name="luxi")
def connection(path: Path) -> Iterator[Wconfd]:
    with Wconfd(path) as luxi:
        yield luxi


def state(daemon: Daemon) -> SocketState:
    """What the daemon says of its socket."""
    with daemon.client() as client:
        [found] = [one for one in client.info().sockets if one.protocol == "LUXI"]
    return found


def as_other(path: Path, method: str, *args: Any, groups: tuple[int, ...] = ()) -> Any:
    """The reply to another user."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            CALLER,
            str(path),
            call(method, *args).decode(),
            json.dumps(groups),
            str(NOBODY.pw_gid),
            str(NOBODY.pw_uid),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def test_the_daemon_tells_where_its_socket_is(daemon: Daemon, path: Path) -> None:
    assert state(daemon).path == str(path)
    assert f"LUXI:       {path}\n" in daemon.run("status").stdout


def test_a_job_is_submitted_listed_and_archived(daemon: Daemon, luxi: Wconfd) -> None:
    job_id = luxi.call("SubmitJob", [DELAY])
    with daemon.client() as client:
        client.wait(job_id, timeout=30)
    assert luxi.call("QueryJobs", [job_id], ["id", "status"]) == [[job_id, "success"]]
    assert luxi.call("ArchiveJob", job_id) is True
    assert luxi.call("ArchiveJob", job_id) is False


def test_a_refused_request_leaves_the_connection_and_an_unreadable_one_ends_it(
    luxi: Wconfd,
) -> None:
    assert luxi.refused("Query", "os", ["name"], None)[0] == "GenericError"
    assert luxi.call("QueryTags", "cluster", "") == []
    luxi.send(b'{"method": "Frob", "args": []}', call("QueryTags", "cluster", ""))
    assert luxi.reply()["result"].startswith("Failed to parse request: ")
    with pytest.raises((EOFError, ConnectionResetError)):
        luxi.reply()


@only_root
def test_others_read_and_members_of_the_group_write(path: Path) -> None:
    assert path.stat().st_gid == GROUP.gr_gid
    assert as_other(path, "QueryTags", "cluster", "") == {"success": True, "result": []}
    for method, args in (
        ("SubmitJob", [[DELAY]]),
        ("CancelJob", [1]),
        ("SetDrainFlag", [True]),
        ("ReplaceFilter", [None, 0, [], "PAUSE", []]),
        ("AutoArchiveJobs", [-1, 1]),
    ):
        name, (text, code) = as_other(path, method, *args)["result"]
        assert (name, code) == ("OpPrereqError", "wrong_input")
        assert text.startswith(f"{method}: nobody (uid {NOBODY.pw_uid}), pid ")
        assert text.endswith(" may only read here")
    assert as_other(path, "SubmitJob", [DELAY], groups=(GROUP.gr_gid,))["success"] is True
    # One of very many groups: Python's buffer is too small for them.
    many = (GROUP.gr_gid, *range(20_000, 20_300))
    assert as_other(path, "SubmitJob", [DELAY], groups=many)["success"] is True


def test_what_is_refused_does_not_get_into_the_log(daemon: Daemon, path: Path) -> None:
    secret = {"OP_ID": "OP_EXEC", "env": {"PASSWORD": "open-sesame"}}
    for method, args in (
        ("SubmitJob", [secret]),
        ("SubmitJob", [[{**secret, "reason": [], "priority": "open-sesame"}]]),
        ("open-sesame", []),
    ):
        with Wconfd(path) as luxi:
            text = "".join(luxi.refused(method, *args))
            assert text.startswith("Failed to parse request: ")
            assert "open-sesame" in text
    deadline = time.monotonic() + 30
    while "unreadable requests refused" not in (log := daemon.places.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(LOOK_SECONDS)
    assert "open-sesame" not in log


def test_large_requests_under_way_have_a_bound(path: Path, daemon: Daemon) -> None:
    with contextlib.ExitStack() as stack, daemon.client() as client:
        small, *waiting, refused = [stack.enter_context(Wconfd(path)) for _ in range(6)]
        job_id = small.call("SubmitJob", [{**DELAY, "duration": 600.0, "no_locks": True}])
        until(client, job_id, JobStatus.RUNNING)
        wait = call("WaitForJobChange", job_id, ["status"], ["running"], None, 60)
        for one in (*waiting, refused):
            one.send(wait[:-1] + b" " * 15_000_000 + wait[-1:])
        error = {"success": False, "result": ["GenericError", ANY]}
        assert refused.reply() == error
        # Small ones are served, and large ones, too, when the others have ended.
        assert small.call("CancelJob", job_id, *[True])[0] is True
        assert [one.reply()["success"] for one in waiting] == [True] * 4
        refused.send(wait[:-1] + b" " * 15_000_000 + wait[-1:])
        assert refused.reply()["success"] is True


def test_without_a_group_nobody_else_gets_in(tmp_path: Path) -> None:
    with Daemon(tmp_path) as other:
        path = other.places.luxi_socket
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert state(other).path == str(path)


def test_a_file_in_the_way_stays_and_the_daemon_says_so(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("a letter")
    daemon = Daemon(tmp_path / "it", "--luxi-socket", str(precious))
    daemon.up_code = 70
    with daemon:
        daemon.run("down")
        text = (
            f"ganger: LUXI is not served: {precious}: this file is no socket, and is left as it is"
        )
        done = daemon.run("up", "--no-rapi", *daemon.options, check=False)
        assert (done.returncode, done.stderr) == (70, f"{text}\n")
        again = daemon.run("up", "--luxi-socket", "/elsewhere", check=False).stderr
        assert again.startswith("ganger: --luxi-socket /elsewhere has no effect on it; ")
        assert "this file is no socket" in state(daemon).problem
        status = daemon.run("status", check=False)
        assert f"LUXI:       {precious} NOT OPEN: " in status.stdout
        assert status.returncode == 70
        daemon.run("down")
    assert precious.read_text() == "a letter"


def test_the_socket_of_another_program_stays(path: Path, tmp_path: Path) -> None:
    other = Daemon(tmp_path, "--luxi-socket", str(path))
    other.up_code = 70
    with other:
        assert "another program listens at this socket" in state(other).problem
        other.run("down")
    with Wconfd(path) as luxi:
        assert luxi.call("QueryTags", "cluster", "") == []


def test_a_socket_that_another_program_puts_there_later_is_told_and_stays(tmp_path: Path) -> None:
    own = tmp_path / "ganeti-query"
    text = f"{own}: another program listens at this socket"
    with (
        Daemon(tmp_path / "it", "--luxi-socket", str(own)) as daemon,
        socket.socket(socket.AF_UNIX) as end,
    ):
        own.unlink()
        beside = tmp_path / "beside"
        end.bind(str(beside))
        end.listen()
        beside.replace(own)
        deadline = time.monotonic() + 30
        while state(daemon).problem != text:
            assert time.monotonic() < deadline
            time.sleep(LOOK_SECONDS)
        status = daemon.run("status", check=False)
        assert f"LUXI:       {own} NOT OPEN: {text}" in status.stdout
        assert status.returncode == 70
        daemon.run("down")
        assert own.is_socket()
        lines = daemon.places.log.read_text().splitlines()
        assert sum(text in line for line in lines) == 1


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / "ganeti-query"
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(left))
    with Daemon(tmp_path, "--luxi-socket", str(left)), Wconfd(left) as luxi:
        assert luxi.call("QueryTags", "cluster", "") == []


def test_the_socket_can_be_left_out(tmp_path: Path) -> None:
    with Daemon(tmp_path, "--no-luxi") as daemon, daemon.client() as client:
        assert "LUXI" not in {one.protocol for one in client.info().sockets}
        assert not daemon.places.luxi_socket.exists()
