"""What clients ask the job queue, and its replies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...storage.jobs import JobStatus, LogEntry
from .base import Done, Notice, Reply, Request
from .config_store import ReplaceFilter
from .values import JobSpec, JobSummary, LockRow, Remedy, Waiting


class JobsSubmitted(Reply, frozen=True):
    """The jobs are durable. ``is_repeat``: the key was seen before; these are the first ids.

    ``rejected``: jobs of the submission that were not stored because a filter rule rejects them,
    by their places, each with the text why; ``ids`` leaves them out.
    """

    ids: list[int]
    is_repeat: bool = False
    rejected: dict[int, str] = {}


class SubmitJobs(Request[JobsSubmitted], frozen=True):
    """Store these jobs, all or none. ``dry_run`` checks everything and stores nothing.

    ``key`` makes a retry safe: a second submission under the same key stores nothing and
    answers the ids of the first, as long as not all of those jobs are archived. One that says
    something else is refused.
    """

    jobs: list[JobSpec]
    key: str | None = None
    dry_run: bool = False


class JobRows(Reply, frozen=True):
    """One page of a listing; ``next_after`` is given when there are more."""

    rows: list[JobSummary]
    next_after: int | None = None


class ListJobs(Request[JobRows], frozen=True):
    """Live jobs in id order, from the first above ``after``; ``ids`` asks for just these.

    An unknown id among ``ids`` is an `UnknownJobError`. With ``archived`` archived jobs are
    found too (by id always, in a listing only when asked for).
    """

    ids: list[int] | None = None
    statuses: list[JobStatus] | None = None
    after: int = 0
    limit: int = 1_000
    archived: bool = False


class JobDocument(Reply, frozen=True):
    """The whole job: ``body`` is the JSON of its file with the newest log lines in it.

    ``summary`` is as in a listing; clients need not know the opcodes of users, who make it.
    """

    id: int
    body: bytes
    archived: bool = False
    summary: str = ""


class ReadJob(Request[JobDocument], frozen=True):
    """The whole of one job, live or archived."""

    id: int


class JobChanged(Reply, frozen=True):
    """Part of a watch: the job's summary after a change of status (or at the start)."""

    job: JobSummary


class JobLogged(Reply, frozen=True):
    """Part of a watch: new log entries of one opcode."""

    id: int
    op_index: int
    entries: list[LogEntry]


class WatchEnded(Reply, frozen=True):
    """Last part of a watch: every job asked for is final, or the watch was stopped."""


class WatchJobs(Request[JobChanged | JobLogged | WatchEnded], frozen=True):
    """Follow jobs. The first parts tell each job as it is, the rest each change as it comes.

    ``ids`` None follows every job, for ever; otherwise the watch ends by itself when all are
    final. ``log`` asks for log entries, for each job from behind the serial in ``log_after``.
    A watch of every job first tells those that are not final, and those in ``log_after``.
    ``is_of_ends``: no status is told but the final ones.
    """

    ids: list[int] | None = None
    log: bool = False
    log_after: dict[int, int] = {}
    is_of_ends: bool = False


class StopWatch(Notice, frozen=True):
    """The watch started by this peer's request ``request_id`` is no longer wanted."""

    request_id: int


class CancelOutcome(Reply, frozen=True):
    """What became of the wish to cancel, with Ganeti's text.

    ``was_canceled``: not accepted, because the job has been canceled before.
    """

    accepted: bool
    text: str
    was_canceled: bool = False


class CancelJob(Request[CancelOutcome], frozen=True):
    """Cancel a pending or waiting job; a running opcode is interrupted only by ``kill``.

    Then its command gets SIGTERM, and SIGKILL if that does not end it; a process that does
    not react at all is ended after a while.
    """

    id: int
    kill: bool = False


class PriorityOutcome(Reply, frozen=True):
    """What became of the wish to change the priority, with Ganeti's text."""

    accepted: bool
    text: str


class ChangeJobPriority(Request[PriorityOutcome], frozen=True):
    """Set the priority of every opcode of the job that has not been started."""

    id: int
    priority: int


class SetDrain(Request[Done], frozen=True):
    """Refuse all submissions from now on, or take them again. Jobs in the queue go on."""

    is_drained: bool


