"""Opcodes that need nothing but the configuration, run by a real daemon, through client and CLI.

Both placements are tried where a job waits for a lock or a component fails, and once beside that.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests import clusters
from tests.clusters import uuid_of
from tests.faults.harness import Daemon, process_of, stop, until, wait_for_end
from tests.programs import Program
from tests.system.gates import IN_BOTH_PLACEMENTS, Gate, end, statuses, until_running

from ganger import Client, JobStatus
from ganger.storage import config_files
from ganger.storage.alive import process_identity
from ganger.storage.jobs.job_views import OpInfo


@pytest.fixture(name="daemon")
def daemon_of_a_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A daemon that finds the configuration of a small cluster."""
    made = Daemon(tmp_path, placement=getattr(request, "param", None))
    made.data.mkdir()
    made.data.chmod(0o750)
    found = clusters.made_configuration(nodes=2, instances=2, groups=2)
    # A job that waits for a lock is to be seen with a process.
    found["cluster"]["predictive_queue"] = {"holds_back": False}
    config_files.write(made.places.config, found)
    with made as daemon:
        yield daemon


def tag(*tags: str, op_id: str = "OP_TAGS_SET", **fields: Any) -> dict[str, Any]:
    return {"OP_ID": op_id, "kind": "node", "name": "node0", "tags": list(tags), **fields}


def read_tags(**fields: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_TAGS_GET", "kind": "node", "name": "node0", **fields}


def results(client: Client, *ops: dict[str, Any]) -> list[Any]:
    """Run a job of these opcodes; their results."""
    job_id = client.submit(list(ops))
    client.wait(job_id, timeout=60)
    return [op.result for op in opcodes_of(client, job_id)]


def opcodes_of(client: Client, job_id: int) -> list[OpInfo]:
    found = client.job(job_id).ops
    assert found is not None
    return found


@IN_BOTH_PLACEMENTS
def test_a_job_changes_the_configuration_and_reads_it(client: Client) -> None:
    found = results(
        client, tag("b", "a"), read_tags(use_locking=True), tag("a", op_id="OP_TAGS_DEL")
    )
    assert found == [None, ["a", "b"], None]
    assert results(client, {"OP_ID": "OP_TAGS_SEARCH", "pattern": "^b$"}) == [
        [["/nodes/node0.example.com", "b"]]
    ]
    [node] = client.objects("nodes", "node0.example.com")
    assert node["tags"] == ["b"]
    newest, _ = client.config_history(count=2)
    assert (newest.who, newest.why) == ("job 1", "TAGS_DEL")


def test_prerequisites_fail_a_job_with_text_and_kind(client: Client) -> None:
    found = results(client, tag("a", name="nosuch"), tag("a"))
    assert found == [
        ["OpPrereqError", ["Node 'nosuch' not known", "unknown_entity"]],
        ["OpExecError", ["Preceding opcode failed"]],
    ]
    assert results(client, tag("a", op_id="OP_TAGS_DEL")) == [
        ["OpPrereqError", ["Tag(s) 'a' not found", "unknown_entity"]]
    ]
    assert results(client, tag("a b")) == [["TagError", ["Tag contains invalid characters"]]]
    [node] = client.objects("nodes", "node0.example.com")
    assert node["tags"] == []


def test_a_dry_run_through_the_command_line_changes_nothing(daemon: Daemon, client: Client) -> None:
    daemon.run("job", "submit", "--op", json.dumps(tag("a", dry_run=True)), "--wait")
    [entry] = opcodes_of(client, 1)[0].log
    assert "dry-run mode requested, not actually executing the operation" in str(entry)
    [node] = client.objects("nodes", "node0.example.com")
    assert node["tags"] == []


@IN_BOTH_PLACEMENTS
def test_settings_of_the_cluster_are_in_force_when_their_job_has_ended(
    daemon: Daemon, client: Client, gate: Gate
) -> None:
    settings = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "max_running_jobs": 1, "beparams": {"vcpus": 2}}
    daemon.run("job", "submit", "--op", json.dumps(settings), "--wait")
    assert client.limits().running_jobs_max == 1
    assert client.objects("cluster")[0]["beparams"]["default"]["vcpus"] == 2
    running = client.submit(gate.job())
    until_running(client, running)
    pending = client.submit(gate.job())
    # The one run slot is taken: a setting that waits behind them is carried out last.
    last = client.submit({**settings, "max_running_jobs": 2})
    assert statuses(client, running, pending, last) == ["running", "queued", "queued"]
    gate.let_through(2)
    assert end(client, last) == {last: JobStatus.SUCCESS}


