"""The resource ``cluster``, which has one item. It is asked for in jobs only, as in Ganeti."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .answering import Resource
from .cluster_view import ClusterView, Object
from .common_fields import or_no_data
from .fields import (
    NO_DATA,
    UNAVAILABLE,
    Answer,
    Field,
    FieldKind,
    field,
    normal,
    stored,
    table,
)

OS_API_VERSION: Final = 20
EXPORT_VERSION: Final = 0
"""The newest interface of operating system scripts, and the format of exports, of Ganeti 3.0."""

_KNOWN: Final = (
    ("architecture", "ArchInfo", FieldKind.OTHER, "Architecture information"),
    ("drain_flag", "QueueDrained", FieldKind.BOOL, "Flag whether job queue is drained"),
    ("software_version", "SoftwareVersion", FieldKind.TEXT, "Software version"),
    ("vcs_version", "VCSVersion", FieldKind.TEXT, "VCS version"),
)
"""Fields that the caller knows, but not the configuration."""


def _known(key: str) -> Callable[[ClusterView, Object], Answer]:
    return lambda view, _cluster: or_no_data(view.known.get(key))


def _watcher_pause(view: ClusterView, _cluster: Object) -> Answer:
    if "watcher_pause" not in view.known:
        return NO_DATA
    until = view.known["watcher_pause"]
    return UNAVAILABLE if until is None else normal(until)


def _master(view: ClusterView, _cluster: Object) -> Answer:
    return or_no_data(view.master_name)


def _fixed(value: object) -> Callable[[ClusterView, Object], Answer]:
    return lambda _view, _cluster: normal(value)


def _version(view: ClusterView, _cluster: Object) -> Answer:
    return or_no_data(view.version)


def _fields() -> Iterator[Field[ClusterView]]:
    for name, title, kind, doc in _KNOWN:
        yield field(name, title, kind, doc, _known(name))
    for name in ("cluster_name", "name"):
        yield stored(name, "Name", FieldKind.TEXT, "Cluster name", "cluster_name")
    yield stored("ctime", "CTime", FieldKind.TIMESTAMP, "Creation timestamp", "ctime")
    yield stored("mtime", "MTime", FieldKind.TIMESTAMP, "Modification timestamp", "mtime")
    yield stored("tags", "Tags", FieldKind.OTHER, "Tags", "tags", unset=normal([]))
    yield stored(
        "volume_group_name",
        "VgName",
        FieldKind.TEXT,
        "LVM volume group name",
        "volume_group_name",
        unset=UNAVAILABLE,
    )
    yield field("master_node", "Master", FieldKind.TEXT, "Master node name", _master)
    for name, title, doc, get in (
        ("config_version", "ConfigVersion", "Configuration format version", _version),
        ("protocol_version", "ProtocolVersion", "Protocol version", _version),
        (
            "os_api_version",
            "OsApiVersion",
            "API version for OS template scripts",
            _fixed(OS_API_VERSION),
        ),
        (
            "export_version",
            "ExportVersion",
            "Import/export file format version",
            _fixed(EXPORT_VERSION),
        ),
    ):
        yield field(name, title, FieldKind.NUMBER, doc, get)
    yield field(
        "watcher_pause",
        "WatcherPause",
        FieldKind.TIMESTAMP,
        "Until when watcher is paused",
        _watcher_pause,
    )


CLUSTER: Final = Resource(
    "cluster",
    table(_fields()),
    lambda view: [view.cluster] if view.cluster else [],
    lambda _cluster: "",
    str,
    find=lambda view, wanted: view.cluster if view.cluster.get("cluster_name") == wanted else None,
    noun="Cluster name",
)
"""The cluster."""
