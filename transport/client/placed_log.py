"""Puts what a job has logged into its output, where it was logged: pure.

The file of the output has marks with serials of the log. The log has the entries. Files of older
versions have no marks: then the entries of an opcode follow its output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.queue_files import output_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...storage.jobs.job_views import JobInfo, LogLine, OutputChunk


class PlacedLog:
    """The entries of a job's log that are no output, until each has had its place.

    ``op_index``: only those of this opcode. ``tail``: only the last lines of the output are read,
    so many; entries before them have no place.
    """

    def __init__(
        self, job: JobInfo, *, op_index: int | None = None, tail: int | None = None
    ) -> None:
        told = (
            line
            for op in job.ops or ()
            for line in op.log
            if line.kind not in output_blocks.IN_OUTPUT and op_index in (None, line.op_index)
        )
        self._left = sorted(told, key=lambda line: line.serial)
        self._tail = tail
        self._has_output = False
        self.last_serial = max((line.serial for op in job.ops or () for line in op.log), default=0)
        """The serial of the newest entry of the log."""

    def parts(self, chunks: Iterable[OutputChunk]) -> Iterator[OutputChunk | LogLine]:
        """The output, and the entries whose place is before it; the marks are left out."""
        for chunk in chunks:
            if chunk.is_mark:
                yield from self._take(chunk.missing)
            else:
                if self._tail is None:
                    # What is left of earlier opcodes cannot come any later.
                    earlier = [line.serial for line in self._left if line.op_index < chunk.op_index]
                    yield from self._take(max(earlier, default=0))
                self._has_output = True
                yield chunk

    def rest(self) -> list[LogLine]:
        """The entries behind all output."""
        if self._tail is not None and not self._has_output:
            return self._left[-self._tail :] if self._tail else []
        if self._tail is not None and self._left:
            return self._run(self._left[-1].serial)
        return self._left

    def _take(self, serial: int) -> list[LogLine]:
        """The entries up to this one, which are given out now."""
        found = [line for line in self._left if line.serial <= serial]
        if self._tail is not None:
            found = self._run(serial) if self._has_output else []
            # From here on all that comes has its place behind what was read.
            self._tail = None if self._has_output else self._tail
        self._left = [line for line in self._left if line.serial > serial]
        return found

    def _run(self, serial: int) -> list[LogLine]:
        """The entries that end with this one, without output in the log between them."""
        found: list[LogLine] = []
        for line in reversed(self._left):
            if line.serial == serial - len(found):
                found.append(line)
        return found[::-1]
