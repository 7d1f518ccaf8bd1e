"""A host's data directory is put back to a copy, and the master has not heard what began since."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon, process_of, stop, wait_until_gone, wait_until_true
from tests.system.gates import PATIENCE_SECONDS
from tests.system.hosts import Host, free_endpoint, until_there
from tests.torture.kills.cut_line import CutLine

from ganger.storage.nodes import begun_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORGOTTEN = (
    "web1 was started anew since, and does not know the command: it is not known whether it began"
)


class Scene:
    """A host that has joined over a line, and has run a command."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon = daemon
        self.host = Host(folder / "host", "web1")
        self.witness, self.copy = folder / "witness", folder / "copy"
        endpoint = free_endpoint()
        self.line = CutLine(endpoint)
        words = ("--listen", endpoint, "--announce", self.line.endpoint)
        self.host.run(*daemon.run("node", "invite", "web1", *words).stdout.split()[1:])

    def close(self) -> None:
        self.host.__exit__()
        self.line.close()

    def submit(self) -> int:
        argv = ["sh", "-c", f"echo x >> {self.witness}"]
        with self.daemon.client() as client:
            return client.submit({"OP_ID": "OP_EXEC", "argv": argv, "node": "web1"})

    def open_calls(self) -> int:
        """Two of each job that follows its command: for its output, and for its end."""
        with self.daemon.client() as client:
            return client.nodes().nodes[0].open_calls

    def end_of(self, job_id: int) -> str:
        """How the job has ended, and why."""
        with self.daemon.client() as client:
            [ended] = client.wait(job_id, timeout=PATIENCE_SECONDS)
        return f"{ended.outcome}: {ended.reason_ended}"

    def count(self) -> int:
        """How many commands have begun."""
        return self.witness.read_text().count("x")

    def run_unheard(self) -> int:
        """A job whose command has run, and the master has heard nothing of it."""
        with self.daemon.client() as client:
            until_there(client, "web1")
        self.end_of(self.submit())
        self.take_copy()
        self.line.cut("up")
        job_id = self.submit()
        with self.host.client() as there:

            def has_run() -> bool:
                return [one.outcome for one in there.jobs()] == ["success"] * 2

            wait_until_true(has_run, "the command has run", seconds=PATIENCE_SECONDS)
        return job_id

    def take_copy(self) -> None:
        """Copy the data directory while its daemon stands still; what is half made is left out."""
        pid = self.host.pid()
        stop(pid)
        ignored = shutil.ignore_patterns(".tmp-*", ".spare-*")
        shutil.copytree(self.host.places.data, self.copy, ignore=ignored)
        os.kill(pid, signal.SIGCONT)

    def put_back(self, *, reboots: bool) -> None:
        """Start the node daemon with the copy; ``reboots``: as after a start of the machine."""
        self.host.kill()
        # What was on its way is lost with its connection.
        self.line.break_all()
        self.line.mend()
        shutil.rmtree(self.host.places.data)
        shutil.copytree(self.copy, self.host.places.data)
        if reboots:
            begun_tasks.path_of(self.host.places).unlink()
        self.host.up()

    def until_refused(self) -> None:
        def is_refused() -> bool:
            return "web1  refused" in self.daemon.run("node", "list").stdout

        wait_until_true(is_refused, "it is refused", seconds=PATIENCE_SECONDS)

    def join_anew(self) -> None:
        self.host.run(*self.daemon.run("node", "invite", "web1").stdout.split()[1:])


@pytest.fixture(name="scene")
def scene_of_a_host(daemon: Daemon, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(daemon, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_command_that_the_copy_lacks_does_not_run_again(scene: Scene, *, is_killed: bool) -> None:
    job_id = scene.run_unheard()
    if is_killed:
        scene.daemon.kill()
    scene.put_back(reboots=False)
    if is_killed:
        scene.daemon.up()
    scene.until_refused()
    # No restart heals the copy.
    scene.host.kill()
    scene.host.up()
    scene.until_refused()
    scene.join_anew()
    assert scene.end_of(job_id) == (
        "failed: node web1 has joined anew since the command began: "
        "it is not known whether the command still runs on web1"
    )
    scene.daemon.run("node", "forget-tasks", "web1")
    assert scene.end_of(scene.submit()).startswith("success")
    assert scene.count() == 3


@pytest.mark.parametrize("is_killed", [False, True])
def test_nor_after_a_start_of_its_machine(scene: Scene, *, is_killed: bool) -> None:
    job_id = scene.run_unheard()
    if is_killed:
        scene.daemon.kill()
    scene.put_back(reboots=True)
    if is_killed:
        scene.daemon.up()
    assert scene.end_of(job_id) == f"failed: web1: the host {FORGOTTEN.removeprefix('web1 ')}"
    assert scene.end_of(scene.submit()).startswith("success")
    assert scene.count() == 3


def test_a_master_that_has_lost_all_processes_does_not_say_that_it_never_began(
    scene: Scene,
) -> None:
    job_id = scene.run_unheard()
    with scene.daemon.client() as client:
        pid = process_of(client, job_id)
    scene.daemon.kill()
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    scene.put_back(reboots=True)
    scene.daemon.up()
    assert scene.end_of(job_id).endswith(FORGOTTEN)
    assert scene.count() == 2


def test_a_cleaned_run_directory_refuses_no_host(scene: Scene) -> None:
    with scene.daemon.client() as client:
        until_there(client, "web1")
    assert scene.end_of(scene.submit()).startswith("success")
    shutil.rmtree(scene.host.places.run)
    scene.host.kill() if scene.host.places.socket.exists() else scene.host.run("node", "down")
    scene.host.up()
    assert scene.end_of(scene.submit()).startswith("success")
    assert scene.count() == 2


@pytest.mark.parametrize("reboots", [False, True])
def test_a_command_that_waits_in_the_copy_does_not_run_again(
    scene: Scene, *, reboots: bool
) -> None:
    """The host runs one at a time; the copy is of the moment when the second one waits."""
    scene.host.run("cluster", "modify", "--run-slots", "1")
    gate = scene.witness.with_name("gate")
    os.mkfifo(gate)
    with scene.daemon.client() as client:
        until_there(client, "web1")
        argv = ["sh", "-c", f"cat {gate}"]
        client.submit({"OP_ID": "OP_EXEC", "argv": argv, "node": "web1"})
    with scene.host.client() as there:
        wait_until_true(lambda: len(list(there.jobs(statuses=["running"]))) == 1, "it runs")
        job_id = scene.submit()
        wait_until_true(lambda: scene.open_calls() == 4, "the master knows that both are there")
        assert [one.status for one in there.jobs(statuses=["queued"])] == ["queued"]
        scene.take_copy()
        scene.line.cut("up")
        gate.write_text("")
        wait_until_true(
            lambda: [one.outcome for one in there.jobs()] == ["success"] * 2, "both have run"
        )
    scene.put_back(reboots=reboots)
    told = scene.end_of(job_id)
    assert "it is not known whether it began" in told if reboots else "it has begun before" in told
    assert scene.count() == 1