class RetryJob(Request[JobsSubmitted], frozen=True):
    """Submit a new job like an ended one, from its first opcode that did not succeed on.

    ``is_whole``: from the first one on. ``ops`` replaces its opcodes, as they would be
    submitted. Each of the two jobs names the other. ``key`` makes it safe to repeat this.
    """

    id: int
    is_whole: bool = False
    ops: list[dict[str, Any]] | None = None
    key: str | None = None


class ArchiveOutcome(Reply, frozen=True):
    """Which jobs were archived, and how many final ones were left (time limit)."""

    archived: list[int]
    left: int = 0


class ArchiveJob(Request[ArchiveOutcome], frozen=True):
    """Move one final job to the archive."""

    id: int


class AutoArchiveJobs(Request[ArchiveOutcome], frozen=True):
    """Archive final jobs that ended more than ``age_seconds`` ago (negative: all final ones)."""

    age_seconds: float
    timeout_seconds: float = 30.0


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds back job ``held``.

    ``jobs``, ``rule`` and ``lock`` name what it consists in; ``since`` is when it began, where that
    is known; ``remedy`` the smallest change that would remove it, and ``change`` the same in words.
    """

    kind: Literal["dependency", "limit", "rule", "slots", "order", "lock", "disk", "process"]
    held: int
    text: str
    change: str = ""
    jobs: list[int] = []
    rule: str | None = None
    lock: str | None = None
    since: float | None = None
    remedy: Remedy = Remedy()


class JobExplained(Reply, frozen=True):
    """Why a job is not running, or that it is.

    ``obstacles`` begin with the first thing that holds it back; those of the jobs that it depends
    on follow. ``remedy`` is the smallest change that would let it start, and ``change`` the same
    in words. ``ahead``: how many pending jobs are looked at before it; None if it is not pending.
    """

    id: int
    status: JobStatus
    text: str
    obstacles: list[Obstacle] = []
    change: str = ""
    priority: int = 0
    ahead: int | None = None
    remedy: Remedy = Remedy()


class ExplainJob(Request[JobExplained], frozen=True):
    """Tell why this job does not run."""

    id: int


class DependenciesListed(Reply, frozen=True):
    """Who waits for which job, as rows of the lock list: ``job/ID``, and who wants what of it."""

    rows: list[LockRow]


class ListDependencies(Request[DependenciesListed], frozen=True):
    """Tell which jobs are waited for."""


class RuleTest(msgspec.Struct, frozen=True, kw_only=True):
    """Which rule applies to a job now, and which would: UUID and action; None: no rule does."""

    id: int
    status: JobStatus
    now: tuple[str, str] | None
    then: tuple[str, str] | None


class FiltersTested(Reply, frozen=True):
    """One page of `TestFilters`; ``next_after`` is None on the last one."""

    rows: list[RuleTest]
    next_after: int | None = None


class TestFilters(Request[FiltersTested], frozen=True):
    """Tell which rule applies to each job that is not final, and which would, if.

    If ``rule`` (as for `ReplaceFilter`) were stored, and the rule ``without`` deleted. Nothing
    is changed.
    """

    rule: ReplaceFilter | None = None
    without: str | None = None
    after: int = 0


class Simulated(Reply, frozen=True):
    """What would happen: ``start`` at once, in this order; ``ended`` without a process.

    ``granted``: jobs with a process that would get the locks they wait for. ``paused``: those that
    a rule would hold before their next opcode. ``counts`` has how many of the others would wait,
    by kind of obstacle; ``waiting`` the first of them, in order.
    """

    start: list[int]
    granted: list[int] = []
    paused: list[int] = []
    ended: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    waiting: list[Waiting] = []


class Simulate(Request[Simulated], frozen=True):
    """Tell what would start, wait and be rejected if all this were so. Changes nothing.

    ``rule`` and ``without`` as for `TestFilters`; ``priorities`` of pending jobs; the number of
    run slots; ``ended``: jobs that have ended, each with its status.
    """

    rule: ReplaceFilter | None = None
    without: str | None = None
    priorities: dict[int, int] = {}
    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    ended: dict[int, JobStatus] = {}
