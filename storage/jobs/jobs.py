"""The job model: the JSON of a job file, and statuses of jobs and opcodes.

Has no files and no clock. Layout, keys and rules are those of Ganeti's job files; ``extra``
holds unknown keys, which are written back unchanged.

Status transitions of one opcode (the table `TRANSITIONS` decides)::

    queued -> waiting -> running -> success | error
    queued | waiting -> canceling -> canceled
    waiting -> queued (the job goes back to the queue)
"""

from __future__ import annotations

import enum
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, assert_never

import msgspec

from .. import errors
from ..settings import PRIORITY_MAX, PRIORITY_MIN
from .origins import NAME_KEY, PLAN_KEY, RETRY_OF_KEY, SUBMITTER_KEY

Timestamp = tuple[int, int]
"""Seconds and microseconds since the epoch, UTC."""

LogEntry = tuple[int, Timestamp, str, Any]
"""Serial within the job (1-based), time, kind (``message``, ``stdout``, ...), message."""

PRIORITIES = range(PRIORITY_MIN, PRIORITY_MAX + 1)


STATE_SERIAL_KEY = "ganger_serial"
"""Extra key of a job file: its version, so that a replay of the journal never goes back."""

SUBMISSION_KEY = "ganger_key"
"""Extra key of a job file: the idempotency key under which it was submitted."""

RETRIED_BY_KEY = "ganger_retried_by"
"""Extra key of a job file: the jobs that repeat this one."""

DIGEST_KEY = "ganger_digest"
"""Extra key of a job file: a digest that tells the job from others with the same key."""

BATCH_KEY = "ganger_batch"
"""Extra key of a job file: the job's place in its submission, and the submission's size."""

REJECTED_KEY = "ganger_rejected"
"""Extra key of the first job of a submission: the others that a filter rule rejected, and why."""

ENDING_KEY = "ganger_ending"
"""Extra key of a job file: how the job ended, where nothing else in it says that (`outcomes`)."""

FILTER_SOURCE = "ganger:filter"
"""Source of the reason trail's entry that names the filter rule which canceled the job."""

RETRY_SOURCE = "ganger:retry"
"""Source of the reason trail's entry that names the job which this one repeats."""

CHECKSUM_KEY = "ganger_crc"
"""Last key of a job file of ours: the CRC-32 of the text without it.

A file that was overwritten without a flush may mix two versions after a power loss, and may still
be JSON.
"""


def check_priority(priority: int, place: str) -> None:
    """Raise `BadRequestError` that names the place unless this is a priority."""
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        text = f"{place}: expected {PRIORITY_MIN} to {PRIORITY_MAX}, got {priority}"
        raise errors.BadRequestError(text)


def check_id(job_id: object) -> int:
    """``job_id`` if it can be a job's id; else `BadRequestError`."""
    if not isinstance(job_id, int) or isinstance(job_id, bool) or not 0 < job_id < 2**63:
        raise errors.BadRequestError(f"job id {job_id!r}: expected a positive number of 64 bits")
    return job_id


def users_reasons(opcode: Mapping[str, Any]) -> list[Any]:
    """The entries of the reason trail that users gave; the queue adds entries of its own."""
    trail = opcode.get("reason")
    return [entry for entry in (trail if isinstance(trail, list) else ()) if _is_users(entry)]


def _is_users(entry: object) -> bool:
    match entry:
        case [str(source), *_]:
            is_added = source.startswith(("gnt:opcode:", "gnt:daemon:"))
            return not is_added and source not in (RETRY_SOURCE, FILTER_SOURCE)
    return False


def first_to_repeat(job_id: int, statuses: Sequence[JobStatus], *, is_whole: bool) -> int:
    """The place of the opcode from which a retry begins; `JobStateError` if all succeeded."""
    if is_whole:
        return 0
    for index, status in enumerate(statuses):
        if status is not JobStatus.SUCCESS:
            return index
    raise errors.JobStateError(errors.RETRY_WHOLE.format(job_id))


