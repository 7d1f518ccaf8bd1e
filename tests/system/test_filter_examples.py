"""The examples of the job filter design document, as an operator would go through them.

Each test is one maintenance from its first rule to the end. The opcodes are those that have an
operation here: delays stand for whatever the maintenance is about, commands for all else.
"""

from __future__ import annotations

import pytest
from tests.system.gates import Gate, delay, end, shell, statuses, until_running

from ganger import Client, JobStatus
from ganger.storage import errors

SUCCESS, CANCELED = JobStatus.SUCCESS, JobStatus.CANCELED


def test_soft_drain_what_is_queued_finishes_and_what_comes_is_held(
    client: Client, gate: Gate
) -> None:
    # One job runs, and others wait for it.
    running = client.submit(gate.job())
    until_running(client, running)
    queued = client.submit_many([shell("true"), delay()], depends=[running])

    # "Finish what is there, and begin nothing that comes from now on."
    drain = client.add_filter(
        priority=0,
        predicates=[["jobid", [">", "id", "watermark"]]],
        action="PAUSE",
        reason="upgrade of the node software",
    )
    late = client.submit_many([shell("true"), delay()])
    urgent = client.submit(shell("true"), priority=-20)
    assert statuses(client, *late, urgent) == ["queued"] * 3

    # What was there comes to its end; there are free run slots, and what is late stays.
    gate.let_through()
    assert set(end(client, running, *queued).values()) == {SUCCESS}
    assert statuses(client, *late, urgent) == ["queued"] * 3

    # The upgrade is done.
    client.delete_filter(drain)
    assert set(end(client, *late, urgent).values()) == {SUCCESS}


def test_partial_drain_only_jobs_of_the_maintenance_are_admitted(
    client: Client, gate: Gate
) -> None:
    running = client.submit(gate.job(), reason="day to day")
    until_running(client, running)

    # Jobs of the maintenance first, then a stop for all others of this kind.
    admitted = client.add_filter(
        priority=0,
        predicates=[["reason", ["=~", "reason", "maintenance pink bunny"]]],
        action="ACCEPT",
        reason="maintenance pink bunny",
    )
    drain = client.add_filter(
        priority=1,
        predicates=[["opcode", ["=~", "OP_ID", "^OP_TEST_"]]],
        action="PAUSE",
        reason="maintenance pink bunny",
    )
    assert [row.uuid for row in client.filters()] == [admitted, drain]

    held = client.submit(delay(), reason="day to day")
    mixed = client.submit([shell("true"), delay()], reason="maintenance of something else")
    member = client.submit(delay(), reason="for maintenance pink bunny, step 2")
    command = client.submit(shell("true"), reason="day to day")
    assert end(client, member, command) == {member: SUCCESS, command: SUCCESS}
    assert statuses(client, running, held, mixed) == ["running", "queued", "queued"]

    # What a job does decides, and not when it came: the running one is no delay.
    gate.let_through()
    assert end(client, running) == {running: SUCCESS}
    client.delete_filter(drain)
    assert end(client, held, mixed) == {held: SUCCESS, mixed: SUCCESS}


def test_reject_new_instances_are_refused_with_the_reason(client: Client, gate: Gate) -> None:
    running = client.submit(gate.job())
    until_running(client, running)
    pending = client.submit(delay(), depends=[running])
    dependant = client.submit(shell("true"), depends=[pending])
    unconcerned = client.submit(shell("true"), depends=[running])

    no_more = client.add_filter(
        priority=1,
        predicates=[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]],
        action="REJECT",
        reason="no new instances until the storage is extended",
    )

    # No new job is accepted, and the error names the reason.
    with pytest.raises(errors.RejectedError) as refused:
        client.submit(delay())
    assert str(refused.value) == (
        f"the job is rejected by filter rule {no_more} "
        "(priority 1, reason: no new instances until the storage is extended)"
    )
    # Of a batch only the entries concerned are refused.
    with pytest.raises(errors.RejectedError) as refused:
        client.submit_many([shell("true"), delay(), shell("true")])
    first, none, third = refused.value.ids
    assert none is None
    assert first is not None
    assert third is not None
    assert end(client, first, third) == {first: SUCCESS, third: SUCCESS}

    # What was queued is canceled, with what depends on it; all else is left alone.
    assert end(client, pending, dependant) == {pending: CANCELED, dependant: CANCELED}
    assert statuses(client, running, unconcerned) == ["running", "waiting"]
    gate.let_through()
    assert end(client, running, unconcerned) == {running: SUCCESS, unconcerned: SUCCESS}

    client.delete_filter(no_more)
    again = client.submit(delay())
    assert end(client, again) == {again: SUCCESS}


def test_throttle_only_so_many_jobs_of_a_maintenance_run_at_a_time(
    client: Client, gate: Gate
) -> None:
    # Three moves run already when the operator finds that this is too much.
    first = [client.submit(gate.job(), reason="maintenance: move web") for _ in range(3)]
    until_running(client, *first)
    throttle = client.add_filter(
        priority=10,
        predicates=[["reason", ["=~", "reason", "^maintenance"]]],
        action=["RATE_LIMIT", 2],
        reason="the storage network is slow",
    )
    moves = [client.submit(gate.job(), reason="maintenance: move db") for _ in range(3)]
    other = client.submit(shell("true"), reason="day to day")
    assert end(client, other) == {other: SUCCESS}

    # Those that run are not touched; no other one starts while more than one of them is left.
    assert statuses(client, *first, *moves) == ["running"] * 3 + ["queued"] * 3
    gate.let_through()
    assert ended_of(client, first) == 1
    assert statuses(client, *moves) == ["queued"] * 3
    gate.let_through()
    until_running(client, moves[0])
    assert statuses(client, *moves) == ["running", "queued", "queued"]
    gate.let_through()
    until_running(client, moves[1])
    assert statuses(client, moves[2]) == ["queued"]

    # A larger limit lets the last one in at once; the same rule, with another number.
    client.replace_filter(
        throttle,
        priority=10,
        predicates=[["reason", ["=~", "reason", "^maintenance"]]],
        action=["RATE_LIMIT", 3],
    )
    until_running(client, moves[2])
    gate.let_through(3)
    assert set(end(client, *first, *moves).values()) == {SUCCESS}


def ended_of(client: Client, ids: list[int]) -> int:
    """How many of these have ended when the first of them has, and the queue has acted on it."""
    for change in client.watch(*ids, log=False):
        if getattr(change, "status", None) is SUCCESS:
            break
    else:
        raise AssertionError(f"none of {ids} has ended well")
    passed = client.submit(shell("true"))
    assert end(client, passed) == {passed: SUCCESS}
    return statuses(client, *ids).count("success")
