"""The running job, as the parts of its actor share it."""

from __future__ import annotations

import time

from ...storage.jobs import jobs
from ...storage.locks.locks import Owner


class RunningJob:
    """A job and the opcode whose turn it is. ``owner`` is its name for locks."""

    def __init__(self, job: jobs.Job, owner: Owner) -> None:
        self.job = job
        self.owner = owner
        self.index = 0
        self.asked_for_locks = False
        self.locks: list[tuple[str, str]] = []
        """Those of the opcode whose turn it is, each with its mode."""

    @property
    def op(self) -> jobs.OpcodeEntry:
        """The opcode whose turn it is."""
        return self.job.ops[self.index]


def now() -> jobs.Timestamp:
    """The time, as job files have it."""
    return jobs.timestamp(time.time())
