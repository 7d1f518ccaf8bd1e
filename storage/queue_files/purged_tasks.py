"""Which tasks of a host were purged: one that the master asks for again is not started again.

The answer to a submission may be lost, and the submission comes again when the connection is back.
The queue finds a task by its key as long as it has the job, live or archived; of a purged one only
its key is left, in this file. The queue alone writes it, before the log says that a job is purged.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import TYPE_CHECKING

from ..disk import documents, line_files

if TYPE_CHECKING:
    from collections.abc import Collection

KEYS_KEPT = 100_000
"""The last ones. A submission that comes again is one of the last before a break."""


class PurgedTasks:
    """The keys in the file at ``path``. `StorageError` if it cannot be read or written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._keys = set(map(_short, self._kept()))

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, str)
        return bool(self._keys) and _short(key.encode()) in self._keys

    def add(self, keys: Collection[str]) -> None:
        """These tasks will be purged: after this call, also if power is lost."""
        lines = [key.encode() for key in keys]
        if not lines:
            return
        if len(self._keys) + len(lines) > 2 * KEYS_KEPT:
            lines = [*reversed(self._kept()), *lines][-KEYS_KEPT:]
            documents.replace(self._path, b"\n".join(lines) + b"\n", flush=True)
            self._keys = set()
        else:
            line_files.append_line(self._path, b"\n".join(lines))
            documents.flush_file(self._path)
            documents.flush_directory(os.path.dirname(self._path))
        self._keys.update(map(_short, lines))

    def _kept(self) -> list[bytes]:
        """The keys, the last one first."""
        return [*itertools.islice(line_files.last_lines(self._path), KEYS_KEPT)]


def _short(key: bytes) -> int:
    """What stands for a key in memory."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
