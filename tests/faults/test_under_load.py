"""Every component, the fork server and the whole daemon fail while jobs run: nothing is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest
from tests import seeds
from tests.faults.harness import Daemon, Witnesses, until, wait_for_end

from ganger import JobStatus
from ganger.actors.supervision.placement import COMPONENTS
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOBS = 40
PARTS = [component.name for component in COMPONENTS]


def check_all_ran_once(daemon: Daemon, witnesses: Witnesses, ids: list[int]) -> None:
    with daemon.client() as client:
        ended = client.wait(*ids, timeout=60)
        assert {job.status for job in ended} == {JobStatus.SUCCESS}
        assert set(witnesses.counts().values()) == {1}
        assert client.locks() == []


@contextlib.contextmanager
def begin(folder: Path) -> Iterator[tuple[Daemon, Witnesses, list[int]]]:
    """A daemon with many jobs, some of which have ended."""
    witnesses = Witnesses(folder, JOBS)
    with Daemon(folder) as daemon:
        with daemon.client() as client:
            ids = client.submit_many(witnesses.jobs())
            client.wait(ids[5], timeout=30)
        yield daemon, witnesses, ids


@pytest.mark.parametrize("component", PARTS)
def test_a_component_that_fails_loses_nothing_and_starts_nothing_twice(
    tmp_path: Path, component: str
) -> None:
    with begin(tmp_path) as (daemon, witnesses, ids):
        daemon.crash(component)
        check_all_ran_once(daemon, witnesses, ids)
        with daemon.client() as client:
            restarts = {part.name: part.restarts for part in client.info().components}
        assert restarts[component] == 1


def test_a_killed_fork_server_loses_nothing_and_starts_nothing_twice(tmp_path: Path) -> None:
    with begin(tmp_path) as (daemon, witnesses, ids):
        [server] = daemon.fork_servers()
        server.send_signal(signal.SIGKILL)
        check_all_ran_once(daemon, witnesses, ids)


def test_a_killed_daemon_loses_nothing_and_starts_nothing_twice(tmp_path: Path) -> None:
    with begin(tmp_path) as (daemon, witnesses, ids):
        with daemon.client() as client:
            for place in (10, 20, 30):
                daemon.replace_killed()
                client.wait(ids[place], timeout=60)
        check_all_ran_once(daemon, witnesses, ids)


def test_failures_in_random_order_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(seeds.seed())
    witnesses = Witnesses(tmp_path, JOBS)
    with Daemon(tmp_path) as daemon:
        with daemon.client() as client:
            ids = client.submit_many(witnesses.jobs())
            for place in range(5, JOBS, 10):
                client.wait(ids[place], timeout=60)
                kind = chance.choice([*PARTS, "daemon"])
                print(f"after {place}: {kind}")
                if kind == "daemon":
                    daemon.replace_killed()
                else:
                    daemon.crash(kind)
        check_all_ran_once(daemon, witnesses, ids)


def test_a_component_that_fails_too_often_ends_the_daemon_and_touches_no_job(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon:
        fifo = tmp_path / "gate"
        os.mkfifo(fifo)
        with daemon.client() as client:
            job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["cat", str(fifo)]})
            until(client, [job_id], JobStatus.RUNNING)
        descriptor = process_identity.open_pidfd(daemon.pid())
        while True:
            try:
                daemon.crash("scheduler")
            except AssertionError:
                break
            if daemon.run("status", check=False).returncode == 3:
                break
        wait_for_end(descriptor)
        assert "restart limit reached" in daemon.places.log.read_text()
        daemon.up()
        fifo.write_text("through\n")
        with daemon.client() as client:
            [job] = client.wait(job_id, timeout=30)
        assert job.status is JobStatus.SUCCESS
        assert job.ops is not None
        assert job.ops[0].result["stdout_tail"] == "through\n"
