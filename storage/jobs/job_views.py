"""Jobs as users of the library see them: frozen values, times in seconds since the epoch.

`job_info` makes them from the text of a job file, `transport` from summaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from .. import errors, opcodes
from . import jobs, listing, outcomes
from .jobs import JobStatus
from .listing import JobSummary
from .origins import job_id_in
from .outcomes import Outcome


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a job's log; ``serial`` counts within the job, from 1."""

    job_id: int
    op_index: int
    serial: int
    time: float
    kind: str
    text: str


class OutputChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Output of one opcode; or, without ``data``, a gap in it of ``missing`` bytes.

    ``stream`` is ``stdout`` or ``stderr``, and empty for a gap. ``gap`` says why bytes are missing:
    the opcode's output reached its ``limit`` (``missing`` is 0 where the gap begins, and the
    number of dropped bytes where it ends), the ``disk`` refused them, the file has ``damage``, or
    it was ``removed`` to make room on a full disk.
    """

    job_id: int
    op_index: int
    stream: Literal["stdout", "stderr", ""]
    data: bytes
    gap: Literal["limit", "disk", "damage", "removed", ""] = ""
    missing: int = 0

    @property
    def is_mark(self) -> bool:
        """Whether it is neither output nor a gap: ``missing`` is a serial of the job's log.

        The verbs of the client give out no such chunks.
        """
        return not (self.data or self.gap)


class OpInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One opcode of a job: its input, status, result and log."""

    op_id: str
    summary: str
    input: dict[str, Any]
    status: JobStatus
    result: Any
    log: list[LogLine]
    priority: int
    started: float | None
    executed: float | None
    ended: float | None


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A live job as its waiter gets it, in Ganeti's form.

    ``values`` are those of the fields, None for what is not there. ``log``: the newer entries, each
    [serial, [seconds, microseconds], kind, message]. ``is_final``: the job has ended.
    """

    values: list[Any]
    log: list[list[Any]]
    is_final: bool


class JobInfo(JobSummary, frozen=True, kw_only=True, gc=False):
    """One job. ``ops`` and ``depends`` are None in a summary.

    ``depends`` holds the jobs that the first opcode depends on, with the statuses it accepts.
    ``output_removed``: all of its output, to make room on a full disk.
    """

    depends: list[tuple[int, tuple[str, ...]]] | None = None
    retried_by: list[int] = msgspec.field(default_factory=list)
    ops: list[OpInfo] | None = None
    output_removed: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.status.is_final

    @property
    def error(self) -> errors.JobEndedError | None:
        """Why the job has not ended in success, to raise; None: it has, or has not ended."""
        if self.outcome is None or self.outcome is Outcome.SUCCESS:
            return None
        why = f": {self.reason_ended}" if self.reason_ended else ""
        error = _ERRORS[self.outcome](f"job {self.id} {outcomes.VERBS[self.outcome]}{why}")
        error.job_id, error.reason, error.cause = self.id, self.reason_ended, self.cause
        return error


_ERRORS: Mapping[Outcome, type[errors.JobEndedError]] = {
    Outcome.FAILED: errors.JobFailedError,
    Outcome.SKIPPED: errors.JobSkippedError,
    Outcome.REJECTED: errors.JobRejectedError,
    Outcome.CANCELED: errors.JobCanceledError,
    Outcome.KILLED: errors.JobKilledError,
    Outcome.TIMED_OUT: errors.JobTimedOutError,
    Outcome.LOST: errors.JobLostError,
}


class ListingProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a listing is.

    ``looked_at``: it has come to the job with this id; None: it is at its end. ``indexed``: the
    part of the archive that is in its index, from 0 to 1, while that is built: the listing lacks
    the other archived jobs. None: it lacks none.
    """

    looked_at: int | None = None
    indexed: float | None = None


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    """A watched job has another status; ``previous`` is None in its first report."""

    job_id: int
    status: JobStatus
    previous: JobStatus | None
    job: JobInfo


