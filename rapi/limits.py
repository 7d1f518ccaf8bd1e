"""Limits of the queue and of the disk, and jobs that are purged to free it. Ganger's own."""

from __future__ import annotations

import functools
import itertools
from typing import Annotated, Any

import msgspec

from ..storage import plain_values
from ..storage.access import rapi_settings
from ..storage.disk.disk_parts import DiskLimits
from ..transport.messages import LimitsRead
from .bodies import converted
from .declarations import Call, Method, Resource, Right

_Bytes = Annotated[int, msgspec.Meta(ge=0, le=plain_values.INTEGER_MAX)]


class Limits(DiskLimits, frozen=True, kw_only=True, omit_defaults=False):
    """How many jobs run at once, and what they may take of the disk; 0: there is no limit.

    ``tracked`` is kept for Ganeti's tools. ``running_possible``: fewer jobs run, because the daemon
    may not open enough files for more. ``not_in_force``: a sentence for each damaged limit.
    """

    running: int
    tracked: int
    running_possible: int | None = None
    not_in_force: tuple[str, ...] = ()


class NewLimits(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The limits to change, as in `Limits`; those that are missing, or null, stay as they are."""

    running: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tracked: Annotated[int, msgspec.Meta(ge=1)] | None = None
    output_job_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    output_bytes: _Bytes | None = None
    keep_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    keep_bytes: _Bytes | None = None


async def read_limits(call: Call) -> Limits:
    """The limits that are in force."""
    return _shown(await call.client.limits())


async def set_limits(call: Call) -> Limits:
    """Change the limits that are given; the reply has all of them."""
    given: NewLimits = call.body
    names = DiskLimits.__struct_fields__
    disk = {name: value for name in names if (value := getattr(given, name)) is not None}
    found = await call.client.limits(
        running=given.running, tracked=given.tracked, disk=disk, key=call.key
    )
    return _shown(found)


def _shown(found: LimitsRead) -> Limits:
    return Limits(
        running=found.running_jobs_max,
        tracked=found.tracked_jobs_max,
        running_possible=found.running_jobs_possible,
        not_in_force=found.not_in_force,
        **msgspec.structs.asdict(found.disk),
    )


class Purge(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which ended jobs to remove for good: those that meet all that is given, at least one of them.

    ``older_than``: seconds since they ended; ``larger_than``: bytes that they take on the disk.
    ``dry_run``: tell which, and remove nothing.
    """

    ids: list[int] | None = None
    older_than: float | None = None
    larger_than: _Bytes = 0
    dry_run: bool = False


class PurgedJob(msgspec.Struct, frozen=True):
    """A purged job, and the bytes that it took."""

    id: int
    bytes: int


class LeftOut(msgspec.Struct, frozen=True):
    """A job that stays although it was meant."""

    id: int
    why: str


class Purged(msgspec.Struct, kw_only=True):
    """What was purged, or would be: ``count`` jobs, of which ``jobs`` has the first."""

    dry_run: bool
    count: int
    freed_bytes: int
    jobs: list[PurgedJob]
    left_out: list[LeftOut]


async def purge(call: Call) -> Purged:
    """Remove ended jobs with their output, live or archived ones."""
    asked: Purge = call.body
    found = await call.client.purge(
        asked.ids,
        older_than=asked.older_than,
        larger_than=asked.larger_than,
        dry_run=asked.dry_run,
    )
    return Purged(
        dry_run=asked.dry_run,
        count=len(found.jobs),
        freed_bytes=found.freed_bytes,
        jobs=[PurgedJob(*one) for one in _first(found.jobs)],
        left_out=[LeftOut(*one) for one in _first(found.left_out)],
    )


def _first(found: dict[int, Any]) -> itertools.islice[tuple[int, Any]]:
    return itertools.islice(found.items(), rapi_settings.PURGED_SHOWN_MAX)


RESOURCES = (
    Resource(
        path="/2/limits",
        is_own=True,
        methods={
            "GET": Method(
                handler=read_limits,
                right=Right.READ,
                summary="Limits of the queue and of the disk.",
                reply=Limits,
            ),
            "PUT": Method(
                handler=set_limits,
                right=Right.ADMIN,
                summary="Change limits of the queue and of the disk.",
                body=NewLimits,
                reads=functools.partial(converted, kind=NewLimits),
                reply=Limits,
            ),
        },
    ),
    Resource(
        path="/2/purge",
        is_own=True,
        methods={
            "POST": Method(
                handler=purge,
                right=Right.ADMIN,
                summary="Remove ended jobs with their output, for good.",
                body=Purge,
                reads=functools.partial(converted, kind=Purge),
                reply=Purged,
            )
        },
    ),
)
