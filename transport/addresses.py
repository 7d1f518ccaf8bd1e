"""Where messages go: envelopes, addresses, and the directory of the components in a process.

An actor knows only addresses. Whether the one behind an address lives in this process (a
pykka mailbox), at the end of a channel or behind a ZeroMQ socket is the address's matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import pykka

from ..storage import errors
from .messages import Failure, Message

if TYPE_CHECKING:
    from typing import Any


class Address(Protocol):
    """Somebody to whom an envelope can be sent. Never blocks, never raises for a dead one."""

    def tell(self, envelope: Envelope) -> None:
        """Send ``envelope``; it may be lost if the receiver is gone."""


class Envelope(msgspec.Struct, frozen=True):
    """A message on its way: who wants the reply, under which number, and until when.

    ``deadline`` is monotonic seconds of the receiving process. ``peer`` is a key of the
    sender that stays the same while its connection lasts.
    """

    message: Message
    reply_to: Address | None = None
    number: int = 0
    deadline: float | None = None
    peer: bytes = b""

    def reply(self, message: Message) -> None:
        """Answer the request in this envelope; does nothing if nobody asked."""
        if self.reply_to is not None:
            self.reply_to.tell(Envelope(message, number=self.number))

    def refuse(self, error: errors.GangerError) -> None:
        """Answer with an error."""
        self.reply(Failure(error.name, error.text))


class Parcel:
    """What pykka expects from an inbox: a message, and nobody to answer to."""

    __slots__ = ("message", "reply_to")

    def __init__(self, message: object) -> None:
        self.message = message
        self.reply_to = None


class WatchedEnvelope(Envelope, frozen=True, weakref=True):
    """An envelope of which somebody wants to know when it is no more (`weakref.finalize`)."""


class Directory:
    """Who is behind which name in this process. The supervisor writes, everybody reads."""

    def __init__(self) -> None:
        self._references: dict[str, pykka.ActorRef[Any]] = {}
        self._addresses: dict[str, ComponentAddress] = {}

    def enter(self, name: str, reference: pykka.ActorRef[Any]) -> None:
        """``reference`` is now behind ``name``."""
        self._references[name] = reference

    def remove(self, name: str) -> None:
        """Nobody is behind ``name`` for now."""
        self._references.pop(name, None)

    def address(self, name: str) -> ComponentAddress:
        """The address of the component called ``name``, whether it lives now or not."""
        found = self._addresses.get(name)
        if found is None:
            found = self._addresses[name] = ComponentAddress(name, self)
        return found

    def tell(self, name: str, envelope: Envelope) -> bool:
        """Put ``envelope`` into the mailbox of ``name``; False if nobody is there."""
        # As `pykka.ActorRef.tell`, without a call for each step and an error to be caught.
        reference = self._references.get(name)
        if reference is None or reference.actor_stopped.is_set():
            return False
        reference.actor_inbox.put(Parcel(envelope))  # type: ignore[arg-type]
        return True

    def depth(self, name: str) -> int:
        """How many messages wait in the mailbox of ``name``."""
        reference = self._references.get(name)
        return 0 if reference is None else reference.actor_inbox.qsize()  # type: ignore[attr-defined]


class ComponentAddress:
    """The address of a component by name: it outlives the component's restarts."""

    def __init__(self, name: str, directory: Directory) -> None:
        self.name = name
        self._directory = directory

    def tell(self, envelope: Envelope) -> None:
        """Send; a request to a component that is being restarted is answered with an error."""
        if not self._directory.tell(self.name, envelope):
            text = f"component {self.name} is being restarted"
            envelope.refuse(errors.ComponentRestartedError(text))

    def notify(self, message: Message) -> None:
        """Send ``message`` without asking for an answer."""
        self.tell(Envelope(message))