class JobStatus(enum.StrEnum):
    """Status of a job or of one opcode, in Ganeti's order of comparison (`rank`)."""

    QUEUED = "queued"
    WAITING = "waiting"
    CANCELING = "canceling"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Place in the order in which the members of this class stand."""
        return _RANKS[self]

    @property
    def is_final(self) -> bool:
        """Whether the job or opcode has ended."""
        return self in _FINAL


_RANKS = {status: rank for rank, status in enumerate(JobStatus)}
_FINAL = frozenset(status for status in JobStatus if status.rank > JobStatus.RUNNING.rank)

BEFORE_RUNNING = tuple(status for status in JobStatus if status.rank < JobStatus.RUNNING.rank)
"""Statuses in which no operation runs or has run."""


class OpcodeEvent(enum.StrEnum):
    """What can happen to one opcode."""

    TAKE_UP = "take_up"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    CONFIRM_CANCEL = "confirm_cancel"
    LOSE_PROCESS = "lose_process"
    RETURN = "return"


TRANSITIONS: dict[tuple[JobStatus, OpcodeEvent], JobStatus] = {
    (JobStatus.QUEUED, OpcodeEvent.TAKE_UP): JobStatus.WAITING,
    (JobStatus.QUEUED, OpcodeEvent.CANCEL): JobStatus.CANCELED,
    (JobStatus.QUEUED, OpcodeEvent.FAIL): JobStatus.ERROR,
    (JobStatus.QUEUED, OpcodeEvent.START): JobStatus.RUNNING,
    (JobStatus.WAITING, OpcodeEvent.START): JobStatus.RUNNING,
    (JobStatus.WAITING, OpcodeEvent.CANCEL): JobStatus.CANCELING,
    (JobStatus.WAITING, OpcodeEvent.FAIL): JobStatus.ERROR,
    (JobStatus.CANCELING, OpcodeEvent.CONFIRM_CANCEL): JobStatus.CANCELED,
    (JobStatus.RUNNING, OpcodeEvent.SUCCEED): JobStatus.SUCCESS,
    (JobStatus.RUNNING, OpcodeEvent.FAIL): JobStatus.ERROR,
    # The job goes back to the queue before this opcode, which has not begun.
    (JobStatus.QUEUED, OpcodeEvent.RETURN): JobStatus.QUEUED,
    (JobStatus.WAITING, OpcodeEvent.RETURN): JobStatus.QUEUED,
    # The job's process is gone: every opcode, even a finished one, becomes an error.
    **{(status, OpcodeEvent.LOSE_PROCESS): JobStatus.ERROR for status in JobStatus},
}


def next_status(status: JobStatus, event: OpcodeEvent) -> JobStatus:
    """The status after ``event``; `JobStateError` if the table has no such transition."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        message = f"an opcode in status {status} cannot {event.replace('_', ' ')}"
        raise errors.JobStateError(message) from None


class OpcodeEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One opcode of a job, as in the job file: its input, status, result and log.

    `Job.op_extras` has the unknown keys.
    """

    input: dict[str, Any]
    status: JobStatus = JobStatus.QUEUED
    result: Any = None
    log: list[LogEntry] = []
    priority: int = 0
    start_timestamp: Timestamp | None = None
    exec_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None

    @property
    def judged_input(self) -> dict[str, Any]:
        """The input as filter rules see it: with the opcode's present priority."""
        if (self.input.get("priority") or 0) == self.priority:
            return self.input
        return {**self.input, "priority": self.priority}

    def apply(self, event: OpcodeEvent) -> None:
        """Move to the status that follows ``event``."""
        self.status = next_status(self.status, event)


