"""Makes one page of the answer to a query, small enough for a reply and short enough for a turn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...storage import settings
from ...storage.queries import paging
from ...transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.queries.answering import Resource
    from .runtime import Runtime

    Query = messages.QueryJobs | messages.QueryLocks | messages.QueryConfiguration


def answered(
    runtime: Runtime, resource: Resource[Any], source: object, message: Query
) -> messages.QueryAnswered:
    """The page that the message asks for. Raises what `paging.page` raises."""
    bounds = paging.Bounds(
        page_bytes=settings.QUERY_PAGE_BYTES_MAX,
        reply_bytes=settings.FRAME_BYTES_MAX - settings.QUERY_ROW_RESERVE_BYTES,
        is_enough=turn_limit(runtime),
    )
    found = paging.page(
        resource,
        source,
        message.fields,
        message.filter,
        message.after,
        bounds=bounds,
        is_classic=not isinstance(message, messages.QueryLocks) and message.is_classic,
    )
    return messages.QueryAnswered(fields=found.fields, rows=found.rows, next_after=found.next_after)


def turn_limit(runtime: Runtime) -> Callable[[], bool]:
    """Whether a page has taken its turn (`QUERY_SLICE_SECONDS`), asked after each item."""
    end = math.inf

    def is_enough() -> bool:
        nonlocal end
        now = runtime.clock()
        # The time begins with the first item: to find it may take as long.
        end = min(end, now + settings.QUERY_SLICE_SECONDS)
        return now >= end

    return is_enough
