"""Control of the queue on a running daemon: pause, depend, cancel, retry, drain, limit, ask why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import Daemon, process_of, stop, until
from tests.system.gates import Gate

from ganger import JobStatus
from ganger.storage import errors
from ganger.storage.jobs.job_views import StatusChange

if TYPE_CHECKING:
    from pathlib import Path

    from ganger import Client

pytestmark = pytest.mark.passes_on

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus
NODE = {"node": {"exclusive": ["n1"]}}


def note(folder: Path, word: str, **fields: Any) -> dict[str, Any]:
    """A command that leaves a word behind."""
    command = f"echo {word} >> {folder}/notes"
    return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", command], **fields}


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text().split() if path.exists() else []


def statuses_of(client: Client, job_id: int) -> list[JobStatus]:
    return [op.status for op in client.job(job_id).ops or ()]


def test_a_paused_job_gives_up_everything_before_its_next_opcode_and_goes_on_there(
    daemon: Daemon, client: Client, tmp_path: Path, gate: Gate
) -> None:
    job_id = client.submit(
        [
            gate.job(locks=NODE),
            note(tmp_path, "two", locks=NODE),
            note(tmp_path, "three"),
        ]
    )
    until(client, job_id, RUNNING)
    rule = client.add_filter(action="PAUSE", reason="switch replacement")
    gate.let_through()
    until(client, job_id, QUEUED)
    paused = client.job(job_id)
    assert statuses_of(client, job_id) == [SUCCESS, QUEUED, QUEUED]
    assert paused.process_id is None
    assert not any(lock.owners or lock.pending for lock in client.locks())
    assert notes(tmp_path) == []
    assert paused.ops is not None
    assert "switch replacement" in paused.ops[1].log[-1].text
    assert f"filter rule {rule}" in client.explain(job_id).text
    # It is still so after a crash, and nothing is repeated.
    daemon.replace_killed()
    assert statuses_of(client, job_id) == [SUCCESS, QUEUED, QUEUED]
    client.delete_filter(rule)
    [ended] = client.wait(job_id, timeout=30)
    assert ended.status is SUCCESS
    assert notes(tmp_path) == ["two", "three"]


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_paused_job_leaves_its_run_slot_to_others(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    client.limits(running=1)
    job_id = client.submit([gate.job(), note(tmp_path, "later")])
    until(client, job_id, RUNNING)
    client.add_filter(action="PAUSE", predicates=[["jobid", ["=", "id", job_id]]])
    other = client.submit(note(tmp_path, "other"))
    gate.let_through()
    assert client.wait(other, timeout=30)[0].status is SUCCESS
    assert client.job(job_id).status is QUEUED
    assert notes(tmp_path) == ["other"]


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_job_that_waits_for_a_lock_when_it_is_paused_goes_back_to_the_queue(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    client.limits(running=2)
    holder = client.submit(gate.job(locks=NODE))
    until(client, holder, RUNNING)
    waiter = client.submit(note(tmp_path, "waiter", locks=NODE))
    until(client, waiter, WAITING)
    rule = client.add_filter(action="PAUSE", predicates=[["jobid", ["=", "id", waiter]]])
    until(client, waiter, QUEUED)
    paused = client.job(waiter)
    assert (paused.process_id, paused.started) == (None, None)
    assert not any(lock.pending for lock in client.locks())
    # It has given up its run slot.
    client.wait(client.submit(note(tmp_path, "other")), timeout=30)
    gate.let_through()
    client.wait(holder, timeout=30)
    assert notes(tmp_path) == ["other"]
    client.delete_filter(rule)
    assert client.wait(waiter, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == ["other", "waiter"]


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_job_that_waits_for_a_lock_when_it_is_rejected_is_canceled(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    holder = client.submit(gate.job(locks=NODE))
    until(client, holder, RUNNING)
    waiter = client.submit(note(tmp_path, "waiter", locks=NODE))
    until(client, waiter, WAITING)
    rule = client.add_filter(action="REJECT")
    assert client.wait(waiter, timeout=30)[0].status is CANCELED
    [op] = client.job(waiter).ops or []
    assert rule in op.input["reason"][-1][1]
    assert client.job(holder).status is RUNNING
    gate.let_through()
    assert client.wait(holder, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == []


def test_a_paused_job_can_be_canceled_and_keeps_what_it_has_done(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    job_id = client.submit([gate.job(), note(tmp_path, "never"), note(tmp_path, "never")])
    until(client, job_id, RUNNING)
    client.add_filter(action="PAUSE")
    gate.let_through()
    until(client, job_id, QUEUED)
    # Its process may still be about to leave; then it is not there to be asked.
    while not client.cancel(job_id).accepted:
        assert client.job(job_id).status is QUEUED
    assert client.wait(job_id, timeout=30)[0].status is CANCELED
    assert statuses_of(client, job_id) == [SUCCESS, CANCELED, CANCELED]
    assert notes(tmp_path) == []


def test_a_rule_that_rejects_cancels_what_is_queued_and_leaves_what_runs(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    client.limits(running=1)
    running = client.submit(gate.job())
    until(client, running, RUNNING)
    queued = client.submit_many([[note(tmp_path, "never")]] * 3)
    held = client.submit(note(tmp_path, "never"), depends=[running])
    client.add_filter(action="REJECT", reason="site is closing", priority=4)
    for job in client.wait(*queued, held, timeout=30):
        assert job.status is CANCELED
    with pytest.raises(errors.RejectedError, match=r"priority 4, reason: site is closing"):
        client.submit(note(tmp_path, "never"))
    gate.let_through()
    assert client.wait(running, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == []


def test_a_dependency_of_a_later_opcode_holds_that_opcode_alone(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    client.limits(running=2)
    first = client.submit(gate.job())
    until(client, first, RUNNING)
    second = client.submit(
        [
            note(tmp_path, "begun", locks=NODE),
            note(tmp_path, "after", locks=NODE, depends=[[first, ["success"]]]),
        ]
    )
    until(client, second, WAITING)
    assert statuses_of(client, second) == [SUCCESS, WAITING]
    assert client.job(second).process_id is None
    assert [(row.name, row.pending) for row in client.locks() if row.pending] == [
        (f"job/{first}", [("success", [f"job/{second}"])])
    ]
    # The second slot is free: the job that waits takes none.
    third = client.submit(note(tmp_path, "third", locks=NODE))
    client.wait(third, timeout=30)
    gate.let_through()
    assert client.wait(second, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == ["begun", "third", "after"]


def test_a_later_opcode_whose_dependency_failed_fails_and_the_earlier_ones_stay(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    first = client.submit([gate.job(), {"OP_ID": "OP_EXEC", "argv": ["false"]}])
    until(client, first, RUNNING)
    second = client.submit(
        [note(tmp_path, "begun"), note(tmp_path, "never", depends=[[first, ["success"]]])]
    )
    until(client, second, WAITING)
    gate.let_through()
    [ended] = client.wait(second, timeout=30)
    assert ended.status is ERROR
    assert statuses_of(client, second) == [SUCCESS, ERROR]
    assert ended.ops is not None
    assert "finished with status 'error'" in str(ended.ops[1].result)
    assert notes(tmp_path) == ["begun"]


def test_a_running_command_is_killed_on_request(client: Client, tmp_path: Path, gate: Gate) -> None:
    job_id = client.submit([gate.job(locks=NODE), note(tmp_path, "never")])
    until(client, job_id, RUNNING)
    assert not client.cancel(job_id).accepted
    outcome = client.cancel(job_id, kill=True)
    assert outcome.accepted
    assert "SIGTERM" in outcome.text
    [ended] = client.wait(job_id, timeout=30)
    assert ended.status is ERROR
    assert ended.ops is not None
    assert "killed on request, and ended by SIGTERM" in str(ended.ops[0].result)
    assert notes(tmp_path) == []
    assert client.locks() == []


def test_a_command_that_does_not_listen_is_killed_all_the_same(client: Client) -> None:
    script = 'trap "" TERM; echo ready; while :; do read -t 1 none <&1; done'
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["bash", "-c", script]})
    for part in client.watch(job_id, timeout=30):
        if not isinstance(part, StatusChange) and part.text == "ready":
            break
    else:
        raise AssertionError(f"job {job_id} has ended without a word")
    client.cancel(job_id, kill=True)
    [ended] = client.wait(job_id, timeout=30)
    assert ended.ops is not None
    assert "killed on request, and ended by SIGKILL" in str(ended.ops[0].result)


def test_a_job_that_does_not_react_at_all_is_killed_by_the_daemon(
    client: Client, gate: Gate
) -> None:
    job_id = client.submit(gate.job(locks=NODE))
    until(client, job_id, RUNNING)
    process_id = process_of(client, job_id)
    stop(process_id)
    with pytest.raises(errors.DeadlineError):
        client.cancel(job_id, kill=True, timeout=1)
    [ended] = client.wait(job_id, timeout=30)
    assert ended.status is ERROR
    assert ended.ops is not None
    assert "was killed on request" in str(ended.ops[0].result)
    assert "SIGKILL" in str(ended.ops[0].result)
    assert client.locks() == []


def test_a_job_is_tried_again_from_where_it_failed(client: Client, tmp_path: Path) -> None:
    key = tmp_path / "key"
    check = {"OP_ID": "OP_EXEC", "argv": ["test", "-e", str(key)]}
    old = client.submit([note(tmp_path, "one"), check, note(tmp_path, "two")], reason="upgrade")
    assert client.wait(old, timeout=30)[0].status is ERROR
    key.touch()
    new = client.retry(old)
    assert client.wait(new, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == ["one", "two"]
    assert client.job(new).retry_of == old
    assert client.job(old).retried_by == [new]
    assert client.job(new).reason == "upgrade"
    with pytest.raises(errors.JobStateError, match="every opcode of job"):
        client.retry(new)
    whole = client.retry(old, whole=True)
    client.wait(whole, timeout=30)
    assert notes(tmp_path) == ["one", "two", "one", "two"]
    client.archive(old)
    other = client.retry(old, ops=note(tmp_path, "other"))
    client.wait(other, timeout=30)
    assert client.job(old).retried_by == [new, whole, other]
    assert client.job(old).archived


def test_only_what_has_ended_is_tried_again(client: Client, gate: Gate) -> None:
    job_id = client.submit(gate.job())
    until(client, job_id, RUNNING)
    with pytest.raises(errors.JobStateError, match="only an ended job"):
        client.retry(job_id)
    with pytest.raises(errors.UnknownJobError):
        client.retry(99)
    gate.let_through()
    client.wait(job_id, timeout=30)


def test_a_drained_queue_refuses_with_an_error_of_its_own_also_after_a_restart(
    daemon: Daemon, client: Client, tmp_path: Path, gate: Gate
) -> None:
    before = client.submit([gate.job(), note(tmp_path, "before")])
    client.drain()
    with pytest.raises(errors.QueueDrainedError, match="drained"):
        client.submit(note(tmp_path, "never"))
    assert client.info().is_drained
    daemon.replace_killed()
    with pytest.raises(errors.QueueDrainedError):
        client.submit(note(tmp_path, "never"))
    gate.let_through()
    assert client.wait(before, timeout=30)[0].status is SUCCESS
    client.drain(drained=False)
    client.wait(client.submit(note(tmp_path, "after")), timeout=30)
    assert notes(tmp_path) == ["before", "after"]


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_the_number_of_run_slots_is_kept(
    daemon: Daemon, client: Client, tmp_path: Path, gate: Gate
) -> None:
    assert client.limits(running=1, tracked=7).running_jobs_max == 1
    daemon.replace_killed()
    limits = client.limits()
    assert (limits.running_jobs_max, limits.tracked_jobs_max) == (1, 7)
    running = client.submit(gate.job())
    until(client, running, RUNNING)
    queued = client.submit(note(tmp_path, "queued"))
    why = client.explain(queued)
    assert why.text == f"job {queued} is queued: the only run slot is taken, by job {running}"
    client.limits(running=2)
    assert client.wait(queued, timeout=30)[0].status is SUCCESS
    gate.let_through()


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_why_a_job_waits_for_a_lock(client: Client, tmp_path: Path, gate: Gate) -> None:
    holder = client.submit(gate.job(locks=NODE))
    until(client, holder, RUNNING)
    waiter = client.submit(note(tmp_path, "one", locks=NODE))
    until(client, waiter, WAITING)
    dependant = client.submit(note(tmp_path, "two"), depends=[waiter])
    why = client.explain(waiter)
    [obstacle] = why.obstacles
    assert (obstacle.kind, obstacle.lock, obstacle.jobs) == ("lock", "node/n1", [holder])
    assert obstacle.since is not None
    assert why.change == f"job {holder} ends, or gives the lock back"
    chain = client.explain(dependant)
    assert [one.kind for one in chain.obstacles] == ["dependency", "dependency"]
    assert [one.held for one in chain.obstacles] == [dependant, waiter]
    assert client.explain(holder).obstacles == []
    gate.let_through()
    client.wait(dependant, timeout=30)
    assert client.explain(dependant).text == f"job {dependant} has ended: success"


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_what_is_simulated_comes_true(client: Client, tmp_path: Path, gate: Gate) -> None:
    client.limits(running=1)
    running = client.submit(gate.job())
    until(client, running, RUNNING)
    one, two = client.submit_many([[note(tmp_path, "one")], [note(tmp_path, "two")]])
    assert client.simulate().start == []
    assert client.simulate(running=2).start == [one]
    assert client.simulate(running=3, priorities={two: -1}).start == [two, one]
    rule = {"action": "REJECT", "predicates": [["jobid", ["=", "id", two]]]}
    rejected = client.simulate(rule=rule, running=9)
    assert rejected.start == [one]
    assert [job_id for job_id, _ in rejected.ended] == [two]
    assert client.simulate(ended={running: "success"}).start == [one]
    # Nothing of all that has happened.
    assert {client.job(job_id).status for job_id in (one, two)} == {QUEUED}
    gate.let_through()
    client.wait(one, two, timeout=30)
    assert notes(tmp_path) == ["one", "two"]


@pytest.mark.usefixtures("jobs_wait_with_a_process")
def test_a_command_that_waits_prints_the_cause(daemon: Daemon, client: Client, gate: Gate) -> None:
    """And tells it to standard error: standard output is the command's."""
    holder = client.submit(gate.job(locks=NODE))
    until(client, holder, RUNNING)
    follower = daemon.begin("exec", "--lock", "node/n1", "--", "echo", "mine")
    assert follower.stderr is not None
    job_id = holder + 1
    line = follower.stderr.readline()
    assert line == (
        f"ganger: job {job_id} is waiting: it waits for node/n1 (exclusive), "
        f"held (exclusive) by job {holder}\n"
    )
    gate.let_through()
    assert follower.communicate(timeout=30) == ("mine\n", "")
    assert follower.returncode == 0


