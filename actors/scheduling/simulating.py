"""What would happen if: the scheduler's decisions on a copy of its schedule. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage.jobs import JobStatus
from ...storage.prediction.lock_types import NO_LOCKS
from ...transport import remedy_words
from ...transport.messages import Simulated, WaitingJob

if TYPE_CHECKING:
    from ...transport.messages import LocksSimulated, QueuePosition, RunSimulation
    from .scheduling import Schedule

_WAITING_SHOWN_MAX = 200


def outcome(schedule: Schedule, asked: RunSimulation) -> Simulated:
    """The decisions of one pass over the changed schedule, and why the other jobs would wait."""
    simulation = asked.simulation
    other = schedule.what_if(asked.jobs, asked.running, simulation.running_jobs_max)
    for job_id, priority in simulation.priorities.items():
        other.reprioritise(job_id, priority)
    for job_id, status in simulation.ended.items():
        _end(other, job_id, status)
    running = [verdict for verdict in asked.running if verdict.job.id not in simulation.ended]
    rejected = [one for one in running if one.action == "REJECT" and one.job.is_unbegun]
    paused = [one for one in running if one.action == "PAUSE"]
    for verdict in rejected:
        _end(other, verdict.job.id, JobStatus.CANCELED)
    for verdict in paused:
        # A job whose opcode runs keeps its run slot until the opcode ends.
        if verdict.job.is_idle:
            other.vacate(verdict.job.id)
            other.locks_changed(verdict.job.id, NO_LOCKS)
    decided = other.decide(schedule.now)
    counts: Counter[str] = Counter()
    waiting: list[WaitingJob] = []
    ended = [(one.job.id, f"rejected by filter rule {one.rule}") for one in rejected]
    ended += [(one.id, one.text or one.verdict) for one in decided.unsatisfiable]
    for job_id in other.pending_in_order():
        position = other.position(job_id, is_brief=True)
        assert position is not None
        if position.action == "REJECT":
            # Wherever it stands: the evaluator looks through the whole queue for these.
            ended.append((job_id, f"rejected by filter rule {position.rule}"))
            continue
        kind, text = first_obstacle(position)
        counts[kind] += 1
        if len(waiting) < _WAITING_SHOWN_MAX:
            waiting.append(WaitingJob(id=job_id, kind=kind, text=text))
    return Simulated(
        start=decided.start,
        paused=[verdict.job.id for verdict in paused],
        ended=ended,
        counts=dict(counts),
        waiting=waiting,
    )


def _end(schedule: Schedule, job_id: int, status: JobStatus) -> None:
    """The job ends, and its process gives its locks back."""
    schedule.locks_changed(job_id, NO_LOCKS)
    schedule.finish(job_id, status)


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


def first_obstacle(position: QueuePosition) -> tuple[str, str]:
    """The first thing that holds a job back, in the order in which the scheduler looks at it."""
    if position.open:
        return "dependency", f"waits for {', '.join(map(str, position.open))}"
    if position.full:
        name, size, _, _ = position.full[0]
        return "limit", f"{name}: {size} {'runs' if size == 1 else 'run'} already"
    if position.action in ("PAUSE", "REJECT"):
        return (
            "rule",
            f"{'paused' if position.action == 'PAUSE' else 'rejected'} by {position.rule}",
        )
    if position.held_back:
        return "lock", remedy_words.taken(position.held_back[0])
    if len(position.running) >= position.slots:
        return "slots", remedy_words.slots_taken(position.slots)
    return "order", "others are looked at first"
