"""What becomes of a command's output: lines in the job log, up to limits, and a tail of each.

Imported by the lean fork server, so it imports only what is cheap.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..storage.opcodes import OperationContext

LOG_BYTES_MAX = 1024 * 1024
"""Most output of one opcode that goes into the job log."""

LOG_LINES_MAX = 10_000
"""Most lines of output of one opcode that go into the job log."""

LINE_BYTES_MAX = 8 * 1024
"""Longest log entry; longer lines of output make several."""

TAIL_BYTES_MAX = 4 * 1024
"""How much of the end of each output is kept in the result."""

_READ_BYTES = 64 * 1024


class OutputLog:
    """Puts output into the job log up to the limits, and counts what is beyond them."""

    def __init__(self, context: OperationContext) -> None:
        self._context = context
        self._kept_bytes = self._kept_lines = 0
        self._dropped_bytes = self._dropped_lines = 0
        self.is_truncated = False

    def add(self, pieces: list[bytes], kind: str) -> int:
        """Log the pieces that fit; how many those are. The first that does not closes the log."""
        kept: list[str] = []
        for piece in pieces:
            if (
                self.is_truncated
                or self._kept_lines >= LOG_LINES_MAX
                or self._kept_bytes + len(piece) > LOG_BYTES_MAX
            ):
                self.is_truncated = True
                break
            self._kept_bytes += len(piece)
            self._kept_lines += 1
            kept.append(piece.removesuffix(b"\n").decode(errors="replace"))
        if kept:
            self._context.log_lines(kept, kind=kind)
        return len(kept)

    def drop(self, data: bytes, lines: int) -> None:
        """Count output that is not logged; the first time, say so."""
        if not self._dropped_bytes:
            self._context.log(
                f"Output limit reached: {self._kept_lines} lines ({self._kept_bytes} bytes) "
                "are kept here, what follows is dropped"
            )
        self._dropped_bytes += len(data)
        self._dropped_lines += lines

    def finish(self) -> None:
        """Say how much was dropped, if anything."""
        if self._dropped_bytes:
            self._context.log(
                f"Output dropped: {self._dropped_bytes} bytes in {self._dropped_lines} lines"
            )


class Output:
    """One output of the command: cuts it into lines, keeps its tail."""

    def __init__(self, descriptor: int, kind: str, log: OutputLog) -> None:
        self.descriptor = descriptor
        self._kind = kind
        self._log = log
        self._unfinished = bytearray()
        self._tail = b""
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Take what is there now; False at the end of the output."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        self._tail = (self._tail + data)[-TAIL_BYTES_MAX:]
        if self._log.is_truncated:
            self._drop(data)
        else:
            self._unfinished += data
            self._pass_on(take_pieces(self._unfinished))
        return bool(data)

    def finish(self) -> None:
        """Pass on a last line that has no end."""
        rest = bytes(self._unfinished)
        self._unfinished.clear()
        if rest and not self._log.add([rest], self._kind):
            self._log.drop(rest, 1)
        elif not rest and self._log.is_truncated and self._tail and not self._tail.endswith(b"\n"):
            self._log.drop(b"", 1)

    def tail(self) -> str:
        """The end of the output."""
        return self._tail[_whole_character(self._tail, 0, 1) :].decode(errors="replace")

    def _pass_on(self, pieces: list[bytes]) -> None:
        rest = pieces[self._log.add(pieces, self._kind) :]
        if rest:
            self._drop(b"".join(rest))

    def _drop(self, data: bytes) -> None:
        data = data + bytes(self._unfinished) if self._unfinished else data
        self._unfinished.clear()
        if data:
            self._log.drop(data, data.count(b"\n"))


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