@pytest.mark.usefixtures("jobs_wait_with_a_process")
@pytest.mark.parametrize("action", ["PAUSE", "REJECT", ["RATE_LIMIT", 1]])
def test_no_job_records_that_it_runs_after_a_rule_that_stops_it_was_acknowledged(
    client: Client, action: str | list[Any]
) -> None:
    client.limits(running=20)
    command = {"OP_ID": "OP_EXEC", "argv": ["true"]}
    for _ in range(3):
        first = client.submit(command)
        ids = [first, *client.submit_many([[command]] * 59)]
        # Some have run, and all run slots are being taken by others.
        client.wait(first, timeout=30)
        rule = client.add_filter(action=action, predicates=[["jobid", ["<=", "id", ids[-1]]]])
        acknowledged = time.time()
        # What has a run slot has begun or given it up when this one has run.
        client.wait(client.submit(command), timeout=30)
        noticed = time.time()
        client.delete_filter(rule)
        ended = client.wait(*ids, timeout=60)
        assert {job.status for job in ended} <= {SUCCESS, CANCELED}
        spans = [span for job_id in ids if (span := run_span(client, job_id))]
        late = [span for span in spans if acknowledged < span[0] < noticed]
        if action in ("PAUSE", "REJECT"):
            assert late == []
        else:
            # Those that ran are counted; the others start when nothing else runs.
            assert all(not any(one < start < end for one, end in spans) for start, _ in late)