def test_settings_that_contradict_the_configuration_are_refused(client: Client) -> None:
    before = client.objects("cluster")
    op_id = "OP_CLUSTER_SET_PARAMS"
    found = results(client, {"OP_ID": op_id, "enabled_hypervisors": ["fake"]})
    [[name, [text]]] = found
    assert name == "ConfigurationError"
    assert "there is no enabled hypervisor kvm" in text
    assert results(client, {"OP_ID": op_id, "master_netdev": "eth7", "max_running_jobs": 7}) == [
        [
            "OpPrereqError",
            [
                (
                    "master_netdev: this system cannot move the master's IP address, so it stays as"
                    " it is"
                ),
                "wrong_input",
            ],
        ]
    ]
    assert client.objects("cluster") == before


def test_settings_wait_for_a_job_that_holds_a_node(client: Client, gate: Gate) -> None:
    holder = client.submit(gate.job(locks={"node": {"exclusive": [uuid_of("nodes", 0)]}}))
    until_running(client, holder)
    waiting = client.submit({"OP_ID": "OP_CLUSTER_SET_PARAMS", "maintain_node_health": True})
    until(client, waiting, JobStatus.WAITING)
    gate.let_through()
    assert end(client, waiting) == {waiting: JobStatus.SUCCESS}
    assert client.objects("cluster")[0]["maintain_node_health"] is True


def test_the_cluster_is_described_and_verified_by_jobs(client: Client) -> None:
    [described, values, is_whole] = results(
        client,
        {"OP_ID": "OP_CLUSTER_QUERY"},
        {"OP_ID": "OP_CLUSTER_CONFIG_QUERY", "output_fields": ["cluster_name", "drain_flag"]},
        {"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"},
    )
    assert (described["name"], described["master"]) == ("cluster.example.com", "node0.example.com")
    assert values == ["cluster.example.com", False]
    assert is_whole is True
    found = results(client, {"OP_ID": "OP_CLUSTER_CONFIG_QUERY", "output_fields": ["nosuch"]})
    assert found == [
        ["OpPrereqError", ["Unknown output fields selected: nosuch", "wrong_input"]],
    ]


@IN_BOTH_PLACEMENTS
def test_an_opcode_waits_for_the_locks_that_the_configuration_names(
    client: Client, gate: Gate
) -> None:
    holder = client.submit(gate.job(locks={"node": {"exclusive": [uuid_of("nodes", 0)]}}))
    until_running(client, holder)
    waiting = client.submit(tag("a"))
    other = client.submit(tag("a", name="node1"))
    until(client, waiting, JobStatus.WAITING)
    assert end(client, other) == {other: JobStatus.SUCCESS}
    assert client.job(waiting).status is JobStatus.WAITING
    gate.let_through()
    assert end(client, holder, waiting) == dict.fromkeys([holder, waiting], JobStatus.SUCCESS)


def test_an_opcode_whose_object_went_while_it_waited_is_refused(client: Client, gate: Gate) -> None:
    holder = client.submit(gate.job(locks={"node": {"exclusive": [uuid_of("nodes", 0)]}}))
    until_running(client, holder)
    waiting = client.submit(tag("a"))
    until(client, waiting, JobStatus.WAITING)
    client.set_values("nodes", "node0.example.com", {"name": "renamed.example.com"}, why="a test")
    gate.let_through()
    client.wait(waiting, timeout=60)
    [op] = opcodes_of(client, waiting)
    assert op.result == ["OpPrereqError", ["Node 'node0' not known", "unknown_entity"]]


def test_delays_lock_their_nodes_as_all_other_opcodes_do(client: Client) -> None:
    uuid = uuid_of("nodes", 0)
    for name in ("node0", "node0.example.com", uuid):
        delay = {"OP_ID": "OP_TEST_DELAY", "duration": 60.0, "on_nodes": [name, "elsewhere"]}
        first = client.submit({**delay, "on_master": False})
        until_running(client, first)
        locks = {"node": {"exclusive": [uuid]}}
        second = client.submit({"OP_ID": "OP_EXEC", "argv": ["true"], "locks": locks})
        until(client, [second], JobStatus.WAITING)
        held = {row.name for row in client.locks() if row.owners}
        assert {f"node/{uuid}", "node/elsewhere"} <= held
        ops = client.job(first).ops or []
        assert sorted(ops[0].input["on_node_uuids"]) == sorted([uuid, "elsewhere"])
        client.cancel(first, kill=True)
        client.wait(second, timeout=60)
        assert statuses(client, second) == ["success"]


