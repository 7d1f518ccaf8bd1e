"""The verbs of the client library as messages, and its values out of the replies. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from ..storage import errors, explanations, settings
from ..storage.job_views import FIELDS, WHOLE_FIELDS, JobInfo, job_info
from ..storage.jobs import JobStatus
from .messages import (
    FiltersTested,
    JobDocument,
    JobRows,
    JobSpec,
    JobsSubmitted,
    JobSummary,
    ListJobs,
    ReplaceFilter,
    Simulate,
    SubmitJobs,
    TestFilters,
    TrailEntry,
)

Ops = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""One opcode, or the opcodes of one job, in order."""

JobLike = Ops | JobSpec
"""One job of a batch: its opcodes, a `JobSpec`, or a dictionary with the fields of one."""

Dependency = int | Sequence[Any]
"""A job id (which must end in success), or a pair of a job id and a list of statuses."""

Reason = str | Sequence[TrailEntry]
"""A text of the user, or a trail of (source, text, nanoseconds)."""

USER_SOURCE = "gnt:user"

_IDS_SHOWN_MAX = 10

_RULE_DEPTH_MAX = 100
"""Deepest nesting of what is looked through; how deep a filter may be the daemon says."""


def submission(
    jobs: Sequence[JobLike],
    *,
    reason: Reason | None,
    priority: int | None,
    depends: Sequence[Dependency] | None,
    key: str | None,
    dry_run: bool,
    now_nanoseconds: int,
) -> SubmitJobs:
    """The request that stores ``jobs``; what a job says itself goes before the rest.

    ``key`` must be given unless nothing is stored: only with it the request can be repeated.
    """
    trail = _trail(reason, now_nanoseconds)
    common = JobSpec(ops=[], reason=trail, priority=priority, depends=_depends(depends))
    if isinstance(jobs, str | bytes | Mapping) or not isinstance(jobs, Sequence):
        raise errors.BadRequestError(f"jobs: expected a list of jobs, got {_type(jobs)}")
    specs = [
        _spec(job, common, f"jobs[{index}]", now_nanoseconds) for index, job in enumerate(jobs)
    ]
    if key is not None and not 0 < len(key.encode()) <= settings.KEY_BYTES_MAX:
        raise errors.BadRequestError(f"key: expected 1 to {settings.KEY_BYTES_MAX} bytes")
    return SubmitJobs(jobs=specs, key=key, dry_run=dry_run)


def submitted(reply: JobsSubmitted, count: int) -> list[int]:
    """The ids of ``count`` jobs; `RejectedError` if a filter rule rejects some of them."""
    if not reply.rejected:
        return reply.ids
    stored = iter(reply.ids)
    ids = [None if place in reply.rejected else next(stored, None) for place in range(count)]
    told = "; ".join(f"job {place} is {text}" for place, text in reply.rejected.items())
    others = f"; the others have the ids {_shown(reply.ids)}" if reply.ids else ""
    error = errors.RejectedError(f"{told}{others}")
    error.ids = ids
    raise error


def new_filter(
    uuid: str | None,
    window: tuple[float | None, float | None],
    **fields: Any,  # noqa: ANN401 - as the caller gave them
) -> ReplaceFilter:
    """The request that stores a filter rule. It names the rule, so that it can be repeated."""
    valid_from, valid_until = window
    for name, value in fields.items():
        _check_sendable(value, name)
    return ReplaceFilter(
        uuid=str(uuid4()) if uuid is None else uuid,
        valid_from=valid_from,
        valid_until=valid_until,
        **fields,
    )


def proposed_filter(rule: Mapping[str, Any]) -> ReplaceFilter:
    """A rule that is only thought of, from the arguments of `Client.add_filter`."""
    fields = {name: value for name, value in rule.items() if value is not None}
    unknown = fields.keys() - set(ReplaceFilter.__struct_fields__)
    if unknown:
        raise errors.FilterRuleError(f"rule: unknown key {min(unknown)!r}")
    for name, value in fields.items():
        _check_sendable(value, name)
    return ReplaceFilter(**{"uuid": str(uuid4()), **fields})


def _check_sendable(value: object, place: str) -> None:
    """`FilterRuleError` that names the place of what no frame can carry."""
    try:
        explanations.check_plain(value, place, depth_max=_RULE_DEPTH_MAX)
    except ValueError as error:
        raise errors.FilterRuleError(str(error)) from error


def simulation(
    rule: Mapping[str, Any] | None,
    *,
    without: str | None,
    priorities: Mapping[int, int] | None,
    running: int | None,
    ended: Mapping[int, str] | None,
) -> Simulate:
    """The request that asks what would happen."""
    return Simulate(
        rule=None if rule is None else proposed_filter(rule),
        without=without,
        priorities=dict(priorities or {}),
        running_jobs_max=running,
        ended={job_id: _status(status) for job_id, status in (ended or {}).items()},
    )


def next_test(message: TestFilters, reply: FiltersTested) -> TestFilters | None:
    """The request for the page after ``reply``; None if it was the last one."""
    if reply.next_after is None or reply.next_after <= message.after:
        return None
    return msgspec.structs.replace(message, after=reply.next_after)


