"""Which nodes are to be master candidates, so that the pool has its size. Pure.

Source: Ganeti's ``GetMasterCandidateStats`` and ``AdjustCandidatePool``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from .lookups import Object, in_order


class Pool(NamedTuple):
    """The nodes that may be candidates, how many of them are, and how many should be."""

    others: list[Object]
    """Those that are none, in the order in which they are promoted."""
    present: int
    wanted: int

    @property
    def promoted(self) -> list[Object]:
        """The nodes that fill the pool."""
        return self.others[: max(0, self.wanted - self.present)]


def pool_of(nodes: Iterable[Object], size: int, without: Collection[str] = ()) -> Pool:
    """The pool that these nodes can be, for this ``candidate_pool_size``.

    ``without``: the UUIDs of nodes that do not count.
    """
    possible = [node for node in nodes if node["uuid"] not in without and _may_be(node)]
    present = sum(bool(node.get("master_candidate")) for node in possible)
    others = in_order(node for node in possible if not node.get("master_candidate"))
    return Pool(others, present, min(len(possible), size))


def _may_be(node: Object) -> bool:
    return bool(node.get("master_capable")) and not (node.get("offline") or node.get("drained"))
