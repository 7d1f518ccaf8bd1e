"""Commands for nodes that do not take any: unknown, drained and offline ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate, until_running
from tests.system.hosts import Host

from ganger import OpcodeError

if TYPE_CHECKING:
    from ganger import Client


TRUE = {"OP_ID": "OP_EXEC", "argv": ["true"], "node": "web1"}


def test_a_node_that_no_host_has_joined_as_is_refused_at_submission(
    daemon: Daemon, client: Client, host: Host
) -> None:
    done = daemon.run("exec", "--on", "web9", "--", "true", check=False)
    assert done.stderr == "ganger: OP_EXEC: node: no host has joined as 'web9'; nodes: web1\n"
    daemon.run("node", "invite", "web9")
    done = daemon.run("exec", "--on", "web9", "--", "true", check=False)
    assert "no host has joined as 'web9'" in done.stderr
    with pytest.raises(OpcodeError, match="opcode 1: OP_EXEC: node: no host"):
        client.submit([TRUE, {**TRUE, "node": "web9"}])
    assert list(client.jobs()) == []
    assert host.name == "web1"


def test_without_any_node_there_is_none_to_run_on(client: Client) -> None:
    with pytest.raises(OpcodeError, match="no host has joined as 'web1'; nodes: none"):
        client.submit(TRUE)


@pytest.mark.usefixtures("host")
def test_a_drained_node_takes_no_new_jobs_and_runs_those_that_are_queued(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    first = client.submit(gate.job(node="web1"))
    queued = client.submit({**TRUE, "depends": [[first, ["success"]]]})
    until_running(client, first)
    assert daemon.run("node", "drain", "web1").stdout == "Node web1 is drained: no new jobs\n"
    done = daemon.run("exec", "--on", "web1", "--", "true", check=False)
    assert done.stderr == (
        "ganger: OP_EXEC: node: node 'web1' is drained; "
        "`ganger node online web1` lets it take commands again\n"
    )
    gate.let_through()
    assert [job.outcome for job in client.wait(first, queued)] == ["success", "success"]
    daemon.run("node", "online", "web1")
    daemon.run("exec", "--on", "web1", "--", "true")


@pytest.mark.usefixtures("host")
def test_an_offline_node_fails_queued_jobs_and_leaves_what_runs(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    first = client.submit(gate.job(node="web1"))
    queued = client.submit({**TRUE, "depends": [[first, ["success"]]]})
    until_running(client, first)
    daemon.run("node", "offline", "web1")
    done = daemon.run("exec", "--on", "web1", "--", "true", check=False)
    assert "node 'web1' is offline; `ganger node online web1`" in done.stderr
    gate.let_through()
    ran, failed = client.wait(first, queued)
    assert ran.outcome == "success"
    assert failed.reason_ended == (
        "node 'web1' is offline; `ganger node online web1` lets it take commands again"
    )


@pytest.mark.usefixtures("host")
def test_a_restarted_daemon_knows_its_nodes(daemon: Daemon, client: Client) -> None:
    client.set_values("nodes", "web1", {"drained": True})
    daemon.kill()
    daemon.up()
    with daemon.client() as again, pytest.raises(OpcodeError, match="'web1' is drained"):
        again.submit(TRUE)
