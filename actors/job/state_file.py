"""The file of a job, which only the job's process writes until it returns the job."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.disk import documents, reserve
from ...storage.jobs import jobs
from ...storage.queue_files import inodes, job_files

if TYPE_CHECKING:
    from collections.abc import Callable


class StateFile:
    """One job file. When the disk refuses, `write` calls ``wait`` with why; that writes nothing."""

    def __init__(
        self, path: str, spares: list[str], wait: Callable[[errors.StorageError], None]
    ) -> None:
        self.path = path
        self._folder = path.rpartition("/")[0]
        self._queue = job_files.folder_inode(self._folder)
        self._spares = inodes.BorrowedInodes(spares)
        self._wait = wait
        self.is_only_copy = False
        """The journal lacks the newest state: flush each one until it has it."""
        self.is_stale = False
        """The disk refused the newest state, which the journal has."""
        self.is_given_back = False
        """The queue owns the file again once the returning state is visible."""
        self.lacks_log = False
        """The file lacks new log entries."""
        self._tried_at = 0.0
        self._written_serial = -1

    def write(self, body: bytes, serial: int, *, flush: bool) -> None:
        """Write a state, which is never older than the one in the file.

        With ``flush``, try until the disk takes it; without, try once (`is_stale`). Raises
        `StorageError` if the whole queue was deleted or replaced.
        """
        while (error := self._refusal(body, serial, flush=flush or self.is_only_copy)) is not None:
            self._wait(error)

    @property
    def has_queue(self) -> bool:
        """Whether this is still the same queue directory: another one numbers its own jobs."""
        try:
            return job_files.folder_inode(self._folder) == self._queue
        except OSError:
            return True  # Unknown.

    def log_due(self) -> float:
        """When to write new log entries, in monotonic seconds."""
        return self._tried_at + settings.LOG_WRITE_INTERVAL_SECONDS

    def takes_log(self, serial: int) -> bool:
        """Whether log entries are all that the file lacks of the state with this serial."""
        has_state = self._written_serial == serial or self.is_stale
        return self.lacks_log and has_state

    def _refusal(self, body: bytes, serial: int, *, flush: bool) -> errors.StorageError | None:
        """Try to write the state: why it is to be tried again, if so."""
        self._tried_at = time.monotonic()
        try:
            self._replace(body, flush=flush)
        except errors.StorageError as error:
            if not flush:
                # The journal has the state; the daemon writes the file.
                self.is_stale = True
                return None
            if not (self.has_queue and job_files.is_queue_of(self.path)):
                # The queue is gone, and so is every reader of the result.
                raise
            if reserve.is_full(error):
                reserve.give_to_job(self._folder)
            # The state may be visible without a flush; then the queue owns the file.
            return None if self.is_given_back and self._has(serial) else error
        self.lacks_log = self.is_stale = False
        self._written_serial = serial
        return None

    def _has(self, serial: int) -> bool:
        """Whether this state, or a later one, is visible; True if that is unknown."""
        with contextlib.suppress(errors.StorageError):
            found = documents.read(self.path)
            return found is not None and jobs.decode_job(found).serial >= serial
        return True

    def _replace(self, body: bytes, *, flush: bool) -> None:
        if not self.has_queue:
            raise errors.StorageError(f"{self.path}: the queue directory was deleted or replaced")
        spare = None if flush else self._spares.take()
        if spare is None:
            documents.replace(self.path, body, flush=flush)
        elif documents.exchange(self.path, body, spare):
            self._spares.give_back(spare)
