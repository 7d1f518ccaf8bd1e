"""The file of a job, as the job's process writes it: nobody else does until it is given back."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ...storage import documents, errors, jobs, settings
from ...storage.queue_files import inodes, job_files

if TYPE_CHECKING:
    from collections.abc import Callable


class StateFile:
    """One job file. ``wait`` lets time pass when the disk refuses; it writes nothing itself."""

    def __init__(self, path: str, spares: list[str], wait: Callable[[], None]) -> None:
        self.path = path
        self._folder = path.rpartition("/")[0]
        self._queue = job_files.queue_inode(self._folder)
        self._spares = inodes.BorrowedInodes(spares)
        self._wait = wait
        self.is_only_copy = False
        """The journal does not have the newest state: each is flushed until it does."""
        self.is_stale = False
        """The disk refused the newest state, which the journal has."""
        self.is_given_back = False
        """It is the queue's again, as soon as the state that says so can be seen."""
        self.lacks_log = False
        """Entries were logged since it was written."""
        self.is_being_written = False
        self._tried_at = 0.0
        self._written_serial = -1

    def write(self, body: bytes, serial: int, *, flush: bool) -> None:
        """Write a state, unless a newer one is there.

        A disk that refuses is asked until it takes it; what need not be flushed is tried once
        (`is_stale`). `StorageError` if the whole queue was deleted or replaced.
        """
        if serial < self._written_serial:
            return
        self.is_being_written = True
        try:
            while not self._is_done(body, serial, flush=flush or self.is_only_copy):
                self._wait()
        finally:
            self.is_being_written = False

    @property
    def has_queue(self) -> bool:
        """Whether the queue is there still. In another one, this number is another job's."""
        try:
            return job_files.queue_inode(self._folder) == self._queue
        except OSError:
            # Nobody can tell.
            return True

    def log_due(self) -> float:
        """When entries that were logged ought to be written, on the clock that never goes back."""
        return self._tried_at + settings.LOG_WRITE_INTERVAL_SECONDS

    def takes_log(self, serial: int) -> bool:
        """Whether it lacks entries of the log, and has the state with this serial otherwise."""
        has_state = self._written_serial == serial or self.is_stale
        return self.lacks_log and has_state

    def _is_done(self, body: bytes, serial: int, *, flush: bool) -> bool:
        self._tried_at = time.monotonic()
        try:
            self._replace(body, flush=flush)
        except errors.StorageError:
            if not flush:
                # The state is in the journal; the daemon writes the file if we cannot.
                self.is_stale = True
                return True
            if not (self.has_queue and job_files.is_queue_of(self.path)):
                # Nobody is left who could want the result.
                raise
            # It may be there though it is not flushed, and then be another's to write.
            return self.is_given_back and self._has(serial)
        self.lacks_log = self.is_stale = False
        self._written_serial = serial
        return True

    def _has(self, serial: int) -> bool:
        """Whether this state can be seen, or one that came after it; if nobody can tell, it can."""
        with contextlib.suppress(errors.StorageError):
            found = documents.read(self.path)
            return found is not None and jobs.decode_job(found).serial >= serial
        return True

    def _replace(self, body: bytes, *, flush: bool) -> None:
        if not self.has_queue:
            raise errors.StorageError(f"{self.path}: the queue directory was deleted or replaced")
        spare = self._spares.take()
        if spare is None:
            documents.replace(self.path, body, flush=flush)
        elif documents.exchange(self.path, body, spare, flush=flush):
            self._spares.give_back(spare)
