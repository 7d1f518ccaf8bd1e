"""Tells the queue what nodes there are and what locks are called, and jobs where they may begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.cluster import lock_names
from ...storage.cluster.objects import ObjectKind
from ...storage.nodes import node_states
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE, NODE_HUB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.cluster.configuration import Change, Configuration
    from ..runtime.component import Runtime
    from .stored_configuration import StoredConfiguration


class KnownNodes:
    """Follows the nodes of the configuration."""

    def __init__(self, runtime: Runtime, stored: StoredConfiguration) -> None:
        self._runtime = runtime
        self._stored = stored
        stored.when_changed(self._note)

    def report(self) -> None:
        """Tell the queue of all nodes."""
        nodes = [node for _, node in self._stored.snapshot.objects(ObjectKind.NODE)]
        states = node_states.states_of(nodes)
        names = lock_names.table_of(self._stored.snapshot)
        self._runtime.tell(JOB_QUEUE, messages.NodesChanged(nodes=states, lock_names=names))

    def _note(self, before: Configuration, _: Configuration, changes: Sequence[Change]) -> None:
        """Before the change is answered: the queue goes by it in the next submission."""
        gone = [
            str(node["name"])
            for change in changes
            if change.kind is ObjectKind.NODE
            and change.object is None
            and isinstance(node := before.get(ObjectKind.NODE, change.uuid), dict)
            and "name" in node
        ]
        if gone:
            self._runtime.tell(NODE_HUB, messages.NodesRemoved(names=gone))
        if any(change.kind in lock_names.KINDS for change in changes):
            self.report()

    def check_start(self, name: str) -> None:
        """Raise `NotAllowedError` if a queued job may not begin a command on this node."""
        node = self._stored.snapshot.find_by_name(ObjectKind.NODE, name)
        node_states.check_start(node if isinstance(node, dict) else None, name)
