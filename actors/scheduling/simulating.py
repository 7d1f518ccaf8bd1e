"""What would happen if: the scheduler's decisions on a copy of its schedule. Pure.

The copy is made, and decided upon, in slices: with many pending jobs that takes long.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage import settings
from ...storage.jobs.jobs import JobStatus
from ...transport.messages import Simulated, WaitingJob
from .first_obstacle import first_obstacle

if TYPE_CHECKING:
    from collections.abc import Generator

    from ...transport.messages import LocksSimulated, RunSimulation
    from .scheduling import Schedule, Unsatisfiable

_WAITING_SHOWN_MAX = 200
_ENDED_SHOWN_MAX = 10_000
"""A rule may reject all jobs of a long queue, and the answer has to fit into a frame."""

_FREED_AT_ONCE = 5_000


def outcoming(schedule: Schedule, asked: RunSimulation) -> Generator[None, None, Simulated]:
    """The decisions of one pass over the changed schedule, and why the other jobs would wait.

    In slices: the schedule may change between two of them.
    """
    simulation, now = asked.simulation, schedule.now
    other = yield from schedule.what_if(
        asked.jobs, asked.running, simulation.running_jobs_max, settings.LOOKED_AT_ONCE
    )
    for job_id, priority in simulation.priorities.items():
        other.reprioritise(job_id, priority)
    for job_id, status in simulation.ended.items():
        other.learn(job_id, status)
    running = [verdict for verdict in asked.running if verdict.job.id not in simulation.ended]
    rejected = [one for one in running if one.action == "REJECT" and one.job.is_unbegun]
    paused = [one for one in running if one.action == "PAUSE"]
    for verdict in rejected:
        other.learn(verdict.job.id, JobStatus.CANCELED)
    for verdict in paused:
        # A job whose opcode runs keeps its run slot until the opcode ends.
        if verdict.job.is_idle:
            other.vacate(verdict.job.id)
    start: list[int] = []
    ended = [(one.job.id, _rejected_by(one.rule)) for one in rejected]
    while True:
        decided = other.decide(now)
        start += decided.start
        ended += [(one.id, _ended_by(one)) for one in decided.unsatisfiable]
        if not other.is_tired:
            break
        yield
    more_ended = yield from _add_rejected(ended, other)
    counts = yield from other.standing_now().counted(settings.LOOKED_AT_ONCE)
    simulated = Simulated(
        start=start,
        paused=[verdict.job.id for verdict in paused],
        ended=ended,
        more_ended=more_ended,
        counts=dict(counts),
        waiting=_waiting(other),
    )
    yield from other.dissolving(_FREED_AT_ONCE)
    return simulated


def _add_rejected(ended: list[tuple[int, str]], schedule: Schedule) -> Generator[None, None, int]:
    """Add the jobs that a rule rejects, as far as there is room; how many there is none for."""
    count = len(ended)
    del ended[_ENDED_SHOWN_MAX:]
    # Wherever they stand: the evaluator looks through the whole queue for these.
    for place, job in enumerate(schedule.standing_now().rejected()):
        count += 1
        if len(ended) < _ENDED_SHOWN_MAX:
            ended.append((job.id, _rejected_by(job.judged.rule)))
        if (place + 1) % settings.LOOKED_AT_ONCE == 0:
            yield
    return count - len(ended)


def _waiting(schedule: Schedule) -> list[WaitingJob]:
    """The first jobs that wait, each with its first obstacle."""
    waiting = []
    for job in itertools.islice(schedule.standing_now().waiting(), _WAITING_SHOWN_MAX):
        position = schedule.position(job.id, is_brief=True)
        assert position is not None
        kind, text, _ = first_obstacle(position)
        waiting.append(WaitingJob(id=job.id, kind=kind, text=text))
    return waiting


def _ended_by(one: Unsatisfiable) -> str:
    return _rejected_by(one.text) if one.verdict == "rejected" else one.text or one.verdict


def _rejected_by(rule: str | None) -> str:
    return f"rejected by filter rule {rule}"


def with_locks(outcome: Simulated, locks: LocksSimulated) -> Simulated:
    """The whole answer, with the jobs that wait for locks or would get them."""
    waiting = [one for one in locks.waiting if one.id not in outcome.paused]
    counts = Counter(outcome.counts)
    counts["lock"] += locks.count - (len(locks.waiting) - len(waiting))
    return msgspec.structs.replace(
        outcome,
        granted=[job_id for job_id in locks.granted if job_id not in outcome.paused],
        waiting=outcome.waiting + waiting,
        counts=dict(+counts),
    )
