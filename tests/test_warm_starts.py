"""Programs that come from the template of warm ones are as those that are started."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from tests.faults.harness import Daemon, wait_until_gone

from ganger import JobStatus

SERVER = "ganger.actors.execution.template"


def shown(process: psutil.Process) -> tuple[list[str], dict[str, str]]:
    """Its arguments and its environment, as ``/proc`` has them."""
    return [word for word in process.cmdline() if word], process.environ()


@pytest.mark.parametrize("placement", ["together", "apart"])
def test_a_daemon_and_its_processes_are_shown_by_their_own_words(
    tmp_path: Path, placement: str
) -> None:
    with Daemon(tmp_path, placement=placement) as daemon:
        process = psutil.Process(daemon.pid())
        [server] = daemon.fork_servers()
        children = [server] if placement == "together" else [server, daemon.authority()]
        assert {child.pid for child in process.children()} == {child.pid for child in children}
        for one in (process, *children):
            words, environment = shown(one)
            assert environment["GANGER_TEST_FOLDER"] == str(tmp_path)
            assert words[1:3] == ["-P", "-m"]
            assert any(str(tmp_path) in word for word in words)
        assert shown(server)[0][3:5] == [SERVER, "lean"]
        assert os.readlink(f"/proc/{server.pid}/cwd") == "/"


def test_after_a_server_that_was_warm_comes_a_cold_one(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        [server] = daemon.fork_servers()
        server.kill()
        wait_until_gone(server.pid)
        job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"]})
        [ended] = client.wait(job_id)
        assert ended.status == JobStatus.SUCCESS
        [later] = daemon.fork_servers()
        assert later.pid != server.pid
        assert shown(later)[0][3:5] == [SERVER, "lean"]