HOLDER = """
import os, sys
from ganger import Client
from ganger.storage.alive import lock_files
from ganger.storage.disk import paths
from ganger.storage import settings
from ganger.storage.locks.locks import CONFIG_LOCK, Owner
from ganger.transport import messages

places = paths.places(sys.argv[1])
held = lock_files.create(places.lock_files, "program")
owner = Owner("program", held.path, os.getpid())
with Client(places.data) as client:
    tried = client._caller.call(messages.TryLocks(owner, [(CONFIG_LOCK, "exclusive")]), 30)
    print(tried.blockers, flush=True)
    sys.stdin.readline()
"""


@IN_BOTH_PLACEMENTS
@pytest.mark.parametrize("is_killed", [False, True])
def test_changes_wait_for_a_program_that_holds_the_configuration_and_reads_do_not(
    daemon: Daemon, client: Client, *, is_killed: bool
) -> None:
    with Program(HOLDER, daemon.data) as program:
        assert program.line == "[]"
        job_id = client.submit([tag("a"), tag("a", op_id="OP_TAGS_DEL")])
        until_running(client, job_id)
        assert results(client, read_tags()) == [[]]
        if is_killed:
            daemon.replace_killed()
        with daemon.client() as successor:
            assert successor.job(job_id).status is JobStatus.RUNNING
            program.end()
            assert end(successor, job_id) == {job_id: JobStatus.SUCCESS}
            assert len(successor.config_history(count=9)) == 2


@IN_BOTH_PLACEMENTS
def test_a_job_that_died_while_its_change_waited_changes_nothing(
    daemon: Daemon, client: Client
) -> None:
    with Program(HOLDER, daemon.data) as program:
        job_id = client.submit(tag("a"))
        until_running(client, job_id)
        os.kill(process_of(client, job_id), signal.SIGKILL)
        assert end(client, job_id) == {job_id: JobStatus.ERROR}
        program.end()
    # This change stands behind it in line.
    assert results(client, tag("b")) == [None]
    assert results(client, read_tags()) == [["b"]]


@IN_BOTH_PLACEMENTS
@pytest.mark.parametrize("how", ["killed", "crash"])
def test_a_job_goes_on_with_a_successor_of_the_daemon(
    daemon: Daemon, client: Client, gate: Gate, how: str
) -> None:
    held = {"node": {"exclusive": [uuid_of("nodes", 0)]}}
    holder = client.submit(gate.job(locks=held))
    until_running(client, holder)
    waiting = client.submit([tag("a"), tag("a", op_id="OP_TAGS_DEL"), tag("b")])
    until(client, waiting, JobStatus.WAITING)
    if how == "killed":
        daemon.replace_killed()
    else:
        daemon.crash("config_store")
    gate.let_through()
    with daemon.client() as successor:
        assert end(successor, waiting) == {waiting: JobStatus.SUCCESS}
        [node] = successor.objects("nodes", "node0.example.com")
        assert node["tags"] == ["b"]
        assert [entry.who for entry in successor.config_history(count=9)] == [f"job {waiting}"] * 3


@IN_BOTH_PLACEMENTS
@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_opcode_runs_twice_when_daemons_are_killed(daemon: Daemon, *, is_stopped: bool) -> None:
    rounds = 30
    ops = [tag(f"t{n}") for n in range(rounds)]
    # Each removal would fail if it ran twice.
    ops += [tag(f"t{n}", op_id="OP_TAGS_DEL") for n in range(rounds)]
    with daemon.client() as client:
        job_id = client.submit(ops)
        until_running(client, job_id)
        pid = client.info().pid
    ended = process_identity.open_pidfd(pid)
    if is_stopped:
        stop(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(ended)
    daemon.up()
    with daemon.client() as client:
        client.wait(job_id, timeout=60)
        assert client.job(job_id).status is JobStatus.SUCCESS
        history = [one for one in client.config_history(count=500) if one.who == f"job {job_id}"]
        assert len(history) == 2 * rounds
