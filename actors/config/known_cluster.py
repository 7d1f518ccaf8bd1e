"""What queries show of the cluster beside its configuration: versions, drain flag, pause."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from ...storage import documents, errors, version

if TYPE_CHECKING:
    from ...storage.settings import Places

_LARGEST_OF_32_BITS = 2**32


def known_cluster(places: Places) -> dict[str, Any]:
    """The values by their names in queries. Looks at two files.

    ``watcher_pause``: in seconds since the epoch; None: the watcher is not paused.
    """
    return {
        "architecture": [
            "64bits" if sys.maxsize > _LARGEST_OF_32_BITS else "32bits",
            os.uname().machine,
        ],
        "drain_flag": (places.queue / "drain").exists(),
        "software_version": version.GANETI_RELEASE,
        "vcs_version": _own_version(),
        "watcher_pause": _watcher_pause(places),
    }


@functools.cache
def _own_version() -> str:
    return f"ganger {version.version()}"


def _watcher_pause(places: Places) -> float | None:
    data = None
    with contextlib.suppress(errors.StorageError):
        data = documents.read(places.data / "watcher.pause")
    try:
        return None if data is None else float(data)
    except ValueError:
        return None
