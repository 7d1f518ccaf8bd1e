"""Envelopes, and by what they find their receivers: addresses, and the directory of a process.

An envelope is a message with the address for its reply: a mailbox of this process, the end of a
channel or a peer of a ZeroMQ socket. The directory knows which component is behind which name, in
this process or in another one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from ..storage import errors
from .messages import Failure, Message

if TYPE_CHECKING:
    import typing_extensions

    # Without an argument, an envelope holds any message.
    MessageT_co = typing_extensions.TypeVar("MessageT_co", covariant=True, default=Message)
else:
    MessageT_co = TypeVar("MessageT_co", covariant=True)

MessageT_contra = TypeVar("MessageT_contra", contravariant=True)

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


class Address(Generic[MessageT_contra]):
    """The address of a component by name: it outlives the component's restarts.

    The type parameter is the union of messages that the component accepts.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


class Receiver(Protocol):
    """What stands behind an address: an actor of this process, or a socket to another one."""

    def tell(self, envelope: Envelope) -> bool:
        """Take ``envelope``; False if the component has ended. Never blocks."""

    def depth(self) -> int:
        """How many messages wait there."""


class Directory:
    """The receivers of all components by name. The supervisor writes, everybody reads."""

    def __init__(self) -> None:
        self._receivers: dict[str, Receiver] = {}

    def enter(self, name: str, receiver: Receiver) -> None:
        """``receiver`` is now behind ``name``."""
        self._receivers[name] = receiver

    def remove(self, name: str) -> None:
        """No component is behind ``name`` for now."""
        self._receivers.pop(name, None)

    def tell(self, name: str, envelope: Envelope) -> None:
        """Send ``envelope``; a request to a component that is being restarted is refused."""
        receiver = self._receivers.get(name)
        if receiver is None or not receiver.tell(envelope):
            text = f"component {name} is being restarted"
            envelope.refuse(errors.ComponentRestartedError(text))

    def depth(self, name: str) -> int:
        """How many messages wait for ``name``."""
        receiver = self._receivers.get(name)
        return 0 if receiver is None else receiver.depth()
