"""The declarations of all of Ganeti's opcodes. The families are in the files beside it."""

from __future__ import annotations

from typing import Final

from . import cluster_locks, group_locks, instance_locks, node_locks

DECLARED: Final = {
    **cluster_locks.DECLARED,
    **group_locks.DECLARED,
    **instance_locks.DECLARED,
    **node_locks.DECLARED,
}
"""By opcode: its declaration, and the parameters that this reads."""
