"""Lock manager and configuration store in a process of their own: it, or its daemon, ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.faults.harness import LOOK_SECONDS, Daemon, process_of, stop, until, wait_for_end
from tests.system.gates import Gate, end, run_by, until_running

from ganger import Client, JobStatus
from ganger.actors.supervision.supervising import policy_of
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from ganger.transport.messages import DaemonInfo

NODE = {"node": {"exclusive": ["a"]}}
TAKES_NODE = {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": NODE}
THERE = {"config_store", "lock_manager"}


def hold_and_wait(client: Client, gate: Gate) -> tuple[int, int]:
    """A job that holds a lock, and one that waits for it."""
    holder = client.submit(gate.job(locks=NODE))
    until_running(client, holder)
    waiter = client.submit(TAKES_NODE)
    until(client, waiter, JobStatus.WAITING)
    return holder, waiter


def restarts(client: Client) -> dict[str, int]:
    """How often each component was restarted."""
    return {part.name: part.restarts for part in client.info().components}


def replaced(client: Client, before: int) -> DaemonInfo:
    """What the daemon says when its other process is another one than ``before``, and at work."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        info = client.info()
        there = [part.is_ready for part in info.components if part.name in {*THERE, "authority"}]
        others = psutil.Process(info.pid).children()
        # A process that has just ended has no memory.
        has_one = info.memory.get("authority", 0) > 0
        if all(there) and has_one and before not in {one.pid for one in others}:
            return info
        time.sleep(LOOK_SECONDS)
    raise AssertionError("the process was not replaced")


def test_the_status_shows_which_components_live_in_the_other_process(tmp_path: Path) -> None:
    with Daemon(tmp_path, placement="apart") as daemon, daemon.client() as client:
        info = client.info()
        assert {part.name for part in info.components if part.process == "authority"} == THERE
        assert info.memory["authority"] > 0
        shown = daemon.run("status").stdout
        assert "lock_manager        ready, in the process authority" in shown
        process = daemon.authority()
        daemon.run("down")
        assert not process.is_running()
        assert not daemon.places.run.exists()


def test_holders_keep_and_waiters_keep_waiting_when_the_process_is_killed(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, placement="apart") as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        holder, waiter = hold_and_wait(client, gate)
        processes = [process_of(client, job_id) for job_id in (holder, waiter)]
        for _ in range(2):
            before = daemon.authority().pid
            daemon.kill_authority()
            replaced(client, before)
        lock_files = daemon.places.lock_files.glob("ganger-daemon_*")
        # That of the daemon and that of its process; a killed one leaves none.
        assert len(list(lock_files)) == 2
        assert [process_of(client, job_id) for job_id in (holder, waiter)] == processes
        held = {row.name: (row.owners, row.pending) for row in client.locks()}
        assert held["node/a"] == ([str(holder)], [("exclusive", [str(waiter)])])
        other = client.submit({**TAKES_NODE, "locks": {"node": {"exclusive": ["b"]}}})
        assert end(client, other) == {other: JobStatus.SUCCESS}
        gate.let_through()
        assert set(end(client, holder, waiter).values()) == {JobStatus.SUCCESS}
        assert client.locks() == []
        found = restarts(client)
        assert found["authority"] == 2
        assert found["job_queue"] == found["lock_manager"] == 0


def test_a_holder_that_dies_while_the_process_is_replaced_keeps_nothing(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, placement="apart") as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        holder, waiter = hold_and_wait(client, gate)
        daemon.authority().kill()
        os.kill(process_of(client, holder), signal.SIGKILL)
        ended = end(client, holder, waiter)
        assert ended == {holder: JobStatus.ERROR, waiter: JobStatus.SUCCESS}


def test_only_jobs_with_locks_connect_to_that_process(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, placement="apart") as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        connections = [_connections(daemon)]
        for fields in ({}, {"locks": NODE}):
            job_id = client.submit(gate.job(**fields))
            until_running(client, job_id)
            connections.append(_connections(daemon))
            gate.let_through()
            assert end(client, job_id) == {job_id: JobStatus.SUCCESS}
        assert connections == [1, 1, 2]


def _connections(daemon: Daemon) -> int:
    """How many connections that process has accepted at its socket."""
    folder = str(daemon.places.authority_socket.parent)
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    # Number, count, protocol, flags, type, state (3: connected), inode, path.
    return sum(f" {folder}/" in line and int(line.split()[5]) == 3 for line in lines)


