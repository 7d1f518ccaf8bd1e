"""What queries show of the cluster beside its configuration: versions, drain flag, pause."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from ...storage import version
from ...storage.ganeti import watcher_pause

if TYPE_CHECKING:
    from ...storage.disk.paths import Places

_LARGEST_OF_32_BITS = 2**32


def known_cluster(places: Places, now: float) -> dict[str, Any]:
    """The values by their names in queries. Looks at two files.

    ``watcher_pause``: in seconds since the epoch, as ``now``; None: the watcher is not paused.
    """
    return {
        "architecture": [
            "64bits" if sys.maxsize > _LARGEST_OF_32_BITS else "32bits",
            os.uname().machine,
        ],
        "drain_flag": (places.queue / "drain").exists(),
        "software_version": version.GANETI_RELEASE,
        "vcs_version": _own_version(),
        "watcher_pause": watcher_pause.read(places.data / watcher_pause.NAME, now),
    }


@functools.cache
def _own_version() -> str:
    return f"ganger {version.version()}"
