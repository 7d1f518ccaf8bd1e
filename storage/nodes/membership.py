"""What a host knows of its cluster: ``node.json`` in its own data directory.

A data directory with this file is that of a node daemon. The file has the host's secret key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from ..disk.paths import Places


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """Of which cluster the host is a node, and with which keys it calls the master."""

    cluster: str
    """The cluster's UUID."""

    cluster_name: str
    name: str
    """The node's name in that cluster."""

    endpoints: list[str]
    server: str
    public: str
    secret: str
    directory: str
    """The identity of this data directory."""

    def __repr__(self) -> str:
        """Without the secret, because logs show values."""
        return f"Membership(name={self.name!r}, cluster={self.cluster!r})"


def read(places: Places) -> Membership | None:
    """What this directory says; None: it is not that of a node. `StorageError`: unreadable."""
    data = documents.read(places.membership)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Membership)
    except msgspec.MsgspecError as error:
        raise errors.StorageError(f"{places.membership}: {error}") from error


def write(places: Places, membership: Membership) -> None:
    """Store it, flushed, for its owner alone."""
    with documents.storage_errors(places.membership):
        data = msgspec.json.format(msgspec.json.encode(membership))
        documents.replace(places.membership, data, flush=True, mode=documents.SECRET_MODE)
