"""Messages to the filter evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.jobs.jobs import JobStatus
from .base import Notice, Reply, Request
from .job_queue_why_and_what_if import FiltersTested, Simulate, TestFilters
from .values import JobToJudge, JobVerdict

if TYPE_CHECKING:
    from ...storage.filters.rules import FilterRule


class JobsArrived(Notice, frozen=True):
    """From the job queue: durable jobs that wait, and jobs that hold a run slot (``running``).

    ``is_all``: forget all other jobs. ``report`` counts these complete reports. ``is_repeat``:
    judge these jobs again. ``sweep``: the rule chain whose `SweepJobs` this answers;
    ``next_after``: where the next page of a sweep or report starts; None: this is the last.
    ``is_rest``: a further page of the report. ``came``: in a report of all jobs, ids with the times
    on the monotonic clock from which on jobs with higher ids came.
    """

    jobs: list[JobToJudge]
    running: list[JobToJudge] = []
    is_all: bool = False
    is_rest: bool = False
    is_repeat: bool = False
    report: int = 0
    sweep: int | None = None
    next_after: int | None = None
    came: list[tuple[int, float]] = []


class RulesChanged(Notice, frozen=True):
    """From the configuration store: all filter rules.

    ``serial`` grows with each change; `RulesApplied` returns it.
    """

    rules: list[FilterRule]
    serial: int = 0


class ReportChain(Notice, frozen=True):
    """From a job queue that starts: send the rules in force."""


class JudgeTest(Request[FiltersTested], frozen=True):
    """From the job queue: judge these jobs under both sets of rules."""

    test: TestFilters
    last_id: int
    jobs: list[JobToJudge]
    statuses: list[JobStatus]
    next_after: int | None


class SimulationJudged(Reply, frozen=True):
    """The jobs of a `JudgeSimulation`, judged."""

    jobs: list[JobVerdict]
    running: list[JobVerdict]


class JudgeSimulation(Request[SimulationJudged], frozen=True):
    """From the job queue: judge one page of the jobs of a simulation."""

    simulation: Simulate
    last_id: int
    jobs: list[JobToJudge]
    running: list[JobToJudge] = []


class WindowDue(Notice, frozen=True):
    """From the evaluator's own timer: the time window of a rule may have opened or closed."""


class ForecastsDue(Notice, frozen=True):
    """From the evaluator's own timer: ask again which locks the held jobs take."""
