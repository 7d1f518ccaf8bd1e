"""Each host that joins is a node of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import Host, free_endpoint, joined_host

from ganger.storage.cluster.objects import ObjectKind
from ganger.transport.messages import ObjectChange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ganger import Client


@pytest.fixture(name="host")
def host_web1(daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    """A host that has joined as ``web1``."""
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        yield host


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


def test_a_node_that_an_older_configuration_lacks_is_made_again(client: Client, host: Host) -> None:
    [node] = client.objects("nodes")
    client.change_objects(ObjectChange(kind=ObjectKind.NODE, uuid=node["uuid"]))
    host.kill()
    host.up()
    wait_until_true(lambda: len(client.objects("nodes")) == 1, "the node is there again")


def test_an_invitation_alone_makes_no_node(daemon: Daemon, client: Client) -> None:
    endpoint = free_endpoint()
    daemon.run("node", "invite", "web2", "--listen", endpoint, "--announce", endpoint)
    assert client.objects("nodes") == []
    daemon.run("node", "remove", "web2")
