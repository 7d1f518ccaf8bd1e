"""Reads a job's stored output page by page: which page to request, and what it holds. No I/O.

A reader keeps its place in the file. So nothing comes twice and nothing is left out, even if the
daemon restarts between two pages. For the last lines it first searches the file from its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.jobs.job_views import OutputChunk
from ...storage.jobs.jobs import check_id
from ...storage.queue_files import output_blocks
from ...storage.queue_files.output_blocks import LOGGED, STORED_BYTES_MAX, Block, Segment
from ..messages import OutputPage, ReadOutput

if TYPE_CHECKING:
    from collections.abc import Callable

_BEHIND_EVERYTHING = 2**62
_GAPS = {
    output_blocks.LIMIT_REACHED: "limit",
    output_blocks.NOT_STORED: "disk",
    output_blocks.REMOVED: "removed",
}


def checked_reading(job_id: object, *, stream: object, op: object, tail: object) -> OutputReading:
    """The reading with these arguments of a user; `BadRequestError` that names a wrong one."""
    checked_id = check_id(job_id)
    if stream is not None and stream not in output_blocks.KINDS:
        raise errors.BadRequestError(f"stream: expected stdout or stderr, got {stream!r}")
    for name, value in (("op", op), ("tail", tail)):
        if value is not None and (type(value) is not int or value < 0):
            raise errors.BadRequestError(f"{name}: expected a whole number from 0, got {value!r}")
    return OutputReading(checked_id, stream=stream, op_index=op, tail=tail)  # type: ignore[arg-type]


class OutputReading:
    """Reads the output of one job; ``stream`` and ``op_index`` choose, ``tail`` is of lines.

    ``has_marks``: also give out the places of entries of the log (`OutputChunk.is_mark`).
    """

    def __init__(
        self,
        job_id: int,
        *,
        stream: str | None = None,
        op_index: int | None = None,
        tail: int | None = None,
        has_marks: bool = False,
    ) -> None:
        self.job_id = job_id
        self.op_index = op_index
        self.tail = tail
        self.has_marks = has_marks
        self.is_at_end = False
        """The last page held nothing new, and the file ended with it."""
        self._stream = stream
        self._place = self._skip = 0
        self._size = self._seen = 0
        """The size of the file, and how much of it was seen: the last part may be half a block."""
        self._first_size: int | None = None
        self._last_op = 0
        self._search = None if tail is None else _TailSearch(tail)

    @property
    def place(self) -> int:
        """How far the file was read, up to the end of a block."""
        return self._place

    @property
    def is_done(self) -> bool:
        """Whether everything was read that the first page counted; more may have come since."""
        return self.is_at_end or (self._first_size is not None and self._place >= self._first_size)

    def request(self, wait_seconds: float = 0.0) -> ReadOutput:
        """The next request; ``wait_seconds``: how long the daemon waits if nothing is new."""
        if self._search is not None:
            start, count = self._search.window()
            return ReadOutput(id=self.job_id, offset=start, bytes_max=count)
        return ReadOutput(
            id=self.job_id, offset=self._place, wait_seconds=wait_seconds, known=self._seen
        )

    def take(self, page: OutputPage) -> list[OutputChunk]:
        """The output in the page that was requested."""
        if self._search is not None:
            self._look_for_tail(self._search, page)
            return []
        if self._first_size is None:
            self._first_size = page.size
        found = output_blocks.find_blocks(page.data, self._place)
        page_end = self._place + len(page.data)
        chunks = self._chunks(found)
        self._place, self._size, self._seen = found.end, page.size, page_end
        if not found.blocks and len(page.data) >= STORED_BYTES_MAX:
            # A block would have fit into the page: there is none.
            chunks.append(self._damage(page_end - STORED_BYTES_MAX + 1))
        self.is_at_end = page_end >= page.size and not chunks and not found.blocks
        return chunks

    def finish(self) -> list[OutputChunk]:
        """Nothing more will come: a crash has cut off a rest that is no block."""
        return [self._damage(self._size)] if self._place < self._size else []

    def _chunks(self, found: output_blocks.ScanResult) -> list[OutputChunk]:
        damaged = dict(found.damaged)
        chunks = []
        for block in found.blocks:
            if self._place in damaged:
                chunks.append(self._damage(damaged[self._place]))
            chunks += self._wanted(block)
            self._place = block.end
        return chunks

    def _wanted(self, block: Block) -> list[OutputChunk]:
        self._last_op = block.op_index
        is_other = self.op_index not in (None, block.op_index)
        chunks = []
        for segment in block.segments():
            if is_other and segment.kind != output_blocks.REMOVED:
                continue
            if segment.kind in _GAPS or (self.has_marks and segment.kind == LOGGED):
                chunks.append(self._chunk(block.op_index, segment))
            elif self._is_wanted(segment):
                data = segment.data[self._skip :]
                self._skip -= len(segment.data) - len(data)
                if data:
                    chunks.append(self._chunk(block.op_index, Segment(segment.kind, data)))
        return chunks

    def _is_wanted(self, segment: Segment) -> bool:
        stream = output_blocks.STREAMS.get(segment.kind)
        return stream is not None and self._stream in (None, stream)

    def _chunk(self, op_index: int, segment: Segment) -> OutputChunk:
        return OutputChunk(
            job_id=self.job_id,
            op_index=op_index,
            stream=output_blocks.STREAMS.get(segment.kind, ""),  # type: ignore[arg-type]
            data=segment.data,
            gap=_GAPS.get(segment.kind, ""),  # type: ignore[arg-type]
            missing=segment.missing,
        )

    def _damage(self, end: int) -> OutputChunk:
        start, self._place = self._place, end
        return OutputChunk(
            job_id=self.job_id,
            op_index=self._last_op,
            stream="",
            data=b"",
            gap="damage",
            missing=end - start,
        )

    def _look_for_tail(self, search: _TailSearch, page: OutputPage) -> None:
        def wanted(block: Block) -> bytes:
            if self.op_index not in (None, block.op_index):
                return b""
            return b"".join(each.data for each in block.segments() if self._is_wanted(each))

        begin = search.take(page, wanted)
        if begin is not None:
            self._place, self._skip = begin
            self._search = None


class _TailSearch:
    """Looks for the place where the last lines begin, window by window, from the end on."""

    def __init__(self, lines: int) -> None:
        self._left = lines
        self._end: int | None = None
        self._is_last = True

    def window(self) -> tuple[int, int]:
        """The part of the file to look at next: where it begins, and its length."""
        if self._end is None:
            return _BEHIND_EVERYTHING, 1
        start = max(0, self._end - settings.OUTPUT_PAGE_BYTES)
        return start, max(1, self._end - start)

    def take(self, page: OutputPage, wanted: Callable[[Block], bytes]) -> tuple[int, int] | None:
        """The block where the last lines begin, and the wanted bytes before them; None: go on."""
        if self._end is None:
            self._end = page.size
            return (self._end, 0) if not (self._end and self._left) else None
        start, count = self.window()
        blocks = output_blocks.find_blocks(page.data[:count], start).blocks
        for block in reversed(blocks):
            skip = self._look(wanted(block))
            if skip is not None:
                return block.start, skip
        if start == 0:
            return 0, 0
        # The next window holds the blocks that lie across the edges of this one.
        before = min(start + STORED_BYTES_MAX, self._end - 1)
        self._end = blocks[0].start if blocks else before
        return None

    def _look(self, data: bytes) -> int | None:
        """Where the first of the last lines begins in ``data``, if it does."""
        end = len(data)
        if data and self._is_last:
            self._is_last = False
            if data.endswith(b"\n"):
                end -= 1
        while (end := data.rfind(b"\n", 0, end)) >= 0:
            self._left -= 1
            if not self._left:
                return end + 1
        return None
