"""What opcodes show of the cluster beside its configuration: the drain flag, the pause."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...storage import documents, errors
from .config_queries import known_of_cluster

if TYPE_CHECKING:
    from ...storage.settings import Places


def known_cluster(places: Places) -> dict[str, Any]:
    """The values by their names in queries. Looks at two files.

    ``watcher_pause``: in seconds since the epoch; None: the watcher is not paused.
    """
    return {
        **known_of_cluster(),
        "drain_flag": (places.queue / "drain").exists(),
        "watcher_pause": _watcher_pause(places),
    }


def _watcher_pause(places: Places) -> float | None:
    data = None
    with contextlib.suppress(errors.StorageError):
        data = documents.read(places.data / "watcher.pause")
    try:
        return None if data is None else float(data)
    except ValueError:
        return None