def _shown(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:_IDS_SHOWN_MAX]))
    return shown if len(ids) <= _IDS_SHOWN_MAX else f"{shown} and {len(ids) - _IDS_SHOWN_MAX} more"


def checked_ops(ops: object, place: str) -> list[dict[str, Any]]:
    """``ops`` as a list of opcodes; `OpcodeError` names ``place`` if it is nothing like it."""
    if isinstance(ops, Mapping):
        return [dict(ops)]
    if isinstance(ops, str | bytes) or not isinstance(ops, Sequence):
        raise errors.OpcodeError(f"{place}: expected a list of opcodes, got {_type(ops)}")
    for index, op in enumerate(ops):
        if not isinstance(op, Mapping):
            text = f"{place}[{index}]: expected an opcode (a dictionary), got {_type(op)}"
            raise errors.OpcodeError(text)
    return [dict(op) for op in ops]


def listings(
    ids: Iterable[int] | None, statuses: Iterable[str] | None, *, archived: bool
) -> Iterator[ListJobs]:
    """The requests whose pages, one after the other, list the jobs in id order."""
    wanted = None if statuses is None else [_status(status) for status in statuses]
    page = settings.LIST_PAGE_ROWS
    if ids is None:
        yield ListJobs(statuses=wanted, archived=archived, limit=page)
        return
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), page):
        part = ordered[start : start + page]
        yield ListJobs(ids=part, statuses=wanted, archived=archived, limit=page)


def next_page(request: ListJobs, reply: JobRows) -> ListJobs | None:
    """The request for the page after ``reply``; None if it was the last one."""
    if reply.next_after is None or reply.next_after <= request.after:
        return None
    return msgspec.structs.replace(request, after=reply.next_after)


def needs_whole(fields: Collection[str] | None) -> bool:
    """Whether ``fields`` need more of a job than its summary; None means the summary."""
    for field in fields or ():
        if field not in FIELDS:
            known = ", ".join(FIELDS)
            raise errors.BadRequestError(f"unknown field {field!r}: expected some of {known}")
    return not WHOLE_FIELDS.isdisjoint(fields or ())


def summary_view(row: JobSummary) -> JobInfo:
    """A job of which only the summary is known."""
    return JobInfo(
        id=row.id,
        status=row.status,
        summary=row.summary,
        priority=row.priority,
        received=row.received,
        started=row.started,
        ended=row.ended,
        process_id=row.process_id,
        archived=row.archived,
        reason=row.reason,
    )


def document_view(document: JobDocument) -> JobInfo:
    """A whole job."""
    return job_info(document.body, archived=document.archived)


def _spec(job: object, common: JobSpec, place: str, now_nanoseconds: int) -> JobSpec:
    if isinstance(job, JobSpec):
        spec = job
    elif isinstance(job, Mapping) and "OP_ID" not in job:
        fields = dict(job)
        ops = checked_ops(fields.pop("ops", ()), f"{place}.ops")
        reason = _trail(fields.pop("reason", None), now_nanoseconds)
        depends = _depends(fields.pop("depends", None), f"{place}.depends")
        priority = fields.pop("priority", None)
        if fields:
            raise errors.BadRequestError(f"{place}: unknown field {next(iter(fields))!r}")
        spec = JobSpec(ops=ops, reason=reason, depends=depends, priority=priority)
    else:
        spec = JobSpec(ops=checked_ops(job, place))
    return msgspec.structs.replace(
        spec,
        reason=spec.reason or common.reason,
        priority=common.priority if spec.priority is None else spec.priority,
        depends=spec.depends or common.depends,
    )


def _trail(reason: object, now_nanoseconds: int) -> list[TrailEntry]:
    match reason:
        case None | "":
            return []
        case str():
            return [(USER_SOURCE, reason, now_nanoseconds)]
    try:
        return msgspec.convert(reason, list[TrailEntry])
    except msgspec.ValidationError as error:
        text = "reason: expected a text, or a list of [source, text, nanoseconds]"
        raise errors.BadRequestError(text) from error


def _depends(depends: object, place: str = "depends") -> list[tuple[int, list[str]]]:
    if depends is None:
        return []
    if isinstance(depends, str | bytes) or not isinstance(depends, Sequence):
        raise errors.DependencyError(f"{place}: expected a list, got {_type(depends)}")
    return [_dependency(entry, f"{place}[{index}]") for index, entry in enumerate(depends)]


def _dependency(entry: object, place: str) -> tuple[int, list[str]]:
    match entry:
        case bool():
            pass
        case int():
            return entry, [JobStatus.SUCCESS.value]
        case [int(job_id), [*statuses]] if all(isinstance(status, str) for status in statuses):
            return job_id, [str(status) for status in statuses]
    raise errors.DependencyError(f"{place}: expected a job id, or [job id, [statuses]]")


def _status(status: str) -> JobStatus:
    try:
        return JobStatus(status)
    except ValueError as error:
        known = ", ".join(JobStatus)
        raise errors.BadRequestError(f"status {status!r}: expected one of {known}") from error


def _type(value: object) -> str:
    return type(value).__name__
