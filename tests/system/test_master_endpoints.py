"""Where hosts call the master: it may move, and hosts that are there go with it. Also by IPv6."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import Host, free_endpoint, until_there

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ganger import Client


@pytest.fixture(name="host")
def host_that_has_not_joined(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "host", "web1")
    yield made
    made.__exit__()


def endpoints_of(host: Host) -> list[str]:
    found: list[str] = json.loads(host.places.membership.read_text())["endpoints"]
    return found


def is_well(daemon: Daemon) -> None:
    assert daemon.run("exec", "--on", "web1", "echo", "well").stdout == "well\n"


def test_hosts_that_are_there_learn_where_the_master_goes_and_go_there(
    daemon: Daemon, client: Client, host: Host
) -> None:
    host.join(daemon, first := free_endpoint())
    until_there(client, "web1")
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["sleep", "0.5"], "node": "web1"})
    second = free_endpoint()
    moved = daemon.run("node", "invite", "web2", "--listen", second, "--announce", second)
    assert moved.stderr == ""
    wait_until_true(lambda: endpoints_of(host) == [second], "it knows the new endpoint alone")
    until_there(client, "web1")
    [ended] = client.wait(job_id, timeout=30.0)
    assert ended.outcome == "success"
    # What it has learned outlives its daemon.
    host.kill()
    host.up()
    until_there(client, "web1")
    is_well(daemon)
    assert first != second


def test_hosts_learn_other_names_of_the_same_listener(
    daemon: Daemon, client: Client, host: Host
) -> None:
    host.join(daemon, endpoint := free_endpoint())
    until_there(client, "web1")
    other = endpoint.replace("127.0.0.1", "localhost")
    words = ("--announce", endpoint, "--announce", other)
    daemon.run("node", "invite", "web2", *words)
    wait_until_true(lambda: endpoints_of(host) == [endpoint, other], "it knows both")
    is_well(daemon)


def test_hosts_call_by_ipv6(daemon: Daemon, client: Client, host: Host) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            endpoint = f"tcp://[::1]:{probe.getsockname()[1]}"
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    host.join(daemon, endpoint)
    until_there(client, "web1")
    is_well(daemon)
    [found] = client.nodes().nodes
    assert found.address.startswith("::1") or found.address.startswith("[::1]")


def test_a_listener_of_all_addresses_takes_both(daemon: Daemon, client: Client, host: Host) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    port = free_endpoint().rpartition(":")[2]
    words = ("--listen", f"tcp://[::]:{port}", "--announce", f"tcp://127.0.0.1:{port}")
    _, *line = daemon.run("node", "invite", "web1", *words).stdout.split()
    host.run(*line)
    until_there(client, "web1")
    is_well(daemon)
