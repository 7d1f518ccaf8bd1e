"""The opcodes of the cluster as a whole."""

from __future__ import annotations

from typing import Final

from .base import Operations
from .cluster_checks import VERIFY
from .cluster_distribution import DISTRIBUTE
from .cluster_settings import SET_PARAMETERS

OPERATIONS: Final[Operations] = {
    "OP_CLUSTER_REDIST_CONF": DISTRIBUTE,
    "OP_CLUSTER_SET_PARAMS": SET_PARAMETERS,
    "OP_CLUSTER_VERIFY_CONFIG": VERIFY,
}
