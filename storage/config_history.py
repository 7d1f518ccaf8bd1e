"""The history of the configuration on disk: a line for each change, appended in their order.

How it works. A line is not flushed when it is written, because the journal has its change. Before
the journal forgets changes, `settle` makes their lines durable, and reads them back from the disk:
a line may lie on a page that the disk has refused, and then a later flush that goes well proves
nothing (`queue_files/inodes`). Lines that are not there are written anew, into another file: the
older ones as the disk has them, the others from memory.

One thread adds and writes lines, and any one thread settles meanwhile. `config_files` reads them.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from . import config_files, errors
from .disk import documents, line_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ConfigHistory:
    """The file with the lines, and the lines that it may lack."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._unwritten: list[bytes] = []
        self._unsettled: list[bytes] = []
        self._settled_bytes = documents.size(path)

    def cut(self, serial: int) -> None:
        """Cut off the entries behind that of the serial number. Before any line is added."""
        config_files.cut_history(self._path, serial)
        self._settled_bytes = documents.size(self._path)

    def add(self, line: bytes) -> None:
        """Add a line to those that `write` writes."""
        self._unwritten.append(line)

    def write(self) -> None:
        """Write the lines that were added; `StorageError`: the rest waits for the next time.

        While another thread settles, it writes them.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._write()
        finally:
            self._lock.release()

    def lines(self) -> Iterator[bytes]:
        """All lines, the newest first; one that is being written may come twice."""
        waiting = self._unwritten.copy()
        return itertools.chain(reversed(waiting), line_files.last_lines(self._path))

    def settle(self) -> None:
        """See to it that the disk has all lines. `StorageError`: the journal must keep them."""
        with self._lock:
            self._write()
            try:
                documents.flush_file(self._path)
                is_whole = self._is_on_disk()
            except errors.StorageError:
                is_whole = False
            if not is_whole:
                self._write_anew()
            self._unsettled.clear()
            self._settled_bytes = documents.size(self._path)
            self._write()

    def _write(self) -> None:
        while self._unwritten:
            line_files.append_line(self._path, self._unwritten[0])
            self._unsettled.append(self._unwritten.pop(0))

    def _is_on_disk(self) -> bool:
        """Whether the file ends with the lines that were written since it was last settled."""
        documents.drop_pages(self._path)
        found = itertools.islice(line_files.last_lines(self._path), len(self._unsettled))
        return list(found) == self._unsettled[::-1]

    def _write_anew(self) -> None:
        documents.drop_pages(self._path)
        older = (documents.read(self._path) or b"")[: self._settled_bytes]
        newer = b"".join(line + b"\n" for line in self._unsettled)
        documents.replace(self._path, older + newer, flush=True)
