"""The opcodes that only read the configuration: their answers need neither locks nor changes."""

from __future__ import annotations

from typing import Final

from ...cluster.configuration import Configuration
from ...opcodes import LockNeeds
from ...opcodes.declarations import NO_LOCKS
from ..operations.base import AnyOpcode, Circumstances, Operation, Operations, Outcome
from .answering import values
from .cluster import CLUSTER
from .cluster_info import cluster_info
from .cluster_view import ClusterView


def _no_locks(_opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    return NO_LOCKS


def _describe(_opcode: AnyOpcode, snapshot: Configuration, given: Circumstances) -> Outcome:
    return Outcome(result=cluster_info(ClusterView(snapshot, given.known)))


def _read_values(opcode: AnyOpcode, snapshot: Configuration, given: Circumstances) -> Outcome:
    [row] = values(CLUSTER, ClusterView(snapshot, given.known), opcode.output_fields)
    return Outcome(result=row)


OPERATIONS: Final[Operations] = {
    "OP_CLUSTER_CONFIG_QUERY": Operation(_no_locks, _read_values, needs_known=True),
    "OP_CLUSTER_QUERY": Operation(_no_locks, _describe, needs_known=True),
}
"""The operations by the ids of their opcodes."""
