"""The smallest change that would let a pending job start: pure, and tried out.

The trial goes through the jobs before this one as a pass of the scheduler would, after the change.
If a job cannot start, those of its part after it cannot either, so it looks at few of many. Jobs
that want the names of one that the trial has started are barred from then on.
So a remedy never names the end of a job whose place another job would take. It weighs jobs once
after the change, where a pass weighs them after each start: among jobs with locks, the order may
be another one then. It ends with this job: a less urgent one that starts after it may let a pass
give it a slot in which it waits for its locks.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

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
from .smallest_change import Change, Trials, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Buckets = tuple[tuple[str, int], ...]
"""The buckets of a job, each with its size in running jobs."""


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
    buckets; ``priorities``: those of these jobs, where they may differ from 0. ``owners``: the
    owners of locks, those of jobs that have just started among them.
    ``weight_left``: the part of its weight that its age has left a job; a lower id has no more.
    """

    own: Candidate
    rivals: list[list[Rivals]]
    running: dict[int, tuple[str, ...]]
    slots: int
    weight_left: Callable[[int], float]
    owners: dict[OwnerId, LockForecast] = {}
    priorities: dict[int, int] = {}
    policy: Policy = Policy()

    @property
    def is_weighed(self) -> bool:
        """Whether locks play a role in the order."""
        return any(kind.needs is not None for kinds in self.rivals for kind in kinds)


def for_pending(
    contention: Contention, rules: Sequence[str], refused: Collection[int] = ()
) -> Remedy:
    """What would start the job; ``rules`` hold it, in the order of the chain.

    ``refused``: priorities that are no way out, because rules look at them.
    """
    own = contention.own
    trials = Trials(
        waits_for=own.waits_for,
        buckets=own.buckets,
        running=contention.running,
        slots=contention.slots,
        blocking=frozenset(_blocking(contention)),
        starts=lambda change: _starts(contention, change),
        best=lambda change: next((one.priority for one, _ in _rivals(contention, change)), None),
        refused=refused,
    )
    return chosen(trials, rules)


def _rivals(
    contention: Contention,
    change: Change,
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
    contention: Contention, change: Change
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


def _held(contention: Contention, change: Change) -> Iterable[LockForecast]:
    """The locks that are taken after the change."""
    gone = change.ended | change.released
    return (held for owner, held in contention.owners.items() if owner not in gone)


def _blocking(contention: Contention) -> Iterable[OwnerId]:
    """The owners of locks that hold the job back."""
    own, owners = contention.own, contention.owners.items()
    if not contention.policy.holds_back or own.needs_first is None or own.is_aged:
        return ()
    if _Urgency(contention, frozenset()).is_outranked_by(own.priority):
        return ()
    needs = own.needs_first
    return (owner for owner, held in owners if is_certain_to_block(needs, held))


def _starts(contention: Contention, change: Change) -> bool:
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
        if not _has_places(one.buckets, taken) or locks.hold_back(
            first, one.priority, is_aged=is_aged
        ):
            # No place or lock becomes free in a pass, and the others of its part are younger.
            passed.add(one)
            continue
        taken.update(name for name, _ in one.buckets)
        free -= 1
        if first is not None:
            locks.take(first, one.priority)
    own = contention.own
    is_last_held_back = locks.hold_back(own.needs_first, own.priority, is_aged=own.is_aged)
    return free > 0 and _has_places(own.buckets, taken) and not is_last_held_back


class _Urgency:
    """The priority of the least urgent job with a run slot and locks, but those of ``gone``."""

    def __init__(self, contention: Contention, gone: frozenset[OwnerId]) -> None:
        owners = contention.owners.keys() - gone
        running = contention.running.keys() & owners
        self._least = max((contention.priorities.get(one, 0) for one in running), default=None)

    def is_outranked_by(self, priority: int) -> bool:
        """Whether locks hold no job of this priority back (`Prediction.outranks_an_owner`)."""
        return self._least is not None and self._least > priority

    def add(self, priority: int) -> None:
        """A job of this priority has a run slot and locks, too."""
        self._least = priority if self._least is None else max(self._least, priority)


class _Locks:
    """The locks that are taken in a trial.

    ``barred``: of each part, the jobs that are held back by names which the trial has given away.
    """

    def __init__(self, contention: Contention, change: Change) -> None:
        self._held = set(_held(contention, change))
        self._holds_back = contention.policy.holds_back
        self._urgency = _Urgency(contention, change.ended | change.released)
        self._must_wait: dict[LockForecast, bool] = {}
        self.barred = {part: IdSet() for parts in contention.rivals for part in parts}

    def hold_back(self, first: LockForecast | None, priority: int, *, is_aged: bool) -> bool:
        """Whether a job of this priority that begins with these locks gets no run slot."""
        if first is None or is_aged or not self._holds_back:
            return False
        if self._urgency.is_outranked_by(priority):
            return False
        must_wait = self._must_wait.get(first)
        if must_wait is None:
            must_wait = any(is_certain_to_block(first, one) for one in self._held)
            self._must_wait[first] = must_wait
        return must_wait

    def take(self, first: LockForecast, priority: int) -> None:
        """A job of this priority starts, and takes these locks."""
        if first != NO_LOCKS:
            self._urgency.add(priority)
        if first in self._held:
            return
        self._held.add(first)
        self._must_wait.clear()
        if not self._holds_back:
            return
        taken = [(level, frozenset(names), alone) for level, names, alone in named(first)]
        for part, barred in self.barred.items():
            if self._urgency.is_outranked_by(part.priority):
                continue
            for wanting in part.beginning_with(taken):
                aged = wanting.count_while(part.is_aged)
                barred.update(
                    wanting if not aged else IdSet.of(itertools.islice(wanting, aged, None))
                )


def _has_places(buckets: Buckets, taken: Counter[str]) -> bool:
    return all(taken[name] < size for name, size in buckets)
