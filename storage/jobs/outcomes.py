"""What happened to a job that has ended: one word, one line of reason, and the root cause. Pure.

Ganeti's status `error` means several things. It stays on disk and on Ganeti's wires; the outcome
tells them apart. Whoever ends a job notes its ending (`note`) where the status and the results
cannot tell it. Every other ending follows from them, also in files of Ganeti and of older versions.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from .. import wording
from . import jobs
from .jobs import ENDING_KEY, Job, JobStatus, OpcodeEntry

REASON_CHARACTERS_MAX = 200
"""Longest reason: a job's row has it in memory, and a listing in a line."""

_LABEL_CHARACTERS_MAX = 60

DEATH_SOURCE = "gnt:daemon:luxid:deathdetection"
"""Source of the reason trail's entry that tells of the death of a job's process."""

START_SOURCE = "gnt:daemon:luxid:startjobs"
"""Source of the reason trail's entry that tells that a job's process could not be started."""


class Outcome(enum.StrEnum):
    """What happened to a job that has ended."""

    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    """A job that it depends on has ended otherwise than it wants, or it was not needed."""

    REJECTED = "rejected"
    """By a filter rule."""

    CANCELED = "canceled"
    KILLED = "killed"
    """On request, while it ran."""

    TIMED_OUT = "timed-out"
    LOST = "lost"
    """Its process died, or could not be started."""


FAILURES: Final = frozenset({Outcome.FAILED, Outcome.KILLED, Outcome.TIMED_OUT, Outcome.LOST})
"""The outcomes of jobs that went wrong."""

OF_STATUS: Final[dict[JobStatus, tuple[Outcome, ...]]] = {
    JobStatus.SUCCESS: (Outcome.SUCCESS,),
    JobStatus.ERROR: (
        Outcome.FAILED,
        Outcome.SKIPPED,
        Outcome.KILLED,
        Outcome.TIMED_OUT,
        Outcome.LOST,
    ),
    JobStatus.CANCELED: (Outcome.CANCELED, Outcome.SKIPPED, Outcome.REJECTED, Outcome.KILLED),
}
"""The outcomes that a final status can stand for; the first is what it says by itself."""

ALWAYS: Final = "always"
"""A dependency with this word accepts any end of the other job."""

ANY_FAILED: Final = "any-failed"
"""Of all jobs that dependencies name with this word, one must have failed."""

DEPENDENCY_WORDS: Final = (
    *dict.fromkeys((*map(str, OF_STATUS), *map(str, Outcome))),
    ALWAYS,
    ANY_FAILED,
)
"""What a dependency may accept: final statuses, outcomes, and these two words."""

VERBS: Final = {
    Outcome.SUCCESS: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.SKIPPED: "was skipped",
    Outcome.REJECTED: "was rejected",
    Outcome.CANCELED: "was canceled",
    Outcome.KILLED: "was killed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.LOST: "was lost",
}
"""Each outcome as a sentence says it of a job."""


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How a job ended. ``cause``: the id of the job that is the root cause, if it is another one.

    ``reason`` is one line of at most `REASON_CHARACTERS_MAX`; empty for a success alone.
    """

    outcome: Outcome
    reason: str = ""
    cause: int | None = None


SUCCEEDED: Final = Ending(Outcome.SUCCESS)


class JobEnd(NamedTuple):
    """What dependencies look at of a job: its status, and its outcome if it has ended."""

    status: JobStatus
    outcome: Outcome | None = None


def end_of(status: JobStatus, ending: Ending | None) -> JobEnd:
    """The status with the outcome; without an ending, that which the status says by itself."""
    if not status.is_final:
        return JobEnd(status)
    return JobEnd(status, OF_STATUS[status][0] if ending is None else ending.outcome)


def telling(ends: Mapping[int, JobEnd | None]) -> dict[int, Outcome]:
    """The outcomes that the statuses by themselves do not say."""
    return {
        job_id: end.outcome
        for job_id, end in ends.items()
        if end is not None and end.outcome and end.outcome is not OF_STATUS[end.status][0]
    }


def ending_of(job: Job) -> Ending | None:
    """How the job ended; None: it has not."""
    status = job.status
    if not status.is_final:
        return None
    if status is JobStatus.SUCCESS:
        return SUCCEEDED
    return _noted(job.extra.get(ENDING_KEY), status) or _derived(job, status)


def note(job: Job, ending: Ending) -> None:
    """Note how the job has ended, in its file."""
    noted: dict[str, Any] = {"outcome": str(ending.outcome), "reason": one_line(ending.reason)}
    if ending.cause is not None:
        noted["cause"] = ending.cause
    job.extra[ENDING_KEY] = noted


def killed(job: Job) -> Ending | None:
    """The ending of a job that was killed on request, by what its opcodes say; None: a success."""
    found = ending_of(job)
    if found is None or found.outcome in {Outcome.SUCCESS, Outcome.KILLED}:
        return found
    return Ending(Outcome.KILLED, one_line(f"{_ON_REQUEST}; {found.reason}"))


def skipped(dependency: int, label: str, ending: Ending | None) -> Ending:
    """The ending of a job that cannot start any more because of how a dependency has ended.

    ``label`` names the dependency; without an ``ending`` there is no such job. If the dependency
    was skipped itself, its cause is the cause.
    """
    if ending is None:
        return Ending(Outcome.SKIPPED, f"job {dependency} does not exist", dependency)
    if ending.outcome is Outcome.SKIPPED:
        return ending
    words = f"{_cut(label, _LABEL_CHARACTERS_MAX)} {VERBS[ending.outcome]}: job {dependency}"
    unneeded = "not needed, as " if ending.outcome is Outcome.SUCCESS else ""
    return Ending(Outcome.SKIPPED, one_line(unneeded + words), dependency)


def one_line(text: str) -> str:
    """The text as one printable line of at most `REASON_CHARACTERS_MAX`.

    >>> one_line("bo" + chr(27) + "[31m" + "om " + chr(10) + " again")
    'boom again'
    """
    plain = wording.one_line(_ESCAPES.sub("", text))
    return _cut(" ".join(plain.split()), REASON_CHARACTERS_MAX)


def without_output(reason: str | None) -> str:
    """The reason without what a command has printed, for readers who see no output.

    >>> without_output("exit code 7; last line: boom")
    'exit code 7'
    """
    return (reason or "").partition(_OUTPUT)[0]


_OUTPUT = "; last line: "

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""What a command sends to a terminal for colours, its cursor or its title."""


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 3]}..."


