"""Data directories of hosts that were restored or copied: no task starts twice."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon, wait_until_true
from tests.system.gates import PATIENCE_SECONDS
from tests.system.hosts import Host, until_there

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client


def touch(path: Path) -> dict[str, object]:
    return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", f"echo x >> {path}"], "node": "web1"}


def state_of(daemon: Daemon) -> str:
    return str(daemon.run("node", "list").stdout)


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_restored_directory_is_refused_until_the_host_joins_anew(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path, restarts: int
) -> None:
    witness, copy = tmp_path / "witness", tmp_path / "copy"
    client.wait(client.submit(touch(witness)))
    host.run("node", "down")
    shutil.copytree(host.places.data, copy)
    host.up()
    for _ in range(restarts):
        until_there(client, "web1")
        host.kill()
        host.up()
    until_there(client, "web1")
    client.wait(client.submit(touch(witness)))
    host.run("node", "down")
    # Waits for the node, and may have begun there, for all that is known.
    waiting = client.submit(touch(witness))
    shutil.rmtree(host.places.data)
    shutil.copytree(copy, host.places.data)
    host.up()
    wait_until_true(lambda: "web1  refused" in state_of(daemon), "it is refused")
    assert "older" in daemon.run("node", "info", "web1").stdout
    assert client.job(waiting).status == "running"
    _, *line = daemon.run("node", "invite", "web1").stdout.split()
    host.run(*line)
    [ended] = client.wait(waiting, timeout=PATIENCE_SECONDS)
    assert ended.reason_ended == (
        "node web1 has joined anew since the command began: "
        "it is not known whether the command still runs on web1"
    )
    daemon.run("node", "forget-tasks", "web1")
    [ended] = client.wait(client.submit(touch(witness)), timeout=PATIENCE_SECONDS)
    assert ended.outcome == "success"
    assert witness.read_text() == "x\n" * 3


def test_a_second_daemon_with_the_keys_of_a_node_is_refused(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    other = Host(tmp_path / "other", "web1")
    until_there(client, "web1")
    shutil.copytree(host.places.data, other.places.data, ignore=shutil.ignore_patterns(".tmp-*"))
    try:
        other.up()

        def is_refused() -> bool:
            return "another daemon has the same keys" in other.places.log.read_text()

        wait_until_true(is_refused, "the second one is refused")
        [ended] = client.wait(client.submit(touch(witness)))
        assert ended.outcome == "success"
        with other.client() as there:
            assert list(there.jobs()) == []
        # Once the copy is the node, the other one is not any more.
        host.kill()
        until_there(client, "web1", is_there=False)
        wait_until_true(lambda: "web1  refused" in state_of(daemon), "it has forgotten a task")
    finally:
        other.__exit__()


def test_another_host_that_joins_in_the_place_of_one_is_that_node_from_then_on(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    """As after a typing error in `ganger node invite`: no command runs on the first one any more.

    Its connection stayed, commands ran there, and the new host was refused for them.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    until_there(client, "web1")
    client.wait(client.submit(touch(first)))
    other = Host(tmp_path / "other", "web1")
    try:
        line = daemon.run("node", "invite", "web1")
        assert line.stderr == (
            "ganger: node web1 is there: another host that joins with this line takes its place\n"
        )
        other.run(*line.stdout.split()[1:])
        until_there(client, "web1")
        [ended] = client.wait(client.submit(touch(second)), timeout=PATIENCE_SECONDS)
        assert ended.outcome == "success"
        with host.client() as there:
            assert len(list(there.jobs())) == 1
        with other.client() as there:
            assert len(list(there.jobs())) == 1

        def is_told() -> bool:
            return "the master does not know this host's key" in host.run("node", "status").stdout

        wait_until_true(is_told, "the first one knows why")
    finally:
        other.__exit__()
