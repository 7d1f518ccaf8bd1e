"""Whether a client's connection stands, whether a daemon can be reached, and what its user hears.

No I/O, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..zmq.connection_event import ConnectionEvent

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


GRACE_SECONDS = 2.0
"""How long a first connection may find no listener before the daemon counts as not running."""

HANDSHAKES_FAILED_MAX = 3
"""Handshakes that may fail before a first connection is given up."""


class Reachability:
    """What the events of one connection after the other say. Times are monotonic seconds.

    ``unreachable`` is the text of the error when no daemon answers.
    """

    def __init__(self, unreachable: str, on_outage: Callable[[str], None] | None) -> None:
        self.unreachable = unreachable
        self.outage = Outage(on_outage)
        self.is_connected = False
        self._was_connected = False
        self._is_reached = False
        self._opened_at = 0.0
        self._handshakes_failed = 0

    def opened(self, now: float) -> None:
        """The client tries a new connection, maybe to another daemon."""
        self._opened_at = now
        self._handshakes_failed = 0
        self._is_reached = self.is_connected = False
        self.outage.put_off(now)

    def changed(self, event: ConnectionEvent, now: float) -> None:
        """Take in an event of the connection."""
        match event:
            case ConnectionEvent.REACHED:
                self._is_reached = True
            case ConnectionEvent.MADE:
                self.is_connected = self._was_connected = self._is_reached = True
            case ConnectionEvent.LOST:
                if self.is_connected:
                    self.outage.begin(now)
                self.is_connected = self._is_reached = False
            case ConnectionEvent.REFUSED:
                self.outage.deny()
            case ConnectionEvent.TURNED_AWAY:
                # There is a daemon: wait for it.
                self.outage.deny()
                self._was_connected = True
            case ConnectionEvent.FAILED:
                self._handshakes_failed += 1

    def despair(self, now: float) -> str | None:
        """Why a first connection is to be given up now; None if it is not."""
        if self._was_connected or now < self._opened_at + GRACE_SECONDS:
            return None
        if self._handshakes_failed >= HANDSHAKES_FAILED_MAX:
            return f"{self.unreachable} (connections end at once: is the server key right?)"
        if not self._is_reached and not self._handshakes_failed:
            return self.unreachable
        return None

    def despair_at(self, now: float) -> float:
        """When a first connection may be given up; infinite if time alone changes nothing."""
        patience_ends = self._opened_at + GRACE_SECONDS
        return math.inf if self._was_connected or now >= patience_ends else patience_ends
