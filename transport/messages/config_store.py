"""What the configuration store accepts: filter rules and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .base import Done, Notice, Reply, Request


class ReportConfiguration(Notice, frozen=True):
    """From a component that starts afresh: tell what of the configuration concerns it."""


class LastIdReported(Notice, frozen=True):
    """From the job queue: the last id that it has handed out."""

    token: int
    last_id: int


class RulesInForce(Notice, frozen=True):
    """From the job queue: from now on nothing happens any more under older rules."""

    serial: int


class LimitInForce(Notice, frozen=True):
    """From the job queue: no job gets a process any more beyond the run slots of this serial."""

    serial: int


class FilterStored(Reply, frozen=True):
    """The rule is stored, and in force."""

    uuid: str


class ReplaceFilter(Request[FilterStored], frozen=True, kw_only=True):
    """Store a filter rule; answered when it is in force.

    Without ``uuid`` it gets one; a rule that has the given one is replaced. The watermark is
    taken at that moment. ``reason`` is a text or a whole reason trail; times are seconds since
    the epoch.
    """

    uuid: str | None = None
    priority: Any = 0
    predicates: Any = []
    action: Any = "CONTINUE"
    reason: Any = ""
    valid_from: Any = None
    valid_until: Any = None


class DeleteFilter(Request[Done], frozen=True):
    """Delete a filter rule; answered when it is no longer in force."""

    uuid: str


class FilterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A filter rule as stored. ``state``: whether its window is open, still to come, or over."""

    uuid: str
    watermark: int
    priority: int
    predicates: list[Any]
    action: Any
    reason_trail: list[Any]
    valid_from: float | None = None
    valid_until: float | None = None
    state: Literal["in force", "not yet", "expired"] = "in force"


class FiltersListed(Reply, frozen=True):
    """Filter rules, in the order in which they are looked at."""

    filters: list[FilterRow]


class ListFilters(Request[FiltersListed], frozen=True):
    """Tell the filter rules; None: all of them."""

    uuids: list[str] | None = None


class LimitsRead(Reply, frozen=True):
    """How many jobs may run at once; ``tracked_jobs_max`` is kept for Ganeti's tools.

    ``running_jobs_possible`` is smaller if the daemon may not open enough files for so many; only
    so many run then. None: there are enough.
    """

    running_jobs_max: int
    tracked_jobs_max: int
    running_jobs_possible: int | None = None


class ReadLimits(Request[LimitsRead], frozen=True):
    """Tell the limits of the queue."""


class SetLimits(Request[LimitsRead], frozen=True):
    """Change limits of the queue; None leaves one as it is. Jobs that run go on."""

    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tracked_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
