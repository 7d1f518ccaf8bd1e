"""The output of a job in the job's own process: collected for a moment, stored, and announced.

How it works. `JobOutput` writes output that comes after a pause at once. It collects what follows
within `settings.OUTPUT_WRITE_SECONDS`, and writes one block when that time is over or the block is
full. So a reader sees a line when it is printed, and a flood makes few, large blocks. The daemon
gets the new size of the file, at most once in that time too.

A disk that refuses neither ends nor blocks the command: `JobOutput` keeps the collected block and
tries again, counts output that has no room, and stores a mark that says how much is missing.

Imported by the lean fork server, so it imports only what is cheap.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

from ...storage import errors, settings
from ...storage.queue_files import output_blocks
from ...storage.queue_files.output_blocks import (
    ABOUT_OUTPUT,
    BLOCK_BYTES,
    LIMIT_REACHED,
    LOGGED,
    NOT_STORED,
    SEGMENTS_MAX,
    Segment,
)
from ...storage.queue_files.output_files import OutputFile

_MESSAGE = "message"
_MARK_PIECES = 3
"""A mark takes as much of a block as the heads of this many pieces."""

_PIECES_MAX = SEGMENTS_MAX - 5 * _MARK_PIECES
"""Most pieces of a block before four marks of the limit, and one of the log."""


class JobOutput:
    """Output of a job's opcodes, one after the other.

    It calls ``send`` with the size of the file when it has grown, and ``log`` with a sentence for
    the job's log and its kind. ``clock`` never goes back. Without output it touches no file and
    never calls ``send``.
    """

    def __init__(
        self,
        file: OutputFile,
        send: Callable[[int], None],
        log: Callable[[str, str], None],
        clock: Callable[[], float],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``tell`` takes, again and again, why output is dropped; "": it is stored again."""
        self._file = file
        self._send = send
        self._log = log
        self._clock = clock
        self._tell = tell
        self._told_at = -math.inf
        self._is_dropping = False
        self._op_index = 0
        self._limit = self._left = 0
        self._job_limit = settings.OUTPUT_JOB_BYTES_MAX
        self.stored = 0
        """Bytes of output within the limits, of all opcodes and processes of the job together."""
        # A file that cannot be read cannot be written: the first block tells.
        with contextlib.suppress(errors.StorageError):
            self.stored = file.bytes_before()
        self._dropped = 0
        self._reached = ""
        """The limit for which output is dropped."""
        self._collected: list[tuple[int, list[bytes], int]] = []
        """Kind of segment, pieces of output, and (for marks) the number of missing bytes."""
        self._collected_pieces = self._collected_bytes = 0
        self._missing = 0
        """Bytes after the collected ones that had no room while the disk refused."""
        self._is_refused = False
        self._tried_at = self._sent_at = -math.inf
        self._sent_size = 0

    def begin(self, op_index: int, limit: int) -> None:
        """Start the output of this opcode; keep ``limit`` bytes of it."""
        self._op_index = op_index
        self._limit = self._left = limit
        self._dropped = 0
        self._tell_stored()

    def add(self, data: bytes, stream: str) -> int:
        """Add output of ``stdout`` or ``stderr``; return how many bytes are within the limit."""
        kind = output_blocks.KINDS[stream]
        allowed = min(len(data), self._left, max(0, self._job_limit - self.stored))
        if allowed and self._dropped:
            if self._collected_pieces < _PIECES_MAX:
                self._end_drop()
            else:
                # The disk refuses the block, which has no room for more marks.
                allowed = 0
        self._left -= allowed
        self.stored += allowed
        for start in range(0, allowed, BLOCK_BYTES):
            self._collect(kind, data[start : min(start + BLOCK_BYTES, allowed)])
        if allowed < len(data):
            self._drop(len(data) - allowed)
        self.write_if_due()
        return allowed

    def limit_job(self, limit: int) -> None:
        """Keep ``limit`` bytes of all opcodes and processes of the job together, from now on."""
        self._job_limit = limit

    def note_logged(self, serial: int) -> None:
        """The newest entry of the job's log that is no output has this serial."""
        if self._collected and self._collected[-1][0] == LOGGED:
            self._collected[-1] = (LOGGED, [], serial)
        else:
            self._mark(LOGGED, serial)

    def due(self) -> float:
        """When `write_if_due` has something to do, on the clock that never goes back."""
        due = math.inf
        if self._collected:
            due = self._write_at
        if self._sent_size < self._file.end:
            due = min(due, self._sent_at + settings.OUTPUT_WRITE_SECONDS)
        return due

    def write_if_due(self) -> None:
        """Write the collected block, and send the file's size, if it is time."""
        now = self._clock()
        if self._collected and now >= self._write_at:
            self._write(now)
        is_time_to_send = now >= self._sent_at + settings.OUTPUT_WRITE_SECONDS
        if self._sent_size < self._file.end and is_time_to_send:
            self._sent_at = now
            self.send_size()

    def send_size(self) -> None:
        """Send the size of the file, if there is one."""
        if self._file.end:
            self._sent_size = self._file.end
            self._send(self._sent_size)

    def end(self) -> None:
        """End the opcode's output: write the rest, and make all of it durable."""
        if self._dropped:
            self._end_drop()
        for _ in range(2):
            # A mark may follow, for bytes missing after the first block.
            if self._collected:
                self._write(self._clock())
        if self._is_refused:
            marked = (count for kind, _, count in self._collected if kind == NOT_STORED)
            self._missing += self._collected_bytes + sum(marked)
            self._forget()
            self._log(f"{self._missing} bytes of output could not be stored", _MESSAGE)
            with contextlib.suppress(errors.StorageError):
                # A reader of the output sees that something is missing, if the disk takes so much.
                self._file.append_mark(self._op_index, self._missing)
                self._missing = 0
        try:
            self._file.flush()
        except errors.StorageError as error:
            self._log(f"Output may not survive a loss of power: {error.text}", _MESSAGE)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def _write_at(self) -> float:
        is_refused = self._is_refused
        pause = settings.DISK_RETRY_SECONDS if is_refused else settings.OUTPUT_WRITE_SECONDS
        return self._tried_at + pause

    def _collect(self, kind: int, data: bytes) -> None:
        if self._missing and not self._collected:
            self._note_missing()
        is_full = self._collected_bytes + len(data) > BLOCK_BYTES
        if is_full or self._missing or self._collected_pieces >= _PIECES_MAX:
            now = self._clock()
            if not self._is_refused or now >= self._write_at:
                self._write(now)
            if self._is_refused:
                self._missing += len(data)
                return
        if self._collected and self._collected[-1][0] == kind:
            self._collected[-1][1].append(data)
        else:
            self._collected.append((kind, [data], 0))
        self._collected_pieces += 1
        self._collected_bytes += len(data)

    def _drop(self, count: int) -> None:
        if not self._dropped:
            self._reached = (
                f"{self._limit} bytes"
                if not self._left
                else f"{self._job_limit} bytes of the whole job"
            )
            self._mark(LIMIT_REACHED, 0)
            text = f"Output limit of {self._reached} reached: what follows is dropped"
            self._log(text, ABOUT_OUTPUT)
        self._dropped += count
        self._tell_dropped(f"its output is dropped: it has reached the limit of {self._reached}")

    def _end_drop(self) -> None:
        """The opcode ends, or a higher limit of the job is in force."""
        self._mark(LIMIT_REACHED, self._dropped)
        text = f"Output limit of {self._reached}: {self._dropped} bytes were dropped"
        self._log(text, ABOUT_OUTPUT)
        self._dropped = 0
        self._tell_stored()

    def _tell_dropped(self, text: str) -> None:
        now = self._clock()
        if not self._is_dropping or now >= self._told_at + settings.OUTPUT_DROPPED_SECONDS:
            self._is_dropping, self._told_at = True, now
            self._tell(text)

    def _tell_stored(self) -> None:
        if self._is_dropping:
            self._is_dropping = False
            self._tell("")

    def _mark(self, kind: int, missing: int) -> None:
        self._collected.append((kind, [], missing))
        self._collected_pieces += _MARK_PIECES

    def _note_missing(self) -> None:
        self._mark(NOT_STORED, self._missing)
        self._missing = 0

    def _write(self, now: float) -> None:
        self._tried_at = now
        segments = [
            Segment(kind, b"".join(pieces), missing) for kind, pieces, missing in self._collected
        ]
        try:
            self._file.append(self._op_index, segments)
        except errors.StorageError as error:
            if not self._is_refused:
                self._is_refused = True
                self._log(f"Output cannot be stored, which is tried again: {error.text}", _MESSAGE)
            self._tell_dropped(f"its output is dropped: {error.text}")
            return
        if self._is_refused:
            self._tell_stored()
        self._is_refused = False
        self._forget()
        if self._missing:
            self._note_missing()

    def _forget(self) -> None:
        self._collected.clear()
        self._collected_pieces = self._collected_bytes = 0
