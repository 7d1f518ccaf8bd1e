"""The smallest change that would let a pending job start: pure, and tried out.

The trial goes through the jobs before this one as a pass of the scheduler would, after the change.
If a job cannot start, those of its part after it cannot either, so it looks at few of many. Jobs
that want the names of one that the trial has started are barred from then on.
So a remedy never names the end of a job whose place another job would take. It weighs jobs once
after the change, where a pass weighs them after each start: among jobs with locks, the order may
be another one then.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...storage.jobs import PRIORITY_MIN
from ...storage.prediction.lock_types import (
    NO_LOCKS,
    LockForecast,
    is_certain_to_block,
    static_weight,
)
from ...storage.prediction.policy import Policy
from ...transport.messages import Remedy
from ..runtime.id_sets import IdSet
from .holding import NamesTaken, OwnerId, named
from .ordering import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Buckets = tuple[tuple[str, int], ...]
"""The buckets of a job, each with its size in running jobs."""

_ALTERNATIVES_MAX = 10


class Candidate(msgspec.Struct, frozen=True):
    """A pending job in the contention; ``held_by`` is the rule that holds it, if any."""

    priority: int
    id: int
    buckets: Buckets
    waits_for: frozenset[int] = frozenset()
    held_by: str | None = None
    needs: LockForecast | None = None
    needs_first: LockForecast | None = None
    is_aged: bool = False
    """Whether locks do not hold it back any more."""


class Rivals(msgspec.Struct, frozen=True, eq=False):
    """Pending jobs of one part (`parts`), the others' fields as in `Candidate`.

    ``needs`` and ``needs_first``: those of one of them. ``ids``: in order, those that are not
    barred, as far as they wait for no other jobs when these jobs have ended. ``is_aged``: of an id;
    if it is true, it is true of all lower ones. ``first_of``: the ``needs_first`` of an id.
    ``beginning_with``: sets of jobs, others among them, that begin with these names.
    """

    priority: int
    buckets: Buckets
    held_by: str | None
    needs: LockForecast | None
    needs_first: LockForecast | None
    ids: Callable[[IdSet, frozenset[int]], Iterable[int]]
    is_aged: Callable[[int], bool]
    first_of: Callable[[int], LockForecast | None]
    beginning_with: Callable[[Sequence[NamesTaken]], Iterable[IdSet]]


class Contention(msgspec.Struct, frozen=True):
    """A pending job, all of at least its priority, itself among them, and the prize.

    ``rivals``: by priority. ``running``: the jobs that hold a run slot, each with the names of its
    buckets. ``owners``: the owners of locks, those of jobs that have just started among them.
    ``weight_left``: the part of its weight that its age has left a job; a lower id has no more.
    """

    own: Candidate
    rivals: list[list[Rivals]]
    running: dict[int, tuple[str, ...]]
    slots: int
    weight_left: Callable[[int], float]
    owners: dict[OwnerId, LockForecast] = {}
    policy: Policy = Policy()

    @property
    def is_weighed(self) -> bool:
        """Whether locks play a role in the order."""
        return any(kind.needs is not None for kinds in self.rivals for kind in kinds)


class _Change(msgspec.Struct, frozen=True):
    """A change to try: jobs that have ended, rules that are gone, more slots, a priority.

    ``released``: owners that have given their locks back.
    """

    ended: frozenset[int]
    rules: frozenset[str]
    slots: int
    is_first: bool = False
    released: frozenset[OwnerId] = frozenset()


def for_pending(contention: Contention, rules: Sequence[str]) -> Remedy:
    """What would start the job; ``rules`` hold it, in the order of the chain."""
    gone = frozenset(rules)
    owners = frozenset(_blocking(contention))
    change = _Change(contention.own.waits_for, gone, contention.slots, released=owners)
    ends: list[list[int]] = []
    by_slots = 0
    if not _starts(contention, change):
        for name, size in contention.own.buckets:
            inside = [job for job, names in contention.running.items() if name in names]
            change = _with_ends(change, inside, size, ends)
        by_slots = -len(ends)
        change = _with_ends(change, list(contention.running), contention.slots, ends)
        by_slots += len(ends)
    priority = None
    is_turn = False
    if not _starts(contention, change):
        first = msgspec.structs.replace(change, is_first=True)
        best = next((one.priority for one, _ in _rivals(contention, change)), PRIORITY_MIN)
        if best > PRIORITY_MIN and _starts(contention, first):
            change, priority = first, best - 1
        else:
            is_turn = True
    slots = _slots_instead(contention, change, ends, by_slots)
    if not is_turn:
        ends = [_alternatives(contention, change, one) for [one] in ends]
    return Remedy(
        depends=sorted(contention.own.waits_for),
        locks=sorted(owner for owner in owners if isinstance(owner, int)),
        rules=list(rules),
        ends=ends,
        slots=slots,
        priority=priority,
        is_turn=is_turn,
    )


def _with_ends(change: _Change, inside: list[int], size: int, ends: list[list[int]]) -> _Change:
    """End as many of the jobs ``inside`` as are needed to free a place."""
    left = sorted(job for job in inside if job not in change.ended)
    chosen = left[: max(0, len(left) - size + 1)]
    ends += [[job] for job in chosen]
    return msgspec.structs.replace(change, ended=change.ended.union(chosen))


def _alternatives(contention: Contention, change: _Change, chosen: int) -> list[int]:
    """Running jobs of which any one may end instead of the chosen one."""
    others = change.ended - {chosen}
    left = sorted(contention.running.keys() - others)[:_ALTERNATIVES_MAX]
    return [
        job
        for job in left
        if job == chosen
        or _starts(contention, msgspec.structs.replace(change, ended=others | {job}))
    ] or [chosen]


def _slots_instead(
    contention: Contention, change: _Change, ends: list[list[int]], by_slots: int
) -> int | None:
    """The number of run slots that would make those ends unnecessary that free a run slot."""
    if not by_slots:
        return None
    spared = {job for [job] in ends[-by_slots:]}
    more = msgspec.structs.replace(
        change, ended=change.ended - spared, slots=contention.slots + by_slots
    )
    return more.slots if _starts(contention, more) else None


def _rivals(
    contention: Contention,
    change: _Change,
    passed: set[Rivals] | None = None,
    barred: Mapping[Rivals, IdSet] | None = None,
) -> Iterator[tuple[Rivals, int]]:
    """The jobs before this one that no rule or dependency holds after the change, in order.

    The caller may put a part into ``passed``: then no more of its jobs are wanted, and jobs into
    ``barred``: then these are not.
    """
    own, order = contention.own, _order(contention, change)
    limit = (own.priority, *order(own, own.id))
    none_barred = IdSet()

    def ids(part: Rivals) -> Iterable[int]:
        return part.ids(none_barred if barred is None else barred[part], change.ended)

    for parts in contention.rivals:
        able = [part for part in parts if part.held_by is None or part.held_by in change.rules]
        for part, job_id in in_order(able, ids, order, passed):
            if (part.priority, *order(part, job_id)) >= limit:
                break
            yield part, job_id


def _order(
    contention: Contention, change: _Change
) -> Callable[[Candidate | Rivals, int], tuple[float, int]]:
    """The order of the jobs of one priority after the change."""
    if not contention.is_weighed:
        return lambda _, job_id: (0.0, job_id)
    running = set(_held(contention, change))
    policy = contention.policy
    if any(job not in contention.owners for job in contention.running.keys() - change.ended):
        running.add(NO_LOCKS)

    @functools.cache
    def weight(needs: LockForecast) -> float:
        return static_weight(needs, running, base=policy.base, costs=policy.costs)

    return lambda one, job_id: (
        weight(one.needs or NO_LOCKS) * contention.weight_left(job_id),
        job_id,
    )


def _held(contention: Contention, change: _Change) -> Iterable[LockForecast]:
    """The locks that are taken after the change."""
    gone = change.ended | change.released
    return (held for owner, held in contention.owners.items() if owner not in gone)


def _blocking(contention: Contention) -> Iterable[OwnerId]:
    """The owners of locks that hold the job back."""
    own, owners = contention.own, contention.owners.items()
    if not contention.policy.holds_back or own.needs_first is None or own.is_aged:
        return ()
    needs = own.needs_first
    return (owner for owner, held in owners if is_certain_to_block(needs, held))


def _starts(contention: Contention, change: _Change) -> bool:
    """Whether a pass would start the job after this change."""
    running = [names for job, names in contention.running.items() if job not in change.ended]
    taken = Counter(name for names in running for name in names)
    free = change.slots - len(running)
    locks = _Locks(contention, change)
    passed: set[Rivals] = set()
    rivals = () if change.is_first else _rivals(contention, change, passed, locks.barred)
    for one, job_id in rivals:
        if free <= 0:
            return False
        if job_id in locks.barred[one]:
            # It was the next one of its part already.
            continue
        first = one.first_of(job_id)
        is_aged = first is None or one.is_aged(job_id)
        if not _has_places(one.buckets, taken) or locks.hold_back(first, is_aged=is_aged):
            # No place or lock becomes free in a pass, and the others of its part are younger.
            passed.add(one)
            continue
        taken.update(name for name, _ in one.buckets)
        free -= 1
        if first is not None:
            locks.take(first)
    own = contention.own
    is_last_held_back = locks.hold_back(own.needs_first, is_aged=own.is_aged)
    return free > 0 and _has_places(own.buckets, taken) and not is_last_held_back


class _Locks:
    """The locks that are taken in a trial.

    ``barred``: of each part, the jobs that are held back by names which the trial has given away.
    """

    def __init__(self, contention: Contention, change: _Change) -> None:
        self._held = set(_held(contention, change))
        self._holds_back = contention.policy.holds_back
        self._must_wait: dict[LockForecast, bool] = {}
        self.barred = {part: IdSet() for parts in contention.rivals for part in parts}

    def hold_back(self, first: LockForecast | None, *, is_aged: bool) -> bool:
        """Whether a job that begins with these locks gets no run slot."""
        if first is None or is_aged or not self._holds_back:
            return False
        must_wait = self._must_wait.get(first)
        if must_wait is None:
            must_wait = any(is_certain_to_block(first, one) for one in self._held)
            self._must_wait[first] = must_wait
        return must_wait

    def take(self, first: LockForecast) -> None:
        """A job starts, and takes these locks."""
        if first in self._held:
            return
        self._held.add(first)
        self._must_wait.clear()
        if not self._holds_back:
            return
        taken = [(level, frozenset(names), alone) for level, names, alone in named(first)]
        for part, barred in self.barred.items():
            for wanting in part.beginning_with(taken):
                aged = wanting.count_while(part.is_aged)
                barred.update(
                    wanting if not aged else IdSet.of(itertools.islice(wanting, aged, None))
                )


def _has_places(buckets: Buckets, taken: Counter[str]) -> bool:
    return all(taken[name] < size for name, size in buckets)
