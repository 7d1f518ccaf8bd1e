"""Decides what becomes of a job that Ganeti has left. No files, no clock.

The rule: what Ganeti has given to a process is never started here. Such a job may have begun, also
if its file says nothing of it yet, and its process may live on another machine. What Ganeti's
queue alone had is pending here, if this system can run it.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from ... import errors, opcodes, settings
from ...jobs import job_ends
from ...jobs.jobs import Job, JobStatus, Timestamp
from ..opcodes import catalogue

SOURCE = "ganger:import"
"""Source of the reason trail's entry that says why a job ended when it was taken over."""

_LUXID_STEM = "luxi-daemon_"
_WITH_PROCESS = {
    JobStatus.RUNNING: "was running",
    JobStatus.WAITING: "waited for its locks",
    JobStatus.QUEUED: "had been given a process",
}


class Outcome(enum.StrEnum):
    """What becomes of a job."""

    FINAL = "final"
    """It has ended in Ganeti, and stays as it is."""

    PENDING = "pending"
    """It runs here."""

    ENDED = "error"
    """It ends in an error, and does not run."""

    CANCELED = "canceled"
    """Ganeti was canceling it before its opcode began: it is canceled."""


class Fate(msgspec.Struct, frozen=True):
    """What becomes of a job; ``why`` it does not run, if it does not.

    ``result``: the result of the opcode with which it ends.
    """

    outcome: Outcome
    why: str = ""
    result: Any = None


# One value each, because a queue has thousands of such jobs.
_FINAL = Fate(Outcome.FINAL)
_PENDING = Fate(Outcome.PENDING)


def fate(job: Job, *, is_archived: bool = False) -> Fate:
    """What becomes of this job. Whether its process lives is not asked here (`queues`)."""
    if job.status.is_final:
        return _FINAL
    if is_archived:
        return _failed("the job lay in the archive of Ganeti and had not ended")
    current = job.ops[job.next_index]
    if current.status is JobStatus.CANCELING:
        return Fate(Outcome.CANCELED, "the job was being canceled in Ganeti")
    if not _is_untouched(job):
        is_between = current.status is JobStatus.QUEUED and job.next_index > 0
        words = "was between two opcodes" if is_between else _WITH_PROCESS[current.status]
        text = f"the job {words} in Ganeti and may have begun, so it does not start again"
        return _failed(text)
    problem = unrunnable(job)
    if problem is not None:
        return Fate(Outcome.ENDED, problem, ["OpPrereqError", [problem, "wrong_input"]])
    return _PENDING


def unrunnable(job: Job) -> str | None:
    """Why this system cannot run a job that has not begun; None if it can.

    A daemon runs what lies in its queue. So an opcode that Ganeti cannot have accepted, such as
    ``OP_EXEC``, does not run: another program has written it there.
    """
    for index, op in enumerate(job.ops):
        place = f"opcode {index}: " if len(job.ops) > 1 else ""
        op_id = op.input.get("OP_ID")
        try:
            if isinstance(op_id, str) and op_id not in catalogue.known_ids():
                raise errors.OpcodeError(f"{op_id[:60]}: not an opcode of Ganeti")
            opcodes.check_opcode(op.input)
            if (name := opcodes.lost_secret(op.input)) is not None:
                text = f"{op_id}: {name} is secret, and only Ganeti's LuxiD had it"
                raise errors.OpcodeError(text)
            for target, _ in opcodes.dependencies(op.input):
                if not 0 <= target < job.id:
                    text = f"{op_id}: depends on job {target}, which comes later or never"
                    raise errors.DependencyError(text)
        except errors.BadRequestError as error:
            return f"{place}{error.text}"
    return None


def is_rewritten(job: Job, found: Fate, *, is_archived: bool) -> bool:
    """Whether the job's file changes when it is taken over; otherwise it stays byte for byte."""
    if found.outcome in {Outcome.ENDED, Outcome.CANCELED}:
        return True
    # Nothing looks at the lock file of an archived job.
    return not is_archived and (job.livelock is not None or _has_strange_priority(job, found))


def settle(job: Job, found: Fate, now: Timestamp) -> None:
    """Make the job what it becomes: without a process, and ended if it does not run.

    What its opcodes have done stays: those that succeeded keep their results.
    """
    # The lock file is Ganeti's. A daemon of ours that knew its name would delete it.
    job.livelock = None
    if found.outcome is Outcome.FINAL:
        return
    job.process_id = None
    index = job.next_index
    if found.outcome is Outcome.CANCELED:
        job_ends.add_reason(job.ops[index], SOURCE, found.why, now)
        job_ends.cancel_from(job, index, now)
    elif found.outcome is Outcome.ENDED:
        job_ends.add_reason(job.ops[index], SOURCE, found.why, now)
        if job.ops[index].status is JobStatus.CANCELING:
            # It lay in the archive like that. From there nothing leads to an error.
            job.ops[index].status = JobStatus.WAITING
        job_ends.fail_from(job, index, now, found.result)
    else:
        for op in job.ops:
            # Ganeti takes any number when a priority is changed, and the job is stuck then.
            op.priority = min(max(op.priority, settings.PRIORITY_MIN), settings.PRIORITY_MAX)


def _failed(text: str) -> Fate:
    return Fate(Outcome.ENDED, text, ["OpExecError", [text]])


def _is_untouched(job: Job) -> bool:
    """Whether Ganeti's queue alone had the job.

    LuxiD writes its own lock file's name into the job's file before it makes a process, and the
    process's before it lets that go on.
    """
    if job.livelock is not None and not is_luxids(job.livelock):
        return False
    if job.process_id is not None or job.start_timestamp is not None:
        return False
    return all(
        op.status is JobStatus.QUEUED and op.start_timestamp is None and op.exec_timestamp is None
        for op in job.ops
    )


def is_luxids(livelock: str) -> bool:
    """Whether this is the name of a lock file of LuxiD's own."""
    return livelock.rpartition("/")[2].startswith(_LUXID_STEM)


def _has_strange_priority(job: Job, found: Fate) -> bool:
    return found.outcome is Outcome.PENDING and any(
        not settings.PRIORITY_MIN <= op.priority <= settings.PRIORITY_MAX for op in job.ops
    )
