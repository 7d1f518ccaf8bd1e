"""Ganeti's own client of the remote API, with a node that is a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.compatibility.test_ganeti_rapi_client import connect, done, refusal
from tests.rapi.served import Served
from tests.system.hosts import joined_host, until_there


@pytest.fixture(name="served", scope="module")
def served_with_a_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hosts")
    with Served(folder, has_tls=True) as daemon, joined_host(daemon, folder / "host", "web1"):
        with daemon.client() as client:
            until_there(client, "web1")
        yield daemon


@pytest.fixture(name="client", scope="module")
def client_of_ganeti(library: Any, served: Served) -> Any:
    return connect(library, served)


def test_a_node_has_the_figures_of_its_host(client: Any) -> None:
    node = client.GetNode("web1")
    [listed] = client.GetNodes(bulk=True)
    for found in (node, listed):
        assert found["name"] == "web1"
        for field in ("mtotal", "mnode", "mfree", "dtotal", "dfree", "ctotal", "cnos", "cnodes"):
            assert isinstance(found[field], int), (field, found)
        # Each is rounded down to MiB.
        assert found["mtotal"] - found["mnode"] - found["mfree"] in {0, 1}
        assert (found["sptotal"], found["role"]) == (None, "R")


def test_roles_change_what_a_host_takes(client: Any, served: Served) -> None:
    assert client.GetNodeRole("web1") == "regular"
    done(client, client.SetNodeRole("web1", "drained"))
    refused = served.run("exec", "--on", "web1", "--", "true", check=False)
    assert "node 'web1' is drained" in refused.stderr
    done(client, client.SetNodeRole("web1", "offline"))
    assert client.GetNode("web1")["mtotal"] is None
    done(client, client.SetNodeRole("web1", "regular"))
    assert served.run("exec", "--on", "web1", "--", "echo", "back").stdout == "back\n"


def test_a_node_is_modified_and_files_are_copied(client: Any, served: Served) -> None:
    done(client, client.ModifyNode("web1", drained=True))
    assert client.GetNode("web1")["drained"]
    done(client, client.ModifyNode("web1", drained=False))
    done(client, client.RedistributeConfig())
    there = served.folder / "host" / "data" / "cluster"
    assert (there / "ssconf_node_list").read_text() == "web1\n"


def test_a_host_cannot_be_master(client: Any, library: Any) -> None:
    job = client.SetNodeRole("web1", "master-candidate")
    client.WaitForJobCompletion(job, period=0, retries=1_000)
    status = client.GetJobStatus(job)
    assert status["status"] == "error"
    assert "not master capable" in str(status["opresult"])
    assert "404 Not Found" in refusal(library, 404, client.GetNode, "web9")
