"""Jobs. Source: Ganeti 3.0, RAPI, ``/2/jobs``."""

from __future__ import annotations

from typing import Any

from .declarations import Call, Method, Resource, Right


async def list_jobs(call: Call) -> Any:  # noqa: ANN401 - JSON
    """The ids of all live jobs."""
    found = await call.client.query("job", ["id"])
    return [{"id": row[0][1], "uri": f"/2/jobs/{row[0][1]}"} for row in found.data]


RESOURCES = (
    Resource(
        path="/2/jobs",
        methods={"GET": Method(handler=list_jobs, right=Right.READ, summary="List jobs.")},
    ),
)
