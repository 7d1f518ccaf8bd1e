"""A socket of a job's process that connects anew by itself, and says each time who is here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .. import frames
from ..messages import AttachJob, Done, ToJob
from .link import Attachment, Received

if TYPE_CHECKING:
    from ..zmq.connection_event import ConnectionEvent
    from ..zmq.dealer import Dealer


class AttachedWire:
    """A connection over ZeroMQ. ``is_up``: the other end knows which job this process runs."""

    def __init__(self, socket: str, attach: AttachJob) -> None:
        from ..zmq.dealer import Dealer  # noqa: PLC0415 - costs more than a short job

        self.reached = 0
        """How often the other end has learned who is here."""
        self._attach = attach
        self._attachment = Attachment()
        self._early: bytes | ConnectionEvent | None = None
        self._dealer: Dealer = Dealer(f"ipc://{socket}")
        self._ask_to_attach()

    @property
    def is_up(self) -> bool:
        """Whether the other end knows this process."""
        return self._attachment.is_up

    def filenos(self) -> list[int]:
        """What to poll while waiting for messages."""
        return self._dealer.filenos()

    def send(self, frame: bytes) -> bool:
        """Send; False if the link is down and the message is lost."""
        return self.is_up and self._dealer.send(frame)

    def receive(self) -> list[Received]:
        """Everything that has come; never blocks."""
        received = []
        while (event := self._early or self._dealer.receive(0)) is not None:
            self._early = None
            if not isinstance(event, bytes):
                self._attachment.note_connection()
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
        """Whether `receive` finds something now.

        The descriptors are edge-triggered: a send may have consumed the event of a message that
        came in meanwhile, and a poll would wait for ever.
        """
        if self._early is None:
            self._early = self._dealer.receive(0)
        return self._early is not None

    def close(self) -> None:
        """Close the socket."""
        self._dealer.close()

    def _ask_to_attach(self) -> None:
        number = self._attachment.ask(time.monotonic())
        self._dealer.send(frames.encode(self._attach, number))


def decoded(frame: bytes) -> Received:
    """What a frame to a job holds."""
    decoded = frames.decode(frame, ToJob)
    return Received(decoded.message, decoded.number)
