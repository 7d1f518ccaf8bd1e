"""The operations of Ganeti's opcodes on the configuration. Those that only read are in queries."""

from __future__ import annotations

from typing import Final

from ...cluster.operations.base import Operations
from . import cluster, groups, networks, tags

OPERATIONS: Final[Operations] = {
    **cluster.OPERATIONS,
    **groups.OPERATIONS,
    **networks.OPERATIONS,
    **tags.OPERATIONS,
}
"""The operations by the ids of their opcodes."""
