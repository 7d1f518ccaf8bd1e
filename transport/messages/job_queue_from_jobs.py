"""Messages of job processes to the job queue, and their replies."""

from __future__ import annotations

from typing import Literal

from ...storage.jobs.jobs import JobStatus, LogEntry
from ...storage.jobs.outcomes import Ending
from .base import Notice, Reply, Request
from .job_queue_from_clients import JobsSubmitted
from .values import ChosenUnder, JobSpec


class StateRecorded(Reply, frozen=True):
    """The state is durable."""

    serial: int


class GateAnswered(Reply, frozen=True):
    """Whether the next opcode may start. If not, ``text`` says which rule holds the job.

    Then the queue takes the job back, or cancels it if it ``is_rejected``. ``chain``: the rules
    that decided.
    """

    is_open: bool
    text: str = ""
    is_rejected: bool = False
    chain: int = 0


class OutputDropped(Notice, frozen=True):
    """From a job's process, again and again: it drops output, and why; "": it stores it again."""

    job_id: int
    text: str


class NodeAwaited(Notice, frozen=True):
    """From a job's process: for what it waits on a node, such as its silence; "": nothing."""

    job_id: int
    text: str


class StateHeldUp(Notice, frozen=True):
    """From a job's process, again and again: the disk refuses a state, and the process waits.

    ``is_end``: it is the job's last one. ``text``: what the disk says.
    """

    job_id: int
    is_end: bool
    text: str


class RecordState(Request[StateRecorded | GateAnswered], frozen=True):
    """Make the job's whole new state durable.

    ``body``: the text of the job file; None: the process has flushed its file itself, and
    ``digest`` is that of the text if the log lacks this state. ``log_serial``: of the newest log
    entry in it. Times are seconds. Without ``has_locks`` the process has never requested locks, so
    the queue releases none.

    ``begins``: an opcode runs from now on, chosen under these rules. The queue records that only if
    the rules in force let the opcode start; else it records nothing and replies with
    `GateAnswered`.
    """

    job_id: int
    serial: int
    status: JobStatus
    priority: int
    log_serial: int
    started: float | None = None
    ended: float | None = None
    body: bytes | None = None
    has_locks: bool = True
    begins: ChosenUnder | None = None
    digest: bytes | None = None


class JobWaits(Notice, frozen=True):
    """The job waits for locks or dependencies. This need not be durable.

    ``body``: the text of the job file; None: it is large, and in the file.
    """

    job_id: int
    serial: int
    body: bytes | None


class JobLogAppended(Notice, frozen=True, tag="job_told"):
    """New log entries of one opcode."""

    job_id: int
    op_index: int
    entries: list[LogEntry]


class AskGate(Request[GateAnswered], frozen=True):
    """Ask whether the filter rules let the next opcode start."""

    job_id: int
    chosen: ChosenUnder = ChosenUnder()


class JobReturns(Request[StateRecorded], frozen=True):
    """The job goes back to the queue in this state, and its process exits.

    The queue replies when the state is durable. ``body``: the text of the job file; None: it is
    large, and in the file, flushed, and ``digest`` is that of the text.
    """

    job_id: int
    serial: int
    body: bytes | None
    digest: bytes | None = None


class DependencyOutcome(Reply, frozen=True):
    """Whether the dependencies of an opcode are satisfied. ``open``: some have not ended.

    ``ending``: that of the job, if it cannot go on because of them.
    """

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""
    ending: Ending | None = None


class AskDependencies(Request[DependencyOutcome], frozen=True):
    """Ask whether the dependencies of the next opcode are satisfied."""

    job_id: int
    depends: list[tuple[int, list[str]]]


class CancelAnswered(Notice, frozen=True):
    """Reply to the `CancelRequested` of this ``token``."""

    job_id: int
    token: int
    accepted: bool
    text: str


class PriorityAnswered(Notice, frozen=True):
    """Reply to the `PriorityRequested` of this ``token``. ``signaled``: as in `PriorityOutcome`."""

    job_id: int
    token: int
    priority: int
    accepted: bool
    text: str
    signaled: int | None = None


class SubmitFromJob(Request[JobsSubmitted], frozen=True):
    """Store these jobs, all or none, for the user of this job. As `SubmitJobs` otherwise."""

    job_id: int
    jobs: list[JobSpec]
    key: str
