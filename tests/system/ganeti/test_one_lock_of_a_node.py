"""A command on a host and Ganeti's opcodes take one and the same lock of its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import Daemon, wait_until_true
from tests.system.gates import Gate, end, statuses, until_running
from tests.system.hosts import Host

from ganger import JobStatus

if TYPE_CHECKING:
    from ganger import Client

SUCCESS = JobStatus.SUCCESS
DRAIN = {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": "web1", "drained": True}


@pytest.fixture(name="uuid")
def uuid_of_web1(client: Client, host: Host) -> str:
    """The UUID of its node."""
    [node] = client.objects("nodes", host.name)
    return str(node["uuid"])


def here(gate: Gate) -> dict[str, Any]:
    return gate.job(locks={"node": {"exclusive": ["web1"]}})


def there(gate: Gate) -> dict[str, Any]:
    return gate.job(node="web1")


@pytest.mark.parametrize("job", [here, there])
def test_an_opcode_on_the_node_waits_for_a_command_there(
    daemon: Daemon, client: Client, gate: Gate, uuid: str, job: Any
) -> None:
    running = client.submit(job(gate))
    until_running(client, running)
    [row] = [one for one in client.locks() if one.name.startswith("node/") and one.owners]
    assert (row.name, row.owners) == (f"node/{uuid}", [str(running)])
    waiting = client.submit(DRAIN)
    # Its process asks for the lock a moment after it has got the job.
    wait_until_true(
        lambda: "nothing holds it back" not in daemon.run("job", "why", str(waiting)).stdout,
        "it waits",
    )
    why = daemon.run("job", "why", str(waiting)).stdout
    assert "for node/web1 (exclusive), held" in why
    assert f"by job {running}" in why
    assert statuses(client, waiting) in (["queued"], ["waiting"])
    shown = daemon.run("lock", "list", "--fields", "name,owner").stdout
    assert any(line.split() == ["node/web1", str(running)] for line in shown.splitlines()), shown
    gate.let_through()
    assert set(end(client, running, waiting).values()) == {SUCCESS}


def test_the_node_keeps_its_lock_under_another_name(client: Client, gate: Gate, uuid: str) -> None:
    running = client.submit(here(gate))
    until_running(client, running)
    client.set_values("nodes", "web1", {"name": "web1.example.com"})
    waiting = client.submit({**DRAIN, "node_name": "web1.example.com"})
    second = client.submit(here(gate))
    for job_id in (waiting, second):
        is_told = lambda: "node/web1.example.com (" in client.explain(job_id).text  # noqa: B023, E731
        wait_until_true(is_told, f"job {job_id} waits for the node")
    gate.let_through(2)
    assert set(end(client, running, waiting, second).values()) == {SUCCESS}
    assert [one.name for one in client.locks() if one.owners] == []
    assert uuid


def test_what_was_looked_up_is_no_word_of_the_user(client: Client, gate: Gate, uuid: str) -> None:
    given = here(gate) | {"lock_uuids": {"node/web1": "another"}}
    running = client.submit(given)
    until_running(client, running)
    assert [one.name for one in client.locks() if one.owners and "node/" in one.name] == [
        f"node/{uuid}"
    ]
    gate.let_through()
    assert end(client, running) == {running: SUCCESS}


def test_a_rule_by_name_holds_commands(daemon: Daemon, client: Client, uuid: str) -> None:
    daemon.run("filter", "add", "--lock", "node/web1", "--action", "PAUSE", "--name", "quiet")
    held = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"], "node": "web1"})
    assert "it takes node/web1 (shared)" in client.explain(held).text
    daemon.run("filter", "delete", "quiet")
    assert end(client, held) == {held: SUCCESS}
    assert uuid
