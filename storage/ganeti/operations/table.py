"""The operations of Ganeti's opcodes on the configuration."""

from __future__ import annotations

from typing import Final

from ...cluster import delays
from ...cluster.configuration import Configuration
from ...opcodes import LockNeeds
from ..queries import operations as queries
from ..queries.query_locks import QUERY
from . import cluster, groups, networks, nodes, tags
from .base import AnyOpcode, Circumstances, Operation, Operations, never_decided


def _locks_of_delay(opcode: AnyOpcode, snapshot: Configuration, _: Circumstances) -> LockNeeds:
    return delays.locks(opcode, snapshot)


OPERATIONS: Final[Operations] = {
    **cluster.OPERATIONS,
    **groups.OPERATIONS,
    **networks.OPERATIONS,
    **nodes.OPERATIONS,
    **tags.OPERATIONS,
    **queries.OPERATIONS,
    "OP_QUERY": QUERY,
    "OP_TEST_DELAY": Operation(_locks_of_delay, never_decided),
}
"""The operations by the ids of their opcodes."""
