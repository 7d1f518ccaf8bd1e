"""Schedules and verdicts for tests: every verdict holds under the chain in force."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ganger.actors.runtime.slices import done
from ganger.actors.scheduling import remedies, simulating
from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.prediction.lock_types import LockForecast
from ganger.transport.messages import JobVerdict, PendingJob, Remedy, RunSimulation, Simulated

CHAIN = 7
"""The rule chain in force where a test says nothing else."""


def verdict(
    job_id: int,
    *depends: tuple[int, str],
    priority: int = 0,
    action: str = "ACCEPT",
    rule: str | None = None,
    limit: int | None = None,
    limits: tuple[tuple[str, int], ...] = (),
    chain: int = CHAIN,
    forecast: LockForecast | None = None,
) -> JobVerdict:
    """A pending job; each dependency as an id and its statuses, separated by commas."""
    parsed = tuple((target, tuple(filter(None, text.split(",")))) for target, text in depends)
    job = PendingJob(id=job_id, priority=priority, depends=parsed, limits=limits, forecast=forecast)
    return JobVerdict(job=job, action=action, rule=rule, limit=limit, chain=chain)


def schedule(*verdicts: JobVerdict, slots: int = 20) -> Schedule:
    """A schedule that knows these pending jobs."""
    made = Schedule(slots)
    made.change_chain(CHAIN)
    for one in verdicts:
        made.add(one)
    return made


def started(of: Schedule) -> list[int]:
    """What starts in the next pass."""
    return of.decide().start


def pending_in_order(of: Schedule) -> list[int]:
    """The pending jobs by priority, then by what is left of their weight, then by id."""
    return [job.id for job in of.standing_now().in_order()]


def simulated(of: Schedule, asked: RunSimulation) -> Simulated:
    """What would happen if, in one slice."""
    return done(simulating.outcoming(of, asked))


def remedy_for(
    contention: remedies.Contention, rules: Sequence[str], refused: Collection[int] = ()
) -> Remedy:
    """The smallest change that would let a job start, in one slice."""
    return done(remedies.choosing(contention, rules, refused))
