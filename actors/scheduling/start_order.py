"""The order in which eligible jobs start, and those that stand aside from it: pure.

How it works. A pending job is in one lane (`lanes`), and a lane is in one place: in the order
(`eligible`); among those that wait for other jobs; held, because a filter rule does not let its
jobs start; or parked at a full bucket. A lane goes aside when its first job comes first, and all
come back when other rules are in force.

A bucket counts running jobs: one for each filter rule that limits, one for each ad-hoc limit
named in a reason (scheduler facts, section 5). A job takes a place in each of its buckets when
it starts, and only then. If a bucket is full, the lane is parked there until a place is free.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .eligible import Eligible
from .lanes import Lane, LaneKey, LockKey
from .pending_job import HELD
from .predicting import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .pending_job import Pending, RuleVerdict
    from .predicting import Prediction
    from .remedies import Buckets


class StartOrder:
    """The places of the pending jobs, and of the running ones in buckets.

    ``find`` returns a pending job; ``chain``: the number of the rules in force.
    """

    def __init__(self, prediction: Prediction, find: Callable[[int], Pending], chain: int) -> None:
        self._prediction = prediction
        self._find = find
        self._chain = chain
        self._taken: Counter[str] = Counter()
        # Full buckets in which places have become free.
        self._moving: set[str] = set()
        # How many jobs have entered other lanes when they came first.
        self._reentries = 0
        self._lanes: dict[LaneKey, Lane] = {}
        self._order, self._waiting, self._held, self._aside = (self._new() for _ in range(4))
        self._parked: dict[str, Eligible] = {}

    def _new(self) -> Eligible:
        return Eligible(self._prediction, self._find, self._reenter)

    @property
    def taken(self) -> Counter[str]:
        """How many jobs are in each bucket."""
        return self._taken

    @property
    def lanes(self) -> list[Lane]:
        """All lanes."""
        return list(self._lanes.values())

    def forget(self) -> None:
        """Forget all jobs; it must not be used any more."""
        for lane in self._lanes.values():
            self._watch(lane, is_wanted=False)
            lane.group = None
        self._lanes.clear()
        for one in (
            self._order, self._waiting, self._held, self._aside, *self._parked.values()
        ):  # fmt: skip
            one.forget()

    # ------------------------------------------------------------ places

    def enter(self, job: Pending, *, is_open: bool = False) -> None:
        """The job is in its lane, after it left another one; ``is_open``: it waits for others."""
        self.leave(job)
        key = (job.priority, job.judged, is_open, self._locks_of(job))
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, self._home_of(job.judged, is_open=is_open))
            self._watch(lane, is_wanted=True)
        job.lane = lane
        lane.home.add(lane, job.id)

    def _reenter(self, job: Pending) -> None:
        self._reentries += 1
        self.enter(job)

    def leave(self, job: Pending) -> None:
        """The job is in no lane."""
        lane, job.lane = job.lane, None
        if lane is None:
            return
        lane.home.discard(lane, job.id)
        if not lane.ids:
            del self._lanes[lane.key]
            self._watch(lane, is_wanted=False)

    def _home_of(self, verdict: RuleVerdict, *, is_open: bool) -> Eligible:
        if is_open:
            return self._waiting
        is_held = verdict.action in HELD and verdict.chain == self._chain
        return self._held if is_held else self._order

    def _locks_of(self, job: Pending) -> LockKey | None:
        if job.needs is None:
            return None
        taken = self._prediction.taken
        shape = first_shape = shape_of(job.needs)
        conflicts = first_conflicts = taken.conflicts(job.needs, job.id)
        if (needs_first := job.needs_first) is not None:
            first_shape = shape_of(needs_first)
            first_conflicts = taken.conflicts(needs_first, job.id)
        return (shape, first_shape, conflicts, first_conflicts)

    def _watch(self, lane: Lane, *, is_wanted: bool) -> None:
        watchers = self._prediction.taken.watchers
        for level, name, _ in lane.conflicts():
            if is_wanted:
                watchers[level, name].add(lane.refresh)
            else:
                watchers[level, name].discard(lane.refresh)
                if not watchers[level, name]:
                    del watchers[level, name]

    def hold(self, lane: Lane) -> None:
        """A rule holds the jobs of a lane."""
        lane.home.give(lane, self._held)

    def park(self, lane: Lane, bucket: str) -> None:
        """The bucket of the jobs of a lane is full."""
        parked = self._parked.get(bucket)
        if parked is None:
            parked = self._parked[bucket] = self._new()
        if lane.home is not parked:
            lane.home.give(lane, parked)

    def put_aside(self, lane: Lane) -> None:
        """The lane is passed over until `put_back`."""
        lane.home.give(lane, self._aside)

    def put_back(self) -> None:
        """What was put aside is in the order again."""
        for lane in list(self._aside.lanes):
            self._aside.give(lane, self._order)

    def recall(self, chain: int) -> None:
        """Let all that stand aside be in the order again: other rules are in force."""
        self._chain = chain
        for one in (self._held, *self._parked.values()):
            for lane in list(one.lanes):
                one.give(lane, self._order)
        self._parked.clear()

    # ------------------------------------------------------------ which comes first

    def first(self, now: float) -> Lane | None:
        """The lane with the first job, also one that is parked at a bucket with a free place."""
        while True:
            before = self._reentries
            found = self._first(now)
            if self._prediction.is_tired:
                return None
            if before == self._reentries:
                return found

    def _first(self, now: float) -> Lane | None:
        """As `first`; a job that entered another lane may have been overlooked."""
        best = self._order.first(now)
        for name in list(self._moving) if self._moving else ():
            parked = self._parked.get(name)
            lane = None if parked is None else parked.first(now)
            if parked is None or lane is None:
                if parked is None or not parked.lanes:
                    self._moving.discard(name)
                    self._parked.pop(name, None)
                continue
            if self._taken[name] >= dict(lane.verdict.buckets).get(name, 0):
                self._moving.discard(name)
                continue
            if best is None or self._is_before(lane, best, now):
                best = lane
        return best

    def _is_before(self, lane: Lane, other: Lane, now: float) -> bool:
        return self._order.is_before(self._find(lane.head), self._find(other.head), now)

    @property
    def may_hold_back(self) -> bool:
        """Whether a job may be held back, so that time alone can let it start."""
        return bool(self._moving) or not self._order.is_plain

    def due_at(self) -> float | None:
        """When the next job is held back no longer; None: none is."""
        return min(self._due_times(), default=None)

    def _due_times(self) -> Iterator[float]:
        orders = [self._order, *(self._parked[name] for name in self._moving & self._parked.keys())]
        for order in orders:
            if (due := order.due_at()) is not None:
                yield due

    # ------------------------------------------------------------ buckets

    def full_bucket(self, verdict: RuleVerdict) -> str | None:
        """A bucket of such a job without a free place; None: it may start."""
        return next((name for name, size in verdict.buckets if self._taken[name] >= size), None)

    def occupy(self, buckets: Buckets) -> None:
        """A job that starts takes a place in each."""
        self._taken.update(name for name, _ in buckets)

    def vacate(self, buckets: Buckets) -> None:
        """A job frees its place in each."""
        for name, _ in buckets:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]
            self._moving.add(name)
