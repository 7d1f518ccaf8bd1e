"""Makes messages from the verbs of the client library, and its values from replies. No I/O."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...storage import errors, plain_values, request_keys, settings, wording
from ...storage.cluster.objects import ObjectKind
from ...storage.disk.disk_parts import DiskLimits
from ...storage.jobs.job_filters import JobFilter
from ...storage.jobs.job_views import FIELDS, WHOLE_FIELDS, JobInfo
from ...storage.jobs.jobs import JobStatus, check_priority
from ...storage.jobs.origins import Submitter, check_name
from ..messages import (
    ChangeObjects,
    JobRows,
    JobSpec,
    JobsSubmitted,
    JobSummary,
    ListJobs,
    ObjectChange,
    ReadLimits,
    SetLimits,
    SetValues,
    SubmitJobs,
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
"""Deepest nesting that the client checks; the daemon limits the depth of a filter."""


def submission(
    jobs: Sequence[JobLike],
    *,
    reason: Reason | None,
    priority: int | None,
    depends: Sequence[Dependency] | None,
    key: str | None,
    dry_run: bool,
    now_nanoseconds: int,
    name: str | None = None,
    plan: str | None = None,
    submitter: Submitter | None = None,
) -> SubmitJobs:
    """The request that stores ``jobs``; a job's own fields go before the arguments.

    ``key`` may be None only for a dry run: without it the request cannot be repeated.
    """
    trail = _trail(reason, "reason", now_nanoseconds)
    priority = None if priority is None else checked_priority(priority)
    common = JobSpec(
        ops=[],
        reason=trail,
        priority=priority,
        depends=_depends(depends),
        name=_name(name, "name"),
    )
    if not isinstance(jobs, list) and (
        isinstance(jobs, str | bytes | Mapping) or not isinstance(jobs, Sequence)
    ):
        raise errors.BadRequestError(f"jobs: expected a list of jobs, got {type_name(jobs)}")
    if len(jobs) > settings.JOBS_PER_SUBMIT_MAX:
        # Larger ones would be refused as a frame, in words about frames.
        most = f"a submission has at most {settings.JOBS_PER_SUBMIT_MAX} jobs"
        raise errors.BadRequestError(f"{most}, got {len(jobs)}")
    specs = [
        _spec(job, common, f"jobs[{index}]", now_nanoseconds) for index, job in enumerate(jobs)
    ]
    if key is not None:
        _check_key(key)
    called = _name(plan, "plan") or None
    return SubmitJobs(jobs=specs, key=key, dry_run=dry_run, plan=called, submitter=submitter)


def _name(name: object, place: str) -> str | msgspec.UnsetType:
    """The name of a job or plan; UNSET: it has none."""
    if name is None:
        return msgspec.UNSET
    return check_name(checked_text(name, place, "a text"), place)


def checked_names(names: Iterable[object]) -> list[str]:
    """Names of jobs, to look for; `BadRequestError` for what is no text."""
    return [checked_text(name, "name", "a text") for name in names]


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise errors.BadRequestError(f"key: expected a text, got {type_name(key)}")
    request_keys.check(key)


def fresh_key() -> str:
    """A unique key: with it, a submission can be sent twice and is stored once."""
    return os.urandom(16).hex()


def submitted(reply: JobsSubmitted, count: int) -> list[int]:
    """The ids of ``count`` jobs; `RejectedError` if a filter rule rejects some of them.

    `BadRequestError` if the reply is about another submission with the same key. A dry run has
    no ids.
    """
    if reply.ids and len(reply.ids) + len(reply.rejected) != count:
        text = f"key: another submission is stored under it (ids {_shown(reply.ids)})"
        raise errors.BadRequestError(text)
    if not reply.rejected:
        return reply.ids
    stored = iter(reply.ids)
    ids = [None if place in reply.rejected else next(stored, None) for place in range(count)]
    told = [f"job {place} is {text}" for place, text in sorted(reply.rejected.items())]
    if count == 1:
        told = [f"the job is {reply.rejected[0]}"]
    if reply.ids:
        told.append(f"the others have the ids {_shown(reply.ids)}")
    error = errors.RejectedError("; ".join(told))
    error.ids, error.rejected = ids, reply.rejected
    raise error


def input_parts(given: Iterable[bytes]) -> Iterator[bytes]:
    """A standard input in parts that fit into a frame, none of them empty."""
    size = settings.STDIN_PART_BYTES
    for part in given:
        for start in range(0, len(part), size):
            yield part[start : start + size]


def change_key(key: str | None) -> str:
    """The key of a change of the configuration: this one, or a new one. `BadRequestError`."""
    if key is None:
        return fresh_key()
    _check_key(key)
    return key


def limits(
    running: int | None,
    tracked: int | None,
    key: str | None = None,
    disk: Mapping[str, float] | None = None,
) -> ReadLimits | SetLimits:
    """The request that changes the limits that are given; without any, that reads them."""
    if running is None and tracked is None and not disk:
        return ReadLimits()
    given = SetLimits(
        running_jobs_max=positive(running, "running"),
        tracked_jobs_max=positive(tracked, "tracked"),
        request=change_key(key),
    )
    known = DiskLimits.__struct_fields__
    if unknown := [name for name in disk or () if name not in known]:
        text = f"disk: {unknown[0]!r} is no limit; these are: {', '.join(known)}"
        raise errors.BadRequestError(text)
    try:
        return msgspec.convert(msgspec.structs.asdict(given) | dict(disk or {}), SetLimits)
    except msgspec.ValidationError as error:
        raise errors.BadRequestError(f"disk: {error}") from error


def positive(number: int | None, name: str) -> int | None:
    """``number`` if it is None, or a number from 1 on; else `BadRequestError` that names it."""
    if number is None or (is_whole(number) and 0 < number <= plain_values.INTEGER_MAX):
        return number
    got = repr(number) if is_whole(number) else type_name(number)
    raise errors.BadRequestError(f"{name}: expected a number from 1 on, got {got[:60]}")


def is_whole(value: object) -> bool:
    """Whether it is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_text(value: object, name: str, expected: str) -> str:
    """``value`` if it is a text that a frame can carry; else an error that names the argument."""
    if not isinstance(value, str):
        raise errors.BadRequestError(f"{name}: expected {expected}, got {type_name(value)}")
    check_sendable(value, name)
    return value


