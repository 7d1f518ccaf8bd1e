"""``ganger node info`` and ``tag``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate, until_running
from tests.system.hosts import Host, until_there

if TYPE_CHECKING:
    from ganger import Client


@pytest.mark.usefixtures("host")
def test_info_shows_record_connection_and_figures(daemon: Daemon) -> None:
    daemon.run("node", "tag", "web1", "web")
    rows = dict(
        line.split("  ", 1) for line in daemon.run("node", "info", "web1").stdout.splitlines()
    )
    found = {name: value.strip() for name, value in rows.items()}
    assert (found["Name"], found["Tags"]) == ("web1", "web")
    assert found["Use"] == "online: it takes jobs"
    assert found["Host"].startswith("there, from 127.0.0.1")
    assert found["Jobs with its lock"] == "-"
    assert re.fullmatch(r"\d+ of \d+ MiB free", found["Memory"])
    assert re.fullmatch(r"\d+ of \d+ MiB free", found["Disk"])
    assert int(found["CPUs"]) >= 1
    shown = json.loads(daemon.run("node", "info", "web1", "-o", "json").stdout)
    assert shown["record"]["name"] == shown["host"]["name"] == "web1"
    assert set(shown["host"]["live"]) >= {"version", "boot_id", "memory_total", "cpus"}
    assert set(shown["figures"]) == {"bootid", "mfree", "mtotal", "dfree", "dtotal", "ctotal"}


def test_info_says_what_is_unknown_and_who_has_the_lock(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    running = client.submit(gate.job(node="web1"))
    until_running(client, running)
    host.run("node", "down")
    until_there(client, "web1", is_there=False)
    shown = daemon.run("node", "info", "web1").stdout
    assert re.search(r"Memory +unknown: it does not answer\n", shown)
    assert re.search(rf"Jobs with its lock +{running}\n", shown)
    gate.let_through()
    host.up()
    client.wait(running)


@pytest.mark.usefixtures("host")
def test_an_unknown_node_is_one_line(daemon: Daemon) -> None:
    for words in (("info", "web9"), ("drain", "web9"), ("online", "web9"), ("tag", "web9", "x")):
        done = daemon.run("node", *words, check=False)
        assert done.stderr == "ganger: there is no node 'web9'; nodes: web1\n", words
        assert done.returncode == 1


@pytest.mark.usefixtures("host")
def test_tags_are_added_and_removed(daemon: Daemon, client: Client) -> None:
    assert daemon.run("node", "tag", "web1", "web", "prod").stdout == "Tags of web1: prod, web\n"
    assert daemon.run("node", "tag", "web1", "web").stdout == "Tags of web1: prod, web\n"
    daemon.run("node", "tag", "--remove", "web1", "prod")
    assert client.objects("nodes")[0]["tags"] == ["web"]


@pytest.mark.usefixtures("host")
def test_the_list_says_which_nodes_are_out_of_use(daemon: Daemon) -> None:
    daemon.run("node", "drain", "web1")
    listed = daemon.run("node", "list", "--fields", "name,state,use", "--no-headers", check=False)
    assert "web1  there  drained" in listed.stdout, listed
