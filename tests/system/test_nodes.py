"""Hosts join, and commands of jobs run there: the ways that users go, and what is not known."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.faults.harness import Daemon, until, wait_until_true
from tests.system.gates import PATIENCE_SECONDS, Gate, until_running
from tests.system.hosts import Host, free_endpoint, running_tasks, until_there

from ganger.storage.nodes import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ganger import Client


def at() -> tuple[str, ...]:
    """Options of an invitation: the master listens where nothing else does."""
    endpoint = free_endpoint()
    return "--listen", endpoint, "--announce", endpoint


SCRIPT = "echo $GANGER_JOB_ID; echo to stderr >&2; exit 3"


@pytest.fixture(name="gate")
def gate_of_the_host(tmp_path: Path) -> Iterator[Gate]:
    """A gate for commands on the host."""
    with Gate(tmp_path, "host-gate") as gate:
        yield gate


def waiting(gate: Gate, before: str = "true") -> list[str]:
    return ["sh", "-c", f"{before}; dd bs=1 count=1 < {gate.path} 2>/dev/null; echo after"]


def test_a_command_runs_on_the_host_as_if_it_ran_here(
    daemon: Daemon, client: Client, host: Host
) -> None:
    done = daemon.run("exec", "--on", "web1", "--", "sh", "-c", SCRIPT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "to stderr\n")
    job = client.job(1)
    assert job.reason_ended == "exit code 3; last line: to stderr"
    with host.client() as there:
        [task] = there.jobs()
    assert task.name.startswith("task-1-0-")
    listed = daemon.run("node", "list").stdout
    assert "web1  there" in listed


def test_what_cannot_be_is_one_clear_line(daemon: Daemon, host: Host, tmp_path: Path) -> None:
    token = daemon.run("node", "invite", "web2").stdout.split()[-1]
    altered = token[:60] + ("A" if token[60] != "A" else "B") + token[61:]
    other = Host(tmp_path / "other", "web2")
    done = other.run("node", "join", altered, check=False)
    assert (done.returncode, "the token is damaged" in done.stderr) == (1, True), done
    done = host.run("node", "join", token, check=False)
    assert "is that of the node web1 of the cluster ganger, and the token is for" in done.stderr
    assert "the token is for the node web2; another data directory" in done.stderr
    # Of the same name, for a node of the same name.
    foreign = msgspec.structs.replace(tokens.decode(token), cluster="11111111", node="web1")
    done = host.run("node", "join", tokens.encode(foreign), check=False)
    assert "for another cluster, ganger with the UUID 11111111; another data" in done.stderr
    done = other.run("node", "up", check=False)
    assert "`ganger node join TOKEN` makes it one" in done.stderr


def test_an_invitation_says_until_when_it_is_valid(daemon: Daemon) -> None:
    daemon.run("node", "invite", "web2", *at())
    words = ("--no-headers", "--fields", "name,state,since")
    assert daemon.run("node", "list", *words).stdout.split() == ["web2", "invited", "-"]
    assert re.search(r"invited until 20.*Z, and", daemon.run("node", "info", "web2").stdout)


def test_a_token_is_good_for_one_host(daemon: Daemon, tmp_path: Path) -> None:
    token = daemon.run("node", "invite", "web2", *at()).stdout.split()[-1]
    first, second = Host(tmp_path / "first", "web2"), Host(tmp_path / "second", "web2")
    try:
        first.run("node", "join", token)
        assert "already runs" in first.run("node", "join", token).stdout
        done = second.run("node", "join", token, check=False)
        assert (done.returncode, "this token was used already" in done.stderr) == (1, True), done
        daemon.run("node", "remove", "web2")
        done = second.run("node", "join", token, check=False)
        assert "the master does not know this token" in done.stderr
        assert "`ganger node invite web2` on the master gives a new one" in done.stderr
    finally:
        first.__exit__()
        second.__exit__()


def test_a_token_is_good_for_a_time(daemon: Daemon, tmp_path: Path) -> None:
    token = daemon.run("node", "invite", "web2", "--valid-for", "1", *at()).stdout.split()[-1]
    other = Host(tmp_path / "other", "web2")

    def is_past() -> bool:
        return "invitation past" in daemon.run("node", "list").stdout

    wait_until_true(is_past, "the token is too old")
    done = other.run("node", "join", token, check=False)
    assert re.search(r"this token was valid until [0-9]+ s ago", done.stderr), done
    assert not other.places.membership.exists()


def test_the_output_comes_whole_over_restarts_of_both_daemons(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    with daemon.begin("exec", "--on", "web1", "--", *waiting(gate, "seq 1 50000")) as following:
        change = next(iter(client.watch(log=False, timeout=PATIENCE_SECONDS)))
        until_running(client, change.job_id)
        host.kill()
        until_there(client, "web1", is_there=False)
        # The job may hear of it later than we do.
        silent = "job 1 is running: node web1 is silent since "
        wait_until_true(lambda: silent in daemon.run("job", "why", "1").stdout, "its job says so")
        daemon.kill()
        host.up()
        daemon.up()
        gate.let_through()
        output, _ = following.communicate(timeout=PATIENCE_SECONDS)
    assert following.returncode == 0
    assert output == "".join(f"{n}\n" for n in range(1, 50_001)) + ".after\n"
    with daemon.client() as again:
        assert again.job(1).outcome == "success"


def test_a_kill_reaches_the_command(client: Client, host: Host, gate: Gate) -> None:
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": waiting(gate), "node": "web1"})
    with host.client() as there:
        wait_until_true(lambda: bool(list(there.jobs(statuses=["running"]))), "the task runs")
        client.cancel(job_id, kill=True)
        [ended] = client.wait(job_id)
        [task] = there.jobs()
    assert (ended.outcome, task.outcome) == ("killed", "killed")


@pytest.mark.usefixtures("host")
def test_the_job_holds_its_node(client: Client, gate: Gate) -> None:
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": waiting(gate), "node": "web1"})
    until(client, job_id, "running")  # type: ignore[arg-type]
    [node] = client.objects("nodes")
    [held] = [one for one in client.locks() if one.name == f"node/{node['uuid']}"]
    assert held.mode == "shared"
    gate.let_through()
    client.wait(job_id)


@pytest.mark.usefixtures("host")
def test_a_large_standard_input_goes_there(daemon: Daemon) -> None:
    text = "line\n" * 600_000
    done = daemon.run("exec", "--on", "web1", "--stdin", "-", "--", "wc", "-c", text=text)
    assert done.stdout == f"{len(text)}\n"


def test_a_removed_node_is_gone_at_once(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": waiting(gate), "node": "web1"})
    with host.client() as there:
        wait_until_true(lambda: bool(list(there.jobs(statuses=["running"]))), "the task runs")
    done = daemon.run("node", "remove", "web1", check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "ganger: jobs wait for commands of node web1, or hold its lock: end them, or say that the "
        "commands do not run any more (`ganger node forget-tasks web1`), or --force\n"
    )
    assert running_tasks(host) == 1
    told = daemon.run("node", "remove", "--force", "web1").stderr
    assert "jobs waited for its commands: these may still run, and have no locks any more" in told
    [ended] = client.wait(job_id)
    assert ended.reason_ended == (
        "node web1 was removed: it is not known whether the command still runs on web1"
    )
    wait_until_true(lambda: not client.locks(), "the locks are free")
    assert daemon.run("node", "list").stderr == "ganger: no nodes\n"


def test_a_node_whose_lock_a_job_holds_is_not_removed(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    job_id = client.submit(gate.job(locks={"node": {"exclusive": [host.name]}}))
    until_running(client, job_id)
    done = daemon.run("node", "remove", host.name, check=False)
    assert (done.returncode, "or hold its lock" in done.stderr) == (1, True)
    gate.let_through()
    client.wait(job_id)
    assert daemon.run("node", "remove", host.name).stdout == f"Node {host.name} is removed\n"


def test_without_nodes_there_is_no_process_for_them(daemon: Daemon, client: Client) -> None:
    assert client.nodes().nodes == []
    assert len(daemon.fork_servers()) == len(daemon._children())


def test_the_host_says_what_tasks_may_do(daemon: Daemon, host: Host) -> None:
    words = ("exec", "--on", "web1", "--as-user", "nobody", "--", "id", "-un")
    done = daemon.run(*words, check=False)
    refusal = "web1: no command may run as user 'nobody': the host's node.toml does not allow it"
    assert refusal in done.stderr
    host.places.node_settings.write_text('[tasks]\nusers = ["nobody"]\n')
    assert "users:       nobody\n" in host.run("node", "check").stdout
    done = daemon.run(*words, check=False)
    if os.geteuid() == 0:
        assert done.stdout == "nobody\n"
    else:
        assert "the daemon is not root" in done.stderr
    host.places.node_settings.write_text("[tasks]\nuser = 3\n")
    done = host.run("node", "check", check=False)
    assert "node.toml: Object contains unknown field `user`" in done.stderr
    assert "unknown field" in daemon.run("exec", "--on", "web1", "true", check=False).stderr


def test_a_host_runs_as_many_tasks_as_its_master_gives_it(host: Host) -> None:
    assert "Run slots: 500 " in host.run("queue", "info").stdout
