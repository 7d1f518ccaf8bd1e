"""Looks at the files of many jobs in another thread, for what the next start remembers.

Each look appends what the last one has brought, then takes the marks of further files
(`remembered`). A look that was given up writes nothing more: a successor appends to the same file.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .. import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .job_files import QueueDirectory
    from .remembered import Mark, Page, RememberedFiles, Template

_FILES_AT_ONCE = 100


class Look:
    """One look. One thread takes `steps`; what is here counts when they are over."""

    def __init__(
        self,
        files: RememberedFiles,
        directory: QueueDirectory,
        ids: Sequence[int],
        records: Sequence[Template | Page],
    ) -> None:
        """``ids``: the jobs whose files are looked at; ``records`` are appended before."""
        self._files = files
        self._directory = directory
        self._ids = ids
        self._records = records
        self._over = threading.Event()
        # Held during a step.
        self._at_work = threading.Lock()
        self.now = 0
        """The time before the first mark was taken, by the clock that marks files."""
        self.marks: list[Mark | None] = []
        self.error: errors.StorageError | None = None

    def steps(self) -> Iterator[None]:
        """Append, then take marks, some at a step."""
        try:
            with self._at_work:
                if self._over.is_set():
                    return
                if not self._files.has_begun:
                    self._files.begin()
                if self._records:
                    self._files.append(self._records)
                self.now = self._files.now()
            for start in range(0, len(self._ids), _FILES_AT_ONCE):
                yield
                with self._at_work:
                    if self._over.is_set():
                        return
                    chosen = self._ids[start : start + _FILES_AT_ONCE]
                    self.marks += map(self._directory.mark, chosen)
        except errors.StorageError as error:
            self.error = error

    def give_up(self) -> None:
        """Look no further; a step that is being taken has ended when this returns."""
        self._over.set()
        with self._at_work:
            pass
