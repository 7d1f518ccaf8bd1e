"""What the filter evaluator accepts."""

from __future__ import annotations

from typing import Any

from ...storage.jobs import JobStatus
from .base import Notice
from .job_queue_from_clients import Simulate, TestFilters
from .values import JobToJudge


class JobsArrived(Notice, frozen=True):
    """From the job queue: these jobs are durable and wait, and these hold a run slot.

    ``is_all``: forget all others; ``report`` counts these. ``is_repeat``: nothing new, they are
    to be judged anew. ``sweep``: the answer to a `SweepJobs` for this chain; ``next_after`` is
    None at its end.
    """

    jobs: list[JobToJudge]
    running: list[JobToJudge] = []
    is_all: bool = False
    is_repeat: bool = False
    report: int = 0
    sweep: int | None = None
    next_after: int | None = None


class RulesChanged(Notice, frozen=True):
    """From the configuration store: all filter rules, as stored.

    ``serial`` grows with each change; it comes back in a `RulesInForce`.
    """

    rules: list[dict[str, Any]]
    serial: int = 0


class ReportChain(Notice, frozen=True):
    """From a job queue that starts afresh: tell which rules are in force."""


class JudgeTest(Notice, frozen=True):
    """From the job queue: judge these jobs under both sets of rules; the asker is answered."""

    test: TestFilters
    last_id: int
    jobs: list[JobToJudge]
    statuses: list[JobStatus]
    next_after: int | None


class JudgeSimulation(Notice, frozen=True):
    """From the job queue: a page of the jobs that a simulation is about."""

    token: int
    simulation: Simulate
    last_id: int
    jobs: list[JobToJudge]
    running: list[JobToJudge] = []
    next_after: int | None = None


class JudgingDue(Notice, frozen=True):
    """From the evaluator itself: go on with what it has not judged to the end."""


class WindowDue(Notice, frozen=True):
    """From the evaluator's own timer: a rule may have come into force, or have expired."""
