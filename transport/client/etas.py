"""When jobs will start and end, from what the queue says of them (`ReadPlan`). No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ...storage.prediction.estimates import Accuracy, Estimate
from ...storage.prediction.planned_locks import claims_of
from ...storage.prediction.planning import Candidate, Planned, Runner, plan, seconds_left

if TYPE_CHECKING:
    from ..messages import PlanRead

_USUAL_SECONDS = 1.0
"""What a job without history counts for those behind it, if no job has any history."""


class JobEta(msgspec.Struct, frozen=True, kw_only=True):
    """When a job will start and end, in seconds since the epoch; None: unknown.

    ``run_seconds``: its estimated run time, from ``count`` earlier ones, of which half took at most
    ``usual_seconds``. It is never less than the ``elapsed`` seconds for which a running job has
    run; ``is_overdue``: these are more than nine of ten earlier ones took. ``guesses``: how many
    jobs before it have no history and count with the usual run time. ``unknown`` says why its end
    is not known: its kinds of opcodes have no ``history``, it is ``held`` by a rule or a limit or
    waits for a job that is, it is ``overdue`` or waits for a job that is, it is ``far`` behind
    others, or it has ``ended``.
    """

    id: int
    start: float | None = None
    end: float | None = None
    run_seconds: float | None = None
    usual_seconds: float | None = None
    elapsed: float | None = None
    is_overdue: bool = False
    count: int = 0
    guesses: int = 0
    unknown: Literal["", "history", "held", "overdue", "far", "ended"] = ""


class Etas(msgspec.Struct, frozen=True):
    """The plan, by job, in the order of its starts; ``accuracy``: of earlier run times.

    ``is_whole``: whether it has all pending jobs.
    """

    jobs: dict[int, JobEta]
    accuracy: Accuracy | None = None
    is_whole: bool = True

    def of(self, job_id: int) -> JobEta:
        """The job's place in the plan, also if it has none."""
        found = self.jobs.get(job_id)
        return found or JobEta(id=job_id, unknown="ended" if self.is_whole else "far")


def etas_of(read: PlanRead) -> Etas:
    """The plan for the jobs that run and are pending."""
    works: dict[int, int] = {}
    sets = [claims_of(forecast) for forecast in read.locks]
    claims = {job_id: sets[index] for job_id, index in read.lock_sets.items()}
    standing = set(read.standing)
    running = []
    ran: dict[int, float] = {}
    for job_id, work, elapsed in read.running:
        known = read.works[work]
        works[job_id] = work
        ran[job_id] = elapsed
        left = None if known is None else seconds_left(elapsed, known.typical, known.high)
        is_overdue = known is not None and elapsed >= known.high
        own = claims.get(job_id, ())
        running.append(Runner(job_id, left, own, job_id in standing, is_overdue))
    candidates = []
    for job_id, work, depends, is_held in read.pending:
        known = read.works[work]
        works[job_id] = work
        seconds = None if known is None else known.typical
        candidates.append(
            Candidate(job_id, seconds, tuple(depends), is_held, claims.get(job_id, ()))
        )
    usual = _USUAL_SECONDS if read.usual is None else read.usual
    planned = plan(running, candidates, read.slots, usual, holds_back=read.holds_back)
    found = {}
    for job_id, one in planned.items():
        start = one.start if job_id not in ran else None
        found[job_id] = _with_run_time(
            JobEta(
                id=job_id,
                start=None if start is None else read.now + start,
                end=None if one.end is None else read.now + one.end,
                elapsed=ran.get(job_id),
                guesses=one.guesses,
                unknown=_unknown(one),
            ),
            read.works[works[job_id]],
        )
    return Etas(found, read.accuracy, is_whole=read.count <= len(read.pending))


def _unknown(one: Planned) -> Literal["", "history", "held", "overdue"]:
    """Why the end of a planned job is not known."""
    if one.end is not None:
        return ""
    if one.is_overdue:
        return "overdue"
    return "held" if one.start is None else "history"


def _with_run_time(one: JobEta, known: Estimate | None) -> JobEta:
    """The same with its estimated run time, if anything is known of it."""
    if known is None:
        return one
    elapsed = one.elapsed or 0.0
    is_overdue = one.elapsed is not None and elapsed >= known.high
    left = 0.0 if is_overdue else seconds_left(elapsed, known.typical, known.high)
    return msgspec.structs.replace(
        one,
        run_seconds=elapsed + left,
        usual_seconds=known.typical,
        is_overdue=is_overdue,
        count=known.count,
    )
