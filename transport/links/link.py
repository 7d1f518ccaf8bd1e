"""One end of a link to another process: what is asked, what is open, and what a break leaves. Pure.

The doers beside it have the sockets: `ComponentLink` for components of two processes of one
daemon, ``DaemonLink`` (``actors/job``) for a job's process and the daemon, or its successor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from ...storage import errors
from ..messages import Failure, InterimReply, Message

AskedT = TypeVar("AskedT")

ATTACH_SECONDS = 0.5
"""How long to wait for the answer to an attachment before sending it again.

An answer that takes longer counts too."""

_ATTACH_NUMBERS = 2**31
"""The numbers of attachments count from here, those of requests from 1."""


class Received(msgspec.Struct, frozen=True):
    """A message from the other end, and the number of the request it answers (0: none)."""

    message: Message
    number: int


class Link(Generic[AskedT]):
    """What every link to another process promises, and the state that this takes.

    Order. Messages that one thread sends over one connection arrive in that order. Nothing is
    promised between two connections: before and after a break, or to a component with a connection
    of its own.

    A notice arrives at most once. It is lost if the link is down, or breaks.

    A request has a number, and is open until its last reply. That is one that is no `InterimReply`;
    a link that ``repeats`` also waits on after an error that may pass (`TryAgainError`). A reply
    with the number of no open request is dropped: it is late, or the second one.

    After a break, a link that ``repeats`` sends each open request again under its number (`due`),
    so it arrives at least once. One that does not forgets the requests with the component that had
    them (`drop`), since who asked will ask again, under another number (`Runtime.ask`).

    The other end does not compare numbers: they only lead replies back. It knows a repetition by
    what the message says (the lock file of an owner, the serial of a state, the key of a
    submission), and answers it as it did, or as things are now.
    """

    def __init__(self, *, repeats: bool = True) -> None:
        self.is_up = True
        """The last known state of the connection."""
        self.has_changed = False
        """Whether the other end was reached again: `due` must be sent, and what it has missed."""
        self.open: dict[int, AskedT] = {}
        """What was asked, by number, and has not had its last reply."""
        self._repeats = repeats
        # Any thread may ask.
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """The number of a request whose reply is of no interest."""
        return next(self._numbers)

    def ask(self, asked: AskedT) -> int:
        """Open a request; its number."""
        number = self.next_number()
        self.open[number] = asked
        return number

    def withdraw(self, number: int) -> None:
        """Nobody waits for the reply to this request any more."""
        self.open.pop(number, None)

    def take_reply(self, number: int, message: Message) -> AskedT | None:
        """What was asked under ``number``, and may end with this reply; None: nothing is open."""
        is_last = not isinstance(message, InterimReply)
        if self._repeats and isinstance(message, Failure):
            error = errors.from_wire(message.error, message.text)
            is_last = not isinstance(error, errors.TryAgainError)
        return self.open.pop(number, None) if is_last else self.open.get(number)

    def due(self) -> list[tuple[int, AskedT]]:
        """What to send again after a break, in the order in which it was asked."""
        return sorted(self.open.items(), key=lambda one: one[0])

    def drop(self, is_gone: Callable[[AskedT], bool]) -> None:
        """Forget what nobody will answer."""
        for number, asked in list(self.open.items()):
            if is_gone(asked):
                self.withdraw(number)


class Attachment:
    """Whether the other end of a connection has learned which process is here.

    It has when it has answered an attachment over the present connection. Not only the newest one:
    a daemon that takes longer than `ATTACH_SECONDS` for each would never be reached.
    """

    def __init__(self) -> None:
        self.is_up = False
        self._number = _ATTACH_NUMBERS - 1
        self._first_number = _ATTACH_NUMBERS
        """The number of the first attachment since the last news of the connection."""
        self._asked_at = 0.0

    def ask(self, now: float) -> int:
        """The number of an attachment that is sent now."""
        self._asked_at = now
        self._number += 1
        return self._number

    def is_due(self, now: float) -> bool:
        """Whether to ask again: the other end has gone, or was not ready to answer."""
        return not self.is_up and now >= self._asked_at + ATTACH_SECONDS

    def note_connection(self) -> None:
        """The connection was made or lost: in both cases the other end does not know us yet."""
        self.is_up = False
        self._first_number = self._number + 1

    def is_answer(self, number: int) -> bool:
        """Whether a reply with this number answers an attachment."""
        return number >= _ATTACH_NUMBERS

    def take_answer(self, number: int, *, is_yes: bool) -> bool:
        """Note an answer; True if the other end knows us now, and did not before."""
        is_new = is_yes and number >= self._first_number and not self.is_up
        self.is_up |= is_new
        return is_new