def run_span(client: Client, job_id: int) -> tuple[float, float] | None:
    """When the only opcode of an ended job was recorded to run, and when it ended."""
    [op] = client.job(job_id).ops or []
    if op.executed is None:
        return None
    assert op.ended is not None
    return op.executed, op.ended


@pytest.mark.usefixtures("jobs_wait_with_a_process")
@pytest.mark.parametrize("restart", ["down and up", "kill", "lock manager", "job queue"])
def test_a_job_that_waits_for_a_lock_keeps_its_new_priority_over_a_restart(
    daemon: Daemon, client: Client, tmp_path: Path, restart: str, gate: Gate
) -> None:
    holder = client.submit(gate.job(locks=NODE))
    until(client, holder, RUNNING)
    first, second = (client.submit(note(tmp_path, word, locks=NODE)) for word in ("1", "2"))
    for job_id in (first, second):
        until(client, job_id, WAITING)
    assert client.set_priority(first, 5).accepted
    match restart:
        case "down and up":
            daemon.run("down")
            daemon.up()
        case "kill":
            daemon.replace_killed()
        case component:
            daemon.crash(component.replace(" ", "_"))
    gate.let_through()
    ended = client.wait(holder, first, second, timeout=30)
    assert {job.status for job in ended} == {SUCCESS}
    assert notes(tmp_path) == ["2", "1"]
