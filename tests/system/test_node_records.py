"""Each host that joins is a node of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon, wait_until_true
from tests.system.gates import until_running
from tests.system.hosts import Host, free_endpoint, joined_host, until_there

from ganger.storage.cluster.objects import ObjectKind
from ganger.transport.messages import ObjectChange

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client


@pytest.mark.usefixtures("host")
def test_a_host_that_joins_is_a_node_of_the_configuration(client: Client) -> None:
    [node], [group] = client.objects("nodes"), client.objects("nodegroups")
    assert (node["name"], node["primary_ip"], node["group"]) == (
        "web1",
        "127.0.0.1",
        group["uuid"],
    )
    assert (node["drained"], node["offline"], node["tags"]) == (False, False, [])
    assert group["name"] == "default"


def test_a_host_that_joins_again_keeps_its_node(daemon: Daemon, client: Client, host: Host) -> None:
    client.set_values("nodes", "web1", {"tags": ["web"], "drained": True})
    before = client.objects("nodes")
    host.__exit__()
    with joined_host(daemon, host.folder.with_name("other"), "web1", is_first=False):
        assert client.objects("nodes") == before


@pytest.mark.usefixtures("host")
def test_a_removed_host_is_no_node_any_more(daemon: Daemon, client: Client) -> None:
    daemon.run("node", "remove", "web1")
    assert client.objects("nodes") == []
    done = daemon.run("node", "remove", "web1", check=False)
    assert done.stderr == "ganger: there is no node 'web1'; nodes that have joined: none\n"


def test_a_host_whose_node_is_removed_otherwise_is_refused_until_it_is_invited(
    daemon: Daemon, client: Client, host: Host
) -> None:
    running = client.submit({"OP_ID": "OP_EXEC", "argv": ["sleep", "600"], "node": "web1"})
    until_running(client, running)
    client.submit({"OP_ID": "OP_NODE_REMOVE", "node_name": "web1"})
    # It waits for the command, which has the node's lock.
    assert len(client.objects("nodes")) == 1
    client.cancel(running, kill=True)
    wait_until_true(lambda: client.objects("nodes") == [], "the node is removed")
    _check_refused(daemon, client)
    # Whatever it tries.
    host.kill()
    host.up()
    _check_refused(daemon, client)
    assert client.objects("nodes") == []
    problem = "node web1 was removed from the configuration"
    wait_until_true(lambda: problem in _master(host), "the host says why it is refused")
    with joined_host(daemon, host.folder, "web1", is_first=False):
        daemon.run("exec", "--on", "web1", "--", "true")


def _master(host: Host) -> str:
    return str(host.run("node", "status", check=False).stdout)


def _check_refused(daemon: Daemon, client: Client) -> None:
    until_there(client, "web1", is_there=False)
    [listed] = client.nodes().nodes
    assert listed.problem == (
        "node web1 was removed from the configuration; "
        "`ganger node invite web1` lets this host join anew"
    )
    done = daemon.run("exec", "--on", "web1", "--", "true", check=False)
    assert "no host has joined as 'web1'; nodes: none" in done.stderr
    listing = daemon.run("node", "list", "--fields", "name,state", "--no-headers").stdout
    assert listing.split() == ["web1", "refused"]


def test_a_node_that_goes_while_the_hub_is_away_does_not_come_back(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    [node] = client.objects("nodes")
    host.kill()
    until_there(client, "web1", is_there=False)
    daemon.kill()
    hosts = tmp_path / "data/nodes/hosts.json"
    before = hosts.read_bytes()
    daemon.up()
    client.change_objects(ObjectChange(kind=ObjectKind.NODE, uuid=node["uuid"]))
    wait_until_true(lambda: client.nodes().nodes[0].problem != "", "the hub has heard")
    daemon.kill()
    # As if it had not.
    hosts.write_bytes(before)
    daemon.up()
    host.up()
    wait_until_true(lambda: client.nodes().nodes[0].problem != "", "the hub has looked")
    assert client.objects("nodes") == []


def test_an_invitation_alone_makes_no_node(daemon: Daemon, client: Client) -> None:
    endpoint = free_endpoint()
    daemon.run("node", "invite", "web2", "--listen", endpoint, "--announce", endpoint)
    assert client.objects("nodes") == []
    daemon.run("node", "remove", "web2")