@pytest.mark.parametrize("component", sorted(THERE))
@pytest.mark.parametrize("how", ["crash", "hang"])
def test_a_component_there_fails_or_hangs_and_its_neighbours_go_on(
    tmp_path: Path, component: str, how: str
) -> None:
    with (
        Daemon(tmp_path, "--hung-after", "2", placement="apart") as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        holder, waiter = hold_and_wait(client, gate)
        before, process = client.info(), daemon.authority().pid
        daemon.crash(component, how)  # type: ignore[arg-type]
        if how == "hang":
            assert replaced(client, process).started == before.started
            assert "threading.Event().wait()" in daemon.places.log.read_text()
        else:
            # The process goes on, and so does the other component in it.
            deadline = time.monotonic() + 30
            while restarts(client)[component] == 0:
                assert time.monotonic() < deadline
                time.sleep(LOOK_SECONDS)
            assert daemon.authority().pid == process
        assert client.add_filter(predicates=[["jobid", ["=", "id", 99]]], action="PAUSE")
        gate.let_through()
        assert set(end(client, holder, waiter).values()) == {JobStatus.SUCCESS}


def test_a_process_that_gives_no_sign_of_life_is_replaced(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, "--hung-after", "2", placement="apart") as daemon,
        Gate(tmp_path) as gate,
        daemon.client() as client,
    ):
        holder, waiter = hold_and_wait(client, gate)
        process = daemon.authority().pid
        stop(process)
        replaced(client, process)
        gate.let_through()
        assert set(end(client, holder, waiter).values()) == {JobStatus.SUCCESS}
        assert "gives no sign of life" in daemon.places.log.read_text()


def test_the_process_ends_with_its_daemon_and_the_next_one_has_its_own(tmp_path: Path) -> None:
    with Daemon(tmp_path, placement="apart") as daemon, Gate(tmp_path) as gate:
        with daemon.client() as client:
            holder, waiter = hold_and_wait(client, gate)
        process = daemon.authority()
        descriptor = process_identity.open_pidfd(process.pid)
        # It cannot look after its daemon itself.
        os.kill(process.pid, signal.SIGSTOP)
        daemon.kill()
        daemon.up()
        wait_for_end(descriptor)
        assert daemon.authority().pid != process.pid
        gate.let_through()
        with daemon.client() as client:
            assert set(end(client, holder, waiter).values()) == {JobStatus.SUCCESS}


@pytest.mark.parametrize(("first", "then"), [("together", "apart"), ("apart", "together")])
def test_the_next_daemon_may_have_another_placement(tmp_path: Path, first: str, then: str) -> None:
    with Daemon(tmp_path, placement=first) as daemon, Gate(tmp_path) as gate:
        with daemon.client() as client:
            holder, waiter = hold_and_wait(client, gate)
        daemon.kill()
        daemon.placement = then
        daemon.up()
        gate.let_through()
        with daemon.client() as client:
            assert set(end(client, holder, waiter).values()) == {JobStatus.SUCCESS}
            run_by(client)


def test_a_daemon_that_cannot_read_its_configuration_says_why(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, placement="apart")
    daemon.data.mkdir()
    daemon.places.config.write_text("[]")
    try:
        ended = daemon.run("up", "--no-rapi", "--placement", "apart", check=False)
        assert ended.returncode != 0
        assert "config.data" in ended.stderr
    finally:
        daemon.__exit__()


def test_a_process_that_always_ends_ends_the_daemon_and_jobs_go_on(tmp_path: Path) -> None:
    with Daemon(tmp_path, placement="apart") as daemon, Gate(tmp_path) as gate:
        with daemon.client() as client:
            holder, waiter = hold_and_wait(client, gate)
        descriptor = process_identity.open_pidfd(daemon.pid())
        with daemon.client() as client:
            for _ in range(policy_of("authority").restarts_max):
                process = daemon.authority().pid
                daemon.kill_authority()
                replaced(client, process)
        daemon.kill_authority()
        wait_for_end(descriptor)
        said = (daemon.data / "daemon.out").read_text()
        assert "component authority failed too often" in said
        # Whether the end of the process or that of its connection was noticed first.
        log = (daemon.data / "daemon.log").read_text()
        times = policy_of("authority").restarts_max + 1
        assert log.count("has ended with status -9')") == times
        daemon.up()
        gate.let_through()
        with daemon.client() as client:
            assert set(end(client, holder, waiter).values()) == {JobStatus.SUCCESS}
