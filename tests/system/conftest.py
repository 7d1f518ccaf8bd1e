"""What tests of the whole system share: a running daemon, a client of it, a gate for its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.harness import Daemon
from tests.system import hosts
from tests.system.gates import Gate
from tests.system.hosts import Host, joined_host
from tests.system.passed_on import PassedOn

from ganger import Client


@pytest.fixture(scope="module")
def passed_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PassedOn]:
    """The daemons that tests of the module leave as they were."""
    made = PassedOn(lambda: tmp_path_factory.mktemp("daemon"))
    yield made
    made.end()


@pytest.fixture(name="daemon")
def running_daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon on a data directory of its own; a parameter is its placement.

    What is marked with `passes_on` shares it with other tests of its module.
    """
    placement = getattr(request, "param", None)
    if request.node.get_closest_marker("passes_on") is None:
        daemon = Daemon(tmp_path, placement=placement)
        names = vars(request.module).values()
        daemon.has_hosts = any(getattr(one, "__module__", "") == hosts.__name__ for one in names)
        with daemon:
            yield daemon
    else:
        passed_on = request.getfixturevalue("passed_on")
        daemon, before = passed_on.take(placement)
        yield daemon
        passed_on.give_back(placement, daemon, before)


@pytest.fixture(name="client")
def client_of_it(daemon: Daemon) -> Iterator[Client]:
    """A client of this daemon."""
    with daemon.client() as client:
        yield client


@pytest.fixture
def jobs_wait_with_a_process(daemon: Daemon) -> None:
    """Jobs that wait for locks have a run slot and a process: none is held back."""
    daemon.run("cluster", "modify", "--no-hold-back")


@pytest.fixture(name="host")
def host_web1(daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    """A host that has joined as ``web1``."""
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        yield host


@pytest.fixture(name="gate")
def gate_for_jobs(tmp_path: Path) -> Iterator[Gate]:
    """A gate that holds jobs until the test opens it."""
    with Gate(tmp_path) as gate:
        yield gate
