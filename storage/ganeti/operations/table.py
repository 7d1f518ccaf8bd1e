"""The operations of Ganeti's opcodes on the configuration."""

from __future__ import annotations

from typing import Final

from ...cluster.operations.base import Operations
from ..queries import operations as queries
from ..queries.query_locks import QUERY
from . import cluster, groups, networks, tags

OPERATIONS: Final[Operations] = {
    **cluster.OPERATIONS,
    **groups.OPERATIONS,
    **networks.OPERATIONS,
    **tags.OPERATIONS,
    **queries.OPERATIONS,
    "OP_QUERY": QUERY,
}
"""The operations by the ids of their opcodes."""
