"""Whether the process of a job may serve another job afterwards, and an earlier one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.alive import process_identity
from ...storage.opcodes import catalogue

if TYPE_CHECKING:
    from ...storage.jobs import jobs


def reuses_process(job: jobs.Job) -> bool:
    """Whether every opcode of the job leaves its process as it found it.

    A command that may leave processes running does not: they would run under later jobs.
    """
    if job.id > process_identity.SHOWN_JOB_MAX:
        return False
    for op in job.ops:
        declared = catalogue.find(str(op.input.get("OP_ID")))
        if declared is None or not declared.reuses_process or op.input.get("leave_running"):
            return False
    return True
