"""``OP_CLUSTER_REDIST_CONF``: the files of the configuration, written anew.

The job's process then copies the ssconf files to the hosts that have joined. Source of the locks:
Ganeti's ``LUClusterRedistConf``.
"""

from __future__ import annotations

from typing import Final

from ...cluster.configuration import Configuration
from ...opcodes import LevelNeeds, LockNeeds
from .base import AnyOpcode, Circumstances, Operation, Outcome


def _locks(_opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    return LockNeeds(node=LevelNeeds(shared=("*",)))


def _decide(_opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> Outcome:
    return Outcome()


DISTRIBUTE: Final = Operation(_locks, _decide, writes_files=True)
