"""What becomes of tasks on hosts, and of locks, when processes die and hosts stay away."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.faults.harness import Daemon, process_of, until, wait_until_gone, wait_until_true
from tests.system.gates import PATIENCE_SECONDS, Gate, until_running
from tests.system.hosts import Host, running_tasks, until_there

from ganger import JobStatus
from ganger.cli import named_locks

if TYPE_CHECKING:
    from ganger import Client

ENDED = "the command on web1 was ended"
WAITS = "job 1 is running: its process is lost; waiting until node web1"


def begin(client: Client, host: Host, gate: Gate, **fields: object) -> int:
    """Submit a job whose command waits at the gate on the host; wait until it is there."""
    locks = {"instance": {"exclusive": ["i1"]}}
    opcode = gate.job(node="web1", locks=locks, **fields)
    job_id = client.submit(opcode)
    until_running(client, job_id)
    wait_until_true(lambda: running_tasks(host) == 1, "the task runs")
    # From then on it waits for its output, and for its end.
    wait_until_true(lambda: client.nodes().nodes[0].open_calls == 2, "the job knows that it runs")
    return job_id


def kill_process(client: Client, job_id: int) -> None:
    pid = process_of(client, job_id)
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)


def held(client: Client) -> set[str]:
    names = named_locks.words(client)
    return {names(one.name) for one in client.locks() if one.owners}


def test_when_the_process_of_a_job_is_killed_its_task_is_ended_before_its_locks_are_free(
    client: Client, host: Host, gate: Gate
) -> None:
    job_id = begin(client, host, gate)
    kill_process(client, job_id)
    [ended] = client.wait(job_id)
    assert (ended.outcome, ended.reason_ended) == (
        "lost",
        f"its process ended without a result (it was ended by SIGKILL); {ENDED}",
    )
    with host.client() as there:
        [task] = there.jobs()
    assert task.outcome == "killed"
    assert running_tasks(host) == 0
    wait_until_true(lambda: not held(client), "the locks are free")


def test_locks_stay_while_the_node_is_silent_also_for_the_next_daemon(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    job_id = begin(client, host, gate)
    host.kill()
    until_there(client, "web1", is_there=False)
    kill_process(client, job_id)
    wait_until_true(lambda: WAITS in daemon.run("job", "why", "1").stdout, "the job says why")
    assert held(client) >= {"node/web1", "instance/i1"}
    daemon.kill()
    daemon.up()
    with daemon.client() as again:
        wait_until_true(lambda: WAITS in daemon.run("job", "why", "1").stdout, "it says it again")
        assert held(again) >= {"node/web1", "instance/i1"}
        host.up()
        [ended] = again.wait(job_id, timeout=PATIENCE_SECONDS)
        assert ended.reason_ended.endswith(ENDED)
        wait_until_true(lambda: not held(again), "the locks are free")
    assert running_tasks(host) == 0


def test_an_operator_forgets_the_tasks_of_a_lost_node(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    job_id = begin(client, host, gate)
    host.kill()
    until_there(client, "web1", is_there=False)
    said = daemon.run("node", "forget-tasks", "web1").stdout
    assert said == "The tasks of node web1 are forgotten; 1 job waited for them\n"
    [ended] = client.wait(job_id)
    assert ended.reason_ended == (
        "the tasks of node web1 were forgotten on request: "
        "it is not known whether the command still runs on web1"
    )
    wait_until_true(lambda: not held(client), "the locks are free")


def test_a_job_waits_for_a_silent_node_no_longer_than_it_was_told(
    daemon: Daemon, client: Client, host: Host, gate: Gate
) -> None:
    job_id = begin(client, host, gate, lost_after=0.5)
    host.kill()
    [ended] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    assert (ended.outcome, ended.reason_ended) == (
        "failed",
        "web1 was silent for 0.5 s: it is not known whether the command still runs on web1",
    )
    # The command may run: its locks stay, also with the next daemon, until the node is back.
    next_id = client.submit(gate.job(locks={"instance": {"exclusive": ["i1"]}}))
    until(client, [next_id], JobStatus.WAITING)
    daemon.kill()
    daemon.up()
    with daemon.client() as again:
        assert held(again) >= {"node/web1", "instance/i1"}
        assert again.job(next_id).status == "waiting"
        host.up()
        until_running(again, next_id)
        assert running_tasks(host) == 0
        gate.let_through()
        [ended] = again.wait(next_id)
        assert ended.outcome == "success"


def test_a_task_whose_process_is_killed_on_the_host_is_lost_there(
    client: Client, host: Host, gate: Gate
) -> None:
    job_id = begin(client, host, gate)
    with host.client() as there:
        [task] = there.jobs()
        kill_process(there, task.id)
    [ended] = client.wait(job_id)
    assert ended.reason_ended == (
        "the command was lost on web1: its process ended without a result (it was ended by SIGKILL)"
    )
    wait_until_true(lambda: not held(client), "the locks are free")


def test_a_kill_while_the_node_is_silent_frees_no_lock(
    client: Client, host: Host, gate: Gate
) -> None:
    job_id = begin(client, host, gate)
    host.kill()
    until_there(client, "web1", is_there=False)
    client.cancel(job_id, kill=True)
    pid = process_of(client, job_id)
    wait_until_gone(pid)
    assert held(client) >= {"node/web1", "instance/i1"}
    host.up()
    [ended] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    assert ended.outcome == "killed"
    assert running_tasks(host) == 0
    wait_until_true(lambda: not held(client), "the locks are free")
