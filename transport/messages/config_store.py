"""Messages to the configuration store: filter rules and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .base import Done, Notice, Reply, Request


class ReportConfiguration(Notice, frozen=True):
    """From a component that starts: send what concerns you of the configuration."""


class RulesApplied(Notice, frozen=True):
    """From the job queue: no decision under older rules than these takes effect from now on."""

    serial: int


class LimitApplied(Notice, frozen=True):
    """From the job queue: from now on no job starts beyond the run slots of this serial."""

    serial: int


class FilterStored(Reply, frozen=True):
    """The rule is stored and in force."""

    uuid: str


class ReplaceFilter(Request[FilterStored], frozen=True, kw_only=True):
    """Store a filter rule. The reply comes when the rule is in force.

    Without ``uuid`` the rule is new and gets one; else it replaces the rule of that UUID. The store
    sets its watermark to the last job id. ``reason`` is a text or a whole reason trail. Times are
    seconds since the epoch.
    """

    uuid: str | None = None
    priority: Any = 0
    predicates: Any = []
    action: Any = "CONTINUE"
    reason: Any = ""
    valid_from: Any = None
    valid_until: Any = None


class DeleteFilter(Request[Done], frozen=True):
    """Delete a filter rule. The reply comes when the rule is no longer in force."""

    uuid: str


class FilterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A filter rule as stored. ``state``: whether its time window is open, to come, or over."""

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
    """Filter rules, in the order in which they are evaluated."""

    filters: list[FilterRow]


class ListFilters(Request[FiltersListed], frozen=True):
    """List the filter rules with these UUIDs; None: all rules."""

    uuids: list[str] | None = None


class LimitsRead(Reply, frozen=True):
    """How many jobs may run at once. ``tracked_jobs_max`` is kept for Ganeti's tools.

    ``running_jobs_possible``: fewer jobs run, because the daemon may not open enough files for
    more; None: it may.
    """

    running_jobs_max: int
    tracked_jobs_max: int
    running_jobs_possible: int | None = None


class ReadLimits(Request[LimitsRead], frozen=True):
    """Read the limits of the queue."""


class SetLimits(Request[LimitsRead], frozen=True):
    """Change limits of the queue; None leaves one as it is. Running jobs go on."""

    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tracked_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