RATE_LIMIT_PREFIX = "rate-limit:"
"""Start of a reason that limits how many jobs with it run at one time."""

_COUNT_DIGITS_MAX = 18

FIELDS = JobInfo.__struct_fields__
"""The fields of a job that a client may ask for."""

WHOLE_FIELDS = frozenset({"ops", "depends", "output_removed"})
"""The fields that a summary lacks."""


def job_info(
    body: bytes, *, archived: bool = False, summary: str = "", output_removed: bool = False
) -> JobInfo:
    """The job in the text of a job file; `StorageError` if that holds none.

    ``summary``: of the daemon, which may know opcodes that are not installed here.
    """
    job = jobs.decode_job(body)
    known = {"archived": archived, "summary": summary} if summary else {"archived": archived}
    # What the daemon says of a job with one opcode, it says of that.
    told = summary if len(job.ops) == 1 else ""
    return JobInfo(
        **listing.values_of(job, known),
        depends=_depends(job),
        retried_by=retried_by(job),
        ops=[_op_info(job.id, index, op, told) for index, op in enumerate(job.ops)],
        output_removed=output_removed,
    )


def rate_limits(inputs: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """The ad-hoc rate limits of a job: ``rate-limit:N:TEXT`` in any reason of any opcode.

    Each is a bucket, named by all that follows ``rate-limit:``, in which N jobs may run. The text
    may be empty; without the second colon it is no limit (design document of job filters).
    """
    found: dict[str, int] = {}
    for opcode in inputs:
        trail = opcode.get("reason")
        for entry in trail if isinstance(trail, list) else ():
            is_entry = isinstance(entry, list | tuple) and len(entry) > 1
            text = entry[1] if is_entry else None
            if isinstance(text, str) and text.startswith(RATE_LIMIT_PREFIX):
                bucket = text.removeprefix(RATE_LIMIT_PREFIX)
                number, colon, _ = bucket.partition(":")
                if colon and _is_count(number) and int(number) > 0:
                    found[bucket] = int(number)
    return tuple(found.items())


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _COUNT_DIGITS_MAX


def log_lines(job_id: int, op_index: int, entries: list[jobs.LogEntry]) -> list[LogLine]:
    """Log entries of one opcode as values."""
    return [
        LogLine(
            job_id=job_id,
            op_index=op_index,
            serial=serial,
            time=stamp[0] + stamp[1] / 1_000_000,
            kind=kind,
            text=message if isinstance(message, str) else _json_text(message),
        )
        for serial, stamp, kind, message in entries
    ]


def _op_info(job_id: int, index: int, op: jobs.OpcodeEntry, summary: str) -> OpInfo:
    return OpInfo(
        op_id=str(op.input.get("OP_ID", "")),
        summary=summary or opcodes.summary(op.input),
        input=op.input,
        status=op.status,
        result=op.result,
        log=log_lines(job_id, index, op.log),
        priority=op.priority,
        started=jobs.seconds(op.start_timestamp),
        executed=jobs.seconds(op.exec_timestamp),
        ended=jobs.seconds(op.end_timestamp),
    )


def _depends(job: jobs.Job) -> list[tuple[int, tuple[str, ...]]]:
    found = job.ops[0].input.get("depends") if job.ops else None
    depends: list[tuple[int, tuple[str, ...]]] = []
    for entry in found if isinstance(found, list) else ():
        match entry:
            # Skip malformed entries, which Ganeti or an older version may have stored.
            case [int(job_id), [*statuses]]:
                depends.append((job_id, tuple(map(str, statuses))))
    return depends


def retried_by(job: jobs.Job) -> list[int]:
    """The jobs that repeat an ended one, as it was noted in its file."""
    noted = job.extra.get(jobs.RETRIED_BY_KEY)
    given = noted if isinstance(noted, list) else []
    return [job_id for one in given if (job_id := job_id_in(one)) is not None]


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
