"""Locks, and who waits for whom. Ganger's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..transport.messages import LockRow, LockWait
from .declarations import Call, Method, Resource, Right, whole
from .feed import Feed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..storage.jobs.job_views import JobInfo


class Locks(msgspec.Struct):
    """``locks``: every lock that is held or wanted, and ``job/ID`` rows; ``waits``: the graph.

    ``names``: those of live jobs that have one, by id.
    """

    locks: list[LockRow]
    waits: list[LockWait]
    names: dict[int, str] = {}


async def list_locks(call: Call) -> Any:  # noqa: ANN401 - JSON
    """Every lock that is held or wanted, and which owner waits for which."""
    rows = await call.client.locks()
    parts = (row.owners for row in rows)
    waiting = (owners for row in rows for _, owners in (*row.pending, *row.wanted))
    live = call.of(Feed).live
    found = (_live(owner, live) for owners in (*parts, *waiting) for owner in owners)
    names = {job.id: job.name for job in found if job is not None and job.name}
    return Locks(rows, await call.client.lock_waits(), names)


def _live(owner: str, live: Mapping[int, JobInfo]) -> JobInfo | None:
    """The job that an owner of locks is, if it lives."""
    number = whole(owner.rpartition("/")[2])
    return None if number is None else live.get(number)


RESOURCES = (
    Resource(
        path="/2/locks",
        is_own=True,
        methods={
            "GET": Method(
                handler=list_locks,
                right=Right.READ,
                summary="Held and wanted locks, and who waits for whom.",
                reply=Locks,
            )
        },
    ),
)
