"""Do a master and a node understand each other? Both ask when a node calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.version import version
from ...transport.messages import NODE_PROTOCOL
from ..processes import machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...transport import messages
    from .silences import Silences

_MIB = 2**20
_REMEDY = "install one version on both; what runs on the node goes on"


def check_node(name: str, live: Mapping[str, str | int], silences: Silences) -> None:
    """Refuse a node that says this of itself, if the master does not understand it, and note why.

    `NotAllowedError` names both versions.
    """
    found = live.get("protocol", 1)
    if found != NODE_PROTOCOL:
        there, here = _shown(live.get("version"), found), _shown(version(), NODE_PROTOCOL)
        problem = f"node {name} runs {there}, the master {here}: {_REMEDY}"
        silences.refuse(name, problem)
        raise errors.NotAllowedError(problem)


def problem_of_master(greeted: messages.NodeGreeted) -> str:
    """Why a node does not work with the master that has greeted it; empty: it does."""
    if greeted.protocol == NODE_PROTOCOL:
        return ""
    there, here = _shown(greeted.version, greeted.protocol), _shown(version(), NODE_PROTOCOL)
    return f"the master runs {there}, node {greeted.name} {here}: {_REMEDY}"


def live() -> dict[str, str | int]:
    """What a node says of itself when it calls."""
    total, available = machine.memory()
    return {
        "version": version(),
        "protocol": NODE_PROTOCOL,
        "boot_id": machine.boot_id(),
        "memory_total": total // _MIB,
        "memory_free": available // _MIB,
        "cpus": machine.processors() or 0,
    }


def _shown(ganger: str | int | None, protocol: str | int) -> str:
    return f"Ganger {ganger or 'of an older version'} (node protocol {protocol})"
