"""What job processes say to the job queue, and its replies."""

from __future__ import annotations

from typing import Literal

from ...storage.jobs import JobStatus, LogEntry
from .base import Notice, Reply, Request
from .values import ChosenUnder


class StateRecorded(Reply, frozen=True):
    """The state is durable."""

    serial: int


class GateAnswered(Reply, frozen=True):
    """Whether the next opcode may start; if not, ``text`` says which rule holds the job.

    A closed gate sends the job back to the queue; one that ``is_rejected`` is canceled.
    ``chain`` names the rules that decided.
    """

    is_open: bool
    text: str = ""
    is_rejected: bool = False
    chain: int = 0


class RecordState(Request[StateRecorded | GateAnswered], frozen=True):
    """From a job process: its job's whole new state, to be durable before the answer.

    ``body`` is the text of the job file; None if the process has flushed its file itself.
    ``log_serial`` is the serial of the newest log entry in it. Times are seconds. Without
    ``has_locks`` the process has never asked for any: nobody needs to free them. With
    ``is_unanswered`` nobody waits for the answer: the process is about to exit.

    With ``begins`` the state says that an opcode runs from now on. It is recorded only if the
    rules in force let the opcode start; else the answer is a `GateAnswered`, and nothing is.
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
    is_unanswered: bool = False
    begins: ChosenUnder | None = None


class JobWaits(Notice, frozen=True):
    """From a job process: its job waits for locks or dependencies. Needs not be durable.

    ``body`` is the text of the job file; None for a large one, which is in the file.
    """

    job_id: int
    serial: int
    body: bytes | None


class JobLogAppended(Notice, frozen=True, tag="job_told"):
    """From a job process: new log entries of one opcode."""

    job_id: int
    op_index: int
    entries: list[LogEntry]


class AskGate(Request[GateAnswered], frozen=True):
    """From a job process: asks whether the filter rules let its next opcode start."""

    job_id: int
    chosen: ChosenUnder = ChosenUnder()


class JobReturns(Request[StateRecorded], frozen=True):
    """From a job process: the job goes back to the queue in this state, and the process leaves.

    Answered when that is durable, as `RecordState`. ``body`` is the text of the job file; None for
    a large one, which is in the file, flushed.
    """

    job_id: int
    serial: int
    body: bytes | None


class DependencyOutcome(Reply, frozen=True):
    """How the dependencies of an opcode stand; ``open``: some of the jobs are not final."""

    verdict: Literal["satisfied", "canceled", "failed", "open"]
    text: str = ""


class AskDependencies(Request[DependencyOutcome], frozen=True):
    """From a job process: asks how the dependencies of its next opcode stand."""

    job_id: int
    depends: list[tuple[int, list[str]]]


class CancelAnswered(Notice, frozen=True):
    """From a job process: its answer to `CancelRequested` number ``token``."""

    job_id: int
    token: int
    accepted: bool
    text: str


class PriorityAnswered(Notice, frozen=True):
    """From a job process: its answer to `PriorityRequested` number ``token``."""

    job_id: int
    token: int
    priority: int
    accepted: bool
    text: str
