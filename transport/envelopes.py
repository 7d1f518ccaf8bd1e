"""Envelopes: a message with the address for its reply.

That address may be a mailbox of this process, the end of a channel or a peer of a ZeroMQ socket.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, Protocol

import msgspec

from .messages import Failure, Message

if TYPE_CHECKING:
    # Without an argument, an envelope holds any message.
    from typing_extensions import TypeVar

    from ..storage import errors

    MessageT_co = TypeVar("MessageT_co", covariant=True, default=Message)
else:
    from typing import TypeVar

    MessageT_co = TypeVar("MessageT_co", covariant=True)

_SILENCED: set[int] = set()
"""The threads that hang in a component that was replaced."""


def silence(thread: int) -> None:
    """Drop all later replies of this thread: the requests of its component were refused."""
    _SILENCED.add(thread)


def unsilence(thread: int) -> None:
    """A new thread has this number."""
    _SILENCED.discard(thread)


class ReplyAddress(Protocol):
    """Where an envelope can be sent. Never blocks, never raises for a receiver that is gone."""

    def tell(self, envelope: Envelope) -> None:
        """Send ``envelope``; it may be lost if the receiver is gone."""


class Envelope(msgspec.Struct, Generic[MessageT_co], frozen=True):
    """A message on its way: where the reply goes, under which number, and until when.

    ``deadline`` is monotonic seconds of the receiving process. ``peer`` is a key of the
    sender that stays the same while its connection lasts.
    """

    message: MessageT_co
    reply_to: ReplyAddress | None = None
    number: int = 0
    deadline: float | None = None
    peer: bytes = b""

    def reply(self, message: Message) -> None:
        """Answer the request in this envelope; does nothing for a notice."""
        if self.reply_to is not None and not (_SILENCED and threading.get_ident() in _SILENCED):
            self.reply_to.tell(Envelope(message, number=self.number))

    def refuse(self, error: errors.GangerError) -> None:
        """Answer with an error."""
        self.reply(Failure(error.name, error.text))


class WatchedEnvelope(Envelope[MessageT_co], Generic[MessageT_co], frozen=True, weakref=True):
    """An envelope whose garbage collection a component wants to know (`weakref.finalize`)."""
