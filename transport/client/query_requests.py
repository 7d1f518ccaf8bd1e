"""Makes messages from the queries of the client library. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...storage import errors, plain_values, wording
from ...storage.filters.filter_text import parse_text
from ...storage.jobs.job_views import JobChange
from ..messages import (
    AwaitJobChange,
    JobAwaited,
    ObjectsRead,
    QueryAnswered,
    QueryConfiguration,
    QueryFields,
    QueryJobs,
    QueryLocks,
    ReadObjects,
)
from . import spans

Query = QueryJobs | QueryLocks | QueryConfiguration
"""A request for one page of the answer to a query."""

_DEPTH_MAX = 100
"""Deepest nesting that the client checks; the daemon limits the depth of a filter."""


def query(what: str, fields: Iterable[str], raw_filter: object) -> Query:
    """The request for the first page. Raises `BadRequestError`.

    ``raw_filter`` is JSON, or the text form of it.
    """
    names = _names(fields)
    asked = _filter(raw_filter)
    match what:
        case "job":
            return QueryJobs(names, asked)
        case "lock":
            return QueryLocks(names, asked)
        case str():
            return QueryConfiguration(what, names, asked)
    raise errors.BadRequestError(f"what: expected a text, got {type(what).__name__}")


def query_fields(what: str, fields: Iterable[str] | None) -> QueryFields:
    """The request for the definitions of fields. Raises `BadRequestError`."""
    if not isinstance(what, str):
        raise errors.BadRequestError(f"what: expected a text, got {type(what).__name__}")
    return QueryFields(what, None if fields is None else _names(fields))


def awaited_change(
    job_id: int,
    fields: Iterable[str],
    values: Sequence[Any] | None,
    log_serial: int | None,
    seconds: float,
) -> AwaitJobChange:
    """The request to wait for a change of a job. Raises `BadRequestError`."""
    known = None if values is None else list(values)
    span = spans.checked(seconds, "seconds")
    return AwaitJobChange(job_id, _names(fields), known, log_serial, span)


def job_change(reply: JobAwaited) -> JobChange:
    """The reply to it, for users of the library."""
    values, log = msgspec.json.decode(reply.values), msgspec.json.decode(reply.log)
    return JobChange(values=values, log=log, is_final=reply.is_final)


def next_query(request: Query, reply: QueryAnswered) -> Query | None:
    """The request for the page after ``reply``; None if it was the last one."""
    if reply.next_after is None or reply.next_after == request.after:
        return None
    return msgspec.structs.replace(request, after=reply.next_after)


def next_objects(request: ReadObjects, reply: ObjectsRead) -> ReadObjects | None:
    """The request for the page after ``reply``; None if it was the last one."""
    if reply.next_after is None or reply.next_after == request.after:
        return None
    return msgspec.structs.replace(request, after=reply.next_after)


def _names(fields: object) -> list[str]:
    if isinstance(fields, str | bytes | Mapping) or not isinstance(fields, Iterable):
        text = f"fields: expected a list of names, got {type(fields).__name__}"
        raise errors.BadRequestError(text)
    found = list(fields)
    for place, name in enumerate(found):
        if not isinstance(name, str):
            text = f"fields[{place}]: expected a name, got {wording.brief(name)}"
            raise errors.BadRequestError(text)
    return found


def _filter(given: object) -> object:
    if isinstance(given, str):
        return parse_text(given)
    try:
        plain_values.check_plain(given, "filter", depth_max=_DEPTH_MAX)
    except ValueError as error:
        raise errors.FilterRuleError(str(error)) from error
    return given
