"""Why a job waits, and what a change would do. Ganger's own."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from ..storage import errors
from ..transport.messages import JobExplained, Simulated
from .bodies import converted
from .declarations import Call, Method, Resource, Right, whole


async def explain(call: Call) -> dict[str, Any]:
    """What holds the job back, first things first, and what would help."""
    return plain(await call.client.explain(call.job_id))


class Change(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to try, together; none is made."""

    rule: dict[str, Any] | None = None
    """A filter rule that would be stored: priority, predicates, action, reason, uuid."""
    without: str | None = None
    """The UUID of a filter rule that would be deleted."""
    priorities: dict[str, int] = {}
    """Other priorities of pending jobs, by their ids."""
    running: int | None = None
    """Another number of run slots."""
    ended: dict[str, str] = {}
    """Jobs that would have ended with these statuses, by their ids."""


async def simulate(call: Call) -> dict[str, Any]:
    """Which jobs would start, wait and be rejected after these changes."""
    change: Change = call.body
    found = await call.client.simulate(
        rule=change.rule,
        without=change.without,
        priorities={_job_id(job): priority for job, priority in change.priorities.items()},
        running=change.running,
        ended={_job_id(job): status for job, status in change.ended.items()},
        timeout=_SIMULATION_SECONDS,
    )
    return plain(found)


_SIMULATION_SECONDS = 60.0


def plain(reply: msgspec.Struct) -> dict[str, Any]:
    """A reply as JSON, without the name of its type."""
    found: dict[str, Any] = msgspec.to_builtins(reply)
    found.pop("type", None)
    return found


def _job_id(text: str) -> int:
    found = whole(text)
    if found is None:
        raise errors.BadRequestError(f"expected the id of a job, got {text[:60]!r}")
    return found


RESOURCES = (
    Resource(
        path="/2/jobs/{job_id:int}/explain",
        is_own=True,
        methods={
            "GET": Method(
                handler=explain,
                right=Right.READ,
                summary="Why a job does not run, and what would help.",
                reply=JobExplained,
            )
        },
    ),
    Resource(
        path="/2/simulate",
        is_own=True,
        methods={
            "POST": Method(
                handler=simulate,
                right=Right.READ,
                summary="What changes would do to the queue; nothing is changed.",
                body=Change,
                reads=functools.partial(converted, kind=Change),
                reply=Simulated,
            )
        },
    ),
)
