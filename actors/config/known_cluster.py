"""What the configuration does not hold of the cluster: versions, the drain flag, the pause."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from ...storage import documents, errors, version

if TYPE_CHECKING:
    from ...storage.settings import Places


def known_cluster(places: Places) -> dict[str, Any]:
    """The values by their names in queries. Reads two files.

    ``watcher_pause``: in seconds since the epoch; None: the watcher is not paused.
    """
    return {
        "architecture": ["64bits" if os.sysconf("SC_LONG_BIT") == _LONG else "32bits", _machine()],
        "drain_flag": (places.queue / "drain").exists(),
        "software_version": version.GANETI_RELEASE,
        "vcs_version": f"(ganger) version {version.version()}",
        "watcher_pause": _watcher_pause(places),
    }


_LONG = 64


def _machine() -> str:
    return os.uname().machine


def _watcher_pause(places: Places) -> float | None:
    data = None
    with contextlib.suppress(errors.StorageError):
        data = documents.read(places.data / "watcher.pause")
    try:
        return None if data is None else float(data)
    except ValueError:
        return None
