"""Locks as people read them: by the names of nodes, groups and networks, not by their UUIDs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..storage.cluster import lock_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..transport.client.client import Client


def words(client: Client) -> Callable[[str], str]:
    """Gives the locks in a text the names that users know."""
    objects = {
        level: {one["name"]: one["uuid"] for one in client.objects(kind) if one.get("name")}
        for level, kind in lock_names.OBJECTS.items()
    }
    return lock_names.LockNames(objects).named
