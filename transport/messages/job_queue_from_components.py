"""What other components say to the job queue."""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Notice
from .job_queue_from_clients import Simulated
from .values import Remedy, Waiting


class PeerGone(Notice, frozen=True):
    """A peer cannot be reached any more: its watches end. ``peer`` is its address's key."""

    peer: bytes


Verdict = Literal["canceled", "failed", "rejected"]
"""What becomes of a pending job that will never start."""


class JobsChosen(Notice, frozen=True):
    """From the scheduler: start the jobs ``start``.

    ``report``: the last `JobsArrived` that the choice is based on. ``chain``: the rules in force.
    ``limits``: the `RATE_LIMIT` rules in which jobs of ``start`` took a place (see `ChosenUnder`).
    ``priorities``: the last `JobReprioritised` that the choice is based on. ``unsatisfiable``: jobs
    with a dependency that can no longer be satisfied, and jobs that a rule rejects; each with
    the verdict and the text. ``eligible``: jobs whose dependencies are satisfied.
    """

    start: list[int]
    report: int = 0
    chain: int = 0
    limits: dict[int, str] = {}
    priorities: int = 0
    unsatisfiable: list[tuple[int, Verdict, str]] = []
    eligible: list[int] = []


class ReportStatuses(Notice, frozen=True):
    """From the scheduler: tell what is known of these jobs, named in dependencies."""

    ids: list[int]


class ReportQueue(Notice, frozen=True):
    """From a scheduler or filter evaluator that starts afresh: tell what is in the queue."""


class ReportJobs(Notice, frozen=True):
    """From the scheduler: let these jobs be judged anew, under the rules now in force."""

    ids: list[int]


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """How a pending job stands in the schedule.

    ``open``: dependencies that are not final; ``failing``: how another one has failed it already,
    so that it ends when these have. ``full``: its buckets without a place, each with its
    size, who is in it, and who waits for a place before it. ``ahead``: how many stand before it,
    and the first of them. ``holding``: the rules that hold it, one behind the other.
    """

    open: list[int] = []
    failing: str = ""
    full: list[tuple[str, int, list[int], list[int]]] = []
    action: str = "ACCEPT"
    rule: str | None = None
    ahead: int = 0
    first_ahead: list[int] = []
    running: list[int] = []
    slots: int = 0
    priority: int = 0
    best_priority: int = 0
    holding: list[str] = []
    remedy: Remedy = Remedy()


class PendingExplained(Notice, frozen=True):
    """From the scheduler: how a job stands; None: it is not pending any more."""

    token: int
    position: QueuePosition | None


class WantedLock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that a job waits for: who holds it (job, mode, since when), and who is ahead."""

    name: str
    mode: str
    holders: list[tuple[int, str, float | None]] = []
    ahead: list[int] = []


class OwnerExplained(Notice, frozen=True):
    """From the lock manager: what the owner of a lock file waits for, in lock order."""

    token: int
    locks: list[WantedLock]
    remedy: Remedy = Remedy()


class LocksSimulated(Notice, frozen=True):
    """From the lock manager: jobs that would get their locks, and those that would still wait.

    ``count`` is how many would; ``waiting`` names the first of them, in line.
    """

    token: int
    granted: list[int]
    waiting: list[Waiting]
    count: int


class SweepJobs(Notice, frozen=True):
    """From the filter evaluator: send the next pending jobs with ids above ``after``."""

    after: int
    chain: int


class JobsRejected(Notice, frozen=True):
    """From the filter evaluator: rules reject these pending jobs; each with the text why."""

    jobs: list[tuple[int, str]]


class SimulationFailed(Notice, frozen=True):
    """From the filter evaluator: the simulation cannot be had; the asker is told why."""

    token: int
    text: str


class SimulationPage(Notice, frozen=True):
    """From the filter evaluator: send the next page."""

    token: int
    after: int


class SimulationDone(Notice, frozen=True):
    """From the scheduler: what would happen. Rules are still named by their UUIDs."""

    token: int
    outcome: Simulated


class RuleChainAcknowledged(Notice, frozen=True):
    """From the scheduler: what follows was decided under the rules of this serial."""

    serial: int


class LimitAcknowledged(Notice, frozen=True):
    """From the scheduler: what follows was decided with this number of run slots."""

    serial: int
    running_jobs_max: int


class ReportLastId(Notice, frozen=True):
    """From the configuration store: answer with a `LastIdReported`."""

    token: int


class ReportRunning(Notice, frozen=True):
    """From an executor that starts afresh: tell which jobs were handed over."""


class JournalCut(Notice, frozen=True):
    """From a thread of the receiver's own: old segments of the journal are gone.

    ``error`` says why the file system could not be flushed; they are there still, then.
    """

    incarnation: int
    error: str | None = None


class HandOverRequested(Notice, frozen=True):
    """From the executor: a child waits for `JobGo`; ``lock_file`` is what it locked.

    The envelope's reply address is that of the child.
    """

    job_id: int
    lock_file: str
    process_id: int


class JobExited(Notice, frozen=True):
    """From the executor: the process is gone, and its lock with it.

    ``has_left``: it said that it wrote its last state to its file. ``was_killed``: on request.
    ``exit_code`` is that of the process, below 0 the number of the signal that ended it; None if
    it is not known.
    """

    job_id: int
    lock_file: str
    has_left: bool
    was_killed: bool = False
    exit_code: int | None = None


class StartFailed(Notice, frozen=True):
    """From the executor: no process could be made for the job."""

    job_id: int
    text: str
