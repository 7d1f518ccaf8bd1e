"""The resource ``instance``. Nothing asks the nodes, so they are shown as if none answered.

A forthcoming instance is only reserved: it lacks most fields, which then have no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from .. import parameters
from .answering import Resource
from .cluster_view import ClusterView, Object, mark, name_of, place
from .common_fields import common, or_no_data
from .fields import (
    NO_DATA,
    OFFLINE,
    UNAVAILABLE,
    Answer,
    Field,
    FieldKind,
    HostName,
    field,
    normal,
    stored,
    table,
)
from .instance_parts import (
    Getter,
    disk_fields,
    disk_template,
    disk_usage,
    interface_fields,
    parameter_fields,
)

_STATUS_DOC: Final = (
    'Instance status; "running" if instance is set to be running and actually is, "ADMIN_down" if '
    'instance is stopped and is not running, "ERROR_wrongnode" if instance running, but not on '
    'its designated primary node, "ERROR_up" if instance should be stopped, but is actually '
    'running, "ERROR_down" if instance should run, but doesn\'t, "ERROR_nodedown" if instance\'s '
    'primary node is down, "ERROR_nodeoffline" if instance\'s primary node is marked offline, '
    '"ADMIN_offline" if instance is offline and does not use dynamic resources'
)

_USAGE_DOC: Final = (
    "Total disk space used by instance on each of its nodes; this is not the disk size visible to "
    "the instance, but the usage on the node"
)


def _live(view: ClusterView, instance: Object) -> Answer:
    return OFFLINE if _is_node_offline(view, instance) else NO_DATA


def _status(view: ClusterView, instance: Object) -> Answer:
    # All other words depend on what runs.
    if view.primary_node(instance) is None:
        return NO_DATA
    return normal(f"ERROR_node{'offline' if _is_node_offline(view, instance) else 'down'}")


def _is_node_offline(view: ClusterView, instance: Object) -> bool:
    node = view.primary_node(instance)
    return node is not None and bool(node.get("offline"))


def _is_up(_view: ClusterView, instance: Object) -> Answer:
    state = instance.get("admin_state")
    return NO_DATA if state is None else normal(state == "up")


def _primary(view: ClusterView, instance: Object) -> Answer:
    node = view.primary_node(instance)
    return NO_DATA if node is None else or_no_data(node.get("name"))


def _primary_group(key: str) -> Getter:
    def get(view: ClusterView, instance: Object) -> Answer:
        group = view.group_of(view.primary_node(instance))
        return NO_DATA if group is None else or_no_data(group.get(key))

    return get


def _secondaries(view: ClusterView, instance: Object) -> Answer:
    return normal([name_of(node) for node in view.secondary_nodes(instance)])


def _secondary_groups(key: str) -> Getter:
    def get(view: ClusterView, instance: Object) -> Answer:
        groups = [view.group_of(node) for node in view.secondary_nodes(instance)]
        return normal([group.get(key) for group in groups if group is not None])

    return get


def _merged(fill: Callable[[Object, Object], dict[str, Any]]) -> Getter:
    return lambda view, instance: normal(view.filled(fill, instance))


def _parameters() -> Iterator[Field[ClusterView]]:
    for name, title, doc, fill in (
        ("beparams", "BackendParameters", "Backend", parameters.backend_parameters),
        ("hvparams", "HypervisorParameters", "Hypervisor", parameters.hypervisor_parameters),
        ("osparams", "OpSysParameters", "Operating system", parameters.system_parameters),
    ):
        yield field(
            name,
            title,
            FieldKind.OTHER,
            f"{doc} parameters (merged)",
            _merged(fill),
        )
        custom = f"Custom {doc.lower()} parameters"
        yield stored(
            f"custom_{name}", f"Custom{title}", FieldKind.OTHER, custom, name, unset=normal({})
        )
    yield field(
        "custom_nicparams",
        "CustomNicParameters",
        FieldKind.OTHER,
        "Custom network interface parameters",
        lambda _view, instance: normal(
            [part.get("nicparams") or {} for part in instance.get("nics") or ()]
        ),
    )


def _states() -> Iterator[Field[ClusterView]]:
    for name, title, kind, doc in (
        ("admin_state", "InstanceState", FieldKind.TEXT, "Desired state of instance"),
        (
            "admin_state_source",
            "InstanceStateSource",
            FieldKind.TEXT,
            "Who last changed the desired state of the instance",
        ),
        ("disks_active", "DisksActive", FieldKind.BOOL, "Desired state of instance disks"),
        ("hypervisor", "Hypervisor", FieldKind.TEXT, "Hypervisor name"),
        ("os", "OS", FieldKind.TEXT, "Operating system"),
    ):
        yield stored(name, title, kind, doc, name)
    yield stored(
        "network_port",
        "Network_port",
        FieldKind.OTHER,
        "Instance network port if available (e.g. for VNC console)",
        "network_port",
        unset=UNAVAILABLE,
    )
    yield stored(
        "forthcoming",
        "Forthcoming",
        FieldKind.BOOL,
        "whether the Instance is forthcoming",
        "forthcoming",
        unset=normal(False),  # noqa: FBT003 - the value of the answer
    )
    yield field("admin_up", "Autostart", FieldKind.BOOL, "Desired state of instance", _is_up)


def _live_fields() -> Iterator[Field[ClusterView]]:
    for name, title, kind, doc in (
        ("console", "Console", FieldKind.OTHER, "Instance console information"),
        ("oper_ram", "Memory", FieldKind.UNIT, "Actual memory usage as seen by hypervisor"),
        ("oper_state", "Running", FieldKind.BOOL, "Actual state of instance"),
        ("oper_vcpus", "VCPUs", FieldKind.NUMBER, "Actual number of VCPUs as seen by hypervisor"),
    ):
        yield field(name, title, kind, doc, _live)
    yield field("status", "Status", FieldKind.TEXT, _STATUS_DOC, _status)


def _nodes() -> Iterator[Field[ClusterView]]:
    primary = field("pnode", "Primary_node", FieldKind.TEXT, "Primary node", _primary)
    yield primary._replace(in_filters=HostName)
    for suffix, title, what, key in (
        ("", "", "", "name"),
        (".uuid", "UUID", " UUID", "uuid"),
    ):
        yield field(
            f"pnode.group{suffix}",
            f"PrimaryNodeGroup{title}",
            FieldKind.TEXT,
            f"Primary node's group{what}",
            _primary_group(key),
        )
        groups = "Node group UUIDs" if what else "Node groups"
        yield field(
            f"snodes.group{suffix}",
            f"SecondaryNodesGroups{title}",
            FieldKind.OTHER,
            f"{groups} of secondary nodes",
            _secondary_groups(key),
        )
    yield field(
        "snodes",
        "Secondary_Nodes",
        FieldKind.OTHER,
        "Secondary nodes; usually this will just be one node",
        _secondaries,
    )


def _fields() -> Iterator[Field[ClusterView]]:
    yield from common("Instance")
    yield from _states()
    yield from _live_fields()
    yield from _nodes()
    yield from _parameters()
    yield from parameter_fields()
    yield from disk_fields()
    yield from interface_fields()
    yield stored("name", "Instance", FieldKind.TEXT, "Instance name", "name")._replace(
        in_filters=HostName
    )
    yield field(
        "disk_template", "Disk_template", FieldKind.TEXT, "Instance disk template", disk_template
    )
    yield field("disk_usage", "DiskUsage", FieldKind.UNIT, _USAGE_DOC, disk_usage)


INSTANCES: Final = Resource(
    "instance",
    table(_fields()),
    lambda view: view.ordered("instances"),
    mark,
    place,
    find=lambda view, wanted: view.find("instances", str(wanted)),
    noun="Instance name",
)
"""Instances, in the natural order of their names."""
