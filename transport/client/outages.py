"""When a client says that its daemon is gone or silent, and that it is back. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Callable

TOLD_AFTER_SECONDS = 1.0
"""How long an outage goes unreported: a restart of the daemon usually takes less."""

GONE = "the daemon has gone away; jobs that run go on. Waiting for it to come back"
BACK = "the daemon is back"

SILENT = "the daemon does not answer; jobs that run go on. Waiting for an answer"
ANSWERS = "the daemon answers again"


class Outage:
    """A lost connection, and what the user hears of it. Times are monotonic seconds."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self._tell = tell
        self._tell_at = math.inf
        self._is_told = False
        self._is_silent = False

    def begin(self, now: float) -> None:
        """The connection is lost."""
        if self._tell is not None:
            self._tell_at = now + TOLD_AFTER_SECONDS

    def put_off(self, now: float) -> None:
        """The client tries another connection."""
        if self._tell_at < math.inf:
            self._tell_at = now + TOLD_AFTER_SECONDS

    def deny(self) -> None:
        """There is a daemon, though it refuses connections now."""
        self._tell_at = math.inf

    def end(self) -> None:
        """There is a connection again."""
        self._tell_at = math.inf
        if self._is_told and self._tell is not None:
            self._is_told = False
            self._tell(BACK)

    def be_silent(self) -> None:
        """There is a connection, and the daemon has not answered for long: report that once."""
        if not self._is_silent and self._tell is not None:
            self._is_silent = True
            self._tell(SILENT)

    def speak(self) -> None:
        """The daemon has answered."""
        if self._is_silent and self._tell is not None:
            self._is_silent = False
            self._tell(ANSWERS)

    def look(self, now: float) -> float:
        """Report the outage when it is time to; when to look again (infinite: never)."""
        if now >= self._tell_at and self._tell is not None:
            self._tell_at = math.inf
            self._is_told = True
            self._tell(GONE)
        return self._tell_at
