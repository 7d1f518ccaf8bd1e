"""What the watchdog sees of an actor, and how long its turns take, for the daemon's status."""

from __future__ import annotations

from ...storage import settings


class TurnTimes:
    """The longest turn in a window of time, and in the window before it.

    The thread of the actor writes; any other one may read, and finds one of the two windows that
    meet while it reads.
    """

    __slots__ = ("_before", "_ends", "_longest")

    def __init__(self) -> None:
        self._longest = self._before = 0.0
        self._ends = 0.0

    def note(self, seconds: float, now: float) -> None:
        """A turn that took so many ``seconds`` has ended at ``now``, on the monotonic clock."""
        if now >= self._ends:
            is_next = now < self._ends + settings.TURN_WINDOW_SECONDS
            self._before = self._longest if is_next else 0.0
            self._longest = 0.0
            self._ends = now + settings.TURN_WINDOW_SECONDS
        self._longest = max(self._longest, seconds)

    def longest(self, now: float) -> float:
        """Seconds of the longest turn of this window and the one before it."""
        late = now - self._ends
        if late < 0:
            return max(self._longest, self._before)
        return self._longest if late < settings.TURN_WINDOW_SECONDS else 0.0


class Heartbeat:
    """What the watchdog sees of an actor.

    The dispatcher's thread writes it, but for ``is_abandoned``, which never goes back.
    """

    __slots__ = ("handled", "handling", "is_abandoned", "thread", "turns")

    def __init__(self) -> None:
        self.turns = TurnTimes()
        self.handled = 0
        """How many messages it has done with."""
        self.handling: object = None
        """The message it works on; None: it waits for one."""
        self.thread = 0
        self.is_abandoned = False
        """It hung, and another actor has taken its place."""
