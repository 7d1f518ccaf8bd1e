"""Keeps the lock file of the queue and the endpoint file on disk while the daemon runs.

The keeper writes a deleted file again. A daemon whose queue directory is gone has lost its lock,
and must end before another daemon works beside it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors
from ...storage.disk import documents
from ...storage.version import version
from ...transport.messages import PROTOCOL

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ...storage.alive.directory_locks import DirectoryLock
    from ...storage.disk.paths import Places


class DirectoryKeeper:
    """Keeps the files of one daemon, which holds ``lock``."""

    def __init__(self, places: Places, lock: DirectoryLock, log: FilteringBoundLogger) -> None:
        self._places = places
        self._lock = lock
        self._log = log
        self._content: bytes | None = None

    def announce(self, endpoints: list[str]) -> None:
        """Write the endpoint file, in which clients look for the daemon."""
        endpoint_file = {
            "pid": os.getpid(),
            "version": version(),
            "protocol": PROTOCOL,
            "endpoints": endpoints,
            "socket": os.fspath(self._places.socket),
        }
        self._content = msgspec.json.encode(endpoint_file)
        documents.replace(self._places.endpoint_file, self._content, flush=False)

    def keep(self) -> None:
        """Write deleted files again. `DirectoryLostError` if the queue directory is gone."""
        if self._lock.keep():
            self._log.warning("the lock file of the queue was deleted; it is back")
        if self._content is None or os.path.lexists(self._places.endpoint_file):
            return
        # If the disk refuses, the next look tries again.
        with suppress(errors.StorageError):
            documents.replace(self._places.endpoint_file, self._content, flush=False)
            self._log.warning("daemon.json was deleted; it is back")

    def withdraw(self) -> None:
        """Delete the endpoint file, if it can be deleted: the daemon takes no more requests."""
        with suppress(OSError):
            self._places.endpoint_file.unlink()
