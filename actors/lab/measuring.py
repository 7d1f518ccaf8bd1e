"""How wrong estimates of run times and plans would have been on a trace. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...storage.prediction.estimates import Estimates, accuracy_of
from ...storage.prediction.planned_locks import claims_of
from ...storage.prediction.planning import Candidate, Runner, plan, seconds_left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.lab.traces import Trace, TracedJob, TracedOpcode
    from ...storage.prediction.estimates import Accuracy
    from ...transport.messages import OrderReported


def accuracy(trace: Trace, ends: Mapping[int, float]) -> Accuracy | None:
    """The errors of all estimates, made from the jobs that had ended before; None: there was none.

    ``ends``: when each job ended. As in the queue, a job is learnt when it ends.
    """
    estimates = Estimates()
    found: list[float] = []
    for job in sorted(trace.jobs, key=lambda job: ends[job.id]):
        for op in job.ops:
            known = estimates.of_key(op.key)
            if known is not None and op.seconds > 0:
                found.append(abs(known.typical - op.seconds) / op.seconds)
        for op in job.ops:
            estimates.learn(op.key, op.seconds)
    return accuracy_of(found)


PLANNED_JOBS_MAX = 10_000
"""Pending jobs that a plan looks at, as in the daemon."""

_SAMPLES = 20
"""How many plans are made while jobs come: each looks at all jobs that wait."""

_USUAL_SECONDS = 1.0


class PlayedJob(Protocol):
    """A job in a run slot. ``began``: when its opcode began to run; None: it waits for locks."""

    job: TracedJob
    index: int
    began: float | None


class PlanMeasure:
    """Plans the ends of some jobs as they come, as ``ganger job eta`` does, and keeps the plans."""

    def __init__(self, jobs: int) -> None:
        self._every = max(1, jobs // _SAMPLES)
        self._came = 0
        self._estimates = Estimates()
        self._planned: dict[int, tuple[float, float]] = {}

    def learn(self, op: TracedOpcode) -> None:
        """An opcode has ended."""
        self._estimates.learn(op.key, op.seconds)

    def is_due(self) -> bool:
        """Whether the end of the job that has just come is to be planned."""
        self._came += 1
        return self._came % self._every == 0

    def predict(
        self,
        job_id: int,
        now: float,
        order: OrderReported,
        active: Mapping[int, PlayedJob],
        jobs: Mapping[int, TracedJob],
    ) -> None:
        """Plan the end of this job, beside all others in this order."""
        sets = [claims_of(forecast) for forecast in order.locks]
        claims = {one: sets[index] for one, index in order.lock_sets.items()}
        running = [
            Runner(one, self._left(active[one], now), claims.get(one, ()), one in order.standing)
            for one in order.running
        ]
        candidates = [
            Candidate(
                one, self._typical(jobs[one].ops), tuple(depends), is_held, claims.get(one, ())
            )
            for one, depends, is_held in order.pending
        ]
        usual = self._estimates.usual()
        seconds = _USUAL_SECONDS if usual is None else usual.typical
        planned = plan(running, candidates, order.slots, seconds, holds_back=order.holds_back)
        found = planned.get(job_id)
        if found is not None and found.end is not None:
            self._planned[job_id] = (now, found.end)

    def accuracy(self, ends: Mapping[int, float]) -> Accuracy | None:
        """How wrong the planned spans until the ends were; None: none was planned."""
        return accuracy_of(
            abs(now + span - ends[job_id]) / (ends[job_id] - now)
            for job_id, (now, span) in self._planned.items()
            if ends[job_id] > now
        )

    def _typical(self, ops: tuple[TracedOpcode, ...]) -> float | None:
        found = self._estimates.of([op.key for op in ops])
        return None if found is None else found.typical

    def _left(self, one: PlayedJob, now: float) -> float | None:
        known = self._estimates.of_key(one.job.ops[one.index].key)
        later = one.job.ops[one.index + 1 :]
        rest = self._typical(later) if later else 0.0
        if known is None or rest is None:
            return None
        elapsed = 0.0 if one.began is None else now - one.began
        return seconds_left(elapsed, known.typical, known.high) + rest