class Job(msgspec.Struct, kw_only=True, gc=False):
    """A job, as in its job file. ``extra`` holds unknown keys."""

    id: int
    ops: list[OpcodeEntry]
    received_timestamp: Timestamp | None = None
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None
    livelock: str | None = None
    process_id: int | None = None
    extra: dict[str, Any] = {}
    op_extras: list[dict[str, Any]] = []

    @property
    def status(self) -> JobStatus:
        """The job's status, from its opcodes (job-file rules, section 3)."""
        if len(self.ops) == 1:
            return self.ops[0].status
        return job_status([op.status for op in self.ops])

    @property
    def priority(self) -> int:
        """The most urgent priority of the opcodes that are not final; 0 if all are."""
        if len(self.ops) == 1:
            return 0 if self.ops[0].status in _FINAL else self.ops[0].priority
        return min([op.priority for op in self.ops if op.status not in _FINAL], default=0)

    @property
    def judged_inputs(self) -> list[dict[str, Any]]:
        """The inputs of its opcodes as filter rules see them."""
        return [op.judged_input for op in self.ops]

    @property
    def next_index(self) -> int:
        """Place of the first opcode that is not final; the number of opcodes if all are."""
        for place, op in enumerate(self.ops):
            if op.status not in _FINAL:
                return place
        return len(self.ops)

    @property
    def has_begun(self) -> bool:
        """Whether an opcode runs or has run, according to the record."""
        return any(
            op.exec_timestamp is not None or op.status not in BEFORE_RUNNING for op in self.ops
        )

    @property
    def is_returned(self) -> bool:
        """Whether the job went back to the queue between two of its opcodes."""
        statuses = {op.status for op in self.ops}
        return self.livelock is None and statuses == {JobStatus.SUCCESS, JobStatus.QUEUED}

    @property
    def serial(self) -> int:
        """The number of recorded versions; each state change adds one."""
        serial: int = self.extra.get(STATE_SERIAL_KEY, 0)
        return serial

    def advance_serial(self) -> int:
        """Count one more version and return its serial."""
        self.extra[STATE_SERIAL_KEY] = serial = self.serial + 1
        return serial

    @property
    def last_log_serial(self) -> int:
        """Serial of the newest log entry; 0 if there is none."""
        serial = 0
        for op in self.ops:
            if op.log:
                serial = max(serial, op.log[-1][0])
        return serial


def job_status(statuses: list[JobStatus]) -> JobStatus:
    """The job's status from those of its opcodes, in order.

    The first opcode that failed or is (being) canceled decides; else the last waiting or running
    one; else the job is ``success`` if all opcodes are, and ``queued`` otherwise.
    """
    result = JobStatus.QUEUED
    success = 0
    for status in statuses:
        match status:
            case JobStatus.ERROR | JobStatus.CANCELING | JobStatus.CANCELED:
                return status
            case JobStatus.WAITING | JobStatus.RUNNING:
                result = status
            case JobStatus.SUCCESS:
                success += 1
            case JobStatus.QUEUED:
                pass
            case _:
                assert_never(status)
    return JobStatus.SUCCESS if success == len(statuses) else result


_JOB_KEYS = frozenset(Job.__struct_fields__) - {"extra", "op_extras"}
_OP_KEYS = frozenset(OpcodeEntry.__struct_fields__)


_CHECKSUM_START = f',"{CHECKSUM_KEY}":"'.encode()
_CHECKSUM = re.compile(re.escape(_CHECKSUM_START) + rb'([0-9a-f]{8})"}')
_OUR_START = f',"{STATE_SERIAL_KEY}":'.encode()
"""A text that somebody has written anew after us has spaces, or another order."""

CHECKSUM_BYTES = len(_CHECKSUM_START) + len('00000000"}')
"""Length of the checksum at the end of a job file of ours."""


class _OurJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file of a job that has no keys but Ganeti's and our own."""

    id: int
    ops: list[OpcodeEntry]
    received_timestamp: Timestamp | None = None
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None
    livelock: str | None = None
    process_id: int | None = None
    ganger_serial: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    ganger_key: str | msgspec.UnsetType = msgspec.UNSET
    ganger_digest: Any = msgspec.UNSET
    ganger_batch: Any = msgspec.UNSET
    ganger_rejected: Any = msgspec.UNSET
    ganger_retry_of: Any = msgspec.UNSET
    ganger_retried_by: Any = msgspec.UNSET
    ganger_ending: Any = msgspec.UNSET
    ganger_name: Any = msgspec.UNSET
    ganger_plan: Any = msgspec.UNSET
    ganger_submitter: Any = msgspec.UNSET
    ganger_crc: Any = msgspec.UNSET


_OUR_EXTRAS = (
    STATE_SERIAL_KEY,
    SUBMISSION_KEY,
    DIGEST_KEY,
    BATCH_KEY,
    REJECTED_KEY,
    RETRY_OF_KEY,
    RETRIED_BY_KEY,
    ENDING_KEY,
    NAME_KEY,
    PLAN_KEY,
    SUBMITTER_KEY,
)

_decode_ours = msgspec.json.Decoder(_OurJob).decode


