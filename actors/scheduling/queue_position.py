"""Where a pending job stands: what keeps it from starting, and what it competes for. Pure.

It looks at the first jobs in order, each by itself, and at no more than `EXPLAINED_JOBS_MAX` of
them: an answer says so when there are more.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage.prediction.lock_types import NO_LOCKS, is_certain_to_block, levels_of
from ...storage.settings import EXPLAINED_JOBS_MAX
from ...transport.messages import FullLimit, HoldingBack, OrderReported, QueuePosition
from ..runtime.slices import done
from .depending import dependency_outcome
from .first_obstacle import first_obstacle
from .holding import locks_between
from .pending_job import HELD, REJECTED, Pending, SlotHolder, buckets_of
from .remedies import Candidate, Candidates, Contention

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping

    from ...storage.prediction.lock_types import LockForecast
    from ...transport.messages import JobVerdict, ReportOrder
    from .lanes import Lane
    from .predicting import Prediction

_SHOWN_AHEAD_MAX = 10

LOCK_NAMES_MAX = 20_000
"""Names of locks in a report of the order, in all different forecasts together."""

_STOPPED = HELD | {REJECTED}

_Head = tuple[float, int, int, float, "Iterator[int] | None"]
"""What is left of a weight, an id, a number, the weight of its lane, and what follows there.

