"""The slow way to the answers of `queue_position`: it looks at each pending job; for tests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ganger.actors.scheduling.first_obstacle import first_obstacle
from ganger.actors.scheduling.pending_job import HELD, REJECTED, Pending, buckets_of
from ganger.actors.scheduling.remedies import Candidate, Candidates, Contention
from ganger.transport.messages import FullLimit, JobVerdict, QueuePosition

if TYPE_CHECKING:
    from ganger.actors.scheduling.scheduling import Schedule

_SHOWN_AHEAD_MAX = 10


def in_order(schedule: Schedule) -> list[Pending]:
    """All pending jobs by priority, weight and id."""
    schedule._prediction.look()
    return sorted(schedule._pending.values(), key=lambda job: _key(schedule, job))


def _key(schedule: Schedule, job: Pending) -> tuple[int, float, int]:
    return schedule._order._order.sort_key(job, schedule.now)


def _ahead(schedule: Schedule, job: Pending) -> list[Pending]:
    return [
        other
        for other in in_order(schedule)
        if other.is_eligible
        and other.judged.action not in HELD
        and _key(schedule, other) < _key(schedule, job)
        and not schedule._prediction.is_held_back(other, schedule.now)
    ]


def position(schedule: Schedule, job_id: int) -> QueuePosition:
    """What `Schedule.position` says, with the jobs ahead found by looking at each."""
    job = schedule._pending[job_id]
    brief = schedule.position(job_id, is_brief=True)
    assert brief is not None
    ahead = _ahead(schedule, job)
    first = [other.id for other in ahead[:_SHOWN_AHEAD_MAX]]
    return msgspec.structs.replace(
        brief,
        full=[_with_ahead(one, ahead) for one in brief.full],
        ahead=len(ahead),
        first_ahead=first,
        best_priority=ahead[0].priority if ahead else job.priority,
    )


def _with_ahead(full: FullLimit, ahead: list[Pending]) -> FullLimit:
    waiting = [other.id for other in ahead if full.name in dict(other.judged.buckets)]
    return msgspec.structs.replace(full, ahead=len(waiting), first_ahead=waiting[:_SHOWN_AHEAD_MAX])


def contention(schedule: Schedule, job_id: int, then: JobVerdict | None) -> Contention:
    """A candidate for each pending job of at least this priority."""
    job = schedule._pending[job_id]
    own = _candidate(schedule, job)
    if then is not None:
        own = msgspec.structs.replace(own, buckets=buckets_of(then))
    in_order = sorted(schedule._pending.values(), key=lambda other: (other.priority, other.id))
    others = [other for other in in_order if other is not job and other.priority <= job.priority]
    return Contention(
        priorities={one: held.priority for one, held in schedule._running.items()},
        own=own,
        others=Candidates(_candidate(schedule, other) for other in others),
        is_weighed=any(one.needs is not None for one in (job, *others)),
        running={
            running: tuple(name for name, _ in held.buckets)
            for running, held in schedule._running.items()
        },
        slots=schedule._running_jobs_max,
        owners={owner: taken for owner, taken, _ in schedule._prediction.taken.owners()},
        policy=schedule.policy,
    )


def _candidate(schedule: Schedule, job: Pending) -> Candidate:
    is_held = job.judged.action in HELD or job.judged.action == REJECTED
    prediction, now = schedule._prediction, schedule.now
    return Candidate(
        priority=job.priority,
        id=job.id,
        buckets=job.judged.buckets,
        waits_for=frozenset(job.open),
        held_by=job.judged.rule if is_held else None,
        needs=job.needs,
        needs_first=job.needs_first or job.needs,
        weight_left=prediction.adjusted(1.0, job.id, now),
        is_aged=prediction.is_aged(job.id, now) and not prediction.is_held_back(job, now),
    )


def obstacles(schedule: Schedule) -> Counter[str]:
    """How many jobs that no rule rejects wait, by the kind of the first obstacle."""
    found: Counter[str] = Counter()
    for job in schedule._pending.values():
        if job.judged.action != REJECTED:
            brief = schedule.position(job.id, is_brief=True)
            assert brief is not None
            found[first_obstacle(brief)[0]] += 1
    return found
