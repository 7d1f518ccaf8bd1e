"""Which nodes take commands, by their objects in the configuration. Pure.

A drained node takes no new jobs; those that are queued run. An offline node runs nothing new: a job
that comes to its command fails. What runs goes on in both cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .. import errors

NAMES_SHOWN_MAX: Final = 20
"""How many nodes a refusal names."""

DRAINED: Final = "drained"
OFFLINE: Final = "offline"

_TAKES_COMMANDS: Final = ""


def state_of(node: Mapping[str, Any]) -> str:
    """``offline``, ``drained`` or empty: the node takes commands."""
    if node.get(OFFLINE) is True:
        return OFFLINE
    return DRAINED if node.get(DRAINED) is True else _TAKES_COMMANDS


def states_of(nodes: Iterable[Any]) -> dict[str, str]:
    """The state of each node by its name. ``nodes``: their objects; damaged ones are left out."""
    return {
        name: state_of(node)
        for node in nodes
        if isinstance(node, dict) and isinstance(name := node.get("name"), str)
    }


def check_new(states: Mapping[str, str], name: str, op_id: str = "OP_EXEC") -> None:
    """Raise `OpcodeError` unless a new job may have this opcode run on this node."""
    state = states.get(name)
    if state is None:
        known = sorted(states)
        shown = ", ".join(known[:NAMES_SHOWN_MAX]) or "none"
        more = len(known) - NAMES_SHOWN_MAX
        left = f" and {more} more" if more > 0 else ""
        raise errors.OpcodeError(
            f"{op_id}: node: no host has joined as {name!r}; nodes: {shown}{left}"
        )
    if state:
        raise errors.OpcodeError(f"{op_id}: node: {_refusal(name, state)}")


def check_start(node: Mapping[str, Any] | None, name: str) -> None:
    """Raise `NotAllowedError` if a queued job may not begin a command on this node.

    ``node``: its object; None: there is none, and the hub says what is known of the host.
    """
    if node is not None and state_of(node) == OFFLINE:
        raise errors.NotAllowedError(_refusal(name, OFFLINE))


def _refusal(name: str, state: str) -> str:
    return f"node {name!r} is {state}; `ganger node online {name}` lets it take commands again"
