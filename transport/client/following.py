"""What a client follows until it ends: watched jobs, or one job with its output. No sockets.

The watch of a job says when the job has ended. The pages of its output come one at a time, each
when the client requests it: a slow reader delays neither job nor daemon, and loses no output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...storage import errors, settings
from ...storage.jobs.job_views import LogLine, OutputChunk, StatusChange
from ...storage.queue_files import output_blocks
from ..messages import OutputPage
from .in_flight import PendingCall, PendingRequest
from .watch_progress import Part

if TYPE_CHECKING:
    from .output_reading import OutputReading
    from .session import Session

PartT_co = TypeVar("PartT_co", covariant=True)

_WAIT_OUT = (errors.DeadlineError, errors.DaemonUnreachableError, errors.TryAgainError)
"""After these errors the page is requested again: only the watch decides when to give up."""


class Following(Protocol[PartT_co]):
    """What a client follows. Times are monotonic seconds."""

    is_over: bool

    def call_when_changed(self, changed: Callable[[], None]) -> None:
        """Call this whenever `has_news` may have become true."""

    def has_news(self) -> bool:
        """Whether `take` has something to do."""

    def take(self, now: float) -> PartT_co | None:
        """The next part; None if there is none now, or none any more (`is_over`)."""

    @property
    def pending(self) -> list[PendingRequest]:
        """The requests under way, for the session to forget at the end."""


class WatchFollowing:
    """Jobs, followed until all have ended: their statuses, and their logs if ``log``.

    ``ids`` None stands for all jobs, for ever; ``is_final_only`` gives only final statuses.
    ``is_gathered``: the daemon sends changes together.
    """

    def __init__(
        self,
        session: Session,
        *,
        ids: Sequence[int] | None,
        log: bool,
        is_final_only: bool,
        is_gathered: bool,
        now: float,
        deadline: float | None,
    ) -> None:
        self._session = session
        self._watch = session.watch(
            ids,
            log=log,
            now=now,
            deadline=deadline,
            is_final_only=is_final_only,
            is_gathered=is_gathered,
        )
        self.is_over = False

    def call_when_changed(self, changed: Callable[[], None]) -> None:
        self._watch.changed = changed

    def has_news(self) -> bool:
        return self._watch.has_news()

    def take(self, now: float) -> Part | None:
        part = self._session.next_part(self._watch, now)
        if part is None and self._watch.is_done:
            if self._watch.error is not None:
                raise self._watch.error
            self.is_over = True
        return part

    @property
    def pending(self) -> list[PendingRequest]:
        return [self._watch]


class OutputFollowing:
    """One job, followed until it has ended: its status, its log if ``log``, all of its output.

    The log comes without the lines of output in it. The final status comes last.
    ``timeout_seconds`` is how long a page may take.
    """

    def __init__(
        self,
        session: Session,
        *,
        reading: OutputReading,
        log: bool,
        now: float,
        deadline: float | None,
        timeout_seconds: float,
    ) -> None:
        self._session = session
        self._reading = reading
        self._timeout_seconds = timeout_seconds
        self._watch = session.watch(
            [reading.job_id], log=log, is_final_only=not log, now=now, deadline=deadline
        )
        self._call: PendingCall[OutputPage] | None = None
        self._chunks: deque[OutputChunk] = deque()
        self._last: StatusChange | None = None
        self._changed: Callable[[], None] | None = None
        self.is_over = False

    def call_when_changed(self, changed: Callable[[], None]) -> None:
        self._changed = self._watch.changed = changed

    def has_news(self) -> bool:
        if self._chunks or self._call is None or self._call.is_done:
            return True
        return self._last is None and self._watch.has_news()

    def take(self, now: float) -> Part | OutputChunk | None:
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
    def pending(self) -> list[PendingRequest]:
        return [self._watch] if self._call is None else [self._watch, self._call]

    def _next_of_watch(self, now: float) -> Part | None:
        part = self._session.next_part(self._watch, now)
        while isinstance(part, LogLine) and part.kind in output_blocks.IN_OUTPUT:
            # The chunks of output hold this line already.
            part = self._session.next_part(self._watch, now)
        if isinstance(part, StatusChange) and part.status.is_final:
            self._last = part
            if self._call is not None:
                # It may wait for output that will never come.
                self._session.forget(self._call)
                self._call = None
            self._reading.is_at_end = False
            return None
        if part is None and self._watch.is_done:
            assert self._watch.error is not None
            raise self._watch.error
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

    def _take_page(self, call: PendingCall[OutputPage]) -> None:
        self._call = None
        if isinstance(call.error, _WAIT_OUT) and self._last is None:
            return
        self._chunks += self._reading.take(call.result())

    def _finish(self) -> None:
        rest = self._reading.finish()
        self._chunks += rest
        self.is_over = not rest
