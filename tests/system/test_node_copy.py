"""`ganger node copy`, and OP_NODE_COPY in plans."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import wait_until_true
from tests.system.hosts import joined_host, until_there

if TYPE_CHECKING:
    from tests.faults.harness import Daemon
    from tests.system.hosts import Host

    from ganger import Client

LARGE_BYTES = 40 * 1024 * 1024


@pytest.mark.usefixtures("host")
def test_files_are_there_whole_with_their_modes(daemon: Daemon, tmp_path: Path) -> None:
    one, two, there = tmp_path / "one", tmp_path / "two", tmp_path / "there"
    there.mkdir()
    one.write_text("1")
    two.write_bytes(b"")
    one.chmod(0o750)
    done = daemon.run("node", "copy", str(one), f"web1:{there}/other")
    assert done.stdout == f"web1:{there}/other: 1 byte\n"
    assert (there / "other").read_text() == "1"
    assert (there / "other").stat().st_mode & 0o777 == 0o750
    done = daemon.run("node", "copy", "--mode", "0600", str(one), str(two), f"web1:{there}")
    assert done.stdout == f"web1:{there}/one: 1 byte\nweb1:{there}/two: 0 bytes\n"
    assert {path.name: path.stat().st_mode & 0o777 for path in there.iterdir()} == {
        "other": 0o750,
        "one": 0o600,
        "two": 0o600,
    }


@pytest.mark.usefixtures("host")
def test_a_large_file_and_a_text_of_a_plan_arrive(client: Client, tmp_path: Path) -> None:
    large, there = tmp_path / "large", tmp_path / "there"
    large.write_bytes(os.urandom(1024) * (LARGE_BYTES // 1024))
    text = "line\n" * 100_000
    copy = {"OP_ID": "OP_NODE_COPY", "nodes": ["web1"]}
    job_id = client.submit(
        [
            {**copy, "source": str(large), "path": str(there)},
            {**copy, "content": text, "path": f"{there}.txt", "mode": "0640"},
        ]
    )
    [job] = client.wait(job_id)
    assert job.outcome == "success", job.reason_ended
    [first, _] = client.job(job_id).ops or []
    digest = hashlib.sha256(large.read_bytes()).hexdigest()
    assert first.result == {"web1": {"path": str(there), "size": LARGE_BYTES, "sha256": digest}}
    assert hashlib.sha256(there.read_bytes()).hexdigest() == digest
    assert Path(f"{there}.txt").read_text() == text
    assert Path(f"{there}.txt").stat().st_mode & 0o777 == 0o640


def test_several_nodes_are_a_plan(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    with joined_host(daemon, tmp_path / "host2", "web2", is_first=False):
        for name in ("web1", "web2"):
            until_there(client, name)
            daemon.run("node", "tag", name, "web")
        done = daemon.run(
            "node", "copy", "--parallel", "1", str(source), f"tag:web:{tmp_path}/there"
        )
        assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [
            "web1  succeeded",
            "web2  succeeded",
        ]
        daemon.run("node", "drain", "web2")
        done = daemon.run("node", "copy", str(source), f"web1,web2:{tmp_path}/x", check=False)
        assert (done.returncode, "node 'web2' is drained" in done.stderr) == (1, True)
        assert not (tmp_path / "x").exists()
        with host.client() as there:
            assert list(there.jobs(statuses=["error"])) == []


def test_what_cannot_be_is_one_line_before_anything_is_sent(
    daemon: Daemon, host: Host, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words, told in (
        ((str(source), "web1"), "NODE:PATH: expected nodes and an absolute path, such as web1:/"),
        ((str(source), "web1:srv"), "NODE:PATH: expected nodes and an absolute path"),
        ((str(tmp_path), "web1:/srv"), f"{tmp_path}: Is a directory"),
        (("/no/such", "web1:/srv"), "/no/such: No such file or directory"),
        # Nobody writes into it.
        ((str(pipe), "web1:/srv"), f"{pipe}: is no regular file"),
        (
            (str(source), "web7:/srv"),
            "OP_NODE_COPY: node: no host has joined as 'web7'; nodes: web1",
        ),
        (("--mode", "rw", str(source), "web1:/srv"), "OP_NODE_COPY: "),
        (("--mode", "7777", str(source), "web1:/srv"), "mode: expected permission bits such as"),
        (("--parallel", "2", str(source), "web1:/srv"), "go with several nodes"),
        ((str(source), "tag:web:/srv"), "no node has the tag 'web'"),
    ):
        done = daemon.run("node", "copy", *words, check=False)
        assert (done.returncode != 0, done.stdout, told in done.stderr) == (True, "", True), done
        assert done.stderr.count("\n") == 1, done.stderr
    with host.client() as there:
        assert list(there.jobs()) == []


def test_what_the_host_does_not_let_be_is_one_line(
    daemon: Daemon, host: Host, tmp_path: Path
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.write_text("x")
    there.mkdir()
    settings = host.places.node_settings
    settings.write_text(f'[tasks]\npaths = ["{there}/*"]\ncalls = ["version"]\n')
    told = host.run("node", "check").stdout
    assert f"paths:       {there}/*\n" in told
    assert "calls:       version\n" in told
    daemon.run("node", "copy", str(source), f"web1:{there}/a")
    for words, refusal in (
        ((f"web1:{tmp_path}/b",), f"{tmp_path}/b may not be written or looked at"),
        ((f"web1:{there}/no/",), f"{there}/no/: there is none"),
        ((f"web1:{there}/a/",), f"{there}/a/: is no directory"),
        ((f"web1:{there}/no/file",), f"{there}/no/file: No such file or directory"),
        (("--owner", "no-such-user", f"web1:{there}/b"), "this host has no user 'no-such-user'"),
        (("--owner", "nobody", f"web1:{there}/b"), "no file may belong to user 'nobody'"),
    ):
        *options, target = words
        done = daemon.run("node", "copy", *options, str(source), target, check=False)
        last = done.stderr.splitlines()[-1]
        assert (done.returncode, "web1: " in last, refusal in last) == (1, True, True), done.stderr
    assert [one.name for one in there.iterdir()] == ["a"]


def begun(client: Client, host: Host, source: Path, there: Path) -> int:
    """The id of a job that copies the file; some of it is on the host."""
    copy = {"OP_ID": "OP_NODE_COPY", "node": "web1", "source": str(source), "path": str(there)}
    job_id = client.submit(copy)
    spool = host.places.queue / "spool"

    def is_under_way() -> bool:
        return any(path.stat().st_size > 0 for path in spool.rglob("*input*"))

    wait_until_true(is_under_way, "some of the file is there")
    return job_id


def test_a_copy_goes_on_when_the_daemon_of_its_node_is_back(
    client: Client, host: Host, tmp_path: Path
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    source.write_bytes(os.urandom(1024 * 1024) * 150)
    job_id = begun(client, host, source, there)
    host.kill()
    until_there(client, "web1", is_there=False)
    assert not there.exists()
    host.up()
    [ended] = client.wait(job_id)
    assert ended.outcome == "success", ended.reason_ended
    assert there.read_bytes() == source.read_bytes()


def test_a_silent_node_holds_up_no_other(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    copy = {"OP_ID": "OP_NODE_COPY", "content": "x" * 3_000_000, "path": str(there)}
    with joined_host(daemon, tmp_path / "host2", "web2", is_first=False):
        until_there(client, "web2")
        host.kill()
        until_there(client, "web1", is_there=False)
        job_id = client.submit({**copy, "nodes": ["web1", "web2"]})
        wait_until_true(there.exists, "web2 has the file")
        assert client.explain(job_id).text.startswith(
            f"job {job_id} is running: node web1 is silent since "
        )
        host.up()
        [ended] = client.wait(job_id)
    assert ended.outcome == "success", ended.reason_ended
    [op] = client.job(job_id).ops or []
    assert {node: stored["size"] for node, stored in op.result.items()} == {
        "web1": 3_000_000,
        "web2": 3_000_000,
    }


def test_a_copy_that_is_killed_in_the_middle_leaves_nothing(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    with source.open("wb") as file:
        file.truncate(512 * 1024 * 1024)
    job_id = begun(client, host, source, there)
    client.cancel(job_id, kill=True)
    [ended] = client.wait(job_id)
    assert ended.outcome == "killed"
    wait_until_true(lambda: not client.locks(), "the locks are free")
    assert not there.exists()
    assert daemon.run("exec", "--on", "web1", "--", "echo", "again").stdout == "again\n"
