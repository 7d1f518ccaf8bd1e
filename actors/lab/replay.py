"""Plays a trace in virtual time: the scheduler's own order, and the lock manager's own state. Pure.

A job comes, is judged acceptable, and waits for a run slot (`Schedule`). With the slot it does what
a real one does: before each opcode it gives back the locks of the one before, asks for all locks of
this one in one request, and stands in line for them (`LockState`), in its slot. Processes start and
messages travel in no time. The scheduler hears of locks as from the lock manager: when a job gets
them, and when it has given them back.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, NamedTuple

from ...storage.jobs.jobs import JobStatus
from ...storage.locks.locks import Owner
from ...storage.prediction.lock_types import NO_LOCKS, LockForecast, merged
from ...transport.messages import JobVerdict, PendingJob, ReportOrder
from ..locks.locking import LockState
from ..runtime.slices import done
from ..scheduling.scheduling import Schedule
from .measuring import PLANNED_JOBS_MAX
from .real_locks import forecast_of, forecast_of_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...storage.lab.traces import Trace, TracedJob
    from ...storage.prediction.policy import Policy
    from .measuring import PlanMeasure
    from .real_locks import RealLocks

    Progress = Callable[[int, int], None]

_CHAIN = 1
_REPORTED_EVERY = 500
_END, _ARRIVAL, _ALARM = range(3)


class Played(NamedTuple):
    """The outcome of a trace under one policy; times in seconds.

    ``makespan``: from the first arrival to the last end. ``waits``: of each job, in the order of
    ids: the time from its arrival to its end in which none of its opcodes ran. ``slots_waiting``:
    the part of the time in run slots that jobs spent waiting for locks. ``ends``: when each job
    ended, in this order.
    """

    makespan: float
    waits: list[float]
    slots_waiting: float
    ends: dict[int, float]

    @property
    def wait_mean(self) -> float:
        """The mean wait of a job."""
        return sum(self.waits) / len(self.waits)

    @property
    def wait_max(self) -> float:
        """The longest wait of a job."""
        return max(self.waits)

    def wait_quantile(self, part: float) -> float:
        """The wait that this part of the jobs does not exceed."""
        return sorted(self.waits)[max(0, math.ceil(part * len(self.waits)) - 1)]


class _Active:
    """A job in a run slot. ``since``: when it got the slot; ``asked``: when it asked for locks."""

    __slots__ = ("asked", "began", "index", "job", "owner", "since", "waited")

    def __init__(self, job: TracedJob, now: float) -> None:
        self.job = job
        self.owner = Owner(job.id, f"job_{job.id}", 1)
        self.since = now
        self.index = 0
        self.asked = 0.0
        self.began: float | None = None
        self.waited = 0.0


class Player:
    """Plays one trace once. ``progress`` hears how many of the jobs have ended.

    ``plans`` measures plans meanwhile.
    """

    def __init__(
        self,
        trace: Trace,
        locks: RealLocks,
        slots: int,
        policy: Policy,
        *,
        progress: Progress | None = None,
        plans: PlanMeasure | None = None,
    ) -> None:
        self._trace = trace
        self._plans = plans
        self._real = locks
        self._progress = progress
        self._policy = policy
        self._schedule = Schedule(slots, policy=policy)
        self._schedule.change_chain(_CHAIN)
        self._locks = LockState()
        self._active: dict[int, _Active] = {}
        self._jobs = {job.id: job for job in trace.jobs}
        self._events: list[tuple[float, int, int]] = [
            (job.at, _ARRIVAL, job.id) for job in trace.jobs
        ]
        heapq.heapify(self._events)
        self._alarm = math.inf
        self._waited = self._occupied = 0.0
        self._ends: dict[int, float] = {}

    def play(self) -> Played:
        """Play the trace to its end."""
        while self._events:
            now = self._events[0][0]
            planned: list[int] = []
            while self._events and self._events[0][0] == now:
                _, kind, job_id = heapq.heappop(self._events)
                if kind == _ARRIVAL:
                    self._arrive(self._jobs[job_id])
                    if self._plans is not None and self._plans.is_due():
                        planned.append(job_id)
                elif kind == _END:
                    self._end_opcode(self._active[job_id], now)
                else:
                    self._alarm = math.inf
            self._pass(now)
            for job_id in planned:
                self._plan(job_id, now)
        assert len(self._ends) == len(self._jobs), "a job never ran"
        start = min(job.at for job in self._trace.jobs)
        return Played(
            makespan=max(self._ends.values()) - start,
            # Sums of run times may be a rounding error longer than the time that has passed.
            waits=[max(0.0, self._ends[job.id] - job.at - job.seconds) for job in self._trace.jobs],
            slots_waiting=self._waited / self._occupied if self._occupied else 0.0,
            ends=self._ends,
        )

    def _plan(self, job_id: int, now: float) -> None:
        assert self._plans is not None
        snapshot = self._schedule.standing_now()
        order = done(snapshot.reported(ReportOrder(PLANNED_JOBS_MAX), PLANNED_JOBS_MAX))
        self._plans.predict(job_id, now, order, self._active, self._jobs)

    def _arrive(self, job: TracedJob) -> None:
        success = (str(JobStatus.SUCCESS),)
        pending = PendingJob(
            id=job.id,
            priority=job.priority,
            depends=tuple((target, success) for target in job.depends),
            forecast=forecast_of(job.ops[0].forecast),
            forecast_of_all=self._forecast_of_all(job),
        )
        self._schedule.add(JobVerdict(job=pending, chain=_CHAIN), job.at)

    def _forecast_of_all(self, job: TracedJob) -> LockForecast | None:
        """The forecast of all opcodes, if that is more than the one of the first."""
        if not self._policy.all_opcodes or len({op.forecast for op in job.ops}) == 1:
            return None
        return merged([forecast_of(op.forecast) for op in job.ops])

    def _pass(self, now: float) -> None:
        """A pass of the scheduler, repeated while it asks how other jobs ended."""
        while True:
            decided = self._schedule.decide(now)
            for job_id in decided.start:
                active = self._active[job_id] = _Active(self._jobs[job_id], now)
                self._prepare(active, now)
            if decided.due_at is not None and now < decided.due_at < self._alarm:
                self._alarm = decided.due_at
                heapq.heappush(self._events, (self._alarm, _ALARM, 0))
            if not decided.unknown:
                return
            for job_id in decided.unknown:
                status = JobStatus.SUCCESS if job_id in self._ends else JobStatus.QUEUED
                self._schedule.learn(job_id, status)

    def _prepare(self, active: _Active, now: float) -> None:
        """Ask for the locks of the next opcode, and begin it if they are free."""
        active.asked = now
        changes = self._real.of(active.job.ops[active.index], active.job.id)
        if changes:
            outcome = self._locks.request(active.owner, active.job.priority, changes)
            self._begin_all(outcome.woken, now)
            if not outcome.granted:
                return
        self._begin(active, now)

    def _begin_all(self, woken: Iterable[Owner], now: float) -> None:
        for owner in woken:
            assert isinstance(owner.identifier, int)
            self._begin(self._active[owner.identifier], now)

    def _begin(self, active: _Active, now: float) -> None:
        """The opcode runs: it has its locks."""
        active.waited += now - active.asked
        active.began = now
        op = active.job.ops[active.index]
        if changes := self._real.of(op, active.job.id):
            self._schedule.locks_changed(active.job.id, forecast_of_held(changes))
        heapq.heappush(self._events, (now + op.seconds, _END, active.job.id))

    def _end_opcode(self, active: _Active, now: float) -> None:
        if self._plans is not None:
            self._plans.learn(active.job.ops[active.index])
        active.began = None
        active.index += 1
        self._schedule.locks_changed(active.job.id, NO_LOCKS)
        self._begin_all(self._locks.release_owner(active.owner), now)
        if active.index < len(active.job.ops):
            self._prepare(active, now)
            return
        job_id = active.job.id
        del self._active[job_id]
        self._waited += active.waited
        self._occupied += now - active.since
        self._ends[job_id] = now
        self._schedule.learn(job_id, JobStatus.SUCCESS)
        if self._progress is not None and len(self._ends) % _REPORTED_EVERY == 0:
            self._progress(len(self._ends), len(self._jobs))
