"""How much of a long answer is made in one turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from .component import Runtime


def turn_limit(runtime: Runtime) -> Callable[[], bool]:
    """Whether a page has taken its turn (`QUERY_SLICE_SECONDS`), asked after each item."""
    begun, end = runtime.clock(), None

    def is_enough() -> bool:
        nonlocal end
        now = runtime.clock()
        if end is None:
            # To find the first item may take as long; a page of one item would lead nowhere soon.
            least = now + settings.QUERY_SLICE_SECONDS / 4
            end = max(begun + settings.QUERY_SLICE_SECONDS, least)
        return now >= end

    return is_enough
