"""``ganger node rotate-key``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import free_endpoint, joined_host, running_tasks, until_there

from ganger.storage.nodes import host_table, membership
from ganger.transport.client import joining
from ganger.transport.zmq.sockets import new_key_pair

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client


def test_a_host_calls_with_its_new_key_and_the_old_one_is_worth_nothing(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        before = membership.read(host.places)
        assert before is not None
        done = host.run("node", "rotate-key")
        assert "The node web1 has a new key" in done.stdout
        until_there(client, "web1")
        daemon.run("exec", "--on", "web1", "--", "true")
        after = membership.read(host.places)
        assert after is not None
        assert after.public != before.public
        table = host_table.read(daemon.places.hosts)
        assert table is not None
        assert (table.hosts["web1"].key, table.hosts["web1"].next_key) == (after.public, "")
        membership.write(host.places, before)
        done = host.run("node", "rotate-key", check=False)
        assert done.stderr.endswith("the master does not know this host's key\n"), done
        membership.write(host.places, after)


def test_a_rotation_that_breaks_off_leaves_the_host_with_its_old_key(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        found = membership.read(host.places)
        assert found is not None
        joining.tell_new_key(found, new_key_pair().public)
        host.kill()
        host.up()
        until_there(client, "web1")
        host.run("node", "rotate-key")
        until_there(client, "web1")
        daemon.run("exec", "--on", "web1", "--", "true")


def test_the_line_of_the_join_may_be_repeated_after_a_rotation(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        endpoint = free_endpoint()
        words = ("--listen", endpoint, "--announce", endpoint)
        _, *line = daemon.run("node", "invite", "web1", *words).stdout.split()
        host.run(*line)
        host.run("node", "rotate-key")
        until_there(client, "web1")
        host.run(*line)
        until_there(client, "web1")
        daemon.run("exec", "--on", "web1", "--", "true")


def test_a_new_key_replaces_the_old_one_when_the_host_calls_with_it() -> None:
    host = host_table.HostRecord(name="web1", key="old", directory="d")
    table = host_table.HostTable(endpoint="", hosts={"web1": host})
    own = host_table.Visitor("web1")
    table = host_table.rotating(table, own, "new", "d")
    assert host_table.visitor_of(table, "old") == host_table.visitor_of(table, "new") == own
    assert host_table.visitor_of(table, "") is None
    assert host_table.called(table, "web1", "old") == table
    after = host_table.called(table, "web1", "new")
    assert after.hosts["web1"] == msgspec.structs.replace(host, key="new")
    assert host_table.visitor_of(after, "old") is None


def test_a_job_says_why_its_node_is_silent_whose_key_is_refused(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        until_there(client, "web1")
        client.submit({"OP_ID": "OP_EXEC", "argv": ["sleep", "60"], "node": "web1"})
        wait_until_true(lambda: running_tasks(host) == 1, "the task runs")
        host.kill()
        until_there(client, "web1", is_there=False)
        pair = new_key_pair()
        found = membership.read(host.places)
        assert found is not None
        other = msgspec.structs.replace(found, public=pair.public, secret=pair.secret)
        membership.write(host.places, other)
        host.up()

        def why() -> str:
            return str(daemon.run("job", "why", "1").stdout)

        wait_until_true(lambda: "calls with a key that is not known" in why(), "it says why")
        assert "node web1 is silent since " in why()
        # With its own key it is let in, and the job goes on.
        host.kill()
        membership.write(host.places, found)
        host.up()
        until_there(client, "web1")
        wait_until_true(lambda: "silent" not in why(), "it is not silent any more")
        client.cancel(1, kill=True)