def check_sendable(value: object, place: str) -> None:
    """`FilterRuleError` that names the place of what no frame can carry."""
    try:
        plain_values.check_plain(value, place, depth_max=_RULE_DEPTH_MAX)
    except ValueError as error:
        raise errors.FilterRuleError(str(error)) from error


def checked_priority(priority: object, name: str = "priority") -> int:
    """``priority`` if it is one; else `BadRequestError` that names the argument."""
    if not isinstance(priority, int) or not is_whole(priority):
        raise errors.BadRequestError(f"{name}: expected a whole number, got {type_name(priority)}")
    check_priority(priority, name)
    return priority


def checked_age(age: object) -> float:
    """``age`` in seconds if it is a number; else `BadRequestError`."""
    if not isinstance(age, int | float) or isinstance(age, bool) or not math.isfinite(age):
        raise errors.BadRequestError(f"age: expected a number of seconds, got {type_name(age)}")
    return float(age)


def _shown(ids: list[int]) -> str:
    shown = ", ".join(map(str, ids[:_IDS_SHOWN_MAX]))
    return shown if len(ids) <= _IDS_SHOWN_MAX else f"{shown} and {len(ids) - _IDS_SHOWN_MAX} more"


def checked_ops(ops: object, place: str) -> list[dict[str, Any]]:
    """``ops`` as a list of opcodes; `OpcodeError` names ``place`` if it is nothing like it."""
    if isinstance(ops, dict | Mapping):
        return [dict(ops)]
    if isinstance(ops, str | bytes) or not isinstance(ops, list | Sequence):
        raise errors.OpcodeError(f"{place}: expected a list of opcodes, got {type_name(ops)}")
    for index, op in enumerate(ops):
        if not isinstance(op, dict | Mapping):
            text = f"{place}[{index}]: expected an opcode (a dictionary), got {type_name(op)}"
            raise errors.OpcodeError(text)
    return [dict(op) for op in ops]


def listings(
    ids: Iterable[int] | None,
    statuses: Iterable[str] | None,
    *,
    archived: bool,
    wanted: JobFilter | None = None,
    last: int | None = None,
) -> Iterator[ListJobs]:
    """The requests whose pages, one after the other, list the jobs in id order.

    ``last``: only so many, the newest first.
    """
    if wanted is not None:
        wanted.check()
    page = settings.LIST_PAGE_ROWS
    one = ListJobs(
        statuses=None if statuses is None else [checked_status(status) for status in statuses],
        archived=archived,
        limit=page,
        wanted=wanted,
    )
    positive(last, "last")
    if ids is None and last is not None:
        yield msgspec.structs.replace(one, newest_first=True, limit=min(page, last))
    elif ids is None:
        yield one
    else:
        ordered = sorted(set(ids))
        for start in range(0, len(ordered), page):
            yield msgspec.structs.replace(one, ids=ordered[start : start + page])


def next_page(request: ListJobs, reply: JobRows) -> ListJobs | None:
    """The request for the page after ``reply``; None if it was the last one."""
    mark = reply.next_after
    if request.newest_first:
        is_further = mark is not None and (request.before is None or mark < request.before)
        return msgspec.structs.replace(request, before=mark) if is_further else None
    if mark is None or mark <= request.after:
        return None
    return msgspec.structs.replace(request, after=mark)


