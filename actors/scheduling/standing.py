"""Where a pending job stands: what keeps it from starting, and what it competes for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage.prediction.lock_types import is_certain_to_block
from ...transport.messages import HoldingBack, QueuePosition
from .depending import dependency_outcome
from .holding import locks_between
from .known_jobs import HELD, REJECTED, Pending, Running, buckets_of
from .remedies import Candidate, Contention

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from ...transport.messages import JobVerdict
    from .eligible import Eligible, SortKey
    from .predicting import Prediction

_SHOWN_AHEAD_MAX = 10


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule knows, at one moment; ``taken``: how many jobs are in each bucket."""

    pending: Mapping[int, Pending]
    running: Mapping[int, Running]
    taken: Counter[str]
    slots: int
    order: Eligible
    prediction: Prediction
    now: float

    def position(self, job_id: int, *, is_brief: bool) -> QueuePosition | None:
        """Everything that keeps a pending job from starting.

        ``is_brief``: without the jobs ahead of it, because that looks at all pending jobs.
        """
        job = self.pending.get(job_id)
        if job is None:
            return None
        self.prediction.look()
        ahead = [] if is_brief else self._ahead(job)
        return QueuePosition(
            open=job.open,
            failing="" if job.entry else dependency_outcome(job.depends, job.known).text,
            full=[
                (
                    name,
                    size,
                    self._occupants(name),
                    [other.id for other in ahead if name in dict(other.buckets)],
                )
                for name, size in job.buckets
                if self.taken[name] >= size
            ],
            action=job.action,
            rule=job.rule,
            held_back=self._held_back(job),
            ahead=len(ahead),
            first_ahead=[other.id for other in ahead[:_SHOWN_AHEAD_MAX]],
            running=sorted(self.running),
            slots=self.slots,
            best_priority=ahead[0].priority if ahead else job.priority,
        )

    def in_order(self) -> list[int]:
        """The pending jobs by priority, weight and id."""
        self.prediction.look()
        return [job.id for job in sorted(self.pending.values(), key=self._key)]

    def contention(self, job_id: int, then: JobVerdict | None) -> Contention:
        """What a pending job competes for, and with which jobs, once ``then`` is its verdict."""
        self.prediction.look()
        job = self.pending[job_id]
        own = self._candidate(job)
        if then is not None:
            own = msgspec.structs.replace(own, buckets=buckets_of(then))
        others = [other for other in self.pending.values() if other.priority <= job.priority]
        return Contention(
            own=own,
            others=[
                self._candidate(other)
                for other in sorted(others, key=lambda other: (other.priority, other.id))
                if other is not job
            ],
            running={
                running: tuple(name for name, _ in held.buckets)
                for running, held in self.running.items()
            },
            slots=self.slots,
            owners={owner: forecast for owner, forecast, _ in self.prediction.taken.owners()},
            policy=self.prediction.policy,
        )

    # ------------------------------------------------------------ order

    def _key(self, job: Pending) -> SortKey:
        if self.order.is_plain:
            return (job.priority, 0.0, job.id)
        return self.order.sort_key(job, self.now)

    def _ahead(self, job: Pending) -> list[Pending]:
        """The jobs that a pass looks at before this one, in order."""
        own = self._key(job)
        ahead = [
            (key, other)
            for other in self.pending.values()
            if other.priority <= job.priority
            and other.entry is not None
            and other.action not in HELD
            and (key := self._key(other)) < own
            and not self.prediction.is_held_back(other, self.now)
        ]
        return [other for _, other in sorted(ahead, key=lambda one: one[0])]

    def _candidate(self, job: Pending) -> Candidate:
        is_held = job.action in HELD or job.action == REJECTED
        prediction = self.prediction
        return Candidate(
            priority=job.priority,
            id=job.id,
            buckets=job.buckets,
            waits_for=frozenset(job.open),
            held_by=job.rule if is_held else None,
            needs=job.needs,
            needs_first=job.needs_first or job.needs,
            weight_left=prediction.adjusted(1.0, job.id, self.now),
            # Of two jobs without weight, the younger one does not stand in line behind the older.
            is_aged=prediction.is_aged(job.id, self.now)
            and not prediction.is_held_back(job, self.now),
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
