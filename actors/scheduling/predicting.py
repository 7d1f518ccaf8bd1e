"""How likely a job is to wait for locks if it starts now: pure.

The weights are those of the Ganeti design document "predictive queue" (`lock_types`), beside the
locks that owners really hold (`holding`). A forecast has a *shape*: what is left of it without
names. The weight depends only on the shape, on the types that the running jobs take on each level,
and on the levels where a name of the forecast is taken in a conflicting mode. So jobs are weighed
together, and a weight costs no more with many running jobs.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...storage.prediction.lock_types import (
    LEVELS,
    NO_LOCKS,
    Costs,
    LevelForecast,
    LockForecast,
    LockType,
    adjusted_weight,
    cost,
    levels_of,
)
from ...storage.prediction.policy import Policy
from .ageing import Arrivals
from .holding import TYPE_INDEX, TYPES, Conflict, Holdings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .pending_job import Pending, SlotHolder

Shape = tuple[int, ...]
"""Of each level the type, as a number; the last one: the big lock."""

Mask = int
"""Levels, as bits."""

_WITH_BOTH_MODES = len(TYPES)
"""The type of a level with exclusive and shared names."""

_BIG_LOCKS = ("none", "shared", "exclusive")
_BIG_SHARED, _BIG_EXCLUSIVE = 1, 2
_EXCLUSIVE, _SHARED = TYPE_INDEX[LockType.EXCLUSIVE], TYPE_INDEX[LockType.SHARED]
_TYPES_KNOWN = 4_096


@functools.lru_cache(maxsize=_TYPES_KNOWN)
def shape_of(forecast: LockForecast) -> Shape:
    """The forecast without its names."""
    found = [
        _WITH_BOTH_MODES if one.also_shared else TYPE_INDEX[one.type] for one in levels_of(forecast)
    ]
    return (*found, _BIG_LOCKS.index(forecast.big_lock))


def _sample(kind: LockType, name: str) -> LevelForecast:
    return LevelForecast(kind, (name,) if kind in {LockType.SHARED, LockType.EXCLUSIVE} else ())


@functools.lru_cache(maxsize=_TYPES_KNOWN)
def _costs_beside(types: int, costs: Costs) -> tuple[float, ...]:
    """The highest cost of each type beside running jobs of these types, without common names."""
    beside = [_sample(kind, "") for index, kind in enumerate(TYPES) if types >> index & 1]
    found = [
        max((cost(_sample(kind, "-"), other, costs) for other in beside), default=0.0)
        for kind in TYPES
    ]
    return (*found, max(found[_EXCLUSIVE], found[_SHARED]))


_MUST_WAIT = {
    LockType.SHARED: {LockType.ALL_EXCLUSIVE},
    LockType.ALL_SHARED: {LockType.EXCLUSIVE, LockType.ALL_EXCLUSIVE},
    LockType.EXCLUSIVE: {LockType.ALL_SHARED, LockType.ALL_EXCLUSIVE},
    LockType.ALL_EXCLUSIVE: {
        LockType.SHARED,
        LockType.ALL_SHARED,
        LockType.EXCLUSIVE,
        LockType.ALL_EXCLUSIVE,
    },
}
"""Types that wait for types beside them, whatever the names."""


_WAITS_FOR = tuple(tuple(_MUST_WAIT.get(kind, ())) for kind in (*TYPES, LockType.EXCLUSIVE))
"""The same by the number of the type in a shape; the last one has both modes."""


@functools.lru_cache(maxsize=_TYPES_KNOWN)
def _certain_beside(types: int) -> tuple[bool, ...]:
    """Of each type, whether it is certain to wait beside these types, without common names."""
    beside = {kind for index, kind in enumerate(TYPES) if types >> index & 1}
    found = [not beside.isdisjoint(_MUST_WAIT.get(kind, ())) for kind in TYPES]
    return (*found, found[_EXCLUSIVE] or found[_SHARED])


def mask_of(conflicts: tuple[Conflict, ...]) -> Mask:
    """The levels of these conflicts."""
    mask = 0
    for level, _, _ in conflicts:
        mask |= 1 << level
    return mask


class Prediction:
    """Weighs shapes beside what the jobs of ``running`` hold.

    ``runs`` must change whenever ``running`` does.
    """

    def __init__(self, policy: Policy, running: Mapping[int, SlotHolder]) -> None:
        self.policy = policy
        self.runs = 0
        self._running = running
        self.taken = Holdings(running)
        self.arrivals = Arrivals(policy.tick_seconds, policy.seconds_until_weightless)
        self.generation = 0
        """Grows whenever weights may have changed."""

        self._least_urgent: int | None = None
        self._ranked_at = (-1, -1)
        self._looked_at = (-1, -1)
        self._looks_left: int | None = None
        self.is_tired = False
        """Whether the present pass has no looks left."""

        self._seen: tuple[tuple[int, ...], bool, bool, bool] | None = None
        self._types: tuple[int, ...] = (0,) * len(LEVELS)
        self._is_idle = True

    def change(self, policy: Policy) -> None:
        """Take another policy. An order of jobs must be made anew after it."""
        self.policy = policy
        self.arrivals.measure(policy.tick_seconds, policy.seconds_until_weightless)
        self.generation += 1

    def copy_from(self, other: Prediction) -> None:
        """Start with the owners and the times that another one knows."""
        self.taken = other.taken.copy(self._running)
        self.arrivals = other.arrivals.copy()

    def needs(self, forecast: LockForecast | None) -> LockForecast | None:
        """The forecast if it plays a role; None: the job needs no locks, or prediction is off."""
        if forecast is None or forecast == NO_LOCKS or not self.policy.is_predictive:
            return None
        return forecast

    def rest(self, looks_max: int) -> None:
        """A pass begins: it may look up the names of so many jobs again. Without it, of all."""
        self._looks_left = looks_max
        self.is_tired = False

    def spend(self) -> bool:
        """The names of one more job are looked up again. Returns whether there are looks left."""
        if self._looks_left is not None:
            self._looks_left -= 1
            self.is_tired = self._looks_left < 0
        return not self.is_tired

    def look(self) -> None:
        """Note what the running jobs take now; weights are read after this."""
        if self._looked_at == (self.taken.generation, self.runs):
            return
        self._looked_at = (self.taken.generation, self.runs)
        taken = self.taken
        owners = len(self._running) + taken.outside(self._running)
        seen = (
            taken.types_taken(owners),
            owners == 0,
            bool(taken.big_shared),
            bool(taken.big_exclusive),
        )
        if seen != self._seen:
            self._seen = seen
            self._types, self._is_idle, _, _ = seen
            self.generation += 1

    def weight(self, shape: Shape, overlap: Mask) -> float:
        """The static weight of a shape, with names that are taken on the levels ``overlap``."""
        policy = self.policy
        if self._is_idle:
            return 0.0
        if shape[-1] == _BIG_EXCLUSIVE:
            return policy.base + len(LEVELS) * policy.costs.blocks
        found = policy.base
        for level, types in enumerate(self._types):
            beside = _costs_beside(types, policy.costs)[shape[level]]
            found += max(beside, policy.costs.blocks) if overlap >> level & 1 else beside
        return found

    def weight_without_locks(self) -> float:
        """The static weight of a job that needs no locks."""
        policy = self.policy
        return 0.0 if self._is_idle else policy.base + len(LEVELS) * policy.costs.free

    def weight_of(self, needs: LockForecast | None) -> float:
        """The static weight of jobs with these locks; None: without."""
        if needs is None:
            return self.weight_without_locks()
        # Which jobs want the names as well decides nothing here: any id will do.
        return self.weight(shape_of(needs), mask_of(self.taken.conflicts(needs, 0)))

    def is_certain_to_block(self, shape: Shape, overlap: Mask) -> bool:
        """Whether a job of this shape would have to wait for locks, if it were to start now."""
        big = shape[-1]
        if big and (self.taken.big_exclusive or (big == _BIG_EXCLUSIVE and self.taken.big_shared)):
            return True
        if overlap:
            return True
        return any(_certain_beside(types)[shape[level]] for level, types in enumerate(self._types))

    def is_held_back(self, job: Pending, now: float) -> bool:
        """Whether the job gets no run slot before locks change hands."""
        first = job.needs_first or job.needs
        return (
            first is not None
            and self.may_hold_back(first, job.priority)
            and not self.lets_go(first, job.id, now)
        )

    def may_hold_back(self, first: LockForecast | None, priority: int) -> bool:
        """Whether jobs of this priority that begin with these locks would have to wait for them."""
        if first is None or not self.policy.holds_back:
            return False
        # Which jobs want the names as well decides nothing here: any id will do.
        overlap = mask_of(self.taken.conflicts(first, 0))
        return self.is_certain_to_block(shape_of(first), overlap) and not self.outranks_an_owner(
            priority
        )

    def lets_go(self, first: LockForecast, job_id: int, now: float) -> bool:
        """Whether its age lets a job go that `may_hold_back`; then it lets all older ones go."""
        return (
            self.is_aged(job_id, now)
            and not self.stands_behind(self.taken.conflicts(first, job_id), job_id)
            and not self.stands_behind_types(shape_of(first), job_id)
        )

    def outranks_an_owner(self, priority: int) -> bool:
        """Whether a less urgent job with a run slot has locks, or is about to take some.

        Then a job of this priority is not held back: in a run slot it stands in line for its locks,
        and no other less urgent job gets them before it. So priority decides before all else.
        """
        seen = (self.taken.generation, self.runs)
        if self._ranked_at != seen:
            self._ranked_at = seen
            owners = (owner for owner, _, _ in self.taken.owners() if isinstance(owner, int))
            running = (self._running.get(owner) for owner in owners)
            self._least_urgent = max((one.priority for one in running if one), default=None)
        return self._least_urgent is not None and self._least_urgent > priority

    def stands_behind(self, conflicts: tuple[Conflict, ...], job_id: int) -> bool:
        """Whether an older job stands in line for one of these names, in a run slot.

        Then even a job without weight is held back: it would only stand in line behind that one.
        Older jobs are finitely many, so every job gets its turn.
        """
        return any(self.taken.is_wanted(one, job_id) for one in conflicts)

    def stands_behind_types(self, shape: Shape, job_id: int) -> bool:
        """As `stands_behind`, of what conflicts whatever the names: whole levels, the big lock."""
        oldest = self.taken.oldest_standing()
        if shape[-1] and any(
            oldest.get((-1, mode), job_id) < job_id for mode in _BIG_LOCKS[3 - shape[-1] :]
        ):
            return True
        return any(
            oldest.get((level, kind), job_id) < job_id
            for level, index in enumerate(shape[:-1])
            for kind in _WAITS_FOR[index]
        )

    def adjusted(self, weight: float, job_id: int, now: float) -> float:
        """What the job's age has left of its weight."""
        if not weight:
            return 0.0
        age = self.arrivals.age(job_id, now)
        return adjusted_weight(weight, age, self.policy.tick_seconds, self.policy.ticks)

    def is_aged(self, job_id: int, now: float) -> bool:
        """Whether the job has no weight left: nothing holds it back any more."""
        return now >= self.aged_at(job_id)

    def aged_at(self, job_id: int) -> float:
        """When the job has no weight left."""
        return self.arrivals.of(job_id) + self.policy.seconds_until_weightless
