"""Messages of components to the job queue."""

from __future__ import annotations

from typing import Literal, TypeAlias

from .base import Done, Notice, Reply, Request

PendingEnd: TypeAlias = Literal["canceled", "failed", "rejected"]
"""How a pending job ends that cannot start any more."""


class JobsChosen(Notice, frozen=True):
    """From the scheduler: start the jobs ``start``.

    ``report``: the last `JobsArrived` that the choice is based on. ``chain``: the rules in force.
    ``limits``: the `RATE_LIMIT` rules in which jobs of ``start`` took a place (see `ChosenUnder`).
    ``priorities``: the last `JobReprioritised` that the choice is based on. ``unsatisfiable``: jobs
    with a dependency that can no longer be satisfied, and jobs that a rule rejects; each with
    the verdict and the text, or the rule's UUID. ``eligible``: jobs whose dependencies are
    satisfied. ``dependencies``: of jobs of ``unsatisfiable``, the one whose end decides that.
    """

    start: list[int]
    report: int = 0
    chain: int = 0
    limits: dict[int, str] = {}
    priorities: int = 0
    unsatisfiable: list[tuple[int, PendingEnd, str]] = []
    eligible: list[int] = []
    dependencies: dict[int, int] = {}


class ReportStatuses(Notice, frozen=True):
    """From the scheduler: send the statuses of these jobs, which dependencies name."""

    ids: list[int]


class ReportAllJobs(Notice, frozen=True):
    """From a scheduler or filter evaluator that starts: send all jobs of the queue."""


class ReportRest(Notice, frozen=True):
    """From the filter evaluator: send the next page of this report, with ids above ``after``."""

    report: int
    after: int


class ReportJobs(Notice, frozen=True):
    """From the scheduler: send these jobs to be judged again, under the rules in force.

    ``are_read``: from the filter evaluator, which cannot read their files: send their texts.
    """

    ids: list[int]
    are_read: bool = False


class SweepJobs(Notice, frozen=True):
    """From the filter evaluator: send the next pending jobs with ids above ``after``."""

    after: int
    chain: int


class JobsRejected(Notice, frozen=True):
    """From the filter evaluator: rules reject these pending jobs, each with the text why."""

    jobs: list[tuple[int, str]]


class RuleChainAcknowledged(Notice, frozen=True):
    """From the scheduler: all later choices are made under the rules of this serial."""

    serial: int


class LimitAcknowledged(Notice, frozen=True):
    """From the scheduler: all later choices are made with this number of run slots."""

    serial: int
    running_jobs_max: int


class LastId(Reply, frozen=True):
    """The last job id that the queue has assigned."""

    last_id: int


class ReadLastId(Request[LastId], frozen=True):
    """From the configuration store: the last job id is wanted, as the watermark of a new rule."""


class QueueReport(Reply, frozen=True):
    """From the job queue: its share of `DaemonInfo`."""

    counts: dict[str, int]
    quarantined: list[str]
    flushes: int
    is_read_only: bool
    is_drained: bool = False
    is_disk_full: bool = False
    lacks_room: bool = False
    reserve_bytes: int = 0
    output_dropped: dict[int, str] = {}
    archive_indexed: float | None = None
    outcomes: dict[str, int] = {}


class ReadQueueState(Request[QueueReport], frozen=True):
    """From the supervisor: the queue's share of `DaemonInfo`."""


class ReportRunning(Notice, frozen=True):
    """From an executor that starts: send the jobs that have a process."""


class Compacted(Notice, frozen=True):
    """From the queue's own thread: the compactor has come to an end.

    ``error``: why the sealed segments of the journal are still there; also null if the queue gave
    the compaction up.
    """

    incarnation: int
    error: str | None = None


class SegmentMade(Notice, frozen=True):
    """From the queue's own thread: the journal's next segment is ready, or cannot be made now."""

    error: str | None = None


class DiskSeenFull(Notice, frozen=True):
    """From the output reader: nothing is free of the disk."""


class LargeFilesGone(Notice, frozen=True):
    """From the queue's own thread: the space of large files of purged jobs is free."""


class InputFlushed(Notice, frozen=True):
    """From a thread of the queue: standard input that has come is durable, or cannot be flushed."""

    token: str
    error: str | None = None


class JobWaitsDue(Notice, frozen=True):
    """From the queue to itself: clients that wait for a change of a job are to be answered."""


class GatheredDue(Notice, frozen=True):
    """From the queue to itself: what was gathered for watches is to be sent."""


class StoreEstimates(Notice, frozen=True):
    """From the queue to itself, some time after it has learnt run times: write them."""


class StoreAges(Notice, frozen=True):
    """From the queue to itself, some time after new jobs came: write when they came."""


class HandOverRequested(Notice, frozen=True):
    """From the executor: a child waits for `JobGo`, and has locked ``lock_file``.

    The reply address of the envelope is the child's.
    """

    job_id: int
    lock_file: str
    process_id: int


class JobExited(Notice, frozen=True):
    """From the executor: the job's process has ended, and its lock is free.

    ``has_left``: the process had reported that its last state is in its file. ``was_killed``: the
    executor had killed it on request. ``exit_code``: of the process, or minus the number of the
    signal that ended it; None: unknown. ``on_node``: what became of its task on a node.
    """

    job_id: int
    lock_file: str
    has_left: bool
    was_killed: bool = False
    exit_code: int | None = None
    on_node: str = ""


class StartFailed(Notice, frozen=True):
    """From the executor: it cannot make a process for the job."""

    job_id: int
    text: str


class ChangesStored(Reply, frozen=True):
    """The changes are durable up to this position of the log.

    None: they are not stored, since the log has newer ones, which their sender does not know.
    """

    position: int | None


class StoreChanges(Request[ChangesStored], frozen=True):
    """From the configuration store: append these changes to the log, all or none.

    ``base``: the serial number of the configuration to which they are made; theirs are the next
    ones. ``known``: the newest serial number that the store has found in the log. ``changes``:
    their records, encoded.
    """

    base: int
    known: int
    changes: list[bytes]


class NodesChanged(Notice, frozen=True):
    """From the configuration store: its nodes by name, each with its state (`node_states`).

    ``lock_names``: what names in locks stand for (`storage.cluster.lock_names`).
    """

    nodes: dict[str, str]
    lock_names: dict[str, dict[str, str]] = {}


class ConfigFilesWritten(Notice, frozen=True):
    """From the configuration store: ``config.data`` has the changes up to this serial number."""

    serial: int


class AwaitSettled(Request[Done], frozen=True):
    """From the configuration store: reply when a loss of power cannot bring back refused records.

    The log has refused them, and could not take them out at once.
    """