Of a job that weighs more than its lane, nothing follows.
"""


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
            names = sum(len(one.names) + len(one.also_shared) for one in levels_of(forecast))
            if names > self._names_left:
                return
            self._names_left -= names
            index = self._known[forecast] = len(self.locks)
            self.locks.append(forecast)
        self.by_job[job_id] = index


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule knows, at one moment.

    ``taken``: how many jobs are in each bucket.
    """

    pending: Mapping[int, Pending]
    lanes: list[Lane]
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
        ahead, has_more = ([], False) if is_brief else self._ahead(job)
        return QueuePosition(
            open=job.open,
            failing=""
            if job.is_eligible
            else dependency_outcome(job.waits.depends, job.waits.known).text,
            full=[
                self._full_limit(name, size, ahead)
                for name, size in job.judged.buckets
                if self.taken[name] >= size
            ],
            action=job.judged.action,
            rule=job.judged.rule,
            held_back=self._held_back(job),
            ahead=len(ahead),
            has_more_ahead=has_more,
            first_ahead=[one.id for one in ahead[:_SHOWN_AHEAD_MAX]],
            running=sorted(self.running),
            slots=self.slots,
            best_priority=ahead[0].priority if ahead else job.priority,
        )

    def in_order(self) -> Iterator[Pending]:
        """The pending jobs by priority, weight and id; not all of those that come meanwhile."""
        return self._jobs_of(self.lanes)

    def rejected(self) -> Iterator[Pending]:
        """Of `in_order`, those that a rule rejects, wherever they stand."""
        return self._jobs_of(one for one in self.lanes if one.verdict.action == REJECTED)

    def waiting(self) -> Iterator[Pending]:
        """Of `in_order`, those that no rule rejects."""
        return self._jobs_of(one for one in self.lanes if one.verdict.action != REJECTED)

    def reported(self, asked: ReportOrder, at_once: int) -> Generator[None, None, OrderReported]:
        """The first jobs in order, and what holds each back but the others.

        Yields after each ``at_once`` jobs: then jobs may come and go.
        """
        waiting: Counter[str] = Counter()
        if asked.has_causes:
            waiting = yield from self.counted(at_once)
        found: dict[int, tuple[int, list[int], bool]] = {}
        lock_sets = LockSets()
        standing = []
        for owner, forecast, is_held in self.prediction.taken.owners():
            if isinstance(owner, int) and owner in self.running:
                lock_sets.add(owner, forecast)
                if not is_held:
                    standing.append(owner)
        for job in itertools.islice(self.in_order(), asked.limit):
            is_full = any(self.taken[name] >= size for name, size in job.judged.buckets)
            # It comes twice if its priority has changed meanwhile.
            found[job.id] = (job.id, job.open, job.judged.action in HELD or is_full)
            lock_sets.add(job.id, job.wants.forecast)
            if len(found) % at_once == 0:
                yield
        causes = yield from self.causes(asked.causes_of, at_once)
        return OrderReported(
            pending=[one for job_id, one in found.items() if job_id in self.pending],
            count=len(self.pending),
            running=sorted(self.running),
            slots=self.slots,
            locks=lock_sets.locks,
            lock_sets=lock_sets.by_job,
            standing=sorted(standing),
            holds_back=self.prediction.policy.is_predictive and self.prediction.policy.holds_back,
            waiting=dict(waiting),
            causes=causes,
        )

    def causes(
        self, job_ids: Iterable[int], at_once: int
    ) -> Generator[None, None, dict[int, tuple[str, str]]]:
        """For what each of these jobs waits, if it is pending: see `OrderReported`."""
        found: dict[int, tuple[str, str]] = {}
        for looked, job_id in enumerate(job_ids, 1):
            position = self.position(job_id, is_brief=True)
            if position is not None:
                kind, _, resource = first_obstacle(position)
                found[job_id] = kind, resource
            if looked % at_once == 0:
                yield
        return found

    def obstacles(self) -> Counter[str]:
        """As `counted`, in one slice."""
        return done(self.counted(len(self.pending) + 1))

    def counted(self, at_once: int) -> Generator[None, None, Counter[str]]:
        """How many of the jobs that no rule rejects wait, by the kind of their first obstacle.

        Yields after each ``at_once`` jobs that are looked at by themselves.
        """
        self.prediction.look()
        looked = 0
        found: Counter[str] = Counter()
        for lane in self.lanes:
            verdict, count = lane.verdict, len(lane.ids)
            if verdict.action == REJECTED:
                continue
            if lane.is_open:
                found["dependency"] += count
            elif any(self.taken[name] >= size for name, size in verdict.buckets):
                found["limit"] += count
            elif verdict.action in HELD:
                found["rule"] += count
            else:
                blocked = 0
                for job_id in lane.ids if lane.locks is not None else ():
                    blocked += self.prediction.is_held_back(self.pending[job_id], self.now)
                    looked += 1
                    if looked % at_once == 0:
                        yield
                found["lock"] += blocked
                free = "slots" if len(self.running) >= self.slots else "order"
                found[free] += count - blocked
        return +found

    def contention(
        self, job_id: int, then: JobVerdict | None, rules: Collection[str] = ()
    ) -> Contention:
        """What a pending job competes for, and with which jobs, once ``then`` is its verdict.

        ``rules`` hold it: without them, they hold no other job.
        """
        self.prediction.look()
        job = self.pending[job_id]
        own = self._candidate(job)
        if then is not None:
            own = msgspec.structs.replace(own, buckets=buckets_of(then))
        lanes = (one for one in self.lanes if one.priority <= job.priority)
        able = [
            one for one in lanes
            if one.verdict.action not in _STOPPED or one.verdict.rule in (None, *rules)
        ]  # fmt: skip
        first = itertools.islice(self._jobs_of(able), EXPLAINED_JOBS_MAX + 1)
        return Contention(
            own=own,
            others=Candidates(self._candidate(one) for one in first if one is not job),
            is_weighed=own.needs is not None or any(one.locks is not None for one in able),
            running={
                running: tuple(name for name, _ in held.buckets)
                for running, held in self.running.items()
            },
            priorities={job_id: held.priority for job_id, held in self.running.items()},
            slots=self.slots,
            owners={owner: forecast for owner, forecast, _ in self.prediction.taken.owners()},
            policy=self.prediction.policy,
        )

    # ------------------------------------------------------------ order

    def _jobs_of(self, lanes: Iterable[Lane]) -> Iterator[Pending]:
        """The jobs of these lanes by priority, weight and id."""
        return (job for _, job in self._weighed(lanes))

    def _weighed(self, lanes: Iterable[Lane]) -> Iterator[tuple[float, Pending]]:
        """The same, each with what is left of its weight."""
        self.prediction.look()
        by_priority = sorted(lanes, key=lambda one: one.priority)
        for _, found in itertools.groupby(by_priority, lambda one: one.priority):
            yield from self._merged(list(found))

    def _merged(self, lanes: list[Lane]) -> Iterator[tuple[float, Pending]]:
        """The jobs of these lanes, which have one priority, by weight and id.

        A lane may not know of all names that are taken now. Then a job weighs more than its lane,
        and comes later. After `EXPLAINED_JOBS_MAX` such jobs, the rest of a lane counts as heavy as
        the job that is found then.
        """
        later = 0
        heads: list[_Head] = []
        for number, lane in enumerate(lanes):
            ids = iter(lane.ids)
            weight = lane.home.weight_of(lane) if lane.ids else 0.0
            for first in ids:
                heads.append((self._left(weight, first), first, number, weight, ids))
                break
        heapq.heapify(heads)
        while heads:
            left, job_id, number, weight, rest = heads[0]
            job, true = self.pending.get(job_id), left
            if rest is not None and job is not None and job.needs is not None:
                heavy = self.prediction.weight_of(job.needs)
                true = self._left(heavy, job_id)
                if true > left:
                    later += 1
                    weight = heavy if later > EXPLAINED_JOBS_MAX else weight
            following = None if rest is None else next(rest, None)
            if following is None:
                heapq.heappop(heads)
            else:
                head = (self._left(weight, following), following, number, weight, rest)
                heapq.heapreplace(heads, head)
            if true > left:
                heapq.heappush(heads, (true, job_id, number, 0.0, None))
            elif job is not None:
                yield left, job

    def _left(self, weight: float, job_id: int) -> float:
        return self.prediction.adjusted(weight, job_id, self.now)

    def _key(self, job: Pending) -> tuple[int, float, int]:
        return (job.priority, self._left(self.prediction.weight_of(job.needs), job.id), job.id)

    def _ahead(self, job: Pending) -> tuple[list[Pending], bool]:
        """The first jobs that a pass looks at before this one, and whether there may be more."""
        limit = self._key(job)
        able = (
            one
            for one in self.lanes
            if not one.is_open and one.verdict.action not in HELD and one.priority <= job.priority
        )
        found: list[Pending] = []
        for looked, (left, other) in enumerate(self._weighed(able)):
            if (other.priority, left, other.id) >= limit:
                return found, False
            if looked >= EXPLAINED_JOBS_MAX:
                return found, True
            if not self.prediction.is_held_back(other, self.now):
                found.append(other)
        return found, False

    # ------------------------------------------------------------ candidates

    def _candidate(self, job: Pending) -> Candidate:
        prediction = self.prediction
        return Candidate(
            priority=job.priority,
            id=job.id,
            buckets=job.judged.buckets,
            waits_for=frozenset(job.open),
            held_by=job.judged.rule if job.judged.action in _STOPPED else None,
            needs=job.needs,
            needs_first=job.needs_first or job.needs,
            weight_left=self._left(1.0, job.id),
            is_aged=prediction.is_aged(job.id, self.now)
            and not prediction.is_held_back(job, self.now),
        )

    # ------------------------------------------------------------ limits

    def _full_limit(self, name: str, size: int, ahead: list[Pending]) -> FullLimit:
        waiting = [one.id for one in ahead if name in dict(one.judged.buckets)]
        return FullLimit(
            name=name,
            size=size,
            inside=self._occupants(name),
            ahead=len(waiting),
            first_ahead=waiting[:_SHOWN_AHEAD_MAX],
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
