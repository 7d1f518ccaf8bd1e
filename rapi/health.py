"""Whether the remote API, and the daemon behind it, work. Ganger's own."""

from __future__ import annotations

from typing import Any

from ..storage import errors
from .declarations import Call, Method, Resource, Right
from .problems import HttpError

_SECONDS = 5.0


async def healthz(_: Call) -> dict[str, Any]:
    """This process answers."""
    return {"status": "ok"}


async def readyz(call: Call) -> dict[str, Any]:
    """The daemon answers, all components are ready, and the queue takes changes."""
    try:
        info = await call.client.info(timeout=_SECONDS)
    except errors.TryAgainError as error:
        raise HttpError(503, error.text) from error
    missing = [component.name for component in info.components if not component.is_ready]
    if missing:
        raise HttpError(503, f"not ready: {', '.join(missing)}")
    if info.is_read_only:
        raise HttpError(503, "the disk refuses writes; no changes are taken")
    if info.is_disk_full:
        raise HttpError(503, "the disk is full; no new jobs are taken")
    if info.lacks_room:
        raise HttpError(503, "the disk has no room for a new job; none is taken")
    return {"status": "ok"}


RESOURCES = (
    Resource(
        path="/healthz",
        is_own=True,
        methods={
            "GET": Method(handler=healthz, right=Right.NOTHING, summary="This process answers.")
        },
    ),
    Resource(
        path="/readyz",
        is_own=True,
        methods={
            "GET": Method(handler=readyz, right=Right.NOTHING, summary="The queue takes requests.")
        },
    ),
)
