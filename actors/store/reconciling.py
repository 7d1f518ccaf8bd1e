"""Decides the fate of a job that is found after a restart: one pure function and its table.

The statuses of the job's opcodes count, whether its file names a lock file, and whether the owner
of that lock file lives. Nothing else does: no pid, no time.
"""

from __future__ import annotations

import enum
import itertools
from typing import TYPE_CHECKING

from ...storage.jobs.jobs import JobStatus, job_status

if TYPE_CHECKING:
    from collections.abc import Sequence


class Life(enum.Enum):
    """What the lock file tells about the job's process."""

    NONE = "no process"
    """The job names no lock file: it was not handed over."""

    ALIVE = "alive"
    DEAD = "dead"


class Fate(enum.Enum):
    """What to do with a job that was found."""

    KEEP = "keep"
    """It is final and has no process."""

    ADOPT = "adopt"
    """Its process lives: watch it, and take its states."""

    ENQUEUE = "enqueue"
    """No opcode of it is under way: it is pending (again)."""

    FAIL = "fail"
    """Its process died after the job had begun: it ends in an error that says so."""


class Progress(enum.Enum):
    """How far a job has come."""

    UNTOUCHED = "untouched"
    """Every opcode is queued, or waits for dependencies without a process."""

    BETWEEN = "between"
    """The first opcodes have succeeded, and none of the others has begun."""

    BEGUN = "begun"
    FINAL = "final"


TABLE: dict[tuple[Progress, Life], Fate] = {
    (Progress.UNTOUCHED, Life.NONE): Fate.ENQUEUE,
    (Progress.UNTOUCHED, Life.ALIVE): Fate.ADOPT,
    (Progress.UNTOUCHED, Life.DEAD): Fate.ENQUEUE,
    # A rule paused it there, or it waits for the dependencies of its next opcode.
    (Progress.BETWEEN, Life.NONE): Fate.ENQUEUE,
    (Progress.BETWEEN, Life.ALIVE): Fate.ADOPT,
    (Progress.BETWEEN, Life.DEAD): Fate.FAIL,
    (Progress.BEGUN, Life.NONE): Fate.FAIL,
    (Progress.BEGUN, Life.ALIVE): Fate.ADOPT,
    (Progress.BEGUN, Life.DEAD): Fate.FAIL,
    (Progress.FINAL, Life.NONE): Fate.KEEP,
    # The process is about to leave; the job may be archived after that.
    (Progress.FINAL, Life.ALIVE): Fate.ADOPT,
    (Progress.FINAL, Life.DEAD): Fate.KEEP,
}
"""The whole of reconciliation; the documentation's table is made from it."""


def progress(statuses: Sequence[JobStatus], life: Life) -> Progress:
    """How far a job with these opcode statuses has come.

    ``waiting`` with a process means that it waits for locks: the job has begun. Without
    one it waits for its dependencies.
    """
    if life is Life.NONE and statuses and set(statuses) == {JobStatus.QUEUED}:
        # Most jobs of a long queue. A job without opcodes is final.
        return Progress.UNTOUCHED
    if job_status(list(statuses)).is_final:
        return Progress.FINAL
    untouched = {JobStatus.QUEUED}
    if life is Life.NONE:
        untouched.add(JobStatus.WAITING)
    if untouched.issuperset(statuses):
        return Progress.UNTOUCHED
    rest = list(itertools.dropwhile(lambda status: status is JobStatus.SUCCESS, statuses))
    return Progress.BETWEEN if untouched.issuperset(rest) else Progress.BEGUN


def fate(statuses: Sequence[JobStatus], life: Life) -> Fate:
    """What to do with such a job."""
    return TABLE[progress(statuses, life), life]
