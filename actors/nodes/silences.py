"""Since when nodes are silent, and why, where the hub can know: a host that it has refused.

Since when is in a file, too, without a flush: a successor of the hub knows what nobody can have
sent to a node. It holds until the machine is started anew.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors
from ...storage.alive import process_identity
from ...storage.disk import documents
from ...storage.nodes import node_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


_TOLD_MAX = 1_000


class _StoredSilences(msgspec.Struct):
    boot: str
    since: dict[str, float]


class Silences:
    """All of them by node. ``tell`` lets those who wait for a node know that there is a reason."""

    def __init__(self, now: Callable[[], float], path: Path) -> None:
        self._path = path
        self.tell: Callable[[str], object] = lambda _: None
        self.since: dict[str, float] = {}
        self._now = now
        self._begun = now()
        self._told: set[str] = set()
        self._addresses: dict[str, str] = {}
        """From where each has called last, without the port."""
        self._reasons: dict[str, str] = {}

    def read(self, nodes: Iterable[str]) -> None:
        """A new hub begins: none of these nodes is there, and what its predecessor knew holds."""
        self.since = dict.fromkeys(nodes, self._begun)
        with contextlib.suppress(errors.StorageError, msgspec.MsgspecError):
            stored = msgspec.json.decode(documents.read(self._path) or b"", type=_StoredSilences)
            if stored.boot == process_identity.boot():
                self.since |= stored.since
        self._keep()

    def _keep(self) -> None:
        stored = _StoredSilences(process_identity.boot(), self.since)
        try:
            documents.replace(self._path, msgspec.json.encode(stored), flush=False)
        except errors.StorageError:
            # A successor knows less.
            with contextlib.suppress(OSError):
                self._path.unlink()

    def begin(self, node: str, address: str) -> None:
        """The node's connection from this address has ended."""
        self.since[node] = self._now()
        self._keep()
        self._addresses[node] = node_objects.plain_address(address)

    def end(self, node: str) -> None:
        """The node is there."""
        if self.since.pop(node, None) is not None:
            self._keep()
        self._reasons.pop(node, None)
        self._told.clear()

    def since_of(self, node: str) -> float:
        """Since when the node is silent; for all that is known since this hub has begun."""
        return self.since.get(node, self._begun)

    def why(self, node: str) -> str:
        """Why the node is silent; empty: nobody knows."""
        return self._reasons.get(node, "")

    def refuse(self, node: str, why: str) -> None:
        """The node's daemon calls, and is not let in."""
        if self._reasons.get(node) != why:
            self._reasons[node] = why
            self.tell(node)

    def is_news(self, refusal: str) -> bool:
        """Whether it was not told since a node has called: hosts call again every few seconds."""
        if len(self._told) >= _TOLD_MAX:
            self._told.clear()
        is_new = refusal not in self._told
        self._told.add(refusal)
        return is_new

    def refuse_caller(self, address: str) -> None:
        """A host has called from there with an unknown key: a silent node may have lost its own."""
        where = node_objects.plain_address(address)
        for node in self.since:
            if self._addresses.get(node) == where:
                again = f"`ganger node invite {node}` lets it join anew"
                self.refuse(node, f"a host at {where} calls with a key that is not known; {again}")
