"""Reads a job's stored output over a long way: several pages are on their way at once. No I/O.

A page that is known to be full is requested before the one ahead of it has come. So pages begin
anywhere in the file, not only where a block begins: the rest of a page is kept for the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import settings
from ..messages import OutputPage, ReadOutput
from .output_reading import OutputReading

if TYPE_CHECKING:
    from ...storage.jobs.job_views import OutputChunk

PAGES_AHEAD = 3
"""Most pages on their way: enough that both ends always have one to work at."""


class ReadingAhead:
    """Reads all of the output of one job, whose process may still write."""

    def __init__(self, job_id: int) -> None:
        self._reading = OutputReading(job_id)
        self._rest = b""
        """What has come and is no whole block yet."""
        self._received = self._asked = self._size = 0
        self._pages: dict[int, OutputPage] = {}
        """Those that have come before one that lies ahead of them, by place."""
        self._open: set[int] = set()
        self._has_ended = False
        self.has_all = False
        """Everything was read, and nothing more will come."""

    def end(self, *, is_whole: bool = False) -> None:
        """The job has ended. Replies to all requests so far are not wanted any more.

        ``is_whole``: the caller knows that nothing is missing.
        """
        self._has_ended, self.has_all = True, is_whole
        self._open.clear()
        self._pages.clear()
        self._asked = self._received

    def requests(self) -> list[ReadOutput]:
        """The requests to send now."""
        page_bytes, found = settings.OUTPUT_PAGE_BYTES, list[ReadOutput]()
        if self.has_all:
            return found
        while len(self._open) < PAGES_AHEAD and self._asked + page_bytes <= self._size:
            found.append(self._request(0.0))
            self._asked += page_bytes
        if not self._open:
            found.append(
                self._request(0.0 if self._has_ended else settings.OUTPUT_WAIT_SECONDS_MAX)
            )
        return found

    def _request(self, wait_seconds: float) -> ReadOutput:
        self._open.add(self._asked)
        return ReadOutput(
            id=self._reading.job_id, offset=self._asked, wait_seconds=wait_seconds, known=-1
        )

    def take(self, place: int, page: OutputPage) -> list[OutputChunk]:
        """The output that is known now that the page at ``place`` has come."""
        self._open.discard(place)
        self._pages[place] = page
        chunks: list[OutputChunk] = []
        while (next_page := self._pages.pop(self._received, None)) is not None:
            chunks += self._take_next(next_page)
        return chunks

    def _take_next(self, page: OutputPage) -> list[OutputChunk]:
        self._size = max(self._size, page.size)
        self._received += len(page.data)
        self._asked = max(self._asked, self._received)
        data = self._rest + page.data if self._rest else page.data
        chunks = self._reading.take(OutputPage(data=data, size=page.size))
        self._rest = data[len(data) - (self._received - self._reading.place) :]
        is_last = not self._open and not self._pages
        is_whole = not self._rest or not page.data
        self.has_all = self._has_ended and is_last and self._received >= page.size and is_whole
        return chunks
