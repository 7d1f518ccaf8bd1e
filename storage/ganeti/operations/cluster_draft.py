"""The cluster as an opcode is about to change it, with all that the change brings along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...cluster.configuration import Change, Configuration
from ...cluster.objects import ObjectKind
from .base import AnyOpcode, Outcome, warning
from .lookups import Object


class ClusterDraft:
    """What the parts of ``OP_CLUSTER_SET_PARAMS`` change, one after the other.

    ``opcode`` has the wanted values; None leaves one as it is.
    """

    def __init__(self, opcode: AnyOpcode, snapshot: Configuration) -> None:
        self.opcode = opcode
        self.snapshot = snapshot
        self.before: Object = snapshot.cluster
        self.cluster: dict[str, Any] = dict(snapshot.cluster)
        self.log: list[str] = []
        self.unchecked: list[str] = []
        """Parameters that Ganeti would check on the nodes."""
        self._nodes: list[Change] = []

    def of(self, field: str) -> dict[str, Any]:
        """A copy of a dictionary of the cluster; empty if it has none."""
        return dict(self.cluster.get(field) or {})

    def texts(self, field: str) -> list[Any]:
        """A copy of a list of the cluster; empty if it has none."""
        return list(self.cluster.get(field) or ())

    def put(self, field: str, value: object) -> None:
        """Give a field of the cluster a value; None removes it."""
        if value is None:
            self.cluster.pop(field, None)
        else:
            self.cluster[field] = value

    def change_node(self, node: Object, fields: Mapping[str, Any]) -> None:
        """Change fields of a node, together with the cluster."""
        self._nodes.append(Change(ObjectKind.NODE, node["uuid"], {**node, **fields}))

    def outcome(self) -> Outcome:
        """All changes, and the log; without changes if everything is as wanted already."""
        changes = list(self._nodes)
        if self.cluster != self.before:
            changes.insert(0, Change(ObjectKind.CLUSTER, self.snapshot.cluster_uuid, self.cluster))
        if self.unchecked:
            listed = ", ".join(self.unchecked)
            self.log.append(warning(f"No node was asked whether it can use these: {listed}"))
        return Outcome(tuple(changes), None, tuple(self.log))
