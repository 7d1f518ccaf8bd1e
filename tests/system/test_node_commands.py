"""What `ganger node` says on both sides when something is not as it should be."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import wait_until_true
from tests.system.hosts import Host, free_endpoint, until_there

from ganger.storage import errors
from ganger.storage.nodes import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.harness import Daemon

    from ganger import Client


@pytest.fixture(name="host")
def host_that_has_not_joined(tmp_path: Path) -> Iterator[Host]:
    """A host that is to become ``web1``."""
    with_it = Host(tmp_path / "host", "web1")
    try:
        yield with_it
    finally:
        with_it.__exit__()


def invited(daemon: Daemon, *words: str) -> list[str]:
    """Words of the command that joins."""
    line: list[str] = daemon.run("node", "invite", "web1", *words).stdout.split()
    return line[1:]


def test_a_host_says_of_which_cluster_it_is_and_whether_it_is_connected(
    daemon: Daemon, client: Client, host: Host
) -> None:
    host.join(daemon, endpoint := free_endpoint())
    until_there(client, "web1")
    told = host.run("node", "status").stdout
    assert "\nNode:       web1 of the cluster ganger\n" in told
    assert f"\nMaster:     {endpoint}, connected since 20" in told
    daemon.kill()
    with host.client() as there:

        def is_lost() -> bool:
            master = there.info().master
            return master is not None and not master.connected

        wait_until_true(is_lost, "the host has lost its master")
    told = host.run("node", "status").stdout
    assert f"\nMaster:     {endpoint}, NOT CONNECTED since 20" in told
    assert ": the " in told.partition("NOT CONNECTED")[2].splitlines()[0]
    host.run("node", "down")
    told = host.run("node", "status", check=False).stdout
    assert told.endswith(f"(start one with `ganger --data {host.data} node up`)\n")


def test_a_removed_host_may_join_again_from_the_same_directory(
    daemon: Daemon, client: Client, host: Host
) -> None:
    host.join(daemon, endpoint := free_endpoint())
    until_there(client, "web1")
    daemon.run("node", "remove", "web1")

    def is_told() -> bool:
        return "the master does not know this host's key" in host.run("node", "status").stdout

    wait_until_true(is_told, "the host knows that it was removed")
    # The new line names the master by another word: the daemon of the host calls there.
    other = endpoint.replace("127.0.0.1", "localhost")
    host.begun(host.run(*invited(daemon, "--announce", other), check=False))
    until_there(client, "web1")
    assert f"\nMaster:     {other}, connected" in host.run("node", "status").stdout
    assert daemon.run("exec", "--on", "web1", "--", "echo", "again").stdout == "again\n"


def test_a_join_that_is_repeated_without_a_master_starts_the_daemon(
    daemon: Daemon, host: Host
) -> None:
    endpoint = free_endpoint()
    line = invited(daemon, "--listen", endpoint, "--announce", endpoint)
    host.begun(host.run(*line, check=False))
    host.run("node", "down")
    daemon.run("down")
    done = host.run(*line, check=False)
    host.begun(done)
    assert f"no master answers: {endpoint}: no answer within" in done.stderr
    assert "this host had joined before" in done.stderr
    assert "The node daemon is ready" in done.stdout


def test_a_first_join_without_a_master_leaves_nothing_half(daemon: Daemon, host: Host) -> None:
    endpoint = free_endpoint()
    line = invited(daemon, "--listen", endpoint, "--announce", endpoint)
    daemon.run("down")
    done = host.run(*line, check=False)
    assert done.returncode == errors.DaemonUnreachableError.exit_code
    assert f"ganger: no master answers: {endpoint}: no answer within 5 s\n" == done.stderr
    assert not host.places.membership.exists()
    daemon.up()
    host.begun(host.run(*line, check=False))
    assert host.places.membership.exists()
    with daemon.client() as client:
        until_there(client, "web1")
        host.run("node", "down")
        until_there(client, "web1", is_there=False)
    other = free_endpoint()
    moved = daemon.run("node", "invite", "web2", "--listen", other, "--announce", other)
    assert f"ganger: web1 joined at {endpoint}, and cannot be told where to call" in moved.stderr


def test_directories_of_masters_and_nodes_are_told_apart(daemon: Daemon, host: Host) -> None:
    for word in ("up", "down", "status"):
        done = daemon.run("node", word, check=False)
        assert f"{daemon.data} is the data directory of a master, not that of a node" in done.stderr
    host.join(daemon, free_endpoint())
    done = host.run("up", check=False)
    assert done.stderr == (
        f"ganger: {host.data} is the data directory of a node; "
        f"`ganger --data {host.data} node up` starts its daemon\n"
    )


def test_an_endpoint_that_cannot_be_changes_nothing(
    daemon: Daemon, client: Client, host: Host
) -> None:
    host.join(daemon, endpoint := free_endpoint())
    until_there(client, "web1")
    before = client.nodes().nodes[0].called
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        other = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        done = daemon.run("node", "invite", "web2", "--listen", other, check=False)
        assert done.stderr == f"ganger: {other}: something else listens there already\n"
    for wrong in ("tcp://127.0.0.1:99999", "127.0.0.1:7611"):
        done = daemon.run("node", "invite", "web2", "--listen", wrong, check=False)
        assert f"a port up to 65535, got '{wrong}'" in done.stderr
        with pytest.raises(errors.BadRequestError, match="a port up to 65535"):
            client.invite_node("web2", endpoint=wrong)
    listed = client.nodes()
    assert (listed.endpoint, [one.called for one in listed.nodes]) == (endpoint, [before])


def test_a_token_names_the_endpoint_at_which_the_master_listens_now(daemon: Daemon) -> None:
    first, second = free_endpoint(), free_endpoint()
    invited(daemon, "--listen", first)
    *_, word = invited(daemon, "--listen", second)
    assert tokens.decode(word).endpoints == [second]


def test_a_master_that_cannot_listen_for_nodes_says_so(daemon: Daemon, client: Client) -> None:
    endpoint = free_endpoint()
    invited(daemon, "--listen", endpoint)
    client.close()
    daemon.run("down")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(endpoint.rpartition(":")[2])))
        taken.listen()
        daemon.up()
        said = daemon.run("node", "list").stderr
        assert (
            said == f"ganger: nodes cannot call: {endpoint}: something else listens there already\n"
        )
    wait_until_true(lambda: not daemon.run("node", "list").stderr, "the hub listens")
