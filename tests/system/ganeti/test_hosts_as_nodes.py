"""Hosts that have joined are nodes as Ganeti's tools and rules see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon
from tests.system.hosts import joined_host

from ganger.storage.cluster.objects import ObjectKind
from ganger.transport.messages import ObjectChange

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client


@pytest.mark.usefixtures("host")
def test_queries_show_a_host(client: Client) -> None:
    [row] = client.query("node", ["name", "role", "group", "pip"]).items
    assert row == {"name": "web1", "role": "R", "group": "default", "pip": "127.0.0.1"}


@pytest.mark.usefixtures("host")
def test_a_second_host_behind_the_same_address_joins_the_same_group(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "second", "web2", is_first=False):
        first, second = sorted(client.objects("nodes"), key=lambda node: str(node["name"]))
    assert (first["primary_ip"], second["primary_ip"]) == ("127.0.0.1", "")
    assert first["group"] == second["group"]
    assert len(client.objects("nodegroups")) == 1


@pytest.mark.usefixtures("host")
def test_a_node_with_an_instance_is_not_removed(daemon: Daemon, client: Client) -> None:
    [node] = client.objects("nodes")
    disk = {"uuid": "disk-1", "forthcoming": True, "nodes": [node["uuid"]]}
    client.change_objects(ObjectChange(kind=ObjectKind.DISK, uuid="disk-1", object=disk))
    done = daemon.run("node", "remove", "web1", check=False)
    assert done.stderr.startswith("ganger: node web1 stays: disks/disk-1.nodes"), done
    assert client.objects("nodes") == [node]
    assert [one.is_there for one in client.nodes().nodes] == [True]
