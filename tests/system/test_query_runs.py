"""Queries over a running daemon: by the client, by the command, before and after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import clusters
from tests.faults.harness import Daemon, until
from tests.system.gates import Gate, until_running

from ganger import Client, JobStatus
from ganger.storage import config_files, errors, settings

pytestmark = pytest.mark.passes_on

NODE = {"node": {"exclusive": ["a"]}}
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": False}


def values(client: Client, what: str, fields: list[str], raw_filter: Any = None) -> list[list[Any]]:
    """The values of an answer, all of which are known."""
    data = client.query(what, fields, raw_filter).data
    assert {status for row in data for status, _ in row} <= {0}
    return [[value for _, value in row] for row in data]


def test_jobs_locks_and_the_configuration_are_queried(client: Client, gate: Gate) -> None:
    done = client.submit([DELAY, DELAY])
    client.wait(done, timeout=60)
    holder = client.submit(gate.job(locks=NODE))
    until_running(client, holder)
    waiter = client.submit(DELAY, depends=[holder])
    assert values(client, "job", ["id", "status", "opstatus"]) == [
        [done, "success", ["success", "success"]],
        [holder, "running", ["running"]],
        [waiter, "waiting", ["waiting"]],
    ]
    assert values(client, "job", ["id"], 'status == "running"') == [[holder]]
    assert values(client, "lock", ["name", "mode", "owner", "pending"]) == [
        ["cluster/BGL", "shared", [str(holder)], []],
        ["cluster/[lockset]", None, [], []],
        [f"job/{holder}", None, [], [["success", [f"job/{waiter}"]]]],
        ["node/[lockset]", None, [], []],
        ["node/a", "exclusive", [str(holder)], []],
    ]
    client.set_values("cluster", "", {"tags": ["web"]})
    fields = ["name", "tags", "drain_flag"]
    assert values(client, "cluster", fields) == [["ganger", ["web"], False]]
    client.drain()
    assert values(client, "cluster", ["drain_flag"]) == [[True]]
    assert values(client, "node", ["name"]) == []
    gate.let_through()
    client.wait(waiter, timeout=60)


def test_archived_jobs_are_found_by_id_and_listed_on_request(client: Client) -> None:
    ids = [client.submit(DELAY) for _ in range(3)]
    client.wait(*ids, timeout=60)
    client.archive(ids[1])
    assert values(client, "job", ["id", "end_ts"])[1][0] == ids[2]
    assert values(client, "job", ["id", "archived"]) == [
        [ids[0], False],
        [ids[1], True],
        [ids[2], False],
    ]
    assert values(client, "job", ["status"], f"id == {ids[1]}") == [["success"]]


def test_an_answer_of_many_pages_is_whole(daemon: Daemon, client: Client) -> None:
    big = {"OP_ID": "OP_EXEC", "argv": ["true"], "env": {"A": "x" * 100_000}}
    uuid = client.add_filter(action="PAUSE")
    ids = client.submit_many([[big]] * 30)
    answer = client.query("job", ["id", "ops"])
    assert [row[0][1] for row in answer.data] == ids
    assert all(row[1][1][0]["env"] == big["env"] for row in answer.data)
    daemon.crash("job_queue")
    assert client.query("job", ["id", "ops"]) == answer
    client.delete_filter(uuid)


def test_wrong_queries_are_refused_by_name(client: Client) -> None:
    for what, fields, raw_filter, error, text in (
        ("disk", ["name"], None, errors.BadRequestError, "what: 'disk': expected one of cluster"),
        ("job", ["id"], ["==", "x", 1], errors.ParameterError, "Can't find field named 'x'"),
        ("job", ["id"], ["?", "id"], errors.ParameterError, "Unexpected value"),
        ("node", ["name"], 'name == "n"', errors.UnknownObjectError, "Node name n not found"),
    ):
        client.submit(DELAY)
        with pytest.raises(error) as refused:
            client.query(what, fields, raw_filter)
        assert refused.value.text.startswith(text)


def test_the_command_shows_what_the_client_gets(daemon: Daemon, client: Client) -> None:
    job_id = client.submit(DELAY)
    client.wait(job_id, timeout=60)
    shown = daemon.run("query", "job", "--filter", 'status == "success"', "-o", "json")
    assert json.loads(shown.stdout) == [
        {"id": job_id, "status": "success", "summary": ["TEST_DELAY(1000000 ns)"]}
    ]
    fields = json.loads(daemon.run("query-fields", "job", "-o", "json").stdout)
    assert fields == [
        {"name": one.name, "title": one.title, "kind": one.kind, "doc": one.doc}
        for one in client.query_fields("job")
    ]


# ---------------------------------------------------------------- opcodes


@pytest.fixture(name="cluster")
def daemon_of_a_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
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


IN_BOTH = pytest.mark.parametrize("cluster", settings.PLACEMENTS, indirect=True)


def asking(what: str, *fields: str, **more: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_QUERY", "what": what, "fields": list(fields), **more}


def results(client: Client, *ops: dict[str, Any]) -> list[Any]:
    """Run a job of these opcodes; their results."""
    job_id = client.submit(list(ops))
    client.wait(job_id, timeout=60)
    found = client.job(job_id).ops
    assert found is not None
    return [op.result for op in found]


@IN_BOTH
def test_jobs_ask_for_everything_that_queries_answer(cluster: Daemon) -> None:
    with cluster.client() as client:
        uuid = client.add_filter(predicates=[["jobid", ["==", "id", 99]]], action="PAUSE")
        found = results(
            client,
            asking("job", "id", "status", "opstatus"),
            asking("node", "name", "pinst_cnt", qfilter=["==", "name", "node1"]),
            asking("instance", "name", qfilter=["=~", "name", "1"], use_locking=True),
            asking("group", "name", "node_cnt"),
            asking("network", "name"),
            asking("filter", "uuid", "action"),
            asking("cluster", "name", "drain_flag", "software_version"),
            asking("lock", "name", "owner", "mode", qfilter=["==", "name", "cluster/BGL"]),
            {"OP_ID": "OP_QUERY_FIELDS", "what": "lock", "fields": ["name", "bogus"]},
        )
        name = client.objects("cluster")[0]["cluster_name"]
        groups = client.query("group", ["name", "node_cnt"])
    assert [result["data"] for result in found[:-1]] == [
        [[[0, 1], [0, "running"], [0, ["running", *["queued"] * 8]]]],
        [[[0, "node1.example.com"], [0, 1]]],
        [[[0, "instance1.example.com"]]],
        [[list(pair) for pair in row] for row in groups.data],
        [[[0, "network0"]]],
        [[[0, uuid], [0, "PAUSE"]]],
        [[[0, name], [0, False], [0, "3.0.2"]]],
        [],
    ]
    assert [field["kind"] for field in found[-1]["fields"]] == ["other", "unknown"]


def test_a_query_of_a_job_fails_with_ganetis_errors(cluster: Daemon) -> None:
    with cluster.client() as client:
        for op, expected in (
            (
                asking("node", "name", qfilter=["==", "name", "x"]),
                ["OpPrereqError", ["Node name x not found", "unknown_entity"]],
            ),
            (
                asking("job", "id", qfilter=["==", "x", 1]),
                ["ParameterError", ["Can't find field named 'x'"]],
            ),
        ):
            assert results(client, op) == [expected]
        [[name, [text, code]]] = results(client, asking("os", "name"))
        assert (name, code) == ("OpPrereqError", "wrong_input")
        assert text.startswith("what: 'os': expected one of cluster, ")


@IN_BOTH
def test_a_query_with_locking_waits_for_the_nodes(cluster: Daemon, tmp_path: Path) -> None:
    with cluster.client() as client, Gate(tmp_path) as gate:
        holder = client.submit(gate.job(locks={"node": {"exclusive": ["*"]}}))
        until_running(client, holder)
        waiter = client.submit(asking("node", "name", "mfree", use_locking=True))
        until(client, [waiter], JobStatus.WAITING)
        assert len(results(client, asking("node", "name", use_locking=True))[0]["data"]) == 2
        gate.let_through()
        assert client.wait(waiter, timeout=60)[0].status is JobStatus.SUCCESS


@IN_BOTH
def test_a_query_that_outlives_the_daemon_is_answered_by_its_successor(
    cluster: Daemon, tmp_path: Path
) -> None:
    with Gate(tmp_path) as gate, cluster.client() as client:
        job_id = client.submit([gate.job(), asking("job", "id", "status")])
        until_running(client, job_id)
        cluster.replace_killed()
        gate.let_through()
        [job] = client.wait(job_id, timeout=60)
        assert job.ops is not None
        assert job.ops[1].result["data"] == [[[0, job_id], [0, "running"]]]
