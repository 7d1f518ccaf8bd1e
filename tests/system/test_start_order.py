"""The order of starts in a daemon with its default settings: no job passes a more urgent one.

A job that waits for the very locks of the job that ends is judged by what is free after that end:
its run slot and its locks become free together. What `why` and `simulate` say of an end is what it
does; `tests/properties/test_three_answers.py` tries each order of the news, without processes.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.harness import Daemon, process_of
from tests.properties.test_three_answers import is_done_by_end
from tests.seeds import seed
from tests.system.gates import PATIENCE_SECONDS, Gate, end, shell, statuses, until_running

from ganger import Client, JobStatus
from ganger.storage import settings
from ganger.storage.jobs.job_views import StatusChange

ROUNDS = 3
OTHERS = 12
WORKLOADS = 3
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


@pytest.fixture(name="daemon", params=WAYS, ids=" ".join, scope="module")
def default_daemon(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Daemon]:
    """A daemon that holds jobs back, as is the default. Each test leaves no job that lives."""
    placement, *options = request.param
    folder = tmp_path_factory.mktemp("daemon")
    with Daemon(folder, *options, placement=placement, holds_back=True) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def no_job_is_left(daemon: Daemon) -> Iterator[None]:
    """The next test finds a queue in which nothing waits or runs."""
    yield
    with daemon.client() as client:
        assert [job.id for job in client.jobs() if not job.is_final] == []


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
    # From then on its locks are known: they are asked for once it is stored.
    assert client.explain(urgent).remedy.ends == [[holder]]
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


class Workload:
    """Random jobs, each with a gate of its own. ``started`` are those with a run slot."""

    def __init__(self, client: Client, folder: Path, chance: random.Random) -> None:
        self.client, self.folder, self.chance = client, folder, chance
        self.gates: dict[int, Gate] = {}
        self.nodes: dict[int, frozenset[str]] = {}
        self.priorities: dict[int, int] = {}
        self.started: set[int] = set()

    @property
    def pending(self) -> list[int]:
        return sorted(self.gates.keys() - self.started)

    def submit(self, priority: int, nodes_max: int = 2, limit: str = "") -> int:
        gate = Gate(self.folder, f"gate-{len(self.nodes)}")
        nodes = self.chance.sample("abc", self.chance.randint(0, nodes_max))
        job_id = self.client.submit(gate.job(**locking(*nodes)), priority=priority, reason=limit)
        self.gates[job_id], self.nodes[job_id] = gate, frozenset(nodes)
        self.priorities[job_id] = priority
        return job_id

    def run(self) -> list[int]:
        """Wait until each job with a run slot runs, or waits for the lock of another that does.

        Its process must have begun: the time of its start is compared with those of later jobs.
        """
        found: dict[int, JobStatus] = {}
        for part in self.client.watch(*self.started, log=False, timeout=PATIENCE_SECONDS):
            assert isinstance(part, StatusChange)
            found[part.job_id] = part.status
            running = [one for one, status in found.items() if status is JobStatus.RUNNING]
            held = frozenset[str]().union(*(self.nodes[one] for one in running))
            waiting = [one for one, status in found.items() if status is JobStatus.WAITING]
            blocked = [one for one in waiting if self.nodes[one] & held]
            if self.started <= {*running, *blocked}:
                return sorted(running)
        raise AssertionError(f"of the jobs {self.started}, some neither run nor wait for a lock")

    def explained(self, ended: int) -> set[int]:
        """The pending jobs of which it is said that the end of this one starts them."""
        said = {one: self.client.explain(one).remedy for one in self.pending}
        return {one for one, remedy in said.items() if is_done_by_end(remedy, ended)}

    def end(self, job_id: int) -> None:
        """The job ends in order, or its process is killed."""
        with self.gates.pop(job_id) as gate:
            if self.chance.random() < 0.7:
                gate.let_through()
            else:
                os.kill(process_of(self.client, job_id), signal.SIGKILL)
            end(self.client, job_id)
        self.started.remove(job_id)

    def is_outranked(self, job_id: int, before: list[int]) -> bool:
        """Whether one of these is less urgent: its locks let the job start, which is not said."""
        return any(self.priorities[one] > self.priorities[job_id] for one in before)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_each_end_starts_the_jobs_that_simulate_and_why_have_foretold(
    client: Client, tmp_path: Path, slots: int
) -> None:
    client.limits(running=slots)
    chance = random.Random(seed() + slots)
    for place in range(WORKLOADS):
        folder = tmp_path / f"work-{place}"
        folder.mkdir()
        work = Workload(client, folder, chance)
        work.started.update(work.submit(0, 2 if one == 0 else 0) for one in range(slots))
        foretold = [sorted(work.run())]
        for _ in range(6):
            limit = chance.choice(["rate-limit:1:these", "", "", ""])
            work.submit(chance.choice([-20, -10, 0, 0, 10, 19]), limit=limit)
        while running := work.run():
            ended = chance.choice(running)
            starts = client.simulate(ended={ended: "success"}).start
            explained = work.explained(ended)
            assert explained <= set(starts), (ended, explained, starts)
            for place_in, job_id in enumerate(starts):
                assert job_id in explained or work.is_outranked(job_id, starts[:place_in])
            work.end(ended)
            work.started.update(starts)
            foretold.append(sorted(starts))
            if not work.started:
                break
        assert not work.gates
        order = sorted(client.jobs(work.nodes), key=lambda job: (job.started or 0.0, job.id))
        ids = iter([job.id for job in order])
        assert [sorted(next(ids) for _ in starts) for starts in foretold] == foretold


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
