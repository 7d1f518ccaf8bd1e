"""A host whose operator purges its jobs while the master does not know their ends yet."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.faults.harness import wait_until_true
from tests.system.gates import PATIENCE_SECONDS
from tests.system.hosts import joined_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.harness import Daemon
    from tests.system.hosts import Host

    from ganger import Client


@pytest.fixture
def host(daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    with joined_host(daemon, tmp_path / "host", "web1") as joined:
        yield joined


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def all_ended(host: Host, count: int) -> bool:
    with host.client() as there:
        found = list(there.jobs())
    return len(found) == count and all(job.status.is_final for job in found)


def test_a_task_whose_submission_comes_again_after_a_purge_runs_once(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    """The host has taken it, and the answer is lost with the hub."""
    witness = tmp_path / "witness"
    argv = ["sh", "-c", f"echo x >> {witness}"]
    hub = daemon.authority()
    with stopped(hub):
        with stopped(psutil.Process(host.pid())):
            hub.send_signal(signal.SIGCONT)
            job_id = client.submit({"OP_ID": "OP_EXEC", "node": "web1", "argv": argv})

            def is_sent() -> bool:
                [one] = client.nodes().nodes
                return one.open_calls > 0

            wait_until_true(is_sent, "the submission is on its way")
            hub.send_signal(signal.SIGSTOP)
        wait_until_true(lambda: all_ended(host, 1), "the task has ended")
        host.run("job", "purge", "--older-than", "all")
        hub.kill()
    [ended] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    assert ended.outcome == "failed"
    assert "web1: it has run, and was purged before its end was fetched" in ended.reason_ended
    assert witness.read_text() == "x\n"
