"""Where a pending job stands: what keeps it from starting, and what it competes for. Pure.

It looks at kinds of jobs and their parts (`kinds`, `parts`), not at each: an answer costs what it
names, and something for each part.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage.prediction.lock_types import NO_LOCKS, is_certain_to_block
from ...transport.messages import FullLimit, HoldingBack, OrderReported, QueuePosition
from .depending import dependency_outcome
from .holding import levels, locks_between
from .ordering import in_order
from .parts import Part, parts_of
from .pending_job import HELD, REJECTED, Pending, SlotHolder, buckets_of
from .remedies import Candidate, Contention, Rivals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from ...storage.prediction.lock_types import LockForecast
    from ...transport.messages import JobVerdict
    from ..runtime.id_sets import IdSet
    from .kinds import Kind, Kinds
    from .predicting import Prediction

_SHOWN_AHEAD_MAX = 10

LOCK_NAMES_MAX = 20_000
"""Names of locks in a report of the order, in all different forecasts together."""

_Order = tuple[float, int]
"""What is left of the weight, and the id: the order of the jobs of one priority."""


class _Ahead(msgspec.Struct, frozen=True):
    """The first jobs of a part: they come before another job."""

    part: Part
    count: int

    def ids(self) -> Iterator[int]:
        """Their ids, in order."""
        return itertools.islice(self.part.ids, self.count)


class LockSets:
    """The locks of jobs, each different forecast once; some, if there are too many names."""

    def __init__(self) -> None:
        self.locks: list[LockForecast] = []
        self.by_job: dict[int, int] = {}
        self._known: dict[LockForecast, int] = {}
        self._names_left = LOCK_NAMES_MAX

    def add(self, job_id: int, forecast: LockForecast | None) -> None:
        """Note the job's locks, if it needs any and there is room for their names."""
        if forecast is None or forecast == NO_LOCKS:
            return
        index = self._known.get(forecast)
        if index is None:
            names = sum(len(one.names) + len(one.also_shared) for one in levels(forecast))
            if names > self._names_left:
                return
            self._names_left -= names
            index = self._known[forecast] = len(self.locks)
            self.locks.append(forecast)
        self.by_job[job_id] = index


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule knows, at one moment.

    ``dependants``: the jobs that wait for the end of another one; ``taken``: how many jobs are in
    each bucket.
    """

    pending: Mapping[int, Pending]
    kinds: Kinds
    dependants: Mapping[int, IdSet]
    running: Mapping[int, SlotHolder]
    taken: Counter[str]
    slots: int
    prediction: Prediction
    now: float

    def position(self, job_id: int, *, is_brief: bool) -> QueuePosition | None:
        """Everything that keeps a pending job from starting; ``is_brief``: without those ahead."""
        job = self.pending.get(job_id)
        if job is None:
            return None
        self.prediction.look()
        ahead = [] if is_brief else self._ahead(job)
        first = list(itertools.islice(self._in_order(ahead), _SHOWN_AHEAD_MAX))
        return QueuePosition(
            open=job.open,
            failing=""
            if job.entry
            else dependency_outcome(job.waits.depends, job.waits.known).text,
            full=[
                self._full_limit(name, size, ahead)
                for name, size in job.judged.buckets
                if self.taken[name] >= size
            ],
            action=job.judged.action,
            rule=job.judged.rule,
            held_back=self._held_back(job),
            ahead=sum(one.count for one in ahead),
            first_ahead=first,
            running=sorted(self.running),
            slots=self.slots,
            best_priority=ahead[0].part.priority if ahead else job.priority,
        )

    def in_order(self) -> Iterator[Pending]:
        """The pending jobs by priority, weight and id; not all of those that come meanwhile."""
        return self._jobs(self.kinds)

    def rejected(self) -> Iterator[Pending]:
        """Of `in_order`, those that a rule rejects, wherever they stand."""
        return self._jobs(kind for kind in self.kinds if kind.action == REJECTED)

    def waiting(self) -> Iterator[Pending]:
        """Of `in_order`, those that no rule rejects."""
        return self._jobs(kind for kind in self.kinds if kind.action != REJECTED)

    def reported(self, limit: int, at_once: int) -> Generator[None, None, OrderReported]:
        """The first ``limit`` jobs in order, and what holds each back but the others.

        Yields after each ``at_once`` jobs: then jobs may come and go.
        """
        found: dict[int, tuple[int, list[int], bool]] = {}
        lock_sets = LockSets()
        standing = []
        for owner, forecast, is_held in self.prediction.taken.owners():
            if isinstance(owner, int) and owner in self.running:
                lock_sets.add(owner, forecast)
                if not is_held:
                    standing.append(owner)
        for job in itertools.islice(self.in_order(), limit):
            is_full = any(self.taken[name] >= size for name, size in job.judged.buckets)
            # It comes twice if its priority has changed meanwhile.
            found[job.id] = (job.id, job.open, job.judged.action in HELD or is_full)
            lock_sets.add(job.id, job.wants.forecast)
            if len(found) % at_once == 0:
                yield
        return OrderReported(
            pending=[one for job_id, one in found.items() if job_id in self.pending],
            count=len(self.pending),
            running=sorted(self.running),
            slots=self.slots,
            locks=lock_sets.locks,
            lock_sets=lock_sets.by_job,
            standing=sorted(standing),
            holds_back=self.prediction.policy.is_predictive and self.prediction.policy.holds_back,
        )

    def obstacles(self) -> Counter[str]:
        """How many of the jobs that no rule rejects wait, by the kind of their first obstacle."""
        self.prediction.look()
        found: Counter[str] = Counter()
        taken = self.prediction.taken.names_taken()
        for kind in self.kinds:
            if kind.action == REJECTED:
                continue
            left = len(kind.ids)
            if kind.is_open:
                found["dependency"] += left
            elif any(self.taken[name] >= size for name, size in kind.buckets):
                found["limit"] += left
            elif kind.is_held:
                found["rule"] += left
            else:
                parts = parts_of(kind, taken, self.pending)
                free = sum(self._let_go(part) for part in parts)
                found["lock"] += left - free
                found["slots" if len(self.running) >= self.slots else "order"] += free
        return +found

    def contention(self, job_id: int, then: JobVerdict | None) -> Contention:
        """What a pending job competes for, and with which jobs, once ``then`` is its verdict."""
        self.prediction.look()
        job = self.pending[job_id]
        own = self._candidate(job)
        if then is not None:
            own = msgspec.structs.replace(own, buckets=buckets_of(then))
        return Contention(
            own=own,
            rivals=[
                [self._rivals(part) for part in self._parts(kinds)]
                for kinds in self.kinds.of_each_priority(job.priority)
            ],
            running={
                running: tuple(name for name, _ in held.buckets)
                for running, held in self.running.items()
            },
            priorities={job_id: held.priority for job_id, held in self.running.items()},
            slots=self.slots,
            owners={owner: forecast for owner, forecast, _ in self.prediction.taken.owners()},
            policy=self.prediction.policy,
            weight_left=self._weight_left,
        )

    # ------------------------------------------------------------ order

    def _weight_left(self, job_id: int) -> float:
        return self.prediction.adjusted(1.0, job_id, self.now)

    def _parts(self, kinds: Iterable[Kind]) -> Iterator[Part]:
        """The jobs of these kinds, apart if they want other ones of the names that are taken."""
        taken = self.prediction.taken.names_taken()
        return (part for kind in kinds for part in parts_of(kind, taken, self.pending))

    def _orders(self) -> Callable[[LockForecast | None, int], _Order]:
        """The order of the jobs of one priority, by their locks and ids."""
        if not self.kinds.is_weighed:
            return _by_id
        weight_of = functools.cache(self.prediction.weight_of)
        adjusted, now = self.prediction.adjusted, self.now
        return lambda needs, job_id: (adjusted(weight_of(needs), job_id, now), job_id)

    def _jobs(self, kinds: Iterable[Kind]) -> Iterator[Pending]:
        self.prediction.look()
        for job_id in self._in_order([_Ahead(part, len(part.ids)) for part in self._parts(kinds)]):
            if (job := self.pending.get(job_id)) is not None:
                yield job

    def _in_order(self, chosen: Iterable[_Ahead]) -> Iterator[int]:
        """The ids of these jobs, which come by priority."""
        order = self._orders()
        for _, found in itertools.groupby(chosen, lambda one: one.part.priority):
            ids = {one.part: one.ids() for one in found}
            jobs = in_order(ids, ids.__getitem__, lambda part, job_id: order(part.needs, job_id))
            for _, job_id in jobs:
                yield job_id

    def _ahead(self, job: Pending) -> list[_Ahead]:
        """The jobs that a pass looks at before this one, by priority."""
        order = self._orders()
        limit = order(job.needs, job.id)
        found = []
        for kinds in self.kinds.of_each_priority(job.priority):
            able = [kind for kind in kinds if not kind.is_open and not kind.is_held]
            for part in self._parts(able):
                count = self._let_go(part)
                if part.priority == job.priority:
                    before = functools.partial(_is_before, part.needs, order, limit)
                    count = min(count, part.ids.count_while(before))
                if count:
                    found.append(_Ahead(part, count))
        return found

    def _let_go(self, part: Part) -> int:
        """How many jobs of a part, which are its first ones, no locks hold back."""
        first, prediction = part.first, self.prediction
        if first is None or not prediction.may_hold_back(first, part.priority):
            return len(part.ids)
        return part.ids.count_while(lambda one: prediction.lets_go(first, one, self.now))

    # ------------------------------------------------------------ candidates

    def _candidate(self, job: Pending) -> Candidate:
        is_held = job.judged.action in HELD or job.judged.action == REJECTED
        return Candidate(
            priority=job.priority,
            id=job.id,
            buckets=job.judged.buckets,
            waits_for=frozenset(job.open),
            held_by=job.judged.rule if is_held else None,
            needs=job.needs,
            needs_first=job.needs_first or job.needs,
            is_aged=self._is_aged(job.id, job.needs_first or job.needs, job.priority),
        )

    def _is_aged(self, job_id: int, first: LockForecast | None, priority: int) -> bool:
        """Whether locks do not hold a job back any more.

        Of two jobs without weight, the younger one does not stand in line behind the older.
        """
        prediction = self.prediction
        if not prediction.is_aged(job_id, self.now):
            return False
        return (
            first is None
            or not prediction.may_hold_back(first, priority)
            or prediction.lets_go(first, job_id, self.now)
        )

    def _rivals(self, part: Part) -> Rivals:
        kind, first, pending = part.kind, part.first, self.pending
        is_open = kind.is_open
        return Rivals(
            priority=part.priority,
            buckets=part.buckets,
            held_by=kind.rule if kind.action else None,
            needs=part.needs,
            needs_first=first,
            ids=functools.partial(self._waiting if is_open else _but, part),
            is_aged=lambda one: self._is_aged(one, first, part.priority),
            first_of=lambda one: pending[one].needs_first or pending[one].needs,
            beginning_with=kind.beginning_with,
        )

    def _waiting(self, part: Part, barred: IdSet, ended: frozenset[int]) -> Iterator[int]:
        """The jobs of a part with open dependencies that wait for nothing but these jobs."""
        freed = [self.dependants[target] for target in ended if target in self.dependants]
        return (
            one
            for one in part.ids.common(*freed)
            if one not in barred and ended.issuperset(self.pending[one].open)
        )

    # ------------------------------------------------------------ limits

    def _full_limit(self, name: str, size: int, ahead: list[_Ahead]) -> FullLimit:
        waiting = [one for one in ahead if name in dict(one.part.buckets)]
        return FullLimit(
            name=name,
            size=size,
            inside=self._occupants(name),
            ahead=sum(one.count for one in waiting),
            first_ahead=list(itertools.islice(self._in_order(waiting), _SHOWN_AHEAD_MAX)),
        )

    def _occupants(self, bucket: str) -> list[int]:
        return sorted(
            job_id
            for job_id, held in self.running.items()
            if any(name == bucket for name, _ in held.buckets)
        )

    # ------------------------------------------------------------ locks

    def _held_back(self, job: Pending) -> list[HoldingBack]:
        """The locks for which the job would have to wait, each with its owners."""
        first = job.needs_first or job.needs
        if first is None or not self.prediction.is_held_back(job, self.now):
            return []
        found: dict[tuple[str, str], HoldingBack] = {}
        for owner, taken, is_held in self.prediction.taken.owners():
            if is_certain_to_block(first, taken):
                for name, mode in locks_between(first, taken):
                    one = found.setdefault((name, mode), HoldingBack(lock=name, mode=mode))
                    if isinstance(owner, str):
                        one.others.append(owner)
                    else:
                        (one.jobs if is_held else one.soon).append(owner)
        return [found[key] for key in sorted(found)]


def _but(part: Part, barred: IdSet, _ended: frozenset[int]) -> Iterator[int]:
    return part.ids.except_for(barred)


def _by_id(_needs: LockForecast | None, job_id: int) -> _Order:
    return (0.0, job_id)


def _is_before(
    needs: LockForecast | None,
    order: Callable[[LockForecast | None, int], _Order],
    limit: _Order,
    job_id: int,
) -> bool:
    return order(needs, job_id) < limit
