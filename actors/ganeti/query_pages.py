"""Makes one page of the answer to a query, small enough for a reply and short enough for a turn."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import settings
from ...storage.ganeti.queries import paging
from ...storage.ganeti.queries.answering import ParsedQuery, Resource
from ...transport import messages
from ..runtime.turn_limit import turn_limit

if TYPE_CHECKING:
    from ..runtime.component import Runtime

    Query = messages.QueryJobs | messages.QueryLocks | messages.QueryConfiguration

_KEPT_MAX = 8


def checked(resource: Resource[Any], message: Query) -> ParsedQuery[Any]:
    """The query of the message. Raises what `paging.page` raises.

    Every page asks for it anew, and the reading of a long filter takes as long as a page: so a few
    queries are kept.
    """
    paging.check_fields(message.fields)
    is_classic = not isinstance(message, messages.QueryLocks) and message.is_classic
    fields = tuple(message.fields)
    try:
        text = msgspec.msgpack.encode(message.filter)
    except (OverflowError, RecursionError, TypeError, ValueError):
        # No filter has such a value: the error names its place.
        return ParsedQuery(resource, fields, message.filter, is_classic=is_classic)
    return _checked(resource, fields, text, is_classic)


@functools.lru_cache(_KEPT_MAX)
def _checked(
    resource: Resource[Any],
    fields: tuple[str, ...],
    text: bytes,
    is_classic: bool,  # noqa: FBT001 - a key
) -> ParsedQuery[Any]:
    raw_filter = msgspec.msgpack.decode(text)
    return ParsedQuery(resource, fields, raw_filter, is_classic=is_classic)


def answered(
    runtime: Runtime, asked: ParsedQuery[Any], source: object, after: str | None
) -> messages.QueryAnswered:
    """The page behind the mark ``after``. Raises what `paging.page` raises."""
    bounds = paging.Bounds(
        page_bytes=settings.QUERY_PAGE_BYTES_MAX,
        reply_bytes=settings.FRAME_BYTES_MAX - settings.QUERY_ROW_RESERVE_BYTES,
        is_enough=turn_limit(runtime),
    )
    found = paging.page_of(asked, source, after, bounds)
    return messages.QueryAnswered(fields=found.fields, rows=found.rows, next_after=found.next_after)
