"""Queries. Source: Ganeti 3.0, RAPI, ``/2/query``."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec

from ...storage import errors
from ...storage.filters import filters
from ...transport.ganeti import luxi_words
from .. import bodies, problems
from ..declarations import Call, Method, Parameter, Resource, Right
from ..problems import HttpError

_FIELDS: Final = Parameter("fields", str, "Names of fields, with commas between them.")
_NO_FIELDS: Final = "Missing 'fields' query argument"
_T = TypeVar("_T")


class QueryBody(msgspec.Struct):
    """A query as clients write it. ``filter`` is the older name of ``qfilter``."""

    fields: list[str] | None = None
    qfilter: Any = None
    filter: Any = None


async def query(call: Call) -> dict[str, Any]:
    """These fields of all items."""
    names = call.names("fields")
    if names is None:
        raise HttpError(400, _NO_FIELDS)
    return await _answer(call, names, None)


async def query_with_filter(call: Call) -> dict[str, Any]:
    """These fields of the items that pass a filter."""
    body = bodies.optional_mapping(call.body)
    names = bodies.parameter(body, "fields", list, None)
    if names is None:
        names = call.names("fields")
    if names is None:
        raise HttpError(400, _NO_FIELDS)
    raw_filter = body.get("qfilter")
    return await _answer(call, names, body.get("filter") if raw_filter is None else raw_filter)


async def show_fields(call: Call) -> dict[str, Any]:
    """The definitions of fields: of those that are named, or of all."""
    names = call.names("fields")
    what = _what(call, [names])
    found = await _served(call.client.query_fields(what, names))
    return {"fields": found}


async def _answer(call: Call, names: list[Any], raw_filter: object) -> dict[str, Any]:
    for name in names:
        bodies.check_type(name, str, "'fields' parameter")
    if isinstance(raw_filter, str):
        raise problems.of_query(errors.FilterRuleError("filter: expected a list, got a text"))
    bodies.check_depth(raw_filter, filters.DEPTH_MAX, "The filter")
    what = _what(call, [names, raw_filter])
    fields, data = await _served(call.client.query_json(what, names, raw_filter))
    return {"fields": fields, "data": msgspec.Raw(data)}


def _what(call: Call, arguments: list[Any]) -> str:
    """What the query is for; `HttpError` as LuxiD's if that is nothing it can answer."""
    what = call.path["what"]
    if what in luxi_words.RESOURCES:
        return what
    if what in luxi_words.IN_JOBS_ONLY:
        raise HttpError(500, luxi_words.not_supported("Query", what))
    unreadable = luxi_words.cannot_convert([what, *arguments], luxi_words.unknown_resource(what))
    raise HttpError(502, f"Failed to parse request: {unreadable.text}")


async def _served(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except errors.BadRequestError as error:
        raise problems.of_query(error) from error


RESOURCES = (
    Resource(
        path="/2/query/{what}",
        methods={
            "GET": Method(
                handler=query, right=Right.READ, summary="Query all items.", query=(_FIELDS,)
            ),
            "PUT": Method(
                handler=query_with_filter,
                right=Right.READ,
                summary="Query the items that pass a filter.",
                query=(_FIELDS,),
                body=QueryBody,
            ),
        },
    ),
    Resource(
        path="/2/query/{what}/fields",
        methods={
            "GET": Method(
                handler=show_fields,
                right=Right.READ,
                summary="Show the fields that a query can ask for.",
                query=(_FIELDS,),
            )
        },
    ),
)
