"""The order of starts in a daemon with its default settings: no job passes a more urgent one.

A job that waits for the very locks of the job that ends is judged by what is free after that end:
its run slot and its locks become free together.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.harness import Daemon, process_of
from tests.system.gates import Gate, end, shell, statuses, until_running

from ganger import Client
from ganger.storage import settings

ROUNDS = 3
OTHERS = 12
WAYS = [[placement] for placement in settings.PLACEMENTS] + [["together", "--fresh-processes"]]


class Starts:
    """A file to which each job appends its name when it runs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "starts"

    def job(self, name: str, *nodes: str) -> dict[str, Any]:
        """An opcode that notes its start, and takes these nodes."""
        return shell(f"echo {name} >> {self._path}") | locking(*nodes)

    def take(self) -> list[str]:
        """The names so far, each once."""
        found = self._path.read_text().split()
        self._path.unlink()
        return found


def locking(*nodes: str) -> dict[str, Any]:
    """These nodes, exclusively."""
    return {"locks": {"node": {"exclusive": list(nodes)}}}


@pytest.fixture(name="daemon", params=WAYS, ids=" ".join)
def default_daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon that holds jobs back, as is the default."""
    placement, *options = request.param
    with Daemon(tmp_path, *options, placement=placement, holds_back=True) as daemon:
        yield daemon


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_the_end_of_a_job_frees_its_slot_and_its_locks_in_one(
    client: Client, gate: Gate, tmp_path: Path, how: str, slots: int
) -> None:
    client.limits(running=slots)
    starts, found = Starts(tmp_path), []
    for place in range(ROUNDS):
        fillers = [client.submit(gate.job()) for _ in range(slots - 1)]
        # It alone can be let through.
        with Gate(tmp_path, f"gate-{place}") as own:
            holder = client.submit(own.job(**locking("n1")))
            until_running(client, *fillers, holder)
            older = client.submit(starts.job("older", "n1"), priority=-10)
            younger = client.submit(starts.job("younger", "n2"), priority=10)
            if how == "ends":
                own.let_through()
            else:
                os.kill(process_of(client, holder), signal.SIGKILL)
            end(client, holder, older, younger)
        gate.let_through(len(fillers))
        end(client, *fillers)
        found.append(starts.take())
    assert found == [["older", "younger"]] * ROUNDS


def test_a_job_that_needs_two_locks_is_passed_by_none_that_is_less_urgent(
    client: Client, gate: Gate, tmp_path: Path
) -> None:
    client.limits(running=1)
    starts = Starts(tmp_path)
    holder = client.submit(gate.job(**locking("n1")))
    until_running(client, holder)
    others = [
        client.submit(starts.job(f"other-{place}", f"n{1 + place % 2}"), priority=19)
        for place in range(OTHERS)
    ]
    urgent = client.submit(starts.job("urgent", "n1", "n2"), priority=-20)
    gate.let_through()
    end(client, holder, urgent, *others)
    assert starts.take()[0] == "urgent"


def test_a_job_starts_with_the_end_that_is_said_to_start_it(client: Client, gate: Gate) -> None:
    client.limits(running=1)
    holder = client.submit(gate.job(**locking("n1")))
    until_running(client, holder)
    older = client.submit(gate.job(**locking("n1")), priority=-10)
    younger = client.submit(gate.job(**locking("n2")), priority=10)
    assert client.simulate(ended={holder: "success"}).start == [older]
    assert client.explain(older).remedy.ends == [[holder]]
    gate.let_through()
    until_running(client, older)
    assert statuses(client, holder, younger) == ["success", "queued"]
    gate.let_through(2)
    end(client, older, younger)


def test_two_jobs_for_a_node_start_in_order_though_nobody_knows_its_name_yet(
    tmp_path: Path,
) -> None:
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 600.0, "on_nodes": ["node1.example.com"]}
    with Daemon(tmp_path, holds_back=True) as daemon, daemon.client() as client:
        # The first question about names of this daemon: nothing is known from before.
        jobs = [client.submit(delay | {"on_master": False}) for _ in range(2)]
        until_running(client, jobs[0])
        assert statuses(client, *jobs) == ["running", "queued"]
        for job_id in reversed(jobs):
            client.cancel(job_id, kill=True)
