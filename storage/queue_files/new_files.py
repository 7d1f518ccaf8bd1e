"""The files of many new jobs, created by another thread, so that the queue never waits for that.

How it works. The journal has the jobs already; a file that is missing costs nothing but time. The
queue gives a thread the states of many jobs (`NewFiles`), and goes on. These are the rules:

- The thread only creates: `documents.create` leaves a file of that name alone. So whatever else
  goes wrong, an older state never replaces a newer one. The queue itself replaces files that exist
  (`existing`).
- A job's file has one writer at a time. Before the queue writes or moves the file of a job, it
  withdraws the job (`withdraw`): from then on the thread leaves that file alone.
- A file counts as written when the queue has taken notice of that (`written`). Until then it counts
  as missing: the segments of the journal that cover it stay.
- A queue that ends, that tries the disk again, or that writes all files itself gives up the whole
  batch first (`give_up`): no successor in the same process meets a late write.
- The thread ends with the daemon's process. What it leaves is a temporary file at most, which the
  next start deletes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .. import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .job_files import QueueDirectory


class NewFiles:
    """A batch of such files. One thread takes `steps`, the queue's calls the rest."""

    def __init__(self, directory: QueueDirectory, states: Mapping[int, tuple[int, bytes]]) -> None:
        """``states``: serial and body of each job, in the order in which files are created."""
        self._directory = directory
        self._order = list(states)
        self._left = dict(states)
        self._current = 0
        # Held while a file is being created.
        self._at_work = threading.Lock()
        self.written: list[tuple[int, int]] = []
        """Jobs that have their files now, and the serials of the states in them."""
        self.existing: list[int] = []
        """Jobs for which something lay there before."""
        self.error: errors.StorageError | None = None
        """Why the thread has stopped before the end."""

    def steps(self) -> Iterator[None]:
        """Create one file after the other; between two of them the thread may rest."""
        for job_id in self._order:
            with self._at_work:
                # In this order: `withdraw` gets the job's state, or sees the job here.
                self._current = job_id
                state = self._left.pop(job_id, None)
                if state is not None:
                    self._create(job_id, state)
            if not self._left:
                return
            if state is not None:
                yield

    def withdraw(self, job_id: int) -> None:
        """Leave the file of this job to the queue from now on."""
        if self._left.pop(job_id, None) is None and self._current == job_id:
            self._await_current()

    def give_up(self) -> None:
        """Create no more files; a call that creates one has ended when this returns."""
        self.stop()
        self._await_current()

    def stop(self) -> None:
        """As `give_up`, without waiting."""
        self._left.clear()

    def _create(self, job_id: int, state: tuple[int, bytes]) -> None:
        serial, body = state
        try:
            if self._directory.create(job_id, body):
                self.written.append((job_id, serial))
            else:
                self.existing.append(job_id)
        except errors.StorageError as error:
            self.error = error
            self.stop()

    def _await_current(self) -> None:
        with self._at_work:
            pass
