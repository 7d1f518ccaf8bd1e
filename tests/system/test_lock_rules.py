"""Rules on locks hold each job that touches a node, wherever the job stands."""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.harness import Daemon
from tests.system.gates import Gate, end, run_by, shell, statuses, until_running

from ganger import Client, JobStatus
from ganger.storage import errors

pytestmark = pytest.mark.passes_on

SUCCESS, CANCELED = JobStatus.SUCCESS, JobStatus.CANCELED
ON_N7 = ["lock", ["=", "touches", "node/n7"]]

TOUCHING: dict[str, dict[str, Any]] = {
    "it takes node/n7 (exclusive)": {"node": {"exclusive": ["n7"]}},
    "it takes node/n7 (shared)": {"node": {"exclusive": ["n6"], "shared": ["n7"]}},
    "it takes every node lock (exclusive)": {"node": {"exclusive": ["*"]}},
    "it takes every node lock (shared)": {"node": {"shared": ["*"]}},
    "it takes node-res/n7 (exclusive)": {"node-res": {"exclusive": ["n7"]}},
}
OTHERS: list[dict[str, Any]] = [
    {},
    {"node": {"exclusive": ["n70"]}},
    {"instance": {"exclusive": ["n7"]}},
    {"nodegroup": {"shared": ["*"]}},
    {"cluster": {"shared": ["BGL"]}},
]
ALONE = {"cluster": {"exclusive": ["BGL"]}}


def command(locks: dict[str, Any]) -> dict[str, Any]:
    return shell("true") | ({"locks": locks} if locks else {})


def test_a_job_that_touches_the_node_is_held_and_why_names_its_lock(client: Client) -> None:
    rule = client.add_filter(predicates=[ON_N7], action="PAUSE", reason="new memory")
    held = {words: client.submit(command(locks)) for words, locks in TOUCHING.items()}
    alone = client.submit(command(ALONE))
    # What nodes these lock, the configuration says.
    resolved, other = (
        client.submit(
            {"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": False, "on_nodes": [node]}
        )
        for node in ("n7", "n8")
    )
    end(client, other, *(client.submit(command(locks)) for locks in OTHERS))
    everyone = [*held.values(), alone, resolved]
    assert statuses(client, *everyone) == ["queued"] * len(everyone)
    for words, job_id in held.items():
        assert client.explain(job_id).text.endswith(f"reason: new memory): {words}")
    assert client.explain(alone).text.endswith(": it takes every node lock (exclusive)")
    assert client.explain(resolved).text.endswith(": it takes node/n7 (exclusive)")
    client.delete_filter(rule)
    assert set(end(client, *everyone).values()) == {SUCCESS}


def test_a_rule_that_rejects_by_locks_refuses_submissions(client: Client) -> None:
    client.add_filter(predicates=[ON_N7], action="REJECT", reason="it is gone")
    for locks in (*TOUCHING.values(), ALONE):
        with pytest.raises(errors.RejectedError, match="it is gone"):
            client.submit(command(locks))
    end(client, *(client.submit(command(locks)) for locks in OTHERS))


@pytest.mark.parametrize(
    ("predicate", "node", "others"),
    [(ON_N7, "n7", {}), (["!", ON_N7], "n8", {"node": {"shared": ["*"]}})],
)
def test_a_job_pauses_between_opcodes_and_goes_on_after_a_restart(
    daemon: Daemon,
    client: Client,
    gate: Gate,
    predicate: list[Any],
    node: str,
    others: dict[str, Any],
) -> None:
    locks = {"node": {"exclusive": [node]}}
    job = client.submit([gate.job(), command(locks)])
    until_running(client, job)
    rule = client.add_filter(predicates=[predicate], action="PAUSE")
    gate.let_through()
    running = client.watch(job, log=False)
    assert "queued" in (str(part.status) for part in running if hasattr(part, "status"))
    daemon.replace_killed()
    end(client, client.submit(command(others)))
    assert statuses(client, job) == ["queued"]
    client.delete_filter(rule)
    assert end(client, job) == {job: SUCCESS}


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_job_that_waits_for_the_lock_with_a_process_goes_back_to_the_queue(
    client: Client, gate: Gate
) -> None:
    holder = client.submit(gate.job(locks={"node": {"exclusive": ["n7"]}}))
    until_running(client, holder)
    waiting = client.submit(command({"node": {"exclusive": ["n7"]}}))
    seen = client.watch(waiting, log=False)
    assert "waiting" in (str(part.status) for part in seen if hasattr(part, "status"))
    rule = client.add_filter(predicates=[ON_N7], action="PAUSE")
    assert "queued" in (str(part.status) for part in seen if hasattr(part, "status"))
    gate.let_through()
    assert end(client, holder) == {holder: SUCCESS}
    run_by(client)
    assert statuses(client, waiting) == ["queued"]
    client.delete_filter(rule)
    assert end(client, waiting) == {waiting: SUCCESS}


