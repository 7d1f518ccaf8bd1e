"""Whether a submission repeats the one that is stored under its key: pure.

A job keeps a digest of its submission (`submitting.digest`). Older versions stored jobs without
one: these are compared by their opcodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage import errors, opcodes
from ...storage.jobs import jobs
from . import submitting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...transport.messages import JobSpec

_SHOWN_MAX = 5


def digest_of(job: jobs.Job) -> str | None:
    """The digest of a stored job; None if it has none."""
    known = job.extra.get(jobs.DIGEST_KEY)
    return known if isinstance(known, str) else None


def is_same(job: jobs.Job, spec: JobSpec, place: int) -> bool:
    """Whether a stored job, at this place of its submission, is what ``spec`` would make of it."""
    known = digest_of(job)
    if known is not None:
        return known == submitting.digest(spec)
    try:
        asked = submitting.inputs(spec, job_id=job.id, place=place)
    except errors.BadRequestError:
        return False
    return [_content(op.input) for op in job.ops] == [_content(fields) for fields in asked]


def refusal(place: int, count: int, job_id: int) -> errors.BadRequestError:
    """Job ``place`` of so many is not the job that is stored under the same key."""
    what = "this job" if count == 1 else f"job {place} of the submission"
    return errors.BadRequestError(f"key: {what} is not job {job_id}, which is stored under it")


def count_refusal(count: int, stored: int, ids: Sequence[int]) -> errors.BadRequestError:
    """The submission that is stored under this key has another number of jobs."""
    shown = ", ".join(map(str, ids[:_SHOWN_MAX])) + (", ..." if len(ids) > _SHOWN_MAX else "")
    text = f"key: a submission of {stored} jobs, not {count}, is stored under it (ids {shown})"
    return errors.BadRequestError(text)


def _content(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An opcode as this version stores it, without what the queue adds."""
    kept = {name: value for name, value in fields.items() if name != "reason"}
    try:
        kept = opcodes.redacted(opcodes.check_opcode(kept))
    except errors.BadRequestError:
        # No installed opcode has that name or these parameters any more.
        kept = opcodes.redacted(kept)
    kept["reason"] = [list(entry[:2]) for entry in jobs.users_reasons(fields)]
    return kept
