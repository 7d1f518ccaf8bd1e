"""Messages to the configuration store: filter rules and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...storage.cluster.objects import ObjectKind
from ...storage.disk.disk_parts import DiskLimits
from ...storage.locks.locks import Owner
from ...storage.prediction.lock_types import JobForecast
from .base import Done, Notice, Reply, Request
from .several import QueryAnswered


class PartNotice(Notice, frozen=True):
    """From a package's part of the configuration store to itself: the part makes subclasses."""


class ReportConfiguration(Notice, frozen=True):
    """From a component that starts: send what concerns you of the configuration."""


class ReportNodes(Notice, frozen=True):
    """From a job queue that starts: send `NodesChanged`."""


class RulesApplied(Notice, frozen=True):
    """From the job queue: no decision under older rules than these takes effect from now on."""

    serial: int


class LimitApplied(Notice, frozen=True):
    """From the job queue: from now on no job starts beyond the run slots of this serial."""

    serial: int


class ForecastsResolved(Reply, frozen=True):
    """The locks of jobs: answers to the first questions, in order.

    A turn is short: the other questions are to be asked again. ``serial_no``: of the configuration.
    """

    forecasts: list[JobForecast]
    serial_no: int


class ResolveForecasts(Request[ForecastsResolved], frozen=True):
    """From scheduler or filter evaluator: resolve these questions (`declared.question_of_job`).

    The answers hold until `ForecastsOutdated`.
    """

    questions: Annotated[list[str], msgspec.Meta(min_length=1)]


class WholeDue(Notice, frozen=True):
    """From the configuration store to itself: write the whole configuration."""


class OpcodeWait(Reply, frozen=True):
    """Whether the job's opcode waits for the configuration lock, and words for who holds it."""

    is_waiting: bool = False
    owners: list[Owner] = []
    text: str = ""


class ReadOpcodeWait(Request[OpcodeWait], frozen=True):
    """From the job queue: say whether an opcode of this job waits for the configuration lock."""

    job_id: int


class WholeWritten(Notice, frozen=True):
    """From its helper thread: the whole configuration is written, or why it is not.

    ``serial``: its serial number; 0: nothing is written.
    """

    serial: int = 0
    error: str | None = None


class ChangesOverdue(Notice, frozen=True):
    """From the configuration store to itself: a change has waited for the lock for too long."""


class LocksNotWritten(Notice, frozen=True):
    """From the lock manager: the disk refuses what it writes, so it gives no lock away now."""

    error: str


class FilterStored(Reply, frozen=True):
    """The rule is stored and in force."""

    uuid: str


class ReplaceFilter(Request[FilterStored], frozen=True, kw_only=True):
    """Store a filter rule. The reply comes when the rule is in force. ``request``: `ChangeObjects`.

    Without ``uuid`` the rule is new and gets one; else it replaces the rule of that UUID, or of
    that name, which it keeps unless it has another ``name``. ``first``: before the other rules of
    its priority. The store sets its watermark to the last job id. ``reason`` is a text or a whole
    reason trail. Times are seconds since the epoch.
    """

    uuid: str | None = None
    priority: Any = 0
    predicates: Any = []
    action: Any = "CONTINUE"
    reason: Any = ""
    valid_from: Any = None
    valid_until: Any = None
    name: Any = ""
    first: Any = False
    sender: str = ""
    """Who asks; the daemon fills it in."""

    request: str = ""


class DeleteFilter(Request[Done], frozen=True):
    """Delete a filter rule. The reply comes when the rule is no longer in force.

    ``uuid``: or its name. ``request``: as in `ChangeObjects`.
    """

    uuid: str
    sender: str = ""
    """Who asks; the daemon fills it in."""

    request: str = ""


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
    name: str = ""
    first: bool = False


class FiltersListed(Reply, frozen=True):
    """Filter rules, in the order in which they are evaluated."""

    filters: list[FilterRow]


class ListFilters(Request[FiltersListed], frozen=True):
    """List the filter rules with these UUIDs or names; None: all rules."""

    uuids: list[str] | None = None


class LimitsRead(Reply, frozen=True):
    """How many jobs may run at once, and what they may take of the disk.

    ``tracked_jobs_max`` is kept for Ganeti's tools. ``running_jobs_possible``: fewer jobs run,
    because the daemon may not open enough files for more; None: it may. ``not_in_force``: of each
    malformed parameter a sentence; its default is in force.
    """

    running_jobs_max: int
    tracked_jobs_max: int
    running_jobs_possible: int | None = None
    not_in_force: tuple[str, ...] = ()
    disk: DiskLimits = DiskLimits()


class ReadLimits(Request[LimitsRead], frozen=True):
    """Read the limits of the queue."""


class SetLimits(Request[LimitsRead], frozen=True):
    """Change limits of the queue; None leaves one as it is. Running jobs go on.

    Those of the disk are as in `DiskLimits`. ``request``: as in `ChangeObjects`.
    """

    running_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    tracked_jobs_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    output_job_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    output_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    keep_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    sender: str = ""
    """Who asks; the daemon fills it in."""

    request: str = ""


