"""Traces: which jobs came when, what locks they needed, how long they ran. Pure.

A trace is text, one JSON object a line: a header, then the jobs in the order in which they came::

    {"trace": 1, "slots": 20}
    {"at": 0.5, "id": 3, "ops": [{"op": "OP_EXEC", "command": 1, "seconds": 2.5,
     "forecast": {"node": {"type": "exclusive", "names": [4]}, "big_lock": "shared"}}]}

It has no arguments and no names: locks and commands are numbers (`Numbering`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from .. import errors
from ..settings import PRIORITY_MAX, PRIORITY_MIN

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

TRACE_VERSION = 1
JOBS_MAX = 2_000_000
"""A longer trace is refused: it would not fit into the memory of a small machine."""

_NAMED = ("shared", "exclusive")
_UNKNOWN = ("unknown_shared", "unknown_exclusive")

LevelType = Literal[
    "shared", "unknown_shared", "all_shared", "exclusive", "unknown_exclusive", "all_exclusive"
]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
OpcodeId = Annotated[str, msgspec.Meta(pattern="^OP_[A-Z0-9_]{1,60}$")]

LEVELS = ("nodegroup", "instance", "node", "node_res", "network")
"""The levels of locks, as `TracedLocks` calls them."""


class TracedLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The locks of one level. ``names``: numbers, in order, if the type names locks.

    ``also_shared``: others that are shared beside the exclusive ones.
    """

    type: LevelType
    names: tuple[Number, ...] = ()
    also_shared: tuple[Number, ...] = ()

    def __post_init__(self) -> None:
        if (self.type in _NAMED) != bool(self.names):
            wanted = "expected numbers of locks" if self.type in _NAMED else "expected no numbers"
            raise ValueError(f"names: {wanted} with the type {self.type}")
        if self.also_shared and self.type != "exclusive":
            raise ValueError(f"also_shared: goes not with the type {self.type}")
        for field, names in (("names", self.names), ("also_shared", self.also_shared)):
            if len(set(names)) < len(names):
                raise ValueError(f"{field}: has a number twice")
        if set(self.names) & set(self.also_shared):
            raise ValueError("also_shared: names an exclusive lock, too")


class TracedLocks(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The locks of one opcode. A level that it does not need is None."""

    nodegroup: TracedLevel | None = None
    instance: TracedLevel | None = None
    node: TracedLevel | None = None
    node_res: TracedLevel | None = None
    network: TracedLevel | None = None
    big_lock: Literal["none", "shared", "exclusive"] = "none"

    def levels(self) -> Iterator[tuple[str, TracedLevel]]:
        """The levels with locks, by name."""
        for name in LEVELS:
            level: TracedLevel | None = getattr(self, name)
            if level is not None:
                yield name, level


NO_LOCKS = TracedLocks()


class TracedOpcode(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """An opcode: what the scheduler knows of it beforehand, and how long it ran.

    ``locks``: what it really took, if the forecast does not say so. ``command``: which command of
    OP_EXEC, as a number.
    """

    op: OpcodeId
    seconds: Seconds
    forecast: TracedLocks = NO_LOCKS
    locks: TracedLocks | None = None
    command: Number | None = None

    def __post_init__(self) -> None:
        for name, level in self.locks.levels() if self.locks is not None else ():
            if level.type in _UNKNOWN:
                raise ValueError(f"locks.{name}: what an opcode took is never {level.type}")

    @property
    def key(self) -> str:
        """What its run time is estimated by: the kind and, of OP_EXEC, the command."""
        return self.op if self.command is None else f"{self.op} {self.command}"


class TracedJob(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A job. ``at``: seconds since the start of the trace. ``depends``: jobs on earlier lines."""

    at: Seconds
    id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    ops: Annotated[tuple[TracedOpcode, ...], msgspec.Meta(min_length=1, max_length=10_000)]
    priority: Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = 0
    depends: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """The run time of all its opcodes."""
        return sum(op.seconds for op in self.ops)


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line. ``slots``: the run slots of the queue from which it comes."""

    trace: int
    slots: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20
    source: str = ""


class Trace(msgspec.Struct, frozen=True):
    """Jobs in the order of their lines, and the number of run slots."""

    jobs: list[TracedJob]
    slots: int = 20
    source: str = ""


_header_decoder = msgspec.json.Decoder(Header)
_job_decoder = msgspec.json.Decoder(TracedJob)


def read(lines: Iterable[bytes], name: str) -> Trace:
    """The trace with these lines. `TraceError` names the file (``name``) and the line."""
    header: Header | None = None
    jobs: list[TracedJob] = []
    known: set[int] = set()
    shared: dict[Hashable, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = _checked_header(line)
                continue
            job = _job_decoder.decode(line)
            _check_ids(job, known)
        except (msgspec.DecodeError, ValueError) as error:
            raise errors.TraceError(f"{name}, line {number}: {_problem(error)}") from error
        known.add(job.id)
        jobs.append(_interned(job, shared))
        if len(jobs) > JOBS_MAX:
            raise errors.TraceError(f"{name}, line {number}: more than {JOBS_MAX} jobs")
    if header is None:
        raise errors.TraceError(f'{name}, line 1: expected the header {{"trace": {TRACE_VERSION}}}')
    if not jobs:
        raise errors.TraceError(f"{name}: has no jobs")
    return Trace(jobs, header.slots, header.source)


def _checked_header(line: bytes) -> Header:
    try:
        header = _header_decoder.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f'expected the header {{"trace": {TRACE_VERSION}}}: {error}') from error
    if header.trace != TRACE_VERSION:
        raise ValueError(f"expected version {TRACE_VERSION} of the format, got {header.trace}")
    return header


def _check_ids(job: TracedJob, known: set[int]) -> None:
    if job.id in known:
        raise ValueError(f"the id {job.id} stands on an earlier line, too")
    for target in job.depends:
        if target not in known:
            raise ValueError(f"depends: no earlier line has job {target}")


def _problem(error: Exception) -> str:
    # The decoder names the place in its own notation: `$.ops[0].seconds`.
    return str(error).replace(" - at `$.", " - at `").replace("$[...]", "[...]")


def _interned(job: TracedJob, shared: dict[Hashable, Any]) -> TracedJob:
    """The job with the locks that equal opcodes have: a long trace is small in memory."""
    ops = tuple(
        msgspec.structs.replace(
            op,
            op=shared.setdefault(op.op, op.op),
            forecast=shared.setdefault(op.forecast, op.forecast),
            locks=shared.setdefault(op.locks, op.locks),
        )
        for op in job.ops
    )
    return msgspec.structs.replace(job, ops=ops)


_encode = msgspec.json.Encoder().encode


def lines_of(trace: Trace) -> Iterator[bytes]:
    """The lines of the trace, each with its end."""
    yield _encode(Header(TRACE_VERSION, trace.slots, trace.source)) + b"\n"
    for job in trace.jobs:
        yield _encode(job) + b"\n"


class Numbering:
    """Gives each name of a kind a number, from 1 on, in the order in which they appear."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}

    def number(self, kind: str, name: str) -> int:
        """The number of this name."""
        found = self._numbers.get((kind, name))
        if found is None:
            found = self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[kind, name] = found
        return found
