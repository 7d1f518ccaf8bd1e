"""Says why a job does not run, and what would start it: pure. `diagnosis` collects the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...storage.jobs import outcomes
from ...storage.jobs.outcomes import ALWAYS, ANY_FAILED
from ...storage.locks.locks import CONFIG_LOCK, LockMode, typed
from ...storage.settings import EXPLAINED_JOBS_MAX, START_ATTEMPTS_MAX
from ...transport import remedy_words
from ...transport.messages import (
    FullLimit,
    HoldingBack,
    JobExplained,
    Obstacle,
    OpcodeWait,
    QueuePosition,
    Remedy,
    WantedLock,
)
from ..scheduling.smallest_change import priority_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...storage.jobs.jobs import Job, JobStatus
    from ...storage.jobs.outcomes import Ending
    from ..store.job_rows import Row


class HoldingRule(NamedTuple):
    """A filter rule that holds a job: its text, its priority, and when it ends by itself."""

    uuid: str
    text: str
    priority: int
    until: str = ""
    """A time in words; "": it does not end."""

    name: str = ""


def of_pending(
    row: Row, position: QueuePosition, rules: Iterable[HoldingRule], limiting: str = ""
) -> list[Obstacle]:
    """What holds back a pending job, in the order in which the scheduler looks at it.

    ``rules``: those that hold it (`holding`).
    """
    found = []
    if position.failing:
        jobs = remedy_words.jobs(position.open)
        ends = "ends" if len(position.open) == 1 else "end"
        text = f"{position.failing}: it is skipped when {jobs} {ends}"
        found.append(Obstacle(kind="dependency", held=row.id, text=text, jobs=position.open))
    elif position.open:
        found.append(
            Obstacle(
                kind="dependency",
                held=row.id,
                text=f"it waits for {remedy_words.jobs(position.open)} to end",
                jobs=position.open,
                remedy=Remedy(depends=position.open),
            )
        )
    found += [_of_bucket(row.id, position, full, limiting) for full in position.full]
    found += [of_rule(row, rule) for rule in rules]
    found += [_of_held_back(row.id, one) for one in position.held_back]
    if len(position.running) >= position.slots:
        found += _of_slots(row.id, position)
    return found


def holding(position: QueuePosition) -> list[str]:
    """The rules that hold a pending job, in the order of the chain."""
    if position.action not in ("PAUSE", "REJECT"):
        return []
    # While the evaluator still judges a job, it is held without a rule.
    return position.holding or ([] if position.rule is None else [position.rule])


def of_rule(row: Row, rule: HoldingRule) -> Obstacle:
    """The rule holds the job, or will once it has its locks."""
    text = f"{rule.text}; that ends by itself at {rule.until}" if rule.until else rule.text
    remedy = without_rules(Remedy(), [rule])
    return Obstacle(kind="rule", held=row.id, text=text, rule=rule.uuid, remedy=remedy)


def _of_bucket(job_id: int, position: QueuePosition, full: FullLimit, limiting: str) -> Obstacle:
    """``limiting``: the rule that applies to the job, in words."""
    is_rule = full.name == f"rule:{position.rule}"
    by_rule = limiting or f"filter rule {position.rule}"
    what = by_rule if is_rule else f"the reason rate-limit:{full.name}"
    text = f"{what} lets {full.size} run at once: {remedy_words.jobs(full.inside)}"
    if full.ahead:
        waits = "waits" if full.ahead == 1 else "wait"
        ahead = remedy_words.jobs(full.first_ahead, full.ahead)
        text += f"; before it {waits} for that: {ahead}"
    return Obstacle(
        kind="limit",
        held=job_id,
        text=text,
        jobs=full.inside,
        rule=position.rule if is_rule else None,
        remedy=Remedy(ends=[full.inside]),
    )


def _of_held_back(job_id: int, held_back: HoldingBack) -> Obstacle:
    owners = sorted({*held_back.jobs, *held_back.soon})
    return Obstacle(
        kind="lock",
        held=job_id,
        text=f"it would have to wait for {remedy_words.taken(held_back)}",
        jobs=owners,
        lock=held_back.lock,
        remedy=Remedy(locks=owners),
    )


def _of_slots(job_id: int, position: QueuePosition) -> list[Obstacle]:
    running = remedy_words.jobs(position.running) if position.running else ""
    found = [
        Obstacle(
            kind="slots",
            held=job_id,
            text=remedy_words.slots_taken(position.slots) + (f", by {running}" if running else ""),
            jobs=position.running,
            remedy=Remedy(ends=[position.running], slots=len(position.running) + 1),
        )
    ]
    if position.ahead or position.has_more_ahead:
        first = position.first_ahead
        priority = priority_before(position.best_priority, position.refused)
        found.append(
            Obstacle(
                kind="order",
                held=job_id,
                text=_before(position),
                jobs=first,
                remedy=Remedy(priority=priority)
                if priority is not None
                else Remedy(is_turn=True, first_ahead=first),
            )
        )
    return found


def of_locks(row: Row, wanted: Iterable[WantedLock]) -> list[Obstacle]:
    """The locks that a job waits for."""
    found = []
    for lock in wanted:
        holders = sorted({job for job, _, _ in lock.holders})
        parts = []
        if lock.ahead:
            parts.append(f"wanted earlier by {remedy_words.jobs(lock.ahead)}")
        if holders:
            # Last: the reader adds since when.
            modes = " and ".join(sorted({mode for _, mode, _ in lock.holders}))
            parts.append(f"held ({modes}) by {remedy_words.jobs(holders)}")
        moments = [since for _, _, since in lock.holders if since is not None]
        found.append(
            Obstacle(
                kind="lock",
                held=row.id,
                text=f"it waits for {typed(lock.name)} ({lock.mode}), {' and '.join(parts)}",
                jobs=sorted({*holders, *lock.ahead}),
                lock=lock.name,
                since=min(moments, default=None),
                remedy=Remedy(locks=holders or lock.ahead),
            )
        )
    return found


def of_config_lock(row: Row, wait: OpcodeWait) -> Obstacle:
    """The configuration lock, for which the job's running opcode waits."""
    holders = [owner.identifier for owner in wait.owners]
    jobs = sorted(one for one in holders if isinstance(one, int))
    who = wait.text or "others wait for it, too"
    return Obstacle(
        kind="lock",
        held=row.id,
        text=f"its opcode waits for {CONFIG_LOCK} ({LockMode.EXCLUSIVE}): {who}",
        jobs=jobs,
        lock=CONFIG_LOCK,
        remedy=Remedy(locks=jobs),
    )