class SetWatcherPause(Request[Done], frozen=True):
    """Let Ganeti's watcher do nothing before ``until``, durably; None: let it work again.

    ``until`` is in seconds since the epoch. Source: Ganeti 3.0, LUXI, ``SetWatcherPause``.
    """

    until: float | None
    sender: str = ""
    """Who asks; the daemon fills it in."""


class ObjectChange(msgspec.Struct, frozen=True, kw_only=True):
    """The next version of one object, or None: it goes.

    ``kind`` is its container in ``config.data`` (``nodes``, ...) or ``cluster``. ``serial_no``: the
    change is refused unless the object has this serial number now; 0: unless it is new.
    """

    kind: ObjectKind
    uuid: str
    object: dict[str, Any] | None = None
    serial_no: int | None = None


class ObjectsChanged(Reply, frozen=True):
    """The changes are durable and visible. ``stamps``: (serial number, time) of each object."""

    serial_no: int
    stamps: list[tuple[int, float]]


class ChangeObjects(Request[ObjectsChanged], frozen=True):
    """Change objects of the configuration, all or none.

    Refused if an object has another serial number than expected, or if the configuration would
    contradict itself. ``why`` is for the history; ``sender`` is filled in by the daemon.

    ``request``: a key that no other request of this user has. Once its changes are made, its
    repetition changes nothing and gets the first reply, whatever has happened since; another
    request under its key is refused. Without it nothing tells a repetition from another writer.
    """

    changes: Annotated[list[ObjectChange], msgspec.Meta(min_length=1)]
    why: str = ""
    sender: str = ""
    request: str = ""


class SetValues(Request[ObjectsChanged], frozen=True):
    """Change values in one object, all or none; None removes one. All others stay as they are.

    ``name``: a UUID or a name; empty for the cluster. ``values``: the way to each value, and it.
    ``request``: as in `ChangeObjects`.
    """

    kind: ObjectKind
    name: str
    values: Annotated[
        list[tuple[Annotated[list[str], msgspec.Meta(min_length=1)], Any]],
        msgspec.Meta(min_length=1),
    ]
    why: str = ""
    sender: str = ""
    request: str = ""


class ObjectsRead(Reply, frozen=True):
    """Objects as they are stored, of one snapshot with this serial number.

    ``next_after``: where the next page begins; None: this is the last one.
    """

    serial_no: int
    objects: list[dict[str, Any]]
    next_after: str | None = None


class ReadObjects(Request[ObjectsRead], frozen=True):
    """Read a page of the objects of one kind: those with these UUIDs or names, or all.

    An unknown one is refused. Secrets are masked. ``after``: what the page before ended with; None:
    the first page. Each page is of one snapshot.
    """

    kind: ObjectKind
    names: list[str] | None = None
    after: str | None = None


class ObjectsCounted(Reply, frozen=True):
    """How many objects each container of the configuration with this serial number has."""

    serial_no: int
    counts: dict[str, int]


class CountObjects(Request[ObjectsCounted], frozen=True):
    """Count the objects of each kind, but for the cluster; reads none of them."""


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the configuration: (path, JSON before, JSON after) of each field.

    ``time`` is in seconds since the epoch. Secrets are masked.
    """

    serial: int
    time: float
    who: str
    why: str
    changes: list[tuple[str, str | None, str | None]]


class HistoryRead(Reply, frozen=True):
    """Changes, the newest first."""

    entries: list[HistoryLine]


class ReadHistory(Request[HistoryRead], frozen=True):
    """Read the newest changes of the configuration, older than the serial ``before``."""

    count: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    before: int | None = None


class QueryConfiguration(Request[QueryAnswered], frozen=True):
    """Answer a query for objects: these fields of those that pass the filter.

    ``what``: node, instance, group, network, filter, export or cluster. Else as `QueryJobs`. Each
    page is of one snapshot. ``is_classic``: as there, and named objects come in the order of a
    listing, without those that do not exist (Ganeti 3.0, LUXI, ``QueryNodes`` and the like).
    """

    what: str
    fields: list[str]
    filter: Any = None
    after: str | None = None
    is_classic: bool = False


class QueryFields(Request[QueryAnswered], frozen=True):
    """Define these fields of what queries ask for, or all of them; the answer has no rows."""

    what: str
    fields: list[str] | None = None


class ClusterDescribed(Reply, frozen=True):
    """The cluster, with the keys and values of Ganeti's ``QueryClusterInfo``."""

    info: dict[str, Any]


class DescribeCluster(Request[ClusterDescribed], frozen=True):
    """Describe the cluster as a whole: its versions, its master, its parameters."""


class ConfigAnswered(Reply, frozen=True):
    """What the method gives, as JSON; null: it has no result, or another owner has the lock."""

    value: Any = None


class CallMethod(Request[ConfigAnswered], frozen=True):
    """Call a method that a package brings to the store, such as one of Ganeti's WConfD.

    The package says which arguments it takes. ``sender`` is for the history: the daemon fills it
    in. ``reveals``: only a package's own door shows secrets; the daemon says no for everybody else.
    """

    method: str
    args: list[Any] = []
    reveals: bool = False
    sender: str = ""


class CallMethodAsOwner(Request[ConfigAnswered], frozen=True):
    """As `CallMethod`, for a method of an owner of locks. The door checks that its caller is it."""

    method: str
    owner: Owner
    args: list[Any] = []
    reveals: bool = False
