"""The order in which eligible jobs start, and those that stand aside from it: pure.

How it works. An eligible job is in one place: in the order (`eligible`); held, because a filter
rule does not let it start; or parked in the line of a full bucket. A job goes aside when it comes
first, and comes back when its verdict changes.

A bucket counts running jobs: one for each filter rule that limits, one for each ad-hoc limit
named in a reason (scheduler facts, section 5). A job takes a place in each of its buckets when
it starts, and only then. If a bucket is full, the job is parked there until a place is free.

An entry of an order stays when its job goes or changes. When it comes first it is recognised as
stale, because it is no longer the entry that the job names.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .alike import alike_of
from .eligible import Eligible
from .runs import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .pending_job import Pending
    from .predicting import Prediction
    from .remedies import Buckets


class StartOrder:
    """The places of the eligible jobs, and of the running ones in buckets.

    ``find`` returns the job of an entry; None: the entry is stale.
    """

    def __init__(self, prediction: Prediction, find: Callable[[Entry], Pending | None]) -> None:
        self._prediction = prediction
        self._find = find
        self._taken: Counter[str] = Counter()
        # Full buckets in which places have become free.
        self._moving: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._order = self._new_order()
        self._held = self._new_order()
        self._parked: dict[str, Eligible] = {}

    def _new_order(self) -> Eligible:
        return Eligible(self._prediction, self._find)

    def _all(self) -> Iterator[Eligible]:
        yield from (self._order, self._held, *self._parked.values())

    @property
    def taken(self) -> Counter[str]:
        """How many jobs are in each bucket."""
        return self._taken

    def forget(self) -> None:
        """Forget all entries; it must not be used any more."""
        for order in self._all():
            order.forget()

    def begin_anew(self) -> None:
        """Forget all entries: the jobs will be pushed anew. Buckets stay as they are."""
        self.forget()
        self._begin()

    # ------------------------------------------------------------ places

    def push(self, job: Pending) -> None:
        """The job is in the order, under a new entry."""
        job.entry = Entry(job.priority, job.id)
        job.parked_under = 0
        self._order.add(job)

    @staticmethod
    def leave_out(job: Pending) -> None:
        """The job is eligible, and will never come first: it stands nowhere in the order."""
        job.entry = Entry(job.priority, job.id)
        job.parked_under = 0

    def put_back(self, job: Pending) -> None:
        """A job that was taken out is in the order again, under the same entry."""
        self._order.add(job)

    def take(self, line: Eligible, job: Pending) -> None:
        """Take a job that came first out of its line."""
        line.take()
        job.parked_under = 0

    def hold(self, line: Eligible, job: Pending, chain: int) -> None:
        """Let a job that came first stand aside under this rule chain: a rule holds it."""
        self._park(line, job, self._held, chain)

    def park(self, line: Eligible, job: Pending, bucket: str, chain: int) -> None:
        """Let a job that came first stand aside under this rule chain: the bucket is full."""
        parked = self._parked.setdefault(bucket, self._new_order())
        self._park(line, job, parked, chain)

    def _park(self, line: Eligible, job: Pending, parked: Eligible, chain: int) -> None:
        """All jobs that share its verdict would follow, and move together."""
        if alike_of(job) is not None:
            line.move(parked)
            return
        self.take(line, job)
        job.parked_under = chain
        parked.add(job)

    def recall(self) -> None:
        """Let all that stand aside be in the order again: other rules are in force."""
        self._order.absorb(self._held, *self._parked.values())
        self._parked.clear()

    # ------------------------------------------------------------ which comes first

    def first(self, now: float) -> tuple[Eligible, Pending] | None:
        """The line with the first job, and that job: also a line of a bucket with a free place."""
        best, first = self._order, self._order.first(now)
        for name in list(self._moving) if self._moving else ():
            line = self._parked.get(name)
            job = None if line is None else line.first(now)
            if line is None or job is None:
                if line is None or not line.has_jobs():
                    self._moving.discard(name)
                    self._parked.pop(name, None)
                continue
            if self._taken[name] >= dict(job.judged.buckets).get(name, 0):
                self._moving.discard(name)
                continue
            if first is None or self._order.is_before(job, first, now):
                best, first = line, job
        if first is None or self._prediction.is_tired:
            return None
        return best, first

    @property
    def may_hold_back(self) -> bool:
        """Whether a job may be held back, so that time alone can let it start."""
        return bool(self._moving) or not self._order.is_plain

    def due_at(self) -> float | None:
        """When the next job is held back no longer; None: none is."""
        orders = [self._order, *(self._parked[name] for name in self._moving & self._parked.keys())]
        return min((due for order in orders if (due := order.due_at()) is not None), default=None)

    # ------------------------------------------------------------ buckets

    def full_bucket(self, job: Pending) -> str | None:
        """A bucket of the job without a free place; None: it may start."""
        return next((name for name, size in job.judged.buckets if self._taken[name] >= size), None)

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