def of_dependency(row: Row, wanted: Sequence[str], status: JobStatus | None) -> Obstacle:
    """A job with this ``status`` on which another job depends."""
    needed = f"must end with {' or '.join(wanted) or 'any final status but canceled'}"
    if ALWAYS in wanted:
        needed = "must end"
    elif ANY_FAILED in wanted:
        needed = "must fail, or another of those with this word"
    return Obstacle(
        kind="dependency",
        held=row.id,
        text=f"job {row.id} is {status}, and {needed}",
        jobs=[row.id],
    )


def remedy_of_pending(position: QueuePosition, rules: Iterable[HoldingRule]) -> Remedy:
    """The scheduler's remedy, with what the queue adds; ``rules`` hold the job."""
    remedy = without_rules(
        position.remedy, [rule for rule in rules if rule.uuid in position.remedy.rules]
    )
    first = position.first_ahead if remedy.is_turn else []
    return msgspec.structs.replace(remedy, first_ahead=first)


def without_rules(remedy: Remedy, rules: Sequence[HoldingRule]) -> Remedy:
    """The remedy, extended so that none of these rules holds the job any more."""
    if not rules:
        return remedy
    # A new rule stands behind the older ones of its priority, and no priority is below 0.
    first = min(rule.priority for rule in rules)
    return msgspec.structs.replace(
        remedy,
        rules=[rule.name or rule.uuid for rule in rules],
        accept_below=first if first > 0 else None,
        # These times are written so that the later one is the greater text.
        until=max(rule.until for rule in rules) if all(rule.until for rule in rules) else "",
    )


def explained(
    row: Row, obstacles: list[Obstacle], remedy: Remedy, position: QueuePosition | None = None
) -> JobExplained:
    """The whole answer. ``remedy`` lets the job go on; ``position``: that of a pending job."""
    if row.status.is_final:
        text = _ended(f"job {row.id}", row.shown_ending)
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
        obstacles=[
            msgspec.structs.replace(one, change=remedy_words.remedy(one.remedy, one.held))
            for one in obstacles
        ],
        change=remedy_words.remedy(remedy, row.id),
        priority=row.priority,
        ahead=None if position is None else position.ahead,
        has_more_ahead=position is not None and position.has_more_ahead,
        remedy=remedy,
    )


def renamed(answer: JobExplained, in_names: Callable[[str], str]) -> JobExplained:
    """The same answer, with the texts as ``in_names`` gives them."""
    obstacles = [msgspec.structs.replace(one, text=in_names(one.text)) for one in answer.obstacles]
    return msgspec.structs.replace(answer, text=in_names(answer.text), obstacles=obstacles)


def explained_archived(job: Job) -> JobExplained:
    """What is said of a job in the archive."""
    ending = outcomes.ending_of(job)
    assert ending is not None, "a job that has not ended is not archived"
    text = _ended(f"job {job.id} (archived)", ending)
    return JobExplained(
        id=job.id, status=job.status, text=text, obstacles=[], change="", priority=job.priority
    )


def _ended(job: str, ending: Ending) -> str:
    return f"{job} has ended: {ending.outcome}{f', {ending.reason}' if ending.reason else ''}"


def explained_without_store(row: Row) -> JobExplained:
    """What is known of a running job while the configuration store does not answer."""
    known = explained(row, [], Remedy())
    if row.status.is_final:
        return known
    text = (
        f"job {row.id} is {row.status} (process {row.process_id}); whether its opcode waits for "
        f"{CONFIG_LOCK} is not known, because the configuration store does not answer"
    )
    return msgspec.structs.replace(known, text=text)


def _before(position: QueuePosition) -> str:
    """How many jobs are before it, and the first of them."""
    text = f"{_count(position.ahead)} before it"
    if position.has_more_ahead:
        text += f" among the first {EXPLAINED_JOBS_MAX} in order, and perhaps more"
    return f"{text}, first {remedy_words.jobs(position.first_ahead)}" if position.ahead else text


def _count(number: int) -> str:
    return "1 job stands" if number == 1 else f"{number} jobs stand"
