"""Queries over a running daemon: by the client, by the command, before and after a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate, until_running

from ganger import Client
from ganger.storage import errors

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
