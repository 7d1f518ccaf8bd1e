"""The output reader: sends pages of the files with jobs' output.

It has a thread of its own, because reading large files must not delay the queue. It keeps only
the requests that wait for more output. A job's process reports when its file has grown. Clients
interpret the pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from ...storage import errors, settings
from ...storage.disk import free_memory
from ...storage.queue_files import output_blocks, output_files
from ...transport import messages
from ..runtime.component import Component
from .disk_watch import DiskWatch
from .page_waits import PageWait, PageWaits

if TYPE_CHECKING:
    from ...transport.envelopes import Envelope

_LARGE_PAGE_BYTES = 256 * 1024
_REST_SECONDS = 2.0
"""When no large page was read for this time, the memory of the last ones goes back."""


class OutputReader(Component[messages.ReaderMessage]):
    """Reads, and never writes, the output of jobs; watches how much of the disk that takes."""

    name = "output_reader"

    def boot(self) -> None:
        """Start without waiting requests: clients repeat those to a predecessor."""
        self._waiting: PageWaits[Envelope] = PageWaits()
        self._free_at: float | None = None
        self._disk = DiskWatch(self.runtime)
        self._disk.begin()

    def receive(self, envelope: Envelope[messages.ReaderMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.ReadOutput():
                self._read(envelope, message)
            case messages.OutputGrew():
                self._disk.note_growth(message.job_id, message.size)
                for held in self._waiting.take_behind(message.job_id, message.size):
                    self._answer(held.request)
            case messages.ReadDiskUse():
                self._disk.answer(envelope)
            case messages.DiskLimitsChanged():
                self._disk.change_limits(message.limits)
            case messages.DiskWatchDue():
                self._disk.look()
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """Answer requests that have waited long enough, and wake up for the next one."""
        for held in self._waiting.take_due(self.runtime.clock()):
            self._answer(held.request)
        if self._free_at is not None and self.runtime.clock() >= self._free_at:
            self._free_at = None
            free_memory.give_back()
        due = min(
            (one for one in (self._waiting.next_due(), self._free_at) if one is not None),
            default=None,
        )
        # A little late: an early turn would find no request due.
        patience = None if due is None else max(0.0, due - self.runtime.clock()) + 0.001
        self.runtime.patience_seconds = patience

    def quiet(self) -> None:
        """Time has passed: `turn_ended` does what is due."""

    def _read(self, envelope: Envelope, message: messages.ReadOutput) -> None:
        earlier = self._waiting.take(envelope.peer, message.id)
        if earlier is not None:
            # Its sender waits for the new request only.
            self._answer(earlier.request)
        page = self._page(message)
        wait = min(message.wait_seconds, settings.OUTPUT_WAIT_SECONDS_MAX)
        has_news = page.data and message.offset + len(page.data) != message.known
        if has_news or not wait:
            envelope.reply(page)
        elif len(self._waiting) >= settings.OUTPUT_WAITS_MAX:
            raise errors.BusyError("too many followers wait for output; try again")
        else:
            until = self.runtime.clock() + wait
            self._waiting.add(envelope.peer, PageWait(envelope, message.id, page.size, until))

    def _answer(self, envelope: Envelope) -> None:
        message = envelope.message
        assert isinstance(message, messages.ReadOutput)
        try:
            envelope.reply(self._page(message))
        except errors.GangerError as error:
            envelope.refuse(error)

    def _page(self, message: messages.ReadOutput) -> messages.OutputPage:
        # A page smaller than a block would never let the reader go on.
        least = output_blocks.STORED_BYTES_MAX
        wanted = message.bytes_max or settings.OUTPUT_PAGE_BYTES
        count = min(max(wanted, least), settings.OUTPUT_PAGE_BYTES)
        data, size = output_files.read_page(self.places, message.id, message.offset, count)
        if len(data) >= _LARGE_PAGE_BYTES:
            self._free_at = self.runtime.clock() + _REST_SECONDS
        return messages.OutputPage(data=data, size=size)
