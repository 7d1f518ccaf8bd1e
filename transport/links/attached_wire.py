"""A socket of a job's process that connects anew by itself, and says each time who is here."""

from __future__ import annotations

import time

from .. import frames
from ..messages import AttachJob, Done, ToJob
from ..zmq.local_wire import LocalWire
from .link import Attachment, Received


class AttachedWire:
    """A connection to a socket file. ``is_up``: the other end knows which job this process runs."""

    def __init__(self, socket: str, attach: AttachJob) -> None:
        self.reached = 0
        """How often the other end has learned who is here."""
        self.has_missed = False
        """Whether the other end has not got all that was sent before it was first reached."""
        self._attach = attach
        self._attachment = Attachment()
        self._wire = LocalWire(socket)
        self._ask_to_attach()

    @property
    def is_up(self) -> bool:
        """Whether the other end knows this process."""
        return self._attachment.is_up

    def descriptors(self) -> dict[int, int]:
        """What to poll, and for what, while waiting for messages."""
        return self._wire.descriptors()

    def send(self, frame: bytes) -> bool:
        """Send; False if the link is down and the message is lost."""
        return self.is_up and self._wire.send(frame)

    def send_ahead(self, frame: bytes) -> bool:
        """As `send`; over the first connection, also right behind the attachment.

        The other end takes both in this order. If it lets nobody in, or goes, the message is lost.
        """
        if self.reached or self.has_missed:
            return self.send(frame)
        self.has_missed = not self._wire.send(frame)
        return not self.has_missed

    def receive(self) -> list[Received]:
        """Everything that has come; never blocks."""
        received = []
        while (event := self._wire.receive()) is not None:
            if not isinstance(event, bytes):
                self._attachment.note_connection()
                self.has_missed = True
                self._ask_to_attach()
                continue
            found = decoded(event)
            if not self._attachment.is_answer(found.number):
                received.append(found)
            elif self._attachment.take_answer(found.number, is_yes=isinstance(found.message, Done)):
                self.reached += 1
        if self._attachment.is_due(time.monotonic()):
            self._ask_to_attach()
        return received

    def has_something(self) -> bool:
        """Whether `receive` finds something of which no descriptor reports."""
        return self._wire.has_news

    def close(self) -> None:
        """Close the socket."""
        self._wire.close()

    def _ask_to_attach(self) -> None:
        number = self._attachment.ask(time.monotonic())
        self._wire.send(frames.encode(self._attach, number))


def decoded(frame: bytes) -> Received:
    """What a frame to a job holds."""
    decoded = frames.decode(frame, ToJob)
    return Received(decoded.message, decoded.number)