def needs_whole(fields: Collection[str] | None) -> bool:
    """Whether ``fields`` need more of a job than its summary; None means the summary."""
    for field in fields or ():
        if field not in FIELDS:
            known = ", ".join(FIELDS)
            raise errors.BadRequestError(f"unknown field {field!r}: expected some of {known}")
    return not WHOLE_FIELDS.isdisjoint(fields or ())


def summary_view(row: JobSummary) -> JobInfo:
    """A job of which only the summary is known."""
    # By their places: by their names it takes four times as long, for each job of a long listing.
    return JobInfo(*msgspec.structs.astuple(row))


def _spec(job: object, common: JobSpec, place: str, now_nanoseconds: int) -> JobSpec:
    if isinstance(job, JobSpec):
        spec = job
    elif isinstance(job, Mapping) and "OP_ID" not in job:
        fields = dict(job)
        ops = checked_ops(fields.pop("ops", ()), f"{place}.ops")
        reason = _trail(fields.pop("reason", None), f"{place}.reason", now_nanoseconds)
        depends = _depends(fields.pop("depends", None), f"{place}.depends")
        name = _name(fields.pop("name", None), f"{place}.name")
        if (priority := fields.pop("priority", None)) is not None:
            priority = checked_priority(priority, f"{place}.priority")
        if fields:
            raise errors.BadRequestError(f"{place}: unknown field {next(iter(fields))!r}")
        spec = JobSpec(ops=ops, reason=reason, depends=depends, priority=priority, name=name)
    else:
        spec = JobSpec(ops=checked_ops(job, place))
    return msgspec.structs.replace(
        spec,
        reason=spec.reason or common.reason,
        priority=common.priority if spec.priority is None else spec.priority,
        depends=spec.depends or common.depends,
        name=spec.name or common.name,
    )


def _trail(reason: object, place: str, now_nanoseconds: int) -> list[TrailEntry]:
    match reason:
        case None | "":
            return []
        case str():
            return [(USER_SOURCE, reason, now_nanoseconds)]
    try:
        return msgspec.convert(reason, list[TrailEntry])
    except msgspec.ValidationError as error:
        text = f"{place}: expected a text, or a list of [source, text, nanoseconds]"
        raise errors.BadRequestError(text) from error


def _depends(depends: object, place: str = "depends") -> list[tuple[int, list[str]]]:
    if depends is None:
        return []
    if isinstance(depends, str | bytes) or not isinstance(depends, Sequence):
        raise errors.DependencyError(f"{place}: expected a list, got {type_name(depends)}")
    return [_dependency(entry, f"{place}[{index}]") for index, entry in enumerate(depends)]


def _dependency(entry: object, place: str) -> tuple[int, list[str]]:
    match entry:
        case bool():
            pass
        case int() if not plain_values.INTEGER_MIN <= entry <= plain_values.INTEGER_MAX:
            raise errors.DependencyError(f"{place}: this number is too large for a job id")
        case int():
            return entry, [JobStatus.SUCCESS.value]
        case [bool(), *_]:
            pass
        case [int(job_id), [*statuses]] if all(isinstance(status, str) for status in statuses):
            if not plain_values.INTEGER_MIN <= job_id <= plain_values.INTEGER_MAX:
                raise errors.DependencyError(f"{place}: this number is too large for a job id")
            return job_id, [str(status) for status in statuses]
    raise errors.DependencyError(f"{place}: expected a job id, or [job id, [statuses]]")


def checked_status(status: str) -> JobStatus:
    """The status of this name; `BadRequestError` if there is none."""
    try:
        return JobStatus(status)
    except ValueError as error:
        known = ", ".join(JobStatus)
        raise errors.BadRequestError(f"status {status!r}: expected one of {known}") from error


def type_name(value: object) -> str:
    """The name of its type, for an error."""
    return type(value).__name__


def object_kind(text: str) -> ObjectKind:
    """The kind of objects of this name. Raises `BadRequestError`."""
    try:
        return ObjectKind(text)
    except ValueError as error:
        raise errors.BadRequestError(
            f"{wording.shown(text)}: no kind of objects; expected one of {', '.join(ObjectKind)}"
        ) from error


def change_objects(
    changes: Iterable[ObjectChange], why: str, key: str | None = None
) -> ChangeObjects:
    """The message that makes these changes."""
    return ChangeObjects(list(changes), why, request=change_key(key))


def set_values(
    kind: str, name: str, values: Mapping[str, object], why: str, key: str | None = None
) -> SetValues:
    """The message that changes these values. Raises `BadRequestError`."""
    if not values:
        raise errors.BadRequestError("no value is given")
    place = kind if kind == ObjectKind.CLUSTER else f"{kind}/{name}"
    for path, value in values.items():
        try:
            plain_values.check_plain(value, f"{place}/{path}")
        except ValueError as error:
            raise errors.BadRequestError(str(error)) from error
    return SetValues(
        kind=object_kind(kind),
        name=name,
        values=[(path.split("/"), value) for path, value in values.items()],
        why=why,
        request=change_key(key),
    )
