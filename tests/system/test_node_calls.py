"""Calls of nodes by name: from plans, and from operations in Python."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.clusters import made_configuration
from tests.faults.harness import Daemon, wait_until_true
from tests.system.hosts import joined_host, running_tasks, until_there

from ganger.storage import config_files, errors
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.version import version
from ganger.transport.messages import ObjectChange

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.hosts import Host

    from ganger import Client


def result_of(client: Client, **fields: Any) -> Any:
    """The result of a call of nodes; `JobFailedError` if it fails."""
    job_id = client.submit({"OP_ID": "OP_NODE_CALL", **fields})
    client.wait(job_id)
    [op] = client.job(job_id).ops or []
    return op.result


@pytest.mark.usefixtures("host")
def test_a_node_answers_calls_by_name(client: Client, tmp_path: Path) -> None:
    until_there(client, "web1")
    assert result_of(client, node="web1", call="version") == {"version": version(), "protocol": 1}
    both = result_of(client, nodes=["web1"], call="node_info", arguments={"paths": ["/", "/no"]})
    info = both["web1"]
    assert info["memory_total"] > info["memory_free"] > 0
    assert [one["problem"] for one in info["storage"]] == ["", "No such file or directory"]
    path = tmp_path / "uploaded"
    arguments = {"path": str(path), "content": "aGVsbG8K", "mode": 0o640}
    stored = result_of(client, node="web1", call="upload_file", arguments=arguments)
    assert (path.read_text(), stored["size"], path.stat().st_mode & 0o777) == ("hello\n", 6, 0o640)
    found = result_of(client, node="web1", call="get_file_info", arguments={"path": str(path)})
    assert (found["exists"], found["kind"], found["size"], found["mode"]) == (
        True,
        "file",
        6,
        0o640,
    )


@pytest.mark.usefixtures("host")
def test_what_a_node_does_not_answer_is_one_line_that_names_it(client: Client) -> None:
    until_there(client, "web1")
    for fields, told in (
        (
            {"call": "reboot"},
            "web1: there is no call 'reboot'; calls of this host: get_",
        ),
        ({"call": "node_info", "arguments": {"path": "/"}}, "web1: call 'node_info': Object "),
        (
            {"call": "test_delay", "arguments": {"duration": 60}, "timeout": 0.2},
            "web1: call 'test_delay' has not answered within 0.2 s, and was ended",
        ),
    ):
        name, [text, *_] = result_of(client, node="web1", **fields)
        assert text.startswith(told), (name, text)
    for node, told in (("web7", "no host has joined as 'web7'; nodes: "), ("", "node")):
        with pytest.raises(errors.OpcodeError, match=told):
            client.submit({"OP_ID": "OP_NODE_CALL", "call": "version", "nodes": [node]})


def test_a_node_refuses_the_calls_that_its_settings_do_not_name(client: Client, host: Host) -> None:
    until_there(client, "web1")
    host.places.node_settings.write_text('[tasks]\ncalls = ["node_info"]\n')
    assert result_of(client, node="web1", call="version") == [
        "OpExecError",
        ["web1: call 'version' may not be made: the host's node.toml does not allow it (calls)"],
    ]
    assert "memory_total" in result_of(client, node="web1", call="node_info")


@pytest.mark.usefixtures("host")
def test_a_command_on_several_nodes_gives_the_result_of_each(
    daemon: Daemon, client: Client, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "host2", "web2", is_first=False):
        for name in ("web1", "web2"):
            until_there(client, name)
        argv = ["sh", "-c", "echo $GANGER_NODE; test $GANGER_NODE = web1"]
        command = {"OP_ID": "OP_EXEC", "argv": argv, "nodes": ["web1", "web2"]}
        [job] = client.wait(client.submit(command))
        assert job.outcome == "failed"
        [op] = client.job(job.id).ops or []
        _, [text, found] = op.result
        assert text == "web2: command exited with code 1"
        assert found["results"]["web1"]["stdout_tail"] == "web1\n"


def test_a_delay_on_nodes_runs_where_hosts_have_joined(client: Client, host: Host) -> None:
    until_there(client, "web1")
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.3, "on_master": False, "on_nodes": ["web1"]}
    [job] = client.wait(client.submit(delay))
    assert job.outcome == "success", job.reason_ended
    with host.client() as there:
        [task] = there.jobs()
    assert (task.outcome, task.summary) == ("success", "NODE_CALL(test_delay)")
    # Nodes without a host wait here, as they did.
    [job] = client.wait(client.submit({**delay, "on_nodes": ["elsewhere"], "duration": 0.01}))
    assert job.outcome == "success", job.reason_ended


@pytest.mark.usefixtures("host")
def test_a_node_that_has_never_joined_is_told_at_once(client: Client) -> None:
    """A node of the configuration, as one that came from Ganeti, has no host."""
    [web1] = client.objects("nodes")
    other = {**web1, "name": "old1", "uuid": "0a5e2a6c-54cf-4f93-8a5a-8a0a4a3b2c1d"}
    other["primary_ip"] = other["secondary_ip"] = "192.0.2.1"
    other.pop("serial_no", None)
    change = ObjectChange(kind=ObjectKind.NODE, uuid=other["uuid"], object=other, serial_no=0)
    client.change_objects(change, why="a node from Ganeti")
    assert result_of(client, node="old1", call="version") == [
        "OpPrereqError",
        ["old1: there is no node 'old1'; nodes that have joined: web1"],
    ]


def test_the_tasks_of_a_job_whose_process_dies_end_before_its_locks_are_free(
    daemon: Daemon, client: Client, host: Host, tmp_path: Path
) -> None:
    with joined_host(daemon, tmp_path / "host2", "web2", is_first=False) as host2:
        for name in ("web1", "web2"):
            until_there(client, name)
        command = {"OP_ID": "OP_EXEC", "argv": ["sleep", "600"], "nodes": ["web1", "web2"]}
        job_id = client.submit(command)
        both = [host, host2]
        wait_until_true(lambda: [*map(running_tasks, both)] == [1, 1], "the tasks run")
        host2.kill()
        until_there(client, "web2", is_there=False)
        os.kill(client.job(job_id).process_id or 0, signal.SIGKILL)
        wait_until_true(lambda: running_tasks(host) == 0, "the task of the one is ended")
        [waiting] = client.jobs([job_id])
        assert waiting.status == "running"
        assert [row for row in client.locks() if row.owners]
        host2.up()
        [ended] = client.wait(job_id)
        assert ended.reason_ended.count("the command on web") == 2, ended.reason_ended
        assert running_tasks(host2) == 0
        wait_until_true(lambda: not client.locks(), "the locks are free")


def test_without_any_host_a_node_of_the_configuration_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    config_files.write(
        tmp_path / "data/config.data", made_configuration(nodes=2, instances=0, groups=1)
    )
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        told = "there is no node 'node1.example.com'; nodes that have joined: none"
        for opcode in (
            {"OP_ID": "OP_EXEC", "argv": ["true"]},
            {"OP_ID": "OP_NODE_CALL", "call": "version"},
            {"OP_ID": "OP_NODE_COPY", "content": "", "path": "/nowhere/x"},
        ):
            [job] = client.wait(client.submit({**opcode, "node": "node1.example.com"}), timeout=30)
            assert told in job.reason_ended
        delay = {"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_nodes": ["node1.example.com"]}
        [job] = client.wait(client.submit(delay), timeout=30)
        assert job.outcome == "success"
