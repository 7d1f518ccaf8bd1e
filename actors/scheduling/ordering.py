"""Brings jobs of several kinds into one order, as far as the caller wants to know it: pure."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Kind = TypeVar("Kind")


def in_order(
    kinds: Iterable[Kind],
    ids: Callable[[Kind], Iterable[int]],
    key: Callable[[Kind, int], tuple[float, int]],
    passed: set[Kind] | None = None,
) -> Iterator[tuple[Kind, int]]:
    """The jobs of these kinds by ``key``, weight and id; each with its kind.

    ``ids``: those of a kind that are wanted, in the order of the key. The caller may put a kind
    into ``passed`` meanwhile: then no more of its jobs are wanted.
    """
    heads = []
    for number, kind in enumerate(kinds):
        left = iter(ids(kind))
        for job_id in left:
            heads.append((key(kind, job_id), number, kind, job_id, left))
            break
    heapq.heapify(heads)
    while heads:
        _, number, kind, job_id, left = heads[0]
        yield kind, job_id
        if passed and kind in passed:
            heapq.heappop(heads)
            continue
        for following in left:
            heapq.heapreplace(heads, (key(kind, following), number, kind, following, left))
            break
        else:
            heapq.heappop(heads)
