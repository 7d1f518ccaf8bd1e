"""How jobs end: what becomes of the opcodes of a job that is canceled or fails. Pure."""

from __future__ import annotations

from .jobs import Job, JobStatus, OpcodeEntry, OpcodeEvent, Timestamp

CANCELED_RESULT = "Job canceled by request"
PRECEDING_FAILED_RESULT = ["OpExecError", ["Preceding opcode failed"]]


def cancel_pending(job: Job, now: Timestamp, *, source: str = "", text: str = "") -> None:
    """Cancel the unfinished opcodes of a job without a process; their results stay null.

    If no user asked for it, ``source`` and ``text`` become an entry of the reason trails.
    """
    for op in job.ops[job.next_index :]:
        op.status = JobStatus.CANCELED
        op.end_timestamp = now
        if source:
            add_reason(op, source, text, now)
    job.end_timestamp = now


def fail_whole(job: Job, now: Timestamp, *, source: str, text: str) -> None:
    """End a job whose process died or could not start: every opcode becomes an error.

    ``text`` becomes the result of each opcode and, with ``source``, an entry of its reason
    trail (job-file rules, section 4).
    """
    for op in job.ops:
        op.apply(OpcodeEvent.LOSE_PROCESS)
        op.result = text
        op.end_timestamp = now
        add_reason(op, source, text, now)
    job.end_timestamp = now


def add_reason(op: OpcodeEntry, source: str, text: str, now: Timestamp) -> None:
    """Add an entry to the opcode's reason trail."""
    trail = op.input.get("reason")
    entry = [source, text, now[0] * 1_000_000_000 + now[1] * 1_000]
    # Ganeti stores an opcode that it cannot read unchanged, so the trail may be malformed.
    op.input["reason"] = [*(trail if isinstance(trail, list) else ()), entry]


def fail_from(job: Job, index: int, now: Timestamp, result: object) -> None:
    """Record that the opcode at ``index`` failed with ``result``; those behind it fail too."""
    op = job.ops[index]
    op.apply(OpcodeEvent.FAIL)
    op.result = result
    op.end_timestamp = now
    for later in job.ops[index + 1 :]:
        later.status = JobStatus.ERROR
        later.result = PRECEDING_FAILED_RESULT
    job.end_timestamp = now


def cancel_from(job: Job, index: int, now: Timestamp) -> None:
    """Cancel the opcodes from ``index`` on, as a job's process does on request."""
    for op in job.ops[index:]:
        op.status = JobStatus.CANCELED
        op.result = CANCELED_RESULT
        op.end_timestamp = now
    job.end_timestamp = now
