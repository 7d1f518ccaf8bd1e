"""What other threads share with an actor: its mailbox and its heartbeat.

Any thread puts items into a mailbox, and the actor's dispatcher takes them out. The dispatcher's
thread writes the heartbeat, and the watchdog reads it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...transport.messages import Message


class InboxItem:
    """What pykka expects in an inbox: a message without a future for the answer."""

    __slots__ = ("message", "reply_to")

    def __init__(self, message: object) -> None:
        self.message = message
        self.reply_to = None


class TurnEnded:
    """Ends a turn."""


class Quiet:
    """No message came for as long as the component's patience."""


class Readable:
    """Watched descriptors are readable."""

    __slots__ = ("descriptors",)

    def __init__(self, descriptors: Iterable[int]) -> None:
        self.descriptors = descriptors


class Answer(NamedTuple):
    """The reply to request ``number`` of this actor."""

    number: int
    message: Message


class Replaced(NamedTuple):
    """This component was replaced."""

    component: str


class Expired(NamedTuple):
    """The reply to request ``number`` has not come in time."""

    number: int


class SliceDue(NamedTuple):
    """It is time for a slice of the work that is under way."""


class WorkedOut(NamedTuple):
    """What a thread has worked out for this component, or the error that came instead."""

    value: Any = None
    error: BaseException | None = None


TURN_ENDED = TurnEnded()
SLICE_DUE = SliceDue()
QUIET = Quiet()


class Mailbox:
    """The messages that wait for one actor. ``schedule`` asks the dispatcher for a turn."""

    __slots__ = ("_items", "_schedule", "is_scheduled")

    def __init__(self, schedule: Callable[[], None]) -> None:
        self._items: deque[Any] = deque()
        self._schedule = schedule
        self.is_scheduled = False
        """The dispatcher will run a turn that has not begun yet."""

    def put(self, item: Any, /) -> None:  # noqa: ANN401 - pykka's own envelope
        """Add an item; any thread may call this."""
        self._items.append(item)
        self.request_turn()

    def request_turn(self) -> None:
        """Ask the dispatcher for a turn, unless one will run that has not begun."""
        # The turn lowers the flag before it takes the first item, so it finds all of them.
        if not self.is_scheduled:
            self.is_scheduled = True
            self._schedule()

    def take(self) -> Any:  # noqa: ANN401 - likewise
        """The oldest item, taken out; None if there is none."""
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def get(self) -> Any:  # noqa: ANN401 - pykka asks for this method; the dispatcher never waits
        """The oldest item. Raises `IndexError` if there is none."""
        return self._items.popleft()

    def empty(self) -> bool:
        """Whether no item waits."""
        return not self._items

    def qsize(self) -> int:
        """How many items wait."""
        return len(self._items)

    def drain(self) -> list[Any]:
        """All items, taken out; any thread may call this."""
        items = []
        while (item := self.take()) is not None:
            items.append(item)
        return items


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
        """A turn that took ``seconds`` has ended at ``now``, on the monotonic clock."""
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
