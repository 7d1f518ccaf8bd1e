"""The mailbox of an actor, and the items in it that are no envelopes.

Any thread puts items in; the actor's dispatcher takes them out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

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
