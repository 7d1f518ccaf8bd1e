"""The compactor: writes the job files that sealed segments of the log cover, then deletes these.

How it works. The queue seals the segment to which it has appended, and goes on in a new one. A
thread reads the sealed segments, which never change, writes the files of the jobs that have none
yet, or older ones, flushes the file system, reads the files back from the disk past the page cache,
and deletes the segments. These are the invariants:

- *Each acknowledged state lies in a segment, or in a file that was flushed and read back.* A
  segment goes only after that. If one step fails, all segments stay, and the queue is told.
- *The newest segment answers for each file that may change now.* A new segment begins with the
  states of the jobs whose processes live, or are being made: the compactor neither writes nor
  judges their files (``left_out``). Whatever else the queue does with a job that the compactor was
  given, its newest segment has first: a newer state, or that the job starts.
- *A job file has one writer at a time.* The queue withdraws a job before it touches its file
  (`withdraw`); from then on the compactor leaves that file alone. A file whose state only the
  sealed segments have must not be written twice: the second version may lie in a file that the
  flush did not see. So the queue leaves what the compactor has written, and if the queue must write
  such a file itself, it gives up the compaction. The next one begins anew.
- *What was written counts when the queue has taken notice of it* (`written`), and until then as
  missing.
- *One compaction at a time.* The kernel reports a refused page once: of two flushes the wrong one
  might hear of it. A queue that replaces another one in the same process gives up the compaction of
  its predecessor before it reads the directory (`give_up_predecessor`). The thread ends with the
  process: it leaves a temporary file at most, which the next start deletes.
- *Once all files are written, giving up changes nothing.* What follows is true of these files and
  segments whatever the queue does: flush, read back, delete.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .. import errors
from ..log import records, segments
from . import read_back, replay

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..log.cut import Cut
    from .job_files import QueueDirectory

_RECORDS_AT_ONCE = 50


class Compaction:
    """One run of the compactor. One thread takes `steps`, the queue's calls the rest."""

    def __init__(
        self,
        directory: QueueDirectory,
        wanted: Mapping[int, int],
        left_out: Container[int],
        purged: Container[int] = (),
    ) -> None:
        """``wanted``: the jobs whose files to write, with the serials of their states.

        ``left_out``: the jobs for which the newest segment, or a process, answers; ``purged``:
        those that are gone for good, also since it began.
        """
        _under_way[directory.path] = self
        self._directory = directory
        self._wanted = wanted
        self._left = dict(wanted)
        self._left_out = left_out
        self._purged = purged
        self._said = replay.JournalContent({}, {}, 0)
        self._current = -1
        # Held while a file is written, and while the last one is known to be.
        self._at_work = threading.Lock()
        self._is_given_up = False
        self.are_files_written = False
        """Whether the files are all written: the flush has begun, or is next."""
        self.is_done = False
        """Whether the segments are gone."""
        self.error: errors.StorageError | None = None
        """Why the compactor has stopped before that, unless the queue has given it up."""
        self.written: dict[int, int] = {}
        """The jobs whose files it has written, with the serials of the states in them."""

    def check(self, _: Sequence[Path]) -> None:
        """Raise `StorageError` unless the disk has, in files, what the sealed segments have."""
        read_back.check_content(self._directory, self._said, self._left_out, self._purged)

    def steps(self, cut: Cut) -> Iterator[None]:
        """Do everything; between two steps the thread may rest. ``cut`` has the segments."""
        try:
            yield from self._read(cut.old)
            for job_id in list(self._left):
                if self._is_given_up:
                    return
                self._write(job_id)
                yield
            with self._at_work:
                self.are_files_written = not self._is_given_up
            if self.are_files_written:
                yield from cut.steps()
                self.is_done = True
        except errors.StorageError as error:
            self.error = error
        except errors.GangerError as error:
            # Of a segment that cannot be read, say: a start will name it.
            self.error = errors.StorageError(error.text)
        finally:
            cut.give_up()
            if _under_way.get(self._directory.path) is self:
                del _under_way[self._directory.path]

    def withdraw(self, job_id: int, serial: int) -> bool:
        """Leave the job's file to the queue from now on; whether it has the state ``serial`` now.

        If it has not, and only the sealed segments have that state, this gives up the compaction.
        """
        wanted = self._left.pop(job_id, None)
        if wanted is None and self._current == job_id:
            self._await_current()
        elif wanted is not None and wanted >= serial:
            self.give_up()
        return self.written.get(job_id) == serial

    def left_over(self) -> Iterator[int]:
        """The jobs that it was given, and whose states the sealed segments did not have."""
        return (one for one, serial in self._wanted.items() if not self._has_said(one, serial))

    def _has_said(self, job_id: int, serial: int) -> bool:
        state = self._said.states.get(job_id)
        return state is not None and state[0] == serial

    def give_up(self) -> None:
        """Write no more files; the one that is being written is complete when this returns."""
        self.stop()
        self._await_current()

    def stop(self) -> None:
        """As `give_up`, without waiting."""
        self._is_given_up = True
        self._left.clear()

    def _read(self, old: Sequence[Path]) -> Iterator[None]:
        for path in old:
            for number, record in enumerate(segments.records_of(path, records.RECORDS), 1):
                self._said.note(record)
                if self._is_given_up:
                    return
                if number % _RECORDS_AT_ONCE == 0:
                    yield

    def _write(self, job_id: int) -> None:
        with self._at_work:
            # In this order: `withdraw` takes the job out, or sees that its file is written now.
            self._current = job_id
            wanted = self._left.pop(job_id, None)
            state = self._said.states.get(job_id)
            if wanted is None or state is None or state[0] != wanted:
                return
            if self._directory.write_in_thread(job_id, state[1]):
                self.written[job_id] = wanted

    def _await_current(self) -> None:
        with self._at_work:
            pass


_under_way: dict[str, Compaction] = {}
"""The compaction of each queue directory that this process has."""


def give_up_predecessor(directory: QueueDirectory) -> None:
    """Have the compaction of a queue that was replaced write no more files of this directory."""
    if (compaction := _under_way.pop(directory.path, None)) is not None:
        compaction.give_up()
