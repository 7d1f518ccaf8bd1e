"""What a daemon has on disk for others to see: its hold on the queue, and its word of where it is.

Both are files that somebody may delete while the daemon runs. It puts them back; a daemon whose
queue directory itself is gone has lost hold of it, and must end before it does harm to the next.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ...storage import documents, errors
from ...storage.version import version
from ...transport.messages import PROTOCOL

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from ...storage.lock_files import DirectoryLock
    from ...storage.settings import Places


class DirectoryKeeper:
    """Of one daemon, from the lock on its queue directory on."""

    def __init__(self, places: Places, lock: DirectoryLock, log: FilteringBoundLogger) -> None:
        self._places = places
        self._lock = lock
        self._log = log
        self._word: bytes | None = None

    def announce(self, endpoints: list[str]) -> None:
        """Say where the daemon is, for clients that look for it."""
        endpoint_file = {
            "pid": os.getpid(),
            "version": version(),
            "protocol": PROTOCOL,
            "endpoints": endpoints,
            "socket": os.fspath(self._places.socket),
        }
        self._word = msgspec.json.encode(endpoint_file)
        documents.replace(self._places.endpoint_file, self._word, flush=False)

    def keep(self) -> None:
        """Put back what was deleted. `DirectoryLostError` if the queue directory is gone."""
        if self._lock.keep():
            self._log.warning("the lock file of the queue was deleted; it is back")
        if self._word is None or os.path.lexists(self._places.endpoint_file):
            return
        # A disk that refuses now may not the next time.
        with suppress(errors.StorageError):
            documents.replace(self._places.endpoint_file, self._word, flush=False)
            self._log.warning("daemon.json was deleted; it is back")

    def withdraw(self) -> None:
        """The daemon takes no more requests."""
        with suppress(FileNotFoundError):
            self._places.endpoint_file.unlink()
