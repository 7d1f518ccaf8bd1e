"""Follows a job and its output at once: the part of a client that needs no sockets.

The watch of the job tells when it has ended, the pages of its output come when they are asked for,
one at a time. So a reader that is slow, or stopped, holds up nobody, and nothing of the output is
dropped for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...storage import errors, output_blocks, settings
from ...storage.job_views import LogLine, OutputChunk, StatusChange
from ..messages import OutputPage
from .exchanges import Call, Exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from .output_reading import OutputReading
    from .session import Session

_SEEN_THERE = (*output_blocks.KINDS, output_blocks.ABOUT_OUTPUT)
_WAIT_OUT = (errors.DeadlineError, errors.DaemonUnreachableError, errors.TryAgainError)
"""With these a page is asked for anew: whether to give up is decided by the watch."""


class OutputFollowing:
    """One job, followed until it has ended: its status, its log if ``log``, all of its output.

    The log comes without the lines of output in it. The final status comes last.
    ``timeout_seconds`` is how long a page may take.
    """

    def __init__(
        self,
        session: Session,
        reading: OutputReading,
        *,
        log: bool,
        now: float,
        deadline: float | None,
        timeout_seconds: float,
    ) -> None:
        self._session = session
        self._reading = reading
        self._timeout_seconds = timeout_seconds
        self._stream = session.watch(
            [reading.job_id], log=log, is_of_ends=not log, now=now, deadline=deadline
        )
        self._call: Call[OutputPage] | None = None
        self._chunks: deque[OutputChunk] = deque()
        self._last: StatusChange | None = None
        self._changed: Callable[[], None] | None = None
        self.is_over = False

    def call_when_changed(self, changed: Callable[[], None]) -> None:
        """Call this whenever `has_news` may have become true."""
        self._changed = self._stream.changed = changed

    def has_news(self) -> bool:
        """Whether `take` has something to do."""
        if self._chunks or self._call is None or self._call.is_done:
            return True
        return self._last is None and self._stream.has_news()

    def take(self, now: float) -> StatusChange | LogLine | OutputChunk | None:
        """The next part; None if there is none now, or none any more (`is_over`)."""
        while not self.is_over:
            if self._chunks:
                return self._chunks.popleft()
            if self._last is None:
                part = self._next_of_watch(now)
                if part is not None:
                    return part
            if self._call is not None:
                if not self._call.is_done:
                    return None
                self._take_page(self._call)
            elif self._last is not None and self._reading.is_at_end:
                self._finish()
            else:
                self._ask(now)
        last, self._last = self._last, None
        return last

    @property
    def exchanges(self) -> list[Exchange]:
        """What is to be forgotten when nobody follows any more."""
        return [self._stream] if self._call is None else [self._stream, self._call]

    def _next_of_watch(self, now: float) -> StatusChange | LogLine | None:
        part = self._session.next_part(self._stream, now)
        while isinstance(part, LogLine) and part.kind in _SEEN_THERE:
            # The output has this as it came.
            part = self._session.next_part(self._stream, now)
        if isinstance(part, StatusChange) and part.status.is_final:
            self._last = part
            if self._call is not None:
                # It may wait for output that will never come.
                self._session.forget(self._call)
                self._call = None
            self._reading.is_at_end = False
            return None
        if part is None and self._stream.is_done:
            assert self._stream.error is not None
            raise self._stream.error
        return part

    def _ask(self, now: float) -> None:
        wait = 0.0
        if self._last is None:
            wait = min(settings.OUTPUT_WAIT_SECONDS_MAX, self._timeout_seconds / 2)
        self._call = self._session.request(
            self._reading.request(wait), now=now, deadline=now + self._timeout_seconds
        )
        if self._changed is not None:
            self._call.changed = self._changed

    def _take_page(self, call: Call[OutputPage]) -> None:
        self._call = None
        if isinstance(call.error, _WAIT_OUT) and self._last is None:
            return
        self._chunks += self._reading.take(call.result())

    def _finish(self) -> None:
        rest = self._reading.finish()
        self._chunks += rest
        self.is_over = not rest
