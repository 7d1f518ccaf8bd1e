"""``OP_CLUSTER_REDIST_CONF``: the files of the configuration, written anew.

Nothing here reaches other machines: with other nodes the opcode fails instead of leaving these out.
Source of the locks: Ganeti's ``LUClusterRedistConf``.
"""

from __future__ import annotations

from typing import Final

from ...cluster.configuration import Configuration
from ...cluster.objects import ObjectKind
from ...opcodes import LevelNeeds, LockNeeds
from .base import AnyOpcode, Circumstances, Operation, Outcome, execution_error

_NAMES_MAX: Final = 5


def _locks(_opcode: AnyOpcode, _snapshot: Configuration, _given: Circumstances) -> LockNeeds:
    return LockNeeds(node=LevelNeeds(shared=("*",)))


def _decide(_opcode: AnyOpcode, snapshot: Configuration, _given: Circumstances) -> Outcome:
    master = snapshot.cluster.get("master_node")
    nodes = (snapshot.get(ObjectKind.NODE, uuid) for uuid, _ in snapshot.objects(ObjectKind.NODE))
    others = sorted(
        str(node.get("name"))
        for node in nodes
        if node.get("uuid") != master and not node.get("offline")
    )
    if others:
        more = f" and {len(others) - _NAMES_MAX} more" if len(others) > _NAMES_MAX else ""
        text = f"cannot copy the configuration to {', '.join(others[:_NAMES_MAX])}{more}: "
        raise execution_error(text + "nothing on this system reaches other nodes")
    return Outcome()


DISTRIBUTE: Final = Operation(_locks, _decide, writes_files=True)
