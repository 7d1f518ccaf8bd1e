"""What the end of a process means for its job: pure decisions of the executor.

Dead or alive is never decided here: the lock file alone says it (`storage.lock_files`).
"""

from __future__ import annotations

import enum

ATTEMPTS_MAX = 3
"""How often a process is made for a job whose process ends before it takes the job over."""


class ChildPhase(enum.Enum):
    """How far the hand-over of a job to its process has come."""

    ASKED = "asked"
    """A fork server was asked, or will be: nothing is known of a process."""

    GREETED = "greeted"
    """The process holds its lock file and has told its name."""

    CONFIRMED = "confirmed"
    """The job is the process's."""


class NextStep(enum.Enum):
    """What to do about a process that has ended."""

    RETRY = "retry"
    GIVE_UP = "give_up"
    REPORT = "report"


def after_end(phase: ChildPhase, attempts: int) -> NextStep:
    """What to do when a process ends in ``phase``, the ``attempts``-th made for its job.

    One that never told its lock file's name cannot have begun anything: another is made,
    within limits. Every other end is reported; the job queue knows from the job's state
    whether it may start again.
    """
    if phase is not ChildPhase.ASKED:
        return NextStep.REPORT
    return NextStep.RETRY if attempts < ATTEMPTS_MAX else NextStep.GIVE_UP
