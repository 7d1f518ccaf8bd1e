"""Measures one scheduling pass, without a daemon: the decision alone, with so many jobs pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage import settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import LockForecast, exclusive
from ganger.storage.prediction.policy import Policy
from ganger.transport.messages import JobVerdict, PendingJob

from .figures import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS = 20
NODES = 200
"""Different locks that the jobs with locks want, one each."""

CHAIN = 1
SECONDS_BETWEEN = 0.002
"""From one pass to the next, on the schedule's clock: jobs age by it."""


def without_locks(job_id: int) -> JobVerdict:
    """A job that takes no lock, as no other one."""
    return JobVerdict(job=PendingJob(id=job_id, priority=0), chain=CHAIN)


def with_a_lock(job_id: int) -> JobVerdict:
    """A job that takes one of many nodes exclusively."""
    forecast = LockForecast(node=exclusive([f"node-{job_id * 7919 % NODES}"]))
    return JobVerdict(job=PendingJob(id=job_id, priority=0, forecast=forecast), chain=CHAIN)


def passes(pending: int, count: int, make: Callable[[int], JobVerdict]) -> Timings:
    """Passes that start one job each, in the place of one that has ended.

    Another job comes before each, so that always as many are pending.
    """
    schedule = Schedule(
        SLOTS,
        policy=Policy(),
        looks_max=settings.PASS_LOOKS_MAX,
    )
    schedule.change_chain(CHAIN)
    for job_id in range(1, pending + SLOTS + 1):
        schedule.add(make(job_id))
    running = schedule.decide(0.0).start
    timings = Timings()
    for number in range(1, count + 1):
        now = number * SECONDS_BETWEEN
        schedule.add(make(pending + SLOTS + number), now)
        schedule.learn(running.pop(0), JobStatus.SUCCESS)
        with timings.one():
            started = schedule.decide(now).start
        if len(started) != 1:
            raise RuntimeError(f"a pass started {len(started)} jobs")
        running += started
    return timings