def test_a_limit_by_locks_counts_the_jobs_that_touch_them(client: Client, gate: Gate) -> None:
    client.add_filter(predicates=[ON_N7], action=["RATE_LIMIT", 1])
    shared = {"node": {"shared": ["n7"]}}
    first = client.submit(gate.job(locks=shared))
    until_running(client, first)
    second = client.submit(gate.job(locks={"node": {"shared": ["*"]}}))
    end(client, client.submit(command({"node": {"shared": ["n8"]}})))
    assert statuses(client, first, second) == ["running", "queued"]
    gate.let_through(2)
    assert set(end(client, first, second).values()) == {SUCCESS}


def test_a_simulated_rule_on_locks_tells_what_it_would_hold(client: Client, gate: Gate) -> None:
    touching = client.submit(gate.job(locks={"node": {"shared": ["*"]}}))
    other = client.submit(gate.job(locks={"node": {"shared": ["n8"]}}))
    until_running(client, touching, other)
    rows = client.test_filters({"predicates": [ON_N7], "action": "PAUSE"})
    assert {row.id: row.then is not None for row in rows} == {touching: True, other: False}
    gate.let_through(2)
    end(client, touching, other)


# Names.


def test_a_name_stands_for_the_uuid_everywhere(daemon: Daemon, client: Client) -> None:
    uuid = client.add_filter(predicates=[ON_N7], action="PAUSE", name="work on n7", reason="memory")
    held = client.submit(command({"node": {"shared": ["n7"]}}))
    run_by(client)
    why = daemon.run("job", "why", str(held)).stdout
    assert "paused by the rule 'work on n7' (memory): it takes node/n7 (shared)" in why
    assert "`ganger filter delete 'work on n7'`" in why
    assert [row.uuid for row in client.filters(["work on n7"])] == [uuid]
    assert {row.then for row in client.test_filters(without="work on n7")} == {None}
    assert client.simulate(without="work on n7").start == [held]
    proposed = {"uuid": "work on n7", "action": "ACCEPT"}
    assert {row.then for row in client.test_filters(proposed)} == {(uuid, "ACCEPT")}
    assert daemon.run("filter", "info", "work on n7").stdout.startswith(f"UUID: {uuid}\n  Name: w")
    assert client.replace_filter("work on n7", action="CONTINUE") == uuid
    daemon.replace_killed()
    [row] = client.filters(["work on n7"])
    assert (row.action, row.name) == ("CONTINUE", "work on n7")
    assert client.replace_filter("work on n7", name="n7") == uuid
    assert daemon.run("filter", "delete", "n7").stdout == "Filter rule n7 is deleted\n"
    assert client.filters() == []


def test_a_name_that_is_taken_or_unknown_is_refused(client: Client) -> None:
    first = client.add_filter(name="nightly", key="once")
    # A repetition under the same key is no second rule.
    assert client.add_filter(name="nightly", key="once") == first
    with pytest.raises(errors.FilterRuleError, match=f"'nightly' is the name of the rule {first}"):
        client.add_filter(name="nightly")
    with pytest.raises(errors.FilterRuleError, match=r"^uuid: Unable to parse UUID"):
        client.replace_filter("weekly")
    for request in (client.delete_filter, lambda name: client.filters([name])):
        with pytest.raises(errors.UnknownFilterError, match="the UUID or name 'weekly'"):
            request("weekly")
    with pytest.raises(errors.UnknownFilterError, match="there is no rule weekly"):
        client.test_filters(without="weekly")
    assert [row.uuid for row in client.filters()] == [first]


def test_a_rule_that_is_first_decides_before_older_ones(client: Client) -> None:
    client.add_filter(action="ACCEPT")
    held = client.add_filter(action="PAUSE", first=True, predicates=[ON_N7])
    job = client.submit(command({"node": {"shared": ["n7"]}}))
    end(client, client.submit(command({})))
    assert statuses(client, job) == ["queued"]
    assert client.filters()[0].uuid == held
