"""The opcodes of the cluster as a whole."""

from __future__ import annotations

from typing import Final

from .base import Operation, Operations, never_decided
from .cluster_checks import VERIFY
from .cluster_distribution import DISTRIBUTE
from .cluster_settings import SET_PARAMETERS
from .group_checks import locks as locks_of_group

OPERATIONS: Final[Operations] = {
    "OP_CLUSTER_REDIST_CONF": DISTRIBUTE,
    "OP_CLUSTER_SET_PARAMS": SET_PARAMETERS,
    "OP_CLUSTER_VERIFY_CONFIG": VERIFY,
    "OP_CLUSTER_VERIFY_GROUP": Operation(locks_of_group, never_decided),
}
