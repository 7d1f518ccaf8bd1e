"""The declarations of all of Ganeti's opcodes. The families are in the files beside it."""

from __future__ import annotations

from typing import Final

from . import cluster_locks, group_locks, instance_locks, node_locks
from .configured_names import read
from .ganeti_input import declares

__all__ = ["DECLARED", "read"]

DECLARED: Final = {
    op_id: (declares(declaration), reads)
    for family in (cluster_locks, group_locks, instance_locks, node_locks)
    for op_id, (declaration, reads) in family.DECLARED.items()
}
"""By opcode: its declaration, and the parameters that this reads."""
