"""Why a job does not run, in words: pure. What holds it back is found out elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..transport.messages import JobExplained, Obstacle, Standing, WantedLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..storage.jobs import JobStatus
    from .job_table import Row

_JOBS_SHOWN_MAX = 10


def of_pending(row: Row, standing: Standing, rule: str | None) -> list[Obstacle]:
    """What holds back a pending job, in the order in which the scheduler looks at it.

    ``rule`` is what is told of the filter rule that applies to it, if any.
    """
    found = []
    if standing.open:
        jobs = _shown(standing.open)
        found.append(
            Obstacle(
                kind="dependency",
                held=row.id,
                text=f"it waits for {jobs} to end",
                change=f"{jobs} ends as it must",
                jobs=standing.open,
            )
        )
    found += [_of_bucket(row.id, standing, full) for full in standing.full]
    if standing.action in ("PAUSE", "REJECT") and rule is not None:
        found.append(
            Obstacle(
                kind="rule",
                held=row.id,
                text=rule,
                change=f"`ganger filter delete {standing.rule}`, or an ACCEPT rule before it",
                rule=standing.rule,
            )
        )
    if len(standing.running) >= standing.slots:
        found += _of_slots(row.id, standing)
    return found


def _of_bucket(job_id: int, standing: Standing, full: tuple[str, int, list[int]]) -> Obstacle:
    name, size, occupants = full
    is_rule = name == f"rule:{standing.rule}"
    what = f"filter rule {standing.rule}" if is_rule else f"the reason rate-limit:{name}"
    return Obstacle(
        kind="limit",
        held=job_id,
        text=f"{what} lets {size} run at once: {_shown(occupants)}",
        change=_one_ends(occupants),
        jobs=occupants,
        rule=standing.rule if is_rule else None,
    )


def _of_slots(job_id: int, standing: Standing) -> list[Obstacle]:
    running = _shown(standing.running)
    found = [
        Obstacle(
            kind="slots",
            held=job_id,
            text=f"all {standing.slots} run slots are taken, by {running}",
            change="one of them ends, or there are more slots (`ganger queue limit`)",
            jobs=standing.running,
        )
    ]
    if standing.ahead:
        found.append(
            Obstacle(
                kind="order",
                held=job_id,
                text=f"{_count(standing.ahead)} before it, first {_shown(standing.first_ahead)}",
                change=f"a priority below {standing.best_priority} puts it first "
                f"(`ganger job change-priority {job_id} --priority N`)",
                jobs=standing.first_ahead,
            )
        )
    return found


def of_locks(row: Row, wanted: Iterable[WantedLock]) -> list[Obstacle]:
    """What holds back a job that waits for locks."""
    found = []
    for lock in wanted:
        holders = sorted({job for job, _, _ in lock.holders})
        parts = []
        if holders:
            modes = " and ".join(sorted({mode for _, mode, _ in lock.holders}))
            parts.append(f"held ({modes}) by {_shown(holders)}")
        if lock.ahead:
            parts.append(f"wanted earlier by {_shown(lock.ahead)}")
        moments = [since for _, _, since in lock.holders if since is not None]
        blocking = holders or lock.ahead
        found.append(
            Obstacle(
                kind="lock",
                held=row.id,
                text=f"it waits for {lock.name} ({lock.mode}), {' and '.join(parts)}",
                change=f"{_shown(blocking)} ends, or gives the lock back",
                jobs=sorted({*holders, *lock.ahead}),
                lock=lock.name,
                since=min(moments, default=None),
            )
        )
    return found


def of_dependency(row: Row, wanted: Sequence[str], status: JobStatus | None) -> Obstacle:
    """A job in the chain of those that another one waits for; ``status`` is its own."""
    needed = " or ".join(wanted) or "any final status but canceled"
    return Obstacle(
        kind="dependency",
        held=row.id,
        text=f"job {row.id} is {status}, and must end with {needed}",
        jobs=[row.id],
    )


def explained(row: Row, obstacles: list[Obstacle]) -> JobExplained:
    """The whole answer."""
    if row.status.is_final:
        text = f"job {row.id} has ended: {row.status}"
    elif obstacles:
        text = f"job {row.id} is {row.status}: {obstacles[0].text}"
    elif row.process_id is not None:
        text = f"job {row.id} is {row.status}: nothing holds it back (process {row.process_id})"
    else:
        text = f"job {row.id} is about to start: nothing holds it back"
    # Who stands before it matters only once there is a slot: that is change enough.
    own = [one.change for one in obstacles if one.held == row.id and one.kind != "order"]
    return JobExplained(
        id=row.id,
        status=row.status,
        text=text,
        obstacles=obstacles,
        change=" and then ".join(own),
    )


def _shown(jobs: Sequence[int]) -> str:
    shown = ", ".join(map(str, jobs[:_JOBS_SHOWN_MAX]))
    more = len(jobs) - _JOBS_SHOWN_MAX
    word = "job" if len(jobs) == 1 else "jobs"
    return f"{word} {shown}" + (f" and {more} more" if more > 0 else "")


def _one_ends(jobs: Sequence[int]) -> str:
    return f"{_shown(jobs)} ends" if len(jobs) == 1 else f"one of {_shown(jobs)} ends"


def _count(number: int) -> str:
    return "1 job stands" if number == 1 else f"{number} jobs stand"
