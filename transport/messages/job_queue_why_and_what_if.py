"""Questions of clients to the job queue: why jobs wait, when they will run, and what if.

Nothing of this changes anything.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ...storage.jobs.jobs import JobStatus
from ...storage.prediction.estimates import Accuracy, Estimate
from ...storage.prediction.lock_types import LockForecast
from .base import Reply, Request
from .config_store import ReplaceFilter
from .several import RuleHits
from .values import LockRow, Remedy, WaitingJob


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds back job ``held``.

    ``jobs``, ``rule`` and ``lock`` name its parts. ``since``: when it began; None: unknown.
    ``remedy``: the smallest change that removes it; ``change``: the same in words.
    """

    kind: Literal[
        "dependency", "limit", "rule", "slots", "order", "lock", "disk", "process", "node"
    ]
    held: int
    text: str
    change: str = ""
    jobs: list[int] = []
    rule: str | None = None
    lock: str | None = None
    since: float | None = None
    remedy: Remedy = Remedy()


class JobExplained(Reply, frozen=True):
    """Why a job does not run, or that it does.

    ``obstacles`` start with the first thing that holds it back; the obstacles of the jobs that it
    depends on follow. ``remedy``: the smallest change that lets it start; ``change``: the same in
    words. ``ahead``: how many pending jobs have their turn before it; None: it is not pending.
    ``has_more_ahead``: there may be more of them, and the remedy does not reckon with these.
    """

    id: int
    status: JobStatus
    text: str
    obstacles: list[Obstacle] = []
    change: str = ""
    priority: int = 0
    ahead: int | None = None
    has_more_ahead: bool = False
    remedy: Remedy = Remedy()


class ExplainJob(Request[JobExplained], frozen=True):
    """Explain why this job does not run."""

    id: int


class PlanRead(Reply, frozen=True):
    """What a plan needs (`storage/prediction/planning`).

    ``now``: seconds since the epoch. ``works``: for each kind of work the estimate; None: there is
    no history. ``running``: jobs in run slots, each with its kind of work and the seconds since it
    began. ``pending``: the first pending jobs in the scheduler's order, each with its kind of work,
    the jobs for which it waits, and whether a rule or a limit holds it; ``count``: all of them.
    ``usual``: the seconds that count for work without history. ``accuracy``: how wrong the last
    predictions of run times were. ``locks``, ``lock_sets``, ``standing``, ``holds_back``: as the
    scheduler reports them (`OrderReported`). ``waiting``: for what all pending jobs wait, by the
    kind of `Obstacle`, and as ``process`` the jobs that wait for locks with a process. ``causes``:
    as in `OrderReported`.
    """

    now: float
    slots: int
    works: list[Estimate | None]
    running: list[tuple[int, int, float]]
    pending: list[tuple[int, int, list[int], bool]]
    count: int
    usual: float | None = None
    accuracy: Accuracy | None = None
    locks: list[LockForecast] = []
    lock_sets: dict[int, int] = {}
    standing: list[int] = []
    holds_back: bool = False
    waiting: dict[str, int] = {}
    causes: dict[int, tuple[str, str]] = {}


class ReadPlan(Request[PlanRead], frozen=True):
    """Send what a plan of the jobs to come needs.

    ``limit``: of at most so many pending jobs; None: of as many as a plan has. ``has_causes``:
    also for what the pending jobs wait. ``causes_of``: for what each of these waits, at most
    `CAUSES_MAX` of them.
    """

    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    has_causes: bool = False
    causes_of: list[int] = []


class ReadRuleHits(Request[RuleHits], frozen=True):
    """Read to how many jobs each filter rule was applied, or which it rejected."""


class DependenciesListed(Reply, frozen=True):
    """Jobs that others wait for, as rows of the lock list: ``job/ID`` with the waiting jobs."""

    rows: list[LockRow]


class ListDependencies(Request[DependenciesListed], frozen=True):
    """List the jobs that other jobs wait for."""


class RuleTest(msgspec.Struct, frozen=True, kw_only=True):
    """UUID and action of the rule that applies to a job now, and of the one that would."""

    id: int
    status: JobStatus
    now: tuple[str, str] | None
    then: tuple[str, str] | None


class FiltersTested(Reply, frozen=True):
    """One page of `TestFilters`. ``next_after``: where the next starts; None: this is the last."""

    rows: list[RuleTest]
    next_after: int | None = None


class TestFilters(Request[FiltersTested], frozen=True):
    """Test other filter rules on all jobs that are not final, and change nothing.

    ``rule``: as if this were stored (see `ReplaceFilter`); ``without``: as if this rule were
    deleted.
    """

    rule: ReplaceFilter | None = None
    without: str | None = None
    after: int = 0


class Simulated(Reply, frozen=True):
    """The effect of a simulated change.

    ``start``: jobs that would start at once, in this order. ``ended``: jobs that would end without
    a process, the first 10,000 of them; ``more_ended``: how many more. ``granted``: jobs with a
    process that would get their locks. ``paused``: jobs that a rule would hold before their next
    opcode. ``counts``: how many other jobs would wait, by kind of obstacle; ``waiting``: the first
    of them, in order.
    """

    start: list[int]
    granted: list[int] = []
    paused: list[int] = []
    ended: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    waiting: list[WaitingJob] = []
    more_ended: int = 0


class Simulate(Request[Simulated], frozen=True):
    """Simulate which jobs would start, wait and be rejected, and change nothing.

    As if ``rule`` were stored and the rule ``without`` deleted (see `TestFilters`), pending jobs
    had these ``priorities``, there were ``running_jobs_max`` run slots, and the jobs of ``ended``
    had ended with these statuses.
    """

    rule: ReplaceFilter | None = None
    without: str | None = None
    priorities: dict[int, int] = {}
    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    ended: dict[int, JobStatus] = {}
