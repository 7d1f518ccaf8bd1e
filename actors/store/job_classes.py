"""The row and the class of a job, from what its file says.

Jobs whose opcodes have the same parameters are of one class (`JobClass`). It is made once, with all
that follows from the parameters, and looked up for the next job by what its parameters are.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

import msgspec

from ...storage import errors, opcodes
from ...storage.jobs import job_views, jobs, listing
from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.origins import origin_of
from ...storage.jobs.outcomes import SUCCEEDED, ending_of
from ...storage.opcodes import catalogue
from ...storage.prediction import estimates
from ...storage.prediction.declared import foreseen_of_job
from .job_rows import NO_RUN, Execution, JobClass, Phase, Row

_SHARED_CHARACTERS_MAX = 200


def row_of(job: jobs.Job, phase: Phase) -> Row:
    """The row of a job as its file has it."""
    found = class_of(job, phase)
    status = job.status
    if phase is Phase.PENDING and found.depends:
        # Until the scheduler says that they are satisfied, it waits for its dependencies.
        status = JobStatus.WAITING
    extra = job.extra
    return Row(
        id=job.id,
        status=status,
        priority=job.priority,
        received=received_of(job.received_timestamp),
        key=text_of(extra.get(jobs.SUBMISSION_KEY)),
        digest=text_of(extra.get(jobs.DIGEST_KEY)),
        origin=origin_of(extra),
        phase=phase,
        serial=job.serial,
        job_class=found,
        run=_run_of(job, status),
    )


def class_of(job: jobs.Job, phase: Phase) -> JobClass:
    """What follows from the parameters of the job's opcodes."""
    template = _template_of(job)
    found = template.ended
    if phase is Phase.PENDING:
        found = template.pending if _has_one_priority(job) else template.alone
    if _has_only_our_reasons(job):
        return found
    return _with_reasons(job, template, found)


def _with_reasons(job: jobs.Job, template: _Template, known: JobClass) -> JobClass:
    """The class with what users gave as reasons; jobs with the same ones share it."""
    reason = shared_text(listing.in_listing(listing.job_reason(job)))
    limits = job_views.rate_limits(op.input for op in job.ops)
    last = template.with_reasons
    if (
        last is not None
        and last[0] is known
        and (last[1].reason, last[1].limits) == (reason, limits)
    ):
        return last[1]
    found = msgspec.structs.replace(known, reason=reason, limits=limits)
    template.with_reasons = (known, found)
    return found


def _run_of(job: jobs.Job, status: JobStatus) -> Execution:
    times = (job.start_timestamp, job.end_timestamp)
    ending = ending_of(job) if status.is_final else None
    is_unknown = ending is None or ending is SUCCEEDED
    if job.livelock is None and job.process_id is None and times == (None, None) and is_unknown:
        return NO_RUN
    return Execution(
        started=jobs.seconds(job.start_timestamp),
        ended=jobs.seconds(job.end_timestamp),
        process_id=job.process_id,
        lock_file=job.livelock,
        ending=None if is_unknown else ending,
    )


class _Template(msgspec.Struct):
    """The classes of jobs with the same parameters."""

    pending: JobClass
    """Of a job that is pending, and has no priority of its own."""

    alone: JobClass
    """Of a pending job whose parameters are in its file alone."""

    ended: JobClass
    """Of a job that is not pending."""

    with_reasons: tuple[JobClass, JobClass] | None = None
    """The last ones that were made of one of these, and of which."""


_templates: dict[bytes, _Template] = {}
_TEMPLATES_MAX = 4_096
_numbers = itertools.count(1)
_TEMPLATE_BYTES_MAX = 1_024
_encode = msgspec.msgpack.Encoder().encode


def forget_all() -> None:
    """Forget what was found: the next queue of this process finds it anew."""
    _templates.clear()