# ---------------------------------------------------------------- what the job's file tells


def _noted(noted: object, status: JobStatus) -> Ending | None:
    """The ending that was noted; None if there is none, or it contradicts the status."""
    match noted:
        case {"outcome": str(outcome), "reason": str(reason), **rest}:
            line, cause = one_line(reason), rest.get("cause")
            known = cause if isinstance(cause, int) and not isinstance(cause, bool) else None
            if outcome in OF_STATUS[status] and line:
                return Ending(Outcome(outcome), line, known)
    return None


def _derived(job: Job, status: JobStatus) -> Ending:
    place = next(place for place, op in enumerate(job.ops) if op.status is status)
    op = job.ops[place]
    if status is JobStatus.CANCELED:
        return _canceled(job, place)
    if isinstance(op.result, str):
        return _without_process(op, op.result)
    found = _failed(op)
    if len(job.ops) == 1 or found.outcome is Outcome.SKIPPED:
        return found
    return msgspec.structs.replace(found, reason=one_line(f"opcode {place + 1}: {found.reason}"))


def _canceled(job: Job, place: int) -> Ending:
    op = job.ops[place]
    if rule := one_line(_told_by(op, jobs.FILTER_SOURCE)):
        return Ending(Outcome.REJECTED, rule)
    if place:
        return Ending(Outcome.CANCELED, f"before opcode {place + 1} of {len(job.ops)}")
    has_begun = op.exec_timestamp is not None
    return Ending(Outcome.CANCELED, "while it ran" if has_begun else "before it began")


def _without_process(op: OpcodeEntry, text: str) -> Ending:
    """The ending of a job whose process has left no result: the text stands in its place."""
    line = one_line(text) or _NOTHING_TOLD
    if _KILLED in line:
        return Ending(Outcome.KILLED, f"{_ON_REQUEST}; it did not react")
    is_lost = _told_by(op, DEATH_SOURCE) or _told_by(op, START_SOURCE)
    return Ending(Outcome.LOST if is_lost else Outcome.FAILED, line)


def _told_by(op: OpcodeEntry, source: str) -> str:
    """The text of the newest entry of the opcode's reason trail, if that has this source."""
    trail = op.input.get("reason")
    match trail[-1:] if isinstance(trail, list) else []:
        case [[str(found), str(text), *_]] if found == source:
            return text
    return ""


_DEPENDENCY = re.compile(r"Dependency (?:job|error: Job) ([0-9]{1,18}) ")
_KILLED = "killed on request"
_ON_REQUEST = "on request"
_NOTHING_TOLD = "its result does not say why"


def _failed(op: OpcodeEntry) -> Ending:
    """The ending of a job whose opcode has failed, from its result."""
    name, text, details = _error(op.result)
    if op.exec_timestamp is None and (found := _DEPENDENCY.match(text)):
        return Ending(Outcome.SKIPPED, one_line(text), int(found[1]))
    if "exit_code" not in details:
        if text == _KILLED:
            return Ending(Outcome.KILLED, _ON_REQUEST)
        return Ending(Outcome.FAILED, one_line(text) or one_line(name) or _NOTHING_TOLD)
    text = text.removeprefix("command ").removeprefix("was ").replace("exited with", "exit", 1)
    outcome = Outcome.TIMED_OUT if details.get("timed_out") else Outcome.FAILED
    if text.startswith(_KILLED):
        outcome, text = Outcome.KILLED, text.removeprefix("killed ")
    last = _last_line(details)
    text = one_line(text) or _NOTHING_TOLD
    return Ending(outcome, one_line(f"{text}{_OUTPUT}{last}" if last else text))


def _error(result: object) -> tuple[str, str, dict[str, Any]]:
    """Name, text and details of an opcode's error, as far as the result has them."""
    match result:
        case [str(name), [str(text), dict(details), *_]]:
            return name, text, details
        case [str(name), [str(text), *_]]:
            return name, text, {}
        case [str(name), *_]:
            return name, "", {}
    return "", "", {}


def _last_line(details: dict[str, Any]) -> str:
    """The last line of what the command has printed, of its errors first."""
    for name in ("stderr_tail", "stdout_tail"):
        tail = details.get(name)
        for line in reversed(tail.splitlines() if isinstance(tail, str) else []):
            if shown := one_line(line):
                return shown
    return ""
