"""Messages to the scheduler."""

from __future__ import annotations

from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import Outcome
from ...storage.locks.locks import Owner
from ...storage.prediction.lock_types import LockForecast
from ...storage.prediction.policy import Policy
from .base import Notice, Request
from .job_queue_why_and_what_if import Simulate, Simulated
from .several import RuleHits
from .values import JobVerdict


class JobsJudged(Notice, frozen=True):
    """From the filter evaluator: the jobs of a `JobsArrived`, judged. The other fields as there.

    ``has_more``: further pages of this report follow.
    """

    jobs: list[JobVerdict]
    running: list[JobVerdict] = []
    is_all: bool = False
    is_rest: bool = False
    has_more: bool = False
    is_repeat: bool = False
    report: int = 0
    came: list[tuple[int, float]] = []


class StatusesReported(Notice, frozen=True):
    """From the job queue: the requested statuses; None: there is no such job.

    ``outcomes``: as in `JobsFinished`.
    """

    jobs: list[tuple[int, JobStatus | None]]
    outcomes: dict[int, Outcome] = {}


class LimitsChanged(Notice, frozen=True):
    """From the configuration store: the number of run slots.

    ``serial`` grows with each change; `LimitApplied` returns it.
    """

    running_jobs_max: int
    serial: int = 0


class PolicyChanged(Notice, frozen=True):
    """From the configuration store, before the `LimitsChanged` of the same serial: the policy.

    The policy is in force when `LimitApplied` returns the serial.
    """

    policy: Policy
    serial: int = 0


class OwnersChanged(Notice, frozen=True):
    """From the lock manager: the locks that these owners hold now; `NO_LOCKS`: none.

    None: the owner has ended, and has lost its locks. ``is_all``: no other owner holds any.
    """

    owners: list[tuple[Owner, LockForecast | None]]
    is_all: bool = False


class WeightDue(Notice, frozen=True):
    """From the scheduler's own timer: a job that was held back has no weight left."""


class RunSimulation(Request[Simulated], frozen=True):
    """From the job queue: all jobs of a simulation, judged. The outcome names rules by UUID."""

    simulation: Simulate
    jobs: list[JobVerdict]
    running: list[JobVerdict]


class ReportRuleHits(Request[RuleHits], frozen=True):
    """From the queue: to how many pending jobs each rule was applied."""
