"""Looks at the files of many jobs in another thread, for what the next start remembers.

Each look appends what the last one has brought, then takes the marks of further files
(`remembered`), and reads the files of jobs unlike others. A look that was given up writes nothing
more: a successor appends to the same file.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from .. import errors
from ..jobs import job_headers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from .job_files import QueueDirectory
    from .remembered import Mark, Noted, RememberedFiles

_FILES_AT_ONCE = 100
_READ_AT_ONCE = 20


class Look:
    """One look. One thread takes `steps`; what is here counts when they are over."""

    def __init__(
        self,
        files: RememberedFiles,
        directory: QueueDirectory,
        ids: Sequence[int],
        unlike: Collection[int],
        records: Sequence[Noted],
    ) -> None:
        """``ids``: the jobs whose files are looked at; ``records`` are appended before.

        ``unlike``: those of the jobs whose files are read, too.
        """
        self._files = files
        self._directory = directory
        self._ids = ids
        self._unlike = unlike
        self._records = records
        self._over = threading.Event()
        # Held during a step.
        self._at_work = threading.Lock()
        self.now = 0
        """The time before the first mark was taken, by the clock that marks files."""
        self.marks: list[Mark | None] = []
        self.heads: dict[int, job_headers.JobHeader] = {}
        """What files said after their marks were taken."""

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
            at_once = _READ_AT_ONCE if self._unlike else _FILES_AT_ONCE
            for start in range(0, len(self._ids), at_once):
                yield
                with self._at_work:
                    if self._over.is_set():
                        return
                    chosen = self._ids[start : start + at_once]
                    self.marks += map(self._directory.mark, chosen)
                    for job_id in chosen:
                        if job_id in self._unlike:
                            self._read(job_id)
        except errors.StorageError as error:
            self.error = error

    def _read(self, job_id: int) -> None:
        with contextlib.suppress(errors.StorageError):
            body = self._directory.read(job_id)
            head = None if body is None else job_headers.head_of(body)
            if head is not None and head.id == job_id:
                self.heads[job_id] = head

    def give_up(self) -> None:
        """Look no further; a step that is being taken has ended when this returns."""
        self._over.set()
        with self._at_work:
            pass
