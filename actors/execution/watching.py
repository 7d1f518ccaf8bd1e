"""What the end of a process means for its job: pure decisions of the executor.

The lock file alone says whether a process is alive (`storage.alive.lock_files`).
"""

from __future__ import annotations

import enum
from typing import Protocol

ATTEMPTS_MAX = 3
"""Most processes for one job whose processes end before they take it over."""


class ChildPhase(enum.Enum):
    """How far the hand-over of a job to its process has come."""

    ASKED = "asked"
    """The executor asks a fork server; it knows no process yet."""

    GREETED = "greeted"
    """The process holds its lock file, and has sent the name."""

    CONFIRMED = "confirmed"
    """The process owns the job."""


class NextStep(enum.Enum):
    """What to do about a process that has ended."""

    RETRY = "retry"
    GIVE_UP = "give_up"
    REPORT = "report"


def after_end(phase: ChildPhase, attempts: int) -> NextStep:
    """What to do when a process ends in ``phase``, the ``attempts``-th made for its job.

    A process that never sent its lock file's name cannot have begun anything: the executor makes
    another, within limits. It reports every other end; the job queue knows from the job's state
    whether the job may start again.
    """
    if phase is not ChildPhase.ASKED:
        return NextStep.REPORT
    return NextStep.RETRY if attempts < ATTEMPTS_MAX else NextStep.GIVE_UP


class Served(Protocol):
    """What counts of a process that says that it is free for another job."""

    phase: ChildPhase
    reuses: bool
    place: int
    """Of its present job among all that it had, from 1."""
    is_to_be_killed: bool
    pidfd: int


def may_serve_another(process: Served, jobs_max: int, *, has_room: bool) -> bool:
    """Whether the process may have another job, of ``jobs_max`` at most.

    It needs a pidfd, which reports its end.
    """
    return (
        has_room
        and process.phase is ChildPhase.CONFIRMED
        and process.reuses
        and not process.is_to_be_killed
        and process.pidfd >= 0
        and process.place < jobs_max
    )