def _template_of(job: jobs.Job) -> _Template:
    """Found once for jobs whose opcodes differ in nothing but reasons."""
    place = job.next_index
    try:
        # The reasons have the job's id and the time.
        inputs = [_without_reasons(op) for op in job.ops]
        key = _encode((catalogue.generation(), place, inputs))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _found_template(job, place)
    found = _templates.get(key)
    if found is None:
        found = _found_template(job, place)
        if len(key) <= _TEMPLATE_BYTES_MAX:
            if len(_templates) >= _TEMPLATES_MAX:
                _templates.clear()
            _templates[key] = found
    elif found.pending is found.alone:
        # The parameters are kept once a second job has had the same: for no single one.
        found.pending = msgspec.structs.replace(found.alone, number=next(_numbers), inputs=inputs)
    return found


def _has_one_priority(job: jobs.Job) -> bool:
    """Whether filter rules see the parameters as they are in the file.

    They see the present priority of each opcode. When the job gets another one, all get it.
    """
    priority = job.priority
    for op in job.ops:
        if op.priority != priority or (op.input.get("priority") or 0) != priority:
            return False
    return True


def _without_reasons(op: jobs.OpcodeEntry) -> dict[str, Any]:
    return {name: value for name, value in op.input.items() if name != "reason"}


def _found_template(job: jobs.Job, place: int) -> _Template:
    depends = _dependencies(job.ops[place]) if place < len(job.ops) else ()
    later = (target for op in job.ops[place + 1 :] for target, _ in _dependencies(op))
    ended = JobClass(
        summary=shared_text(listing.in_listing(listing.job_summary(job))),
        shown=listing.shared_values(job),
        depends=depends,
        needed_later=tuple(dict.fromkeys(later)),
        needs_user_opcodes=_needs_user_opcodes(job),
        work=_shared(tuple([estimates.key_of(op.input) for op in job.ops])),
    )
    foreseen = foreseen_of_job([op.input for op in job.ops[place:]])
    pending = ended if foreseen is None else msgspec.structs.replace(ended, foreseen=foreseen)
    return _Template(pending, pending, ended)


def _dependencies(op: jobs.OpcodeEntry) -> tuple[tuple[int, tuple[str, ...]], ...]:
    # If they are malformed, no daemon wrote them: the job's process will refuse the opcode.
    with contextlib.suppress(errors.DependencyError):
        return tuple(opcodes.dependencies(op.input))
    return ()


def _needs_user_opcodes(job: jobs.Job) -> bool:
    """Whether the job has opcodes that users have installed."""
    for op in job.ops:
        declared = catalogue.find(str(op.input.get("OP_ID")))
        if declared is not None and not declared.built_in:
            return True
    return False


def _has_only_our_reasons(job: jobs.Job) -> bool:
    """Whether each opcode's trail is the one entry that the queue adds at submission."""
    for op in job.ops:
        trail = op.input.get("reason")
        if not isinstance(trail, list) or len(trail) != 1:
            return False
        entry = trail[0]
        if not isinstance(entry, list) or len(entry) <= 1:
            return False
        source, text = entry[0], entry[1]
        if not isinstance(source, str) or not isinstance(text, str):
            return False
        if not source.startswith(listing.ADDED_SOURCE) or not text.startswith("job="):
            return False
    return True


@functools.lru_cache(maxsize=16)
def received_of(stamp: jobs.Timestamp | None) -> float | None:
    """As `jobs.seconds`; the jobs of one submission share the object."""
    return jobs.seconds(stamp)


@functools.lru_cache(maxsize=estimates.KEYS_MAX)
def _shared(work: tuple[str, ...]) -> tuple[str, ...]:
    return work


def text_of(value: object) -> str | None:
    """A value of the job's file that should be a text, if it is one."""
    return shared_text(value) if isinstance(value, str) else None


def shared_text(text: str) -> str:
    """The same text: of many jobs that have it, lately, all have the same object."""
    return _known_text(text) if len(text) <= _SHARED_CHARACTERS_MAX else text


@functools.lru_cache(maxsize=4_096)
def _known_text(text: str) -> str:
    return text
