"""No job waits for ever: its wait for its turn is bounded, whatever younger jobs come.

Ganeti design: predictive queue. After K ticks a job weighs nothing; then only the jobs of its
priority with a lower id come before it. So it starts within K ticks and the runs of those ahead,
also if schedulers and daemons are replaced meanwhile, and the time of day is set.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ganger.actors.locks.locking import LockState
from ganger.actors.scheduling.scheduling import Schedule
from ganger.actors.store.ages import Ages
from ganger.actors.store.job_rows import JobClass, Row
from ganger.actors.store.job_table import JobTable
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.prediction.lock_types import NO_LOCKS, LockForecast, forecast_of_locks
from ganger.storage.prediction.policy import Policy
from ganger.transport.messages import JobVerdict, PendingJob

if TYPE_CHECKING:
    from ganger.actors.runtime.component import Runtime

CHAIN = 7
SLOTS = 2
RUN_SECONDS = (40.0, 54.0, 47.0)
"""Of each job by its number: so that they do not all end at once."""

LIMIT_SECONDS = 300.0
VICTIMS = 3
WANTED = (
    (),
    (("node/a", "exclusive"),),
    (("node/b", "exclusive"),),
    (("node/a", "shared"), ("node/b", "shared")),
    (("node/a", "exclusive"), ("node/b", "exclusive")),
    (("node/[lockset]", "exclusive"),),
)
needs = st.sampled_from(WANTED)


def table_of(pending: list[int]) -> JobTable:
    table = JobTable()
    for job_id in pending:
        table.add(
            Row(id=job_id, status=JobStatus.QUEUED, priority=0, job_class=JobClass(summary=""))
        )
    return table


class World:
    """Jobs that take real locks and run for a fixed time each."""

    def __init__(self, folder: Path, *, holds_back: bool) -> None:
        self.now = 0.0
        runtime = SimpleNamespace(
            clock=lambda: self.now,
            later=lambda *_: None,
            host=SimpleNamespace(places=SimpleNamespace(ages=folder / "ages.json")),
        )
        self.runtime = cast("Runtime", runtime)
        self.ages = Ages(self.runtime)
        self.policy = Policy(holds_back=holds_back, tick_seconds=LIMIT_SECONDS / 30)
        self.schedule = Schedule(SLOTS, CHAIN, policy=self.policy)
        self.locks = LockState()
        self.last = 0
        self.wanted: dict[int, tuple[tuple[str, str], ...]] = {}
        self.running: dict[int, float] = {}
        self.starts: dict[int, float] = {}
        self.ended: set[int] = set()

    def owner(self, job_id: int) -> Owner:
        return Owner(job_id, f"job_{job_id}", 1)

    def submit(self, wanted: tuple[tuple[str, str], ...]) -> None:
        self.last += 1
        self.wanted[self.last] = wanted
        self.ages.note(self.last, self.last)
        self.schedule.add(self.verdict(self.last), self.now)

    def verdict(self, job_id: int) -> JobVerdict:
        forecast = forecast_of_locks(self.wanted[job_id])
        return JobVerdict(job=PendingJob(id=job_id, priority=0, forecast=forecast), chain=CHAIN)

    def replace(self, part: str) -> None:
        """Replace the scheduler alone, or the daemon."""
        if part == "daemon":
            self.ages.store()
            self.ages = Ages(self.runtime)
        pending = [one for one in self.wanted if one not in self.starts]
        occupied = [one for one in self.starts if one not in self.ended]
        self.schedule = Schedule(SLOTS, CHAIN, policy=self.policy)
        held = {one: self.held(one) for one in occupied}
        self.schedule.all_locks({one: held[one] for one in occupied if held[one] != NO_LOCKS})
        self.schedule.replace_all(
            [self.verdict(one) for one in pending],
            [self.verdict(one) for one in occupied],
            self.now,
            came=self.ages.steps(table_of(pending)),
        )

    def take_turn(self) -> None:
        decided = self.schedule.decide(self.now)
        for job_id in decided.unknown:
            # Of a new scheduler: whether those in the run slots still run.
            self.schedule.learn(job_id, JobStatus.RUNNING)
        for job_id in decided.start:
            self.starts[job_id] = self.now
            wanted = self.wanted[job_id]
            if not wanted or self.locks.request(self.owner(job_id), 0, wanted).granted:
                self.begin(job_id)

    def begin(self, job_id: int) -> None:
        self.running[job_id] = self.now + RUN_SECONDS[job_id % 3]
        self.schedule.locks_changed(job_id, self.held(job_id))

    def held(self, job_id: int) -> LockForecast:
        return forecast_of_locks(self.locks.list_locks(self.owner(job_id)))

    def go_on(self) -> None:
        """To the end of the run that ends first, or to the next alarm."""
        due_at = self.schedule.decide(self.now).due_at
        ends = [*self.running.values(), *([] if due_at is None else [due_at])]
        self.now = min(ends, default=self.now + 1.0)
        for job_id in [one for one, end in self.running.items() if end <= self.now]:
            del self.running[job_id]
            self.ended.add(job_id)
            woken = self.locks.release_owner(self.owner(job_id))
            self.schedule.locks_changed(job_id, NO_LOCKS)
            self.schedule.learn(job_id, JobStatus.SUCCESS)
            for owner in woken:
                assert isinstance(owner.identifier, int)
                self.begin(owner.identifier)


@example(
    first=[WANTED[5]] * VICTIMS,
    stream=[WANTED[1], WANTED[2]],
    holds_back=True,
    replaced=["scheduler", "daemon"],
)
@settings(max_examples=50)
@given(
    first=st.lists(needs, min_size=VICTIMS, max_size=VICTIMS),
    stream=st.lists(needs, min_size=1, max_size=6),
    holds_back=st.booleans(),
    replaced=st.lists(st.sampled_from(["", "scheduler", "daemon"]), min_size=1, max_size=4),
)
def test_under_a_stream_of_younger_jobs_each_job_starts_in_bounded_time(
    first: list[tuple[tuple[str, str], ...]],
    stream: list[tuple[tuple[str, str], ...]],
    holds_back: bool,  # noqa: FBT001 - drawn
    replaced: list[str],
) -> None:
    """The scheduler and the daemon are replaced at each of their turns."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), holds_back=holds_back)
        _check_bound(world, first, stream, replaced)


def _check_bound(
    world: World,
    first: list[tuple[tuple[str, str], ...]],
    stream: list[tuple[tuple[str, str], ...]],
    replaced: list[str],
) -> None:
    for _ in range(SLOTS):
        world.submit(stream[0])
    world.take_turn()
    for wanted in first:
        world.submit(wanted)
    victims = range(SLOTS + 1, SLOTS + VICTIMS + 1)
    # The jobs in the slots when the limit is reached may wait for each other's locks.
    bound = LIMIT_SECONDS + (SLOTS + VICTIMS) * max(RUN_SECONDS) * SLOTS
    for step in range(400):
        # There are always more younger jobs than slots.
        while world.last - len(world.starts) < VICTIMS + 2 * SLOTS:
            world.submit(stream[(world.last + step) % len(stream)])
        if part := replaced[step % len(replaced)]:
            world.replace(part)
        world.take_turn()
        if all(victim in world.starts for victim in victims):
            break
        assert world.now <= bound, f"of {[*victims]}, only {sorted(world.starts)} have started"
        world.go_on()
    waits = [world.starts[victim] for victim in victims]
    assert max(waits) <= bound
    if max(waits) >= LIMIT_SECONDS:
        event("a job waited until it weighed nothing")
