"""Has a thread create the files of new jobs when they are many, so that no turn waits for that.

A call of the file system that creates a file may wait for other writes of the machine, above all
after many were created. A few files are written in a turn, as it takes a thread longer to begin;
but not within a minute after many (`settings.BACKGROUND_FILES_SECONDS`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...storage import settings
from ...transport import messages

if TYPE_CHECKING:
    from ...transport.messages import Message
    from ..runtime.idle_work import IdleWork
    from ..runtime.runtime import Runtime
    from .file_writer import FileWriter


class BackgroundFiles:
    """The thread of one queue, if there is one."""

    def __init__(self, runtime: Runtime, files: FileWriter) -> None:
        self._runtime = runtime
        self._files = files
        self._work: IdleWork | None = None
        self._batch = 0
        self._until = -math.inf

    @property
    def is_under_way(self) -> bool:
        """Whether the thread has files to create."""
        return self._work is not None

    @property
    def is_due(self) -> bool:
        """Whether files are to be created by a thread, or are on their way in one."""
        if self._work is not None:
            return True
        files = self._files
        if not files.has_new_files:
            return False
        is_many = files.unwritten_count > settings.BACKGROUND_FILES_MIN
        return is_many or self._runtime.clock() < self._until

    def begin(self) -> bool:
        """Have a thread create files, unless one is at it; False if there is no thread."""
        if self._work is not None:
            return True
        new_files = self._files.begin_new_files(settings.BACKGROUND_FILES_MAX)
        self._batch += 1
        incarnation, batch = self._runtime.incarnation, self._batch

        def finished() -> Message:
            return messages.FilesWritten(incarnation=incarnation, batch=batch)

        try:
            self._work = self._runtime.when_idle(new_files.steps(), finished)
        except RuntimeError:
            self._files.end_new_files()
            return False
        return True

    def allow(self, count: int) -> None:
        """Let the thread create so many files though messages wait."""
        if self.begin() and self._work is not None:
            self._work.allow(count)

    def hurry(self, seconds: float) -> bool:
        """Let the thread work alone for so long at most; False if there is no thread."""
        if not self.begin() or self._work is None:
            return False
        self._work.hurry(seconds)
        return True

    def note_written(self, message: messages.FilesWritten) -> None:
        """The thread has ended its batch, or failed."""
        if (message.incarnation, message.batch) != (self._runtime.incarnation, self._batch):
            # Of a queue that was replaced.
            return
        self._work = None
        self._until = self._runtime.clock() + settings.BACKGROUND_FILES_SECONDS
        self._files.end_new_files()

    def close(self) -> None:
        """Create no more files: from now on the thread leaves all of them alone."""
        self._files.end_new_files()
        if self._work is not None:
            self._work.finish()
            self._work = None
