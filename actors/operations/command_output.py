"""Passes on a command's output, and puts its beginning into the job log.

Imported by the lean fork server, so it imports only what is cheap.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...storage.queue_files.output_blocks import ABOUT_OUTPUT

if TYPE_CHECKING:
    from ...storage.opcodes import OperationContext

LOG_BYTES_MAX = 64 * 1024
"""Most output of one opcode that goes into the job log."""

LOG_LINES_MAX = 1_000
"""Most lines of output of one opcode that go into the job log."""

LINE_BYTES_MAX = 8 * 1024
"""Longest log entry; longer lines of output make several."""

TAIL_BYTES_MAX = 4 * 1024
"""How much of the end of each output is kept in the result."""

_READ_BYTES = 64 * 1024


class OutputLog:
    """Puts the beginning of the output into the job log, within the limits."""

    def __init__(self, context: OperationContext) -> None:
        self._context = context
        self._bytes = self._lines = 0
        self.is_full = False

    def add(self, pieces: list[bytes], kind: str) -> None:
        """Log the pieces that fit. The first one that does not closes the log."""
        kept: list[str] = []
        for piece in pieces:
            if self._lines >= LOG_LINES_MAX or self._bytes + len(piece) > LOG_BYTES_MAX:
                self.is_full = True
                break
            self._bytes += len(piece)
            self._lines += 1
            kept.append(piece.removesuffix(b"\n").decode(errors="replace"))
        if kept:
            self._context.log_lines(kept, kind=kind)
        if self.is_full:
            self._context.log(
                f"This log has the first {self._lines} lines ({self._bytes} bytes) of the output; "
                "the job's output has all of it",
                kind=ABOUT_OUTPUT,
            )


class Output:
    """One output of the command: passes it on as it comes, logs its lines, keeps its tail.

    ``descriptor``: where it comes from; -1: `take` gets it.
    """

    def __init__(
        self, descriptor: int, kind: str, log: OutputLog, context: OperationContext
    ) -> None:
        self.descriptor = descriptor
        self._kind = kind
        self._log = log
        self._context = context
        self._unfinished = bytearray()
        self._tail = b""
        self.size = 0
        """Bytes that the command has written."""
        self.is_truncated = False
        """Whether some of them were dropped."""
        if descriptor >= 0:
            os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Read the output so far; False at its end."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.take(data)
        return True

    def take(self, data: bytes) -> None:
        """The command has written this."""
        self.size += len(data)
        if self._context.output(data, self._kind) < len(data):
            self.is_truncated = True
        is_all_of_tail = len(data) >= TAIL_BYTES_MAX
        self._tail = data[-TAIL_BYTES_MAX:] if is_all_of_tail else self._longer_tail(data)
        if not self._log.is_full:
            self._unfinished += data
            self._log.add(take_pieces(self._unfinished), self._kind)

    def finish(self) -> None:
        """Log a last line that has no end."""
        if self._unfinished and not self._log.is_full:
            self._log.add([bytes(self._unfinished)], self._kind)
        self._unfinished.clear()

    def tail(self) -> str:
        """The end of the output."""
        return self._tail[_whole_character(self._tail, 0, 1) :].decode(errors="replace")

    def _longer_tail(self, data: bytes) -> bytes:
        return (self._tail + data)[-TAIL_BYTES_MAX:]


def take_pieces(buffer: bytearray) -> list[bytes]:
    """Take from ``buffer`` all that can be logged: whole lines, and parts of those too long."""
    pieces: list[bytes] = []
    start = 0
    while True:
        end = buffer.find(b"\n", start, start + LINE_BYTES_MAX + 1) + 1
        if not end:
            if len(buffer) - start <= LINE_BYTES_MAX:
                break
            end = _whole_character(buffer, start + LINE_BYTES_MAX, -1)
        pieces.append(bytes(buffer[start:end]))
        start = end
    del buffer[:start]
    return pieces


def _whole_character(data: bytes | bytearray, place: int, step: int) -> int:
    """The place near ``place``, in the direction of ``step``, where no UTF-8 character is cut."""
    for distance in range(4):
        near = place + step * distance
        if near >= len(data) or data[near] & 0xC0 != 0x80:  # noqa: PLR2004 - a continuation byte
            return near
    # This is not UTF-8 at all.
    return place
