"""What the scheduler accepts."""

from __future__ import annotations

from ...storage.jobs import JobStatus
from .base import Notice
from .job_queue_from_clients import Simulate
from .values import JobVerdict


class JobsJudged(Notice, frozen=True):
    """From the filter evaluator: jobs with their verdicts. The other fields as above."""

    jobs: list[JobVerdict]
    running: list[JobVerdict] = []
    is_all: bool = False
    is_repeat: bool = False
    report: int = 0


class StatusesReported(Notice, frozen=True):
    """From the job queue: the statuses asked for; None: there is no such job."""

    jobs: list[tuple[int, JobStatus | None]]


class LimitsChanged(Notice, frozen=True):
    """From the configuration store: the number of run slots.

    ``serial`` grows with each change; it comes back in a `LimitInForce`.
    """

    running_jobs_max: int
    serial: int = 0


class RunSimulation(Notice, frozen=True):
    """From the filter evaluator to the scheduler: every job, judged; answer the queue."""

    token: int
    simulation: Simulate
    jobs: list[JobVerdict]
    running: list[JobVerdict]
