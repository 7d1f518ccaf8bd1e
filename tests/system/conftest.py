"""What tests of the whole system share: a running daemon, a client of it, a gate for its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate

from ganger import Client


@pytest.fixture(name="daemon")
def running_daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon on a data directory of its own; a parameter is its placement."""
    with Daemon(tmp_path, placement=getattr(request, "param", None)) as daemon:
        yield daemon


@pytest.fixture(name="client")
def client_of_it(daemon: Daemon) -> Iterator[Client]:
    """A client of this daemon."""
    with daemon.client() as client:
        yield client


@pytest.fixture
def jobs_wait_with_a_process(daemon: Daemon) -> None:
    """Jobs that wait for locks have a run slot and a process: none is held back."""
    daemon.run("cluster", "modify", "--no-hold-back")


@pytest.fixture(name="gate")
def gate_for_jobs(tmp_path: Path) -> Iterator[Gate]:
    """A gate that holds jobs until the test opens it."""
    with Gate(tmp_path) as gate:
        yield gate
