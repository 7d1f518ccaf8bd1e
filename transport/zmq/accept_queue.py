"""The listening socket of the local listener: a file that only its owner can reach.

The kernel queues the connections to it, up to the backlog; further clients try again. The file is
made beside its place and then moved there, so that no client finds one at which no process listens.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ...storage import errors
from ...storage.disk import documents
from ...storage.settings import SOCKET_PATH_BYTES_MAX

_BESIDE = ".new"


class AcceptQueue:
    """The listening socket at ``path``; at most ``backlog`` + 1 connections wait there.

    Raises `GangerError` if it cannot be made.
    """

    def __init__(self, path: Path, backlog: int) -> None:
        longest = max(path, path.with_name(_BESIDE), key=lambda each: len(os.fsencode(each)))
        if len(os.fsencode(longest)) > SOCKET_PATH_BYTES_MAX:
            text = f"{path}: longer than {SOCKET_PATH_BYTES_MAX} bytes, too long for a socket"
            raise errors.DataDirectoryError(text)
        self._path = path
        self._backlog = backlog
        with documents.storage_errors(path):
            self._listening = self._listen()

    def fileno(self) -> int:
        """Readable while connections wait. `replace` makes another one."""
        return self._listening.fileno()

    def accept(self) -> socket.socket:
        """A connection that waits; `BlockingIOError` if none does, `OSError` on failure."""
        return self._listening.accept()[0]

    def replace(self) -> None:
        """Make the file at the path again; clients that waited connect again.

        Raises `OSError` if it cannot be made: then all stays as it was.
        """
        fresh = self._listen()
        self._listening.close()
        self._listening = fresh

    def close(self) -> None:
        """Free the descriptor. The socket file stays: it may be a successor's by now."""
        self._listening.close()

    def _listen(self) -> socket.socket:
        beside = self._path.with_name(_BESIDE)
        beside.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening.bind(os.fspath(beside))
            beside.chmod(documents.SECRET_MODE)
            listening.listen(self._backlog)
            beside.replace(self._path)
        except BaseException:
            listening.close()
            raise
        return listening
