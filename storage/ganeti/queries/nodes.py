"""The resource ``node``. Live fields have data of the nodes that the maker of the view asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .answering import Resource
from .cluster_view import ClusterView, Object, mark, names, place
from .common_fields import common, node_parameter_fields, or_no_data
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

_ROLE_DOC: Final = (
    'Node role; "M" for master, "C" for master candidate, "R" for regular, "D" for drained, '
    '"O" for offline'
)

_BOOT_DOC: Final = (
    "Random UUID renewed for each system reboot, can be used for detecting reboots by tracking "
    "changes"
)

_LIVE: Final = (
    (
        "bootid",
        "BootID",
        FieldKind.TEXT,
        _BOOT_DOC,
    ),
    (
        "cnodes",
        "CNodes",
        FieldKind.NUMBER,
        "Number of NUMA domains on node (if exported by hypervisor)",
    ),
    (
        "cnos",
        "CNOs",
        FieldKind.NUMBER,
        "Number of logical processors used by the node OS (dom0 for Xen)",
    ),
    (
        "csockets",
        "CSockets",
        FieldKind.NUMBER,
        "Number of physical CPU sockets (if exported by hypervisor)",
    ),
    ("ctotal", "CTotal", FieldKind.NUMBER, "Number of logical processors"),
    ("dfree", "DFree", FieldKind.UNIT, "Available storage space on storage unit"),
    (
        "dtotal",
        "DTotal",
        FieldKind.UNIT,
        "Total storage space on storage unit for instance disk allocation",
    ),
    ("mfree", "MFree", FieldKind.UNIT, "Memory available for instance allocations"),
    ("mnode", "MNode", FieldKind.UNIT, "Amount of memory used by node (dom0 for Xen)"),
    ("mtotal", "MTotal", FieldKind.UNIT, "Total amount of memory of physical machine"),
    (
        "spfree",
        "SpFree",
        FieldKind.NUMBER,
        "Available spindles in volume group (exclusive storage only)",
    ),
    (
        "sptotal",
        "SpTotal",
        FieldKind.NUMBER,
        "Total spindles in volume group (exclusive storage only)",
    ),
)


LIVE_FIELDS: Final = frozenset(name for name, *_ in _LIVE)
"""The fields that only the nodes know."""


def _live(name: str) -> Callable[[ClusterView, Object], Answer]:
    def get(view: ClusterView, node: Object) -> Answer:
        if node.get("offline"):
            return OFFLINE
        return or_no_data(view.measured.get(node.get("uuid", ""), {}).get(name))

    return get


def _role(view: ClusterView, node: Object) -> Answer:
    if _is_master(view, node):
        return normal("M")
    roles = {"master_candidate": "C", "drained": "D", "offline": "O"}
    return normal(next((role for key, role in roles.items() if node.get(key)), "R"))


def _is_master(view: ClusterView, node: Object) -> bool:
    return bool(node.get("uuid") == view.cluster.get("master_node"))


def _group(view: ClusterView, node: Object) -> Answer:
    group = view.group_of(node)
    return NO_DATA if group is None else or_no_data(group.get("name"))


def _parameters(view: ClusterView, node: Object) -> Answer:
    return or_no_data(view.node_parameters(node) or None)


def _powered(view: ClusterView, node: Object) -> Answer:
    program = view.node_parameters(node).get("oob_program")
    if program is None:
        return NO_DATA
    return or_no_data(node.get("powered")) if program else UNAVAILABLE


def _related(
    find: Callable[[ClusterView, Object], list[Object]],
) -> tuple[Callable[[ClusterView, Object], Answer], Callable[[ClusterView, Object], Answer]]:
    """The getters of a count and of the names of related objects."""
    return (
        lambda view, node: normal(len(find(view, node))),
        lambda view, node: normal(names(find(view, node))),
    )


_PRIMARY_COUNT, _PRIMARY_NAMES = _related(ClusterView.primary_instances)
_SECONDARY_COUNT, _SECONDARY_NAMES = _related(ClusterView.secondary_instances)


def _unavailable(_view: ClusterView, _node: Object) -> Answer:
    return UNAVAILABLE


def _flags() -> Iterator[Field[ClusterView]]:
    for name, title, doc in (
        ("drained", "Drained", "Whether node is drained"),
        ("master_candidate", "MasterC", "Whether node is a master candidate"),
        ("master_capable", "MasterCapable", "Whether node can become a master candidate"),
        ("offline", "Offline", "Whether node is marked offline"),
        ("vm_capable", "VMCapable", "Whether node can host instances"),
    ):
        yield stored(name, title, FieldKind.BOOL, doc, name)


def _fields() -> Iterator[Field[ClusterView]]:
    yield from _flags()
    yield from common("Node")
    yield from node_parameter_fields(ClusterView.node_parameters)
    for name, title, kind, doc in _LIVE:
        yield field(name, title, kind, doc, _live(name))
    yield stored("name", "Node", FieldKind.TEXT, "Node name", "name")._replace(in_filters=HostName)
    yield stored("pip", "PrimaryIP", FieldKind.TEXT, "Primary IP address", "primary_ip")
    yield stored("sip", "SecondaryIP", FieldKind.TEXT, "Secondary IP address", "secondary_ip")
    yield stored("group.uuid", "GroupUUID", FieldKind.TEXT, "UUID of node group", "group")
    yield stored(
        "custom_ndparams",
        "CustomNodeParameters",
        FieldKind.OTHER,
        "Custom node parameters",
        "ndparams",
        unset=normal({}),
    )
    yield field("group", "Group", FieldKind.TEXT, "Node group", _group)
    yield field(
        "master",
        "IsMaster",
        FieldKind.BOOL,
        "Whether node is master",
        lambda view, node: normal(_is_master(view, node)),
    )
    yield field(
        "ndparams", "NodeParameters", FieldKind.OTHER, "Merged node parameters", _parameters
    )
    yield field("role", "Role", FieldKind.TEXT, _ROLE_DOC, _role)
    yield field(
        "powered", "Powered", FieldKind.BOOL, "Whether node is thought to be powered on", _powered
    )
    yield field("disk_state", "DiskState", FieldKind.OTHER, "Disk state", _unavailable)
    yield field("hv_state", "HypervisorState", FieldKind.OTHER, "Hypervisor state", _unavailable)
    for prefix, title, what, count, listed in (
        ("pinst", "Pri", "primary", _PRIMARY_COUNT, _PRIMARY_NAMES),
        ("sinst", "Sec", "secondary", _SECONDARY_COUNT, _SECONDARY_NAMES),
    ):
        counted = f"Number of instances with this node as {what}"
        yield field(f"{prefix}_cnt", prefix.capitalize(), FieldKind.NUMBER, counted, count)
        doc = f"List of instances with this node as {what}"
        yield field(f"{prefix}_list", f"{title}Instances", FieldKind.OTHER, doc, listed)


NODES: Final = Resource(
    "node",
    table(_fields()),
    lambda view: view.ordered("nodes"),
    mark,
    place,
    find=lambda view, wanted: view.find("nodes", str(wanted)),
    noun="Node name",
)
"""Nodes, in the natural order of their names."""
