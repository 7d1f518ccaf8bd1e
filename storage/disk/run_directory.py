"""A run directory for the case that none of the usual places will do."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .. import settings
from . import documents, paths

if TYPE_CHECKING:
    from .paths import Places


def with_room(places: Places) -> Places:
    """These places, or with another run directory if a socket's path is too long in this one.

    It is too long if another user has taken the usual name on the memory file system, and the path
    of the data directory is long. Nobody can know the new name before it is taken; a link in the
    data directory tells it to clients, and to the next daemon. Only the daemon that has locked the
    queue may call this. `StorageError` if no directory can be made.
    """
    link = _link(places)
    is_long = len(os.fsencode(places.wconfd_socket)) > settings.SOCKET_PATH_BYTES_MAX
    if places.run != link or not is_long or paths.memory_run(places.data) is None:
        return places
    with documents.storage_errors(link):
        made = Path(tempfile.mkdtemp(prefix="ganger-", dir=paths.MEMORY))
        if link.is_symlink():
            # It leads to a directory that went with an earlier start of the machine.
            link.unlink()
        elif link.is_dir():
            link.rmdir()
        link.symlink_to(made)
    return paths.Places(places.data, made)


def forget(places: Places) -> None:
    """Remove the link to a run directory that is gone. Raises `OSError`."""
    link = _link(places)
    if link.is_symlink() and not os.path.lexists(places.run):
        link.unlink()


def _link(places: Places) -> Path:
    return places.data / "run"
