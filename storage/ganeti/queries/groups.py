"""The resource ``group``: node groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .. import parameters
from .answering import Resource
from .cluster_view import ClusterView, Object, mark, names, place
from .common_fields import common, node_parameter_fields
from .fields import Answer, Field, FieldKind, field, normal, stored, table


def _nodes(view: ClusterView, group: Object) -> Answer:
    return normal([node.get("name", "") for node in view.nodes_of(group)])


def _node_count(view: ClusterView, group: Object) -> Answer:
    return normal(len(view.nodes_of(group)))


def _instances(view: ClusterView, group: Object) -> list[Object]:
    nodes = view.nodes_of(group)
    return [instance for node in nodes for instance in view.primary_instances(node)]


def _disk_parameters(view: ClusterView, group: Object) -> Answer:
    return normal(parameters.disk_parameters(view.cluster, group))


def _policy(view: ClusterView, group: Object) -> Answer:
    return normal(parameters.instance_policy(view.cluster, group))


def _custom() -> Iterator[Field[ClusterView]]:
    for key, title, doc in (
        ("diskparams", "CustomDiskParameters", "Custom disk parameters"),
        ("ipolicy", "CustomInstancePolicy", "Custom instance policy limitations"),
        ("ndparams", "CustomNDParams", "Custom node parameters"),
    ):
        yield stored(f"custom_{key}", title, FieldKind.OTHER, doc, key, unset=normal({}))


def _fields() -> Iterator[Field[ClusterView]]:
    yield from _custom()
    yield from common("Group")
    yield from node_parameter_fields(ClusterView.group_parameters)
    yield stored(
        "alloc_policy", "AllocPolicy", FieldKind.TEXT, "Allocation policy for group", "alloc_policy"
    )
    yield stored("name", "Group", FieldKind.TEXT, "Group name", "name")
    yield field(
        "diskparams",
        "DiskParameters",
        FieldKind.OTHER,
        "Disk parameters (merged)",
        _disk_parameters,
    )
    yield field(
        "ipolicy",
        "InstancePolicy",
        FieldKind.OTHER,
        "Instance policy limitations (merged)",
        _policy,
    )
    yield field(
        "ndparams",
        "NDParams",
        FieldKind.OTHER,
        "Node parameters",
        lambda view, group: normal(view.group_parameters(group)),
    )
    yield field("node_cnt", "Nodes", FieldKind.NUMBER, "Number of nodes", _node_count)
    yield field("node_list", "NodeList", FieldKind.OTHER, "List of nodes", _nodes)
    yield field(
        "pinst_cnt",
        "Instances",
        FieldKind.NUMBER,
        "Number of primary instances",
        lambda view, group: normal(len(_instances(view, group))),
    )
    yield field(
        "pinst_list",
        "InstanceList",
        FieldKind.OTHER,
        "List of primary instances",
        lambda view, group: normal(names(_instances(view, group))),
    )


GROUPS: Final = Resource(
    "group",
    table(_fields()),
    lambda view: view.ordered("nodegroups"),
    mark,
    place,
    find=lambda view, wanted: view.find("nodegroups", str(wanted)),
    noun="NodeGroup name",
)
"""Node groups, in the natural order of their names."""
