"""One command on several nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon
from tests.system.hosts import joined_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ganger import Client


@pytest.fixture(autouse=True)
def _two_hosts(daemon: Daemon, tmp_path: Path) -> Iterator[None]:
    with (
        joined_host(daemon, tmp_path / "first", "web1"),
        joined_host(daemon, tmp_path / "second", "web2", is_first=False),
    ):
        for name in ("web1", "web2"):
            daemon.run("node", "tag", name, "web")
        yield


def test_each_node_has_a_line_and_all_are_one_plan(daemon: Daemon, client: Client) -> None:
    done = daemon.run("exec", "--on", "tag:web", "--", "sh", "-c", "echo I am $GANGER_NODE")
    assert sorted(done.stdout.splitlines()) == [
        "web1  succeeded: I am web1",
        "web2  succeeded: I am web2",
    ]
    found = [(job.name, job.plan) for job in client.jobs()]
    assert sorted(found) == [("web1", "sh on tag:web"), ("web2", "sh on tag:web")]


def test_failures_follow_with_their_last_lines_and_their_code(daemon: Daemon) -> None:
    script = 'echo begun; [ "$GANGER_NODE" = web1 ] || { echo no disk >&2; exit 3; }'
    done = daemon.run("exec", "--on", "web1,web2", "--", "sh", "-c", script, check=False)
    assert done.returncode == 3
    assert "web1  succeeded: begun" in done.stdout
    assert "web2  failed: exit code 3; last line: no disk" in done.stdout
    assert "--- web2 (job 2) failed: exit code 3" in done.stderr
    assert "    begun\n    no disk\n" in done.stderr


def test_after_a_failure_no_further_node_begins(daemon: Daemon, client: Client) -> None:
    words = ("exec", "--on", "tag:web", "--stop-on-failure", "--", "false")
    done = daemon.run(*words, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "web1  failed: exit code 1",
        "web2  was skipped: web1 failed: job 1",
    ]
    assert [job.started is None for job in client.jobs()] == [False, True]


def test_a_limit_lets_all_run_in_the_end(daemon: Daemon) -> None:
    done = daemon.run("exec", "--on", "tag:web", "--parallel", "1", "--quiet", "--", "true")
    assert sorted(done.stdout.splitlines()) == ["web1  succeeded", "web2  succeeded"]


def test_without_a_node_nothing_runs_here(daemon: Daemon, client: Client) -> None:
    """As of a variable that is empty: `--on "$HOST"`."""
    done = daemon.run("exec", "--on", "", "--", "true", check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "ganger: --on: expected a node, or tag:TAG, got ''\n",
    )
    assert not [*client.jobs()]


def test_what_cannot_be_stores_no_job(daemon: Daemon, client: Client) -> None:
    for words, text in (
        (("--on", "tag:db"), "no node has the tag 'db'; tags of nodes: web"),
        (("--on", "web1", "--on", "web9"), "job 'web9': OP_EXEC: node: no host has joined as"),
        (("--on", "web1", "--parallel", "2"), "--parallel and --stop-on-failure go with --on for"),
    ):
        done = daemon.run("exec", *words, "--", "true", check=False)
        assert text in done.stderr, done
        assert done.returncode != 0
    assert list(client.jobs()) == []


def test_a_drained_node_of_a_tag_is_left_out_and_named(daemon: Daemon) -> None:
    daemon.run("node", "drain", "web2")
    done = daemon.run("exec", "--on", "tag:web", "--", "true")
    assert done.stdout == "web1  succeeded\n"
    assert done.stderr == "ganger: node web2 is drained, and is left out\n"


def test_a_large_standard_input_goes_to_each(daemon: Daemon) -> None:
    text = "line\n" * 300_000
    done = daemon.run("exec", "--on", "tag:web", "--stdin", "-", "--", "wc", "-c", text=text)
    assert sorted(done.stdout.splitlines()) == [
        f"web1  succeeded: {len(text)}",
        f"web2  succeeded: {len(text)}",
    ]


def test_detached_prints_the_ids_with_the_nodes(daemon: Daemon, client: Client) -> None:
    done = daemon.run("exec", "-d", "--on", "tag:web", "--name", "mine", "--", "true")
    assert done.stdout == "1\tweb1\n2\tweb2\n"
    assert {job.plan for job in client.wait(1, 2)} == {"mine"}


def test_a_plan_has_a_job_for_each_node(daemon: Daemon, client: Client, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "name: rollout\n"
        "jobs:\n"
        "- {name: touch, for_each: {node: 'tag:web'}, ops: "
        "[{OP_ID: OP_EXEC, argv: [echo, '{node}'], node: '{node}'}]}\n"
        "- {name: last, after: [touch], ops: [{OP_ID: OP_EXEC, argv: ['true']}]}\n"
    )
    daemon.run("job", "submit", "--wait", str(tmp_path / "plan.yaml"))
    assert sorted(str(job.name) for job in client.jobs()) == ["last", "touch-web1", "touch-web2"]
    assert b"".join(chunk.data for chunk in client.logs(2)) == b"web2\n"
