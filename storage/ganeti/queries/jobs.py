"""The resource ``job``. An id without a job has a row, too, in which only the id has a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from ... import errors, opcodes
from ...filters.filters import Value
from ...jobs import listing
from ...jobs.jobs import Job, JobStatus, OpcodeEntry
from ...jobs.outcomes import Outcome
from ...opcodes import catalogue
from .answering import Resource
from .fields import UNAVAILABLE, Answer, Field, FieldKind, field, normal, or_unavailable, table

ARCHIVE_FIELD: Final = "archived"
"""A listing with this field includes the archive, as in Ganeti."""

_ID_DIGITS_MAX = 18


class JobRow(msgspec.Struct):
    """A job by its id; without ``job`` and ``read`` there is none with this id.

    ``known``: values of fields that are known without the job, which ``read`` reads when another
    field is needed.
    """

    id: int
    job: Job | None = None
    is_archived: bool = False
    known: Mapping[str, Any] = {}
    read: Callable[[], Job] | None = None

    @property
    def exists(self) -> bool:
        """Whether there is such a job."""
        return self.job is not None or self.read is not None

    def whole(self) -> Job:
        """The job, which must exist. Raises `StorageError`."""
        if self.job is None:
            assert self.read is not None
            self.job = self.read()
        return self.job


_ELSEWHERE: Final = object()

Rows: TypeAlias = Mapping[int, JobRow]
"""The jobs that may be in the answer, by id, in the order of ids."""

Getter: TypeAlias = Callable[[Rows, JobRow], Answer]


def job_id(wanted: Value) -> int:
    """The id in a filter: a number or its digits; `BadRequestError` if it is none."""
    text = str(wanted)
    if not (text.isascii() and text.isdecimal()) or len(text) > _ID_DIGITS_MAX:
        raise errors.BadRequestError(f"Invalid job ID {text!r}")
    return int(text)


def _of_job(name: str, show: Callable[[Job], Any]) -> Getter:
    def get(_rows: Rows, row: JobRow) -> Answer:
        if not row.exists:
            return UNAVAILABLE
        known = row.known.get(name, _ELSEWHERE)
        return or_unavailable(show(row.whole()) if known is _ELSEWHERE else known)

    return get


def _of_opcodes(name: str, show: Callable[[OpcodeEntry], Any]) -> Getter:
    return _of_job(name, lambda job: [show(op) for op in job.ops])


def _archived(_rows: Rows, row: JobRow) -> Answer:
    return normal(row.is_archived) if row.exists else UNAVAILABLE


def _seconds(stamp: Any) -> object:  # noqa: ANN401 - JSON of a field
    return stamp[0]


_SHOWN_AS_NULL: Final = frozenset({"depends", "comment"})
"""Parameters that are shown even if they are null."""


def _shown(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters without those that are null, which LuxiD omits.

    Ganeti's job processes write them into their files. Of an opcode that LuxiD does not know it
    shows everything.
    """
    if None not in given.values() or catalogue.find(str(given.get("OP_ID"))) is None:
        return given
    return {
        name: value for name, value in given.items() if value is not None or name in _SHOWN_AS_NULL
    }


def _stamps() -> Iterator[Field[Rows]]:
    for name, title, doc, show in (
        ("end_ts", "End", "Timestamp of job end", lambda job: job.end_timestamp),
        (
            "received_ts",
            "Received",
            "Timestamp of when job was received",
            lambda job: job.received_timestamp,
        ),
        ("start_ts", "Start", "Timestamp of job start", lambda job: job.start_timestamp),
    ):
        whole = f"{doc} (tuple containing seconds and microseconds)"
        one = field(name, title, FieldKind.OTHER, whole, _of_job(name, show))
        yield one._replace(in_filters=_seconds)


def _lists() -> Iterator[Field[Rows]]:
    shown: tuple[tuple[str, str, str, Callable[[OpcodeEntry], Any]], ...] = (
        (
            "opend",
            "OpCode_end",
            "List of opcode execution end timestamps",
            lambda op: op.end_timestamp,
        ),
        (
            "opexec",
            "OpCode_exec",
            "List of opcode execution start timestamps (after acquiring locks)",
            lambda op: op.exec_timestamp,
        ),
        ("oplog", "OpCode_log", "List of opcode output logs", lambda op: op.log),
        ("oppriority", "OpCode_prio", "List of opcode priorities", lambda op: op.priority),
        ("opresult", "OpCode_result", "List of opcodes results", lambda op: op.result),
        ("ops", "OpCodes", "List of all opcodes", lambda op: _shown(op.input)),
        (
            "opstart",
            "OpCode_start",
            "List of opcode start timestamps (before acquiring locks)",
            lambda op: op.start_timestamp,
        ),
        ("opstatus", "OpCode_status", "List of opcodes status", lambda op: op.status.value),
        (
            "summary",
            "Summary",
            "List of per-opcode summaries",
            lambda op: opcodes.summary(op.input),
        ),
    )
    for name, title, doc, show in shown:
        yield field(name, title, FieldKind.OTHER, doc, _of_opcodes(name, show))


_KINDS: Final[Mapping[Any, FieldKind]] = {
    bool: FieldKind.BOOL,
    float | None: FieldKind.TIMESTAMP,
    int: FieldKind.NUMBER,
    int | None: FieldKind.NUMBER,
    JobStatus: FieldKind.TEXT,
    Outcome | None: FieldKind.TEXT,
    str: FieldKind.TEXT,
}

_GANETIS: Final = frozenset({"archived", "id", "priority", "status"})

OURS: Final = tuple(name for name in listing.shown_in("query") if name not in _GANETIS)
"""The fields of listings that Ganeti does not have: its tools are told of them if they ask."""

_OF_ROWS: Final[Mapping[str, Getter]] = {
    "archived": _archived,
    "id": lambda _rows, row: normal(row.id),
}
"""Fields that no job's file has."""


def _plain(listed: listing.Listed) -> Callable[[Job], Any]:
    """The getter of the field, with a text in place of a status or an outcome."""

    def get(job: Job) -> object:
        value = listed.value(listing.told_of(job))
        return value.value if isinstance(value, JobStatus | Outcome) else value

    return get


def _listed() -> Iterator[Field[Rows]]:
    """The fields of the table of listed fields."""
    for name in listing.shown_in("query"):
        listed = listing.LISTED[name]
        get = _OF_ROWS.get(name) or _of_job(name, _plain(listed))
        yield field(name, listed.title, _KINDS[listing.TYPES[name]], listed.doc, get)


def _fields() -> Iterator[Field[Rows]]:
    yield from _stamps()
    yield from _lists()
    yield from _listed()


def _ordered(rows: Rows) -> Iterable[JobRow]:
    return (row for number in rows if (row := rows.get(number)) is not None)


def _find(rows: Rows, wanted: Value) -> JobRow:
    number = job_id(wanted)
    try:
        return rows[number]
    except KeyError:
        return JobRow(number)


JOBS: Final = Resource(
    "job",
    table(_fields()),
    _ordered,
    lambda row: str(row.id),
    int,
    find=_find,
    name_field="id",
    key=lambda row: row.id,
    key_of_name=job_id,
    is_listed_as_named=True,
)
"""Jobs, in the order of their ids."""
