"""Ganeti's own tools on a cluster whose nodes are hosts that have joined."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.compatibility import ganeti_tools
from tests.compatibility.ganeti_tools import Tools, good
from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import Host, joined_host, until_there

from ganger import Client
from ganger.actors.nodes.node_figures import ANSWER_SECONDS


class Cluster:
    """The master's daemon, its hosts, and Ganeti's tools on the master."""

    def __init__(self, tools: Tools, daemon: Daemon, client: Client, hosts: list[Host]) -> None:
        self.tools = tools
        self.daemon = daemon
        self.client = client
        self.web1, self.web2 = hosts

    def good(self, command: str) -> str:
        """What the command prints, which must succeed."""
        return good(self.tools.run(*command.split()))


@pytest.fixture(name="cluster", scope="module")
def cluster_of_two_hosts() -> Iterator[Cluster]:
    if reason := ganeti_tools.problem():
        pytest.skip(reason)
    # A short path, for the socket.
    with tempfile.TemporaryDirectory(prefix="gnt-") as folder, Tools(Path(folder)) as tools:
        daemon = Daemon(tools.root, "--luxi-socket", str(tools.socket))
        root = tools.root
        with daemon, daemon.client() as client:
            ours = root / "lib" / "ganeti"
            ours.rmdir()
            ours.symlink_to(daemon.places.ssconf)
            with (
                joined_host(daemon, root / "web1", "web1") as web1,
                joined_host(daemon, root / "web2", "web2", is_first=False) as web2,
            ):
                until_there(client, "web1")
                until_there(client, "web2")
                yield Cluster(tools, daemon, client, [web1, web2])


@pytest.fixture(autouse=True)
def _as_before(cluster: Cluster) -> Iterator[None]:
    """Whatever a test does, both hosts are there and in use for the next one."""
    yield
    there = {one.name for one in cluster.client.nodes().nodes if one.is_there}
    for host in (cluster.web1, cluster.web2):
        if host.name not in there:
            host.up()
        until_there(cluster.client, host.name)
        cluster.client.set_values("nodes", host.name, {"offline": False, "drained": False})


LIVE = "name,mtotal,mnode,mfree,dtotal,dfree,ctotal,cnos,cnodes,csockets,bootid"


def shown(cluster: Cluster) -> dict[str, list[str]]:
    """The live fields that gnt-node list shows, by node."""
    listing = cluster.good(f"gnt-node list --no-headers --separator=| -o {LIVE}")
    rows = [line.split("|") for line in listing.splitlines()]
    return {name: values for name, *values in rows}


def test_the_list_has_the_figures_of_each_host(cluster: Cluster) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for values in shown(cluster).values():
        *numbers, found = values
        assert found == boot
        assert all(float(one.rstrip("MGT")) >= 0 for one in numbers), numbers
    assert list(shown(cluster)) == ["web1", "web2"]


def test_a_silent_host_is_one_that_does_not_answer_and_an_offline_one_is_offline(
    cluster: Cluster,
) -> None:
    cluster.web1.run("node", "down")
    until_there(cluster.client, "web1", is_there=False)
    found = shown(cluster)
    assert set(found["web1"]) == {"?"}
    assert "?" not in found["web2"]
    cluster.client.set_values("nodes", "web1", {"offline": True})
    assert set(shown(cluster)["web1"]) == {"*"}


def test_a_host_that_hangs_holds_up_no_list_for_long(cluster: Cluster) -> None:
    process = psutil.Process(cluster.web1.pid())
    process.suspend()
    try:
        begin = time.monotonic()
        assert set(shown(cluster)["web1"]) == {"?"}
        # It has had its time: the next list does not wait.
        middle = time.monotonic()
        assert set(shown(cluster)["web1"]) == {"?"}
        waited = time.monotonic() - middle
        assert ANSWER_SECONDS <= middle - begin < ANSWER_SECONDS + 10
        assert waited < ANSWER_SECONDS
    finally:
        process.resume()
    wait_until_true(lambda: "?" not in shown(cluster)["web1"], "the host answers again")