def decode_job(data: bytes) -> Job:
    """The job in the text of a job file; `StorageError` names the first mistake in it."""
    _check_sum(data)
    try:
        ours = _decode_ours(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # It has other keys, or a mistake that the slower reader names.
        return _decode_any(data)
    extra: dict[str, Any] = {}
    for key in _OUR_EXTRAS:
        if (value := getattr(ours, key)) is not msgspec.UNSET:
            extra[key] = value
    return Job(
        id=ours.id,
        ops=ours.ops,
        received_timestamp=ours.received_timestamp,
        start_timestamp=ours.start_timestamp,
        end_timestamp=ours.end_timestamp,
        livelock=ours.livelock,
        process_id=ours.process_id,
        extra=extra,
        op_extras=[{} for _ in ours.ops],
    )


def _decode_any(data: bytes) -> Job:
    try:
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict):
            raise errors.StorageError("not a job: expected a JSON object")
        if isinstance(raw.get("process_id"), str):
            raw["process_id"] = int(raw["process_id"])
        raw.pop(CHECKSUM_KEY, None)
        extra = {key: raw.pop(key) for key in list(raw) if key not in _JOB_KEYS}
        _check_extra(extra)
        ops = raw.get("ops")
        op_extras = []
        for op in ops if isinstance(ops, list) else ():
            if isinstance(op, dict):
                op_extras.append({key: op.pop(key) for key in list(op) if key not in _OP_KEYS})
                if op.get("priority", 0) is None:
                    op["priority"] = 0
        job = msgspec.convert(raw, Job)
        job.extra, job.op_extras = extra, op_extras
    except (msgspec.DecodeError, ValueError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StorageError(f"not a job: {error}") from error
    return job


def _check_sum(data: bytes) -> None:
    """Compare the text with its checksum, if it has one: Ganeti writes none.

    A text of ours that was cut behind our keys, and goes on with the end of another one, has none.
    """
    end = data[-CHECKSUM_BYTES:]
    if not (end.startswith(_CHECKSUM_START) and _CHECKSUM.fullmatch(end)):
        if _OUR_START in data:
            raise errors.StorageError("not a job: its checksum is missing")
    elif not has_right_sum(data):
        raise errors.StorageError("not a job: its checksum is wrong")


def has_right_sum(data: bytes) -> bool:
    """Whether the text ends with a checksum, and that is right."""
    expected = b'%s%08x"}' % (_CHECKSUM_START, zlib.crc32(data[:-CHECKSUM_BYTES] + b"}"))
    return data.endswith(expected)


def _check_extra(extra: dict[str, Any]) -> None:
    """Check the types of our own extra keys: other programs may write anything there."""
    serial = extra.get(STATE_SERIAL_KEY, 0)
    if not isinstance(serial, int) or isinstance(serial, bool) or serial < 0:
        raise errors.StorageError(f"not a job: {STATE_SERIAL_KEY}: expected a number from 0 on")
    if not isinstance(extra.get(SUBMISSION_KEY, ""), str):
        raise errors.StorageError(f"not a job: {SUBMISSION_KEY}: expected a text")


def job_document(job: Job) -> dict[str, Any]:
    """The job as the JSON object of its file, unknown keys included."""
    ops = []
    for index, op in enumerate(job.ops):
        entry = {key: getattr(op, key) for key in OpcodeEntry.__struct_fields__}
        if index < len(job.op_extras):
            entry |= job.op_extras[index]
        ops.append(entry)
    return _document(job, ops)


def _document(job: Job, ops: Sequence[object]) -> dict[str, Any]:
    return {
        "id": job.id,
        "ops": ops,
        "start_timestamp": job.start_timestamp,
        "end_timestamp": job.end_timestamp,
        "received_timestamp": job.received_timestamp,
        "livelock": job.livelock,
        "process_id": job.process_id,
        **job.extra,
    }


_encode_json = msgspec.json.Encoder().encode


def encode_job(job: Job) -> bytes:
    """The text of the job's file."""
    # As JSON an entry is the same as the mapping of its fields, and is encoded much faster.
    text = _encode_json(job_document(job) if any(job.op_extras) else _document(job, job.ops))
    return b'%s%s%08x"}' % (text[:-1], _CHECKSUM_START, zlib.crc32(text))


def timestamp(seconds: float) -> Timestamp:
    """``seconds`` since the epoch as a job-file time stamp."""
    whole = int(seconds)
    return whole, int((seconds - whole) * 1_000_000)


def seconds(stamp: Timestamp | None) -> float | None:
    """A job-file time stamp as seconds since the epoch."""
    return None if stamp is None else stamp[0] + stamp[1] / 1_000_000
