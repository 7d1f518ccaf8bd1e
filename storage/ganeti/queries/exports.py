"""The resource ``export``: exports lie on nodes. Nothing asks the nodes, so these have no data."""

from __future__ import annotations

from typing import Final

from .answering import Resource
from .cluster_view import ClusterView, Object, mark, place
from .fields import NO_DATA, OFFLINE, Answer, FieldKind, HostName, field, stored, table


def _export(_view: ClusterView, node: Object) -> Answer:
    return OFFLINE if node.get("offline") else NO_DATA


EXPORTS: Final = Resource(
    "export",
    table(
        (
            field("export", "Export", FieldKind.TEXT, "Export name", _export),
            stored("node", "Node", FieldKind.TEXT, "Node name", "name")._replace(
                in_filters=HostName
            ),
        )
    ),
    lambda view: view.ordered("nodes"),
    mark,
    place,
    find=lambda view, wanted: view.find("nodes", str(wanted)),
    noun="Node name",
    name_field="node",
)
"""One item for each node, in the natural order of their names."""
