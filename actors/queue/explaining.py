"""Why a job does not run, in words: pure. What holds it back is found out elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...storage.settings import START_ATTEMPTS_MAX
from ...transport.messages import JobExplained, LockRemedy, Obstacle, Standing, WantedLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...storage.jobs import JobStatus
    from .job_table import Row

_JOBS_SHOWN_MAX = 10

AND = ", and "
"""Between the parts of a change; the parts have commas of their own."""


class HoldingRule(NamedTuple):
    """A filter rule that holds a job: what is told of it, its priority, when it ends by itself."""

    uuid: str
    told: str
    priority: int
    until: str = ""
    """A time in words; "": it does not end."""


def of_pending(row: Row, standing: Standing, rules: Iterable[HoldingRule]) -> list[Obstacle]:
    """What holds back a pending job, in the order in which the scheduler looks at it.

    ``rules``: those that hold it (`holding`).
    """
    found = []
    if standing.failing:
        jobs = _shown(standing.open)
        ends = "ends" if len(standing.open) == 1 else "end"
        text = f"{standing.failing}: it ends in error when {jobs} {ends}, or canceled if one is"
        found.append(Obstacle(kind="dependency", held=row.id, text=text, jobs=standing.open))
    elif standing.open:
        jobs = _shown(standing.open)
        found.append(
            Obstacle(
                kind="dependency",
                held=row.id,
                text=f"it waits for {jobs} to end",
                change=_end_as_they_must(standing.open),
                jobs=standing.open,
            )
        )
    found += [_of_bucket(row.id, standing, full) for full in standing.full]
    found += [of_rule(row, rule) for rule in rules]
    if len(standing.running) >= standing.slots:
        found += _of_slots(row.id, standing)
    return found


def holding(standing: Standing) -> list[str]:
    """The rules that hold a pending job, one behind the other."""
    if standing.action not in ("PAUSE", "REJECT"):
        return []
    # One that is still being judged is held, and not yet by a rule.
    return standing.holding or ([] if standing.rule is None else [standing.rule])


def of_rule(row: Row, rule: HoldingRule) -> Obstacle:
    """The rule holds the job, or will when it has what it waits for."""
    change = _without([rule])
    text = f"{rule.told}; that ends by itself at {rule.until}" if rule.until else rule.told
    return Obstacle(kind="rule", held=row.id, text=text, change=change, rule=rule.uuid)


def _of_bucket(
    job_id: int, standing: Standing, full: tuple[str, int, list[int], list[int]]
) -> Obstacle:
    name, size, occupants, ahead = full
    is_rule = name == f"rule:{standing.rule}"
    what = f"filter rule {standing.rule}" if is_rule else f"the reason rate-limit:{name}"
    return Obstacle(
        kind="limit",
        held=job_id,
        text=f"{what} lets {size} run at once: {_shown(occupants)}"
        + (f"; before it {_waits(ahead)} for that: {_shown(ahead)}" if ahead else ""),
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
        if lock.ahead:
            parts.append(f"wanted earlier by {_shown(lock.ahead)}")
        if holders:
            # Last, because it is told since when.
            modes = " and ".join(sorted({mode for _, mode, _ in lock.holders}))
            parts.append(f"held ({modes}) by {_shown(holders)}")
        moments = [since for _, _, since in lock.holders if since is not None]
        blocking = holders or lock.ahead
        found.append(
            Obstacle(
                kind="lock",
                held=row.id,
                text=f"it waits for {lock.name} ({lock.mode}), {' and '.join(parts)}",
                change=_give_back(blocking),
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


def change_of_pending(row: Row, standing: Standing, rules: Iterable[HoldingRule]) -> str:
    """The smallest change that would let a pending job start, in words; ``rules`` hold it."""
    remedy = standing.remedy
    parts = [_end_as_they_must(remedy.depends)] if remedy.depends else []
    if remedy.rules:
        parts.append(_without([rule for rule in rules if rule.uuid in remedy.rules]))
    parts += [_one_ends(jobs) for jobs in remedy.ends]
    if remedy.slots is not None:
        slots = remedy.slots
        parts[-1] += f", or there are {slots} run slots (`ganger queue limit {slots}`)"
    if remedy.priority is not None:
        parts.append(_moved_up(row, remedy.priority))
    if remedy.is_turn:
        parts.append(f"those before it have had their turn, first {_shown(standing.first_ahead)}")
    return AND.join(parts)


def change_of_waiting(row: Row, remedy: LockRemedy) -> str:
    """The smallest change that would give a job the locks it waits for, in words."""
    parts = [_give_back(remedy.ends)] if remedy.ends else []
    if remedy.priority is not None:
        parts.append(_moved_up(row, remedy.priority))
    return AND.join(parts)


def explained(
    row: Row, obstacles: list[Obstacle], change: str = "", ahead: int | None = None
) -> JobExplained:
    """The whole answer. ``change`` would let the job go on; so many are looked at before it."""
    if row.status.is_final:
        text = f"job {row.id} has ended: {row.status}"
    elif obstacles:
        text = f"job {row.id} is {row.status}: {obstacles[0].text}"
    elif row.process_id is not None:
        text = f"job {row.id} is {row.status}: nothing holds it back (process {row.process_id})"
    else:
        text = f"job {row.id} is about to start: nothing holds it back"
        if row.failed_starts:
            text = (
                f"job {row.id} is being started again: {row.failed_starts} of its processes ended "
                f"before it began; after {START_ATTEMPTS_MAX} it ends in an error"
            )
    return JobExplained(
        id=row.id,
        status=row.status,
        text=text,
        obstacles=obstacles,
        change=change,
        priority=row.priority,
        ahead=ahead,
    )


def _without(rules: Sequence[HoldingRule]) -> str:
    deleted = " and ".join(f"`ganger filter delete {rule.uuid}`" for rule in rules)
    first = min(rule.priority for rule in rules)
    # A new rule stands behind the older ones of its priority, and none is below 0.
    accepted = f", or an ACCEPT rule with a priority below {first}" if first > 0 else ""
    # Such times are written so that the later one is the greater text.
    last = max(rule.until for rule in rules) if all(rule.until for rule in rules) else ""
    return deleted + accepted + (f", or it is {last}" if last else "")


def _moved_up(row: Row, priority: int) -> str:
    command = f"`ganger job change-priority {row.id} --priority {priority}`"
    return f"it has priority {priority} or better ({command})"


def _end_as_they_must(jobs: Sequence[int]) -> str:
    return f"{_shown(jobs)} {'ends as it' if len(jobs) == 1 else 'end as they'} must"


def _give_back(jobs: Sequence[int]) -> str:
    if len(jobs) == 1:
        return f"{_shown(jobs)} ends, or gives the lock back"
    return f"{_shown(jobs)} end, or give the locks back"


def _waits(jobs: Sequence[int]) -> str:
    return "waits" if len(jobs) == 1 else "wait"


def _shown(jobs: Sequence[int]) -> str:
    shown = ", ".join(map(str, jobs[:_JOBS_SHOWN_MAX]))
    more = len(jobs) - _JOBS_SHOWN_MAX
    word = "job" if len(jobs) == 1 else "jobs"
    return f"{word} {shown}" + (f" and {more} more" if more > 0 else "")


def _one_ends(jobs: Sequence[int]) -> str:
    return f"{_shown(jobs)} ends" if len(jobs) == 1 else f"one of {_shown(jobs)} ends"


def _count(number: int) -> str:
    return "1 job stands" if number == 1 else f"{number} jobs stand"
