"""What fields of several of Ganger's own opcodes have in common: types, checks, and their locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .declarations import LockNeeds


def locks_on_nodes(
    declared: LockNeeds, nodes: Sequence[str], uuids: Mapping[str, str]
) -> LockNeeds:
    """The locks of an opcode that runs on these nodes: declared ones, and the nodes shared.

    ``uuids``: as `OpExec.lock_uuids`.
    """
    needs = declared.renamed(uuids)
    return needs.with_nodes([uuids.get(f"node/{node}", node) for node in nodes])


def from_base64(text: str, field: str = "stdin_base64") -> bytes:
    """The bytes that this field stands for; `ValueError` if it is malformed."""
    import binascii  # noqa: PLC0415 - seldom, and the fork server needs no more

    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{field}: not Base64: {error}") from error


def check_targets(node: str | None, nodes: Sequence[str] | None) -> None:
    """`ValueError` if an opcode has a node and a list of nodes, or a list without any.

    Whoever makes a list of nodes, and finds none, does not mean this machine.
    """
    if node is not None and nodes:
        raise ValueError("nodes: expected one of node and nodes")
    if nodes is not None and not nodes:
        raise ValueError("nodes: expected at least one")
