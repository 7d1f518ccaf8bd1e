"""What `explain` names and `simulate` foretells, where several jobs want the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import until
from tests.system.gates import Gate, delay, until_running

from ganger import Client, JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.passes_on

NODE = {"node": {"exclusive": ["n1"]}}
PAUSE_ALL: dict[str, Any] = {"action": "PAUSE", "predicates": []}


def until_waiting(client: Client, job_id: int) -> None:
    until(client, [job_id], JobStatus.WAITING)


def with_lock(opcode: dict[str, Any]) -> dict[str, Any]:
    return {**opcode, "locks": NODE}


def lock_job() -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": NODE}


def running_and_waiting(client: Client, gate: Gate, waiters: int) -> tuple[int, Sequence[int]]:
    """A job that holds a lock, and others that wait for it, in line."""
    holder = client.submit([with_lock(gate.job()), delay()])
    until_running(client, holder)
    waiting = []
    for _ in range(waiters):
        waiting.append(client.submit(lock_job()))
        until_waiting(client, waiting[-1])
    return holder, waiting


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_jobs_that_have_begun_are_simulated_too(client: Client, gate: Gate) -> None:
    holder, [waiter] = running_and_waiting(client, gate, 1)
    now = client.simulate()
    assert (now.start, now.granted, now.paused, now.counts) == ([], [], [], {"lock": 1})
    [waiting] = now.waiting
    assert (waiting.id, waiting.kind) == (waiter, "lock")
    assert waiting.text == f"waits for node/n1 (exclusive), held by {holder}"
    ended = client.simulate(ended={holder: "success"})
    assert (ended.granted, ended.counts) == ([waiter], {})
    paused = client.simulate(rule=PAUSE_ALL, ended={holder: "success"})
    assert (paused.granted, paused.paused, paused.waiting) == ([], [waiter], [])
    assert sorted(client.simulate(rule=PAUSE_ALL).paused) == [holder, waiter]
    # And so it comes.
    rule = client.add_filter(**PAUSE_ALL)
    gate.let_through()
    for job_id in (holder, waiter):
        until(client, [job_id], JobStatus.QUEUED)
    client.delete_filter(rule)
    assert {job.status for job in client.wait(holder, waiter)} == {JobStatus.SUCCESS}


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_job_sent_back_from_the_line_for_a_lock_names_every_rule_that_holds_it(
    client: Client, gate: Gate
) -> None:
    holder, [waiter] = running_and_waiting(client, gate, 1)
    predicates = [["jobid", ["=", "id", waiter]]]
    rules = [
        client.add_filter(action="PAUSE", predicates=predicates, reason=reason, priority=priority)
        for priority, reason in enumerate(("first", "second"))
    ]
    until(client, [waiter], JobStatus.QUEUED)
    why = client.explain(waiter)
    assert [(one.kind, one.rule) for one in why.obstacles] == [("rule", rule) for rule in rules]
    assert "reason: second" in why.obstacles[1].text
    assert why.remedy.rules == rules
    for rule in rules:
        client.delete_filter(rule)
    gate.let_through()
    client.wait(holder, waiter)


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_job_behind_others_that_want_the_same_lock_gets_the_priority_that_puts_it_first(
    client: Client, gate: Gate
) -> None:
    holder, [first, second] = running_and_waiting(client, gate, 2)
    why = client.explain(second)
    assert why.text == (
        f"job {second} is waiting: it waits for node/n1 (exclusive), "
        f"wanted earlier by job {first} and held (exclusive) by job {holder}"
    )
    assert why.change == (
        f"job {holder} ends, or gives the lock back; "
        "and those before it have had their turn, or it has priority -1 or better"
    )
    client.set_priority(second, -1)
    assert client.explain(second).change == f"job {holder} ends, or gives the lock back"
    assert client.simulate(ended={holder: "success"}).granted == [second]
    gate.let_through()
    ends = {job.id: job.ended or 0.0 for job in client.wait(holder, first, second)}
    assert 0.0 < ends[second] <= ends[first]


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_job_behind_one_that_wants_or_has_a_whole_level_names_that_one(
    client: Client, gate: Gate
) -> None:
    holder = client.submit(with_lock(gate.job()))
    until_running(client, holder)
    every = client.submit(gate.job(locks={"node": {"exclusive": ["*"]}}))
    until_waiting(client, every)
    behind = client.submit(lock_job() | {"locks": {"node": {"exclusive": ["n7"]}}})
    until_waiting(client, behind)
    waits = f"job {behind} is waiting: it waits for node/n7 (exclusive), "
    assert client.explain(behind).text == f"{waits}wanted earlier by job {every}"
    gate.let_through()
    until_running(client, every)
    assert client.explain(behind).text == f"{waits}held (exclusive) by job {every}"
    gate.let_through()
    assert {job.status for job in client.wait(holder, every, behind)} == {JobStatus.SUCCESS}


def test_a_job_behind_others_at_a_limit_gets_the_priority_that_puts_it_first(
    client: Client, gate: Gate
) -> None:
    limit = "rate-limit:1:evacuation"
    running = client.submit(gate.job(), reason=limit)
    until_running(client, running)
    first, second = (client.submit(gate.job(), reason=limit) for _ in range(2))
    why = client.explain(second)
    assert f"before it waits for that: job {first}" in why.text
    assert (why.priority, why.ahead) == (0, 1)
    assert why.change == (
        f"job {running} ends; and those before it have had their turn, "
        "or it has priority -1 or better"
    )
    assert client.simulate(ended={running: "success"}).start == [first]
    assert client.simulate(ended={running: "success"}, priorities={second: -1}).start == [second]
    client.set_priority(second, -1)
    gate.let_through()
    until_running(client, second)
    assert client.job(first).status is JobStatus.QUEUED
    gate.let_through(2)
    client.wait(running, first, second)


def test_rules_one_behind_the_other_are_all_named(client: Client) -> None:
    rules = [client.add_filter(action="PAUSE", priority=priority) for priority in (1, 2)]
    job_id = client.submit(delay())
    why = client.explain(job_id)
    assert [one.rule for one in why.obstacles] == rules
    assert why.change == (
        f"filter rule {rules[0]} is deleted and filter rule {rules[1]} is deleted, "
        "or an ACCEPT rule with a priority below 1"
    )
    client.delete_filter(rules[0])
    assert client.job(job_id).status is JobStatus.QUEUED
    client.delete_filter(rules[1])
    [ended] = client.wait(job_id)
    assert ended.status is JobStatus.SUCCESS
