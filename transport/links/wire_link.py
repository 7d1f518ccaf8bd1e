"""The wire of a job's link: a socket that connects anew, says who it is, and tells of breaks.

The other end does not know this process until it has answered `AttachJob`. What it had not answered
before a break must be sent again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from .. import frames
from ..messages import AttachJob, Done, Message, ResendRequested, ToJob

if TYPE_CHECKING:
    from ..zmq.connection_event import ConnectionEvent
    from ..zmq.dealer import Dealer

ATTACH_SECONDS = 0.5
"""How long to wait for the successor's answer to `AttachJob` before sending it again.

An answer that takes longer counts too."""

_ATTACH_NUMBERS = 2**31
"""The numbers of attachments count from here, those of requests from 1."""


class Received(msgspec.Struct, frozen=True):
    """A message from the daemon, and the number of the request it answers (0: none)."""

    message: Message
    number: int


class WireLink:
    """A connection over ZeroMQ. ``is_up``: the other end knows which job this process runs."""

    def __init__(self, socket: str, attach: AttachJob) -> None:
        from ..zmq.dealer import Dealer  # noqa: PLC0415 - costs more than a short job

        self.is_up = False
        self.has_changed = False
        """Set when the other end was reached: what it had not answered must be sent again."""
        self._attach = attach
        self._attach_number = _ATTACH_NUMBERS - 1
        self._first_number = _ATTACH_NUMBERS
        """The number of the first attachment since the last news of the connection."""
        self._asked_at = 0.0
        self._early: bytes | ConnectionEvent | None = None
        self._dealer: Dealer = Dealer(f"ipc://{socket}")
        self._ask_to_attach()

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
                # Connected or disconnected: in both cases the other end does not know us yet.
                self.is_up = False
                self._first_number = self._attach_number + 1
                self._ask_to_attach()
                continue
            found = decoded(event)
            if found.number >= _ATTACH_NUMBERS:
                self._note_answer(found)
                continue
            received.append(found)
        if not self.is_up and time.monotonic() >= self._asked_at + ATTACH_SECONDS:
            # It has gone again, or was not ready to answer.
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

    def _note_answer(self, answer: Received) -> None:
        # Not only the answer to the newest attachment: a daemon that takes longer than
        # `ATTACH_SECONDS` for each would never be reached.
        is_of_connection = answer.number >= self._first_number
        if is_of_connection and isinstance(answer.message, Done) and not self.is_up:
            self.is_up = self.has_changed = True

    def _ask_to_attach(self) -> None:
        self._asked_at = time.monotonic()
        self._attach_number += 1
        self._dealer.send(frames.encode(self._attach, self._attach_number))


class DirectLink:
    """The connection to a process that has some of the daemon's components."""

    def __init__(self, socket: str, attach: AttachJob) -> None:
        self.wire = WireLink(socket, attach)
        self._unsent: list[bytes] | None = []
        """Frames for the first connection; None: it was made."""

    def send(self, frame: bytes) -> bool:
        """Send, as soon as the first connection is made; False if a later one is broken."""
        if self._unsent is None:
            return self.wire.send(frame)
        self._unsent.append(frame)
        return True

    def receive(self) -> list[Received]:
        """Everything that has come, and when the connection was made anew, what that asks for."""
        received = self.wire.receive()
        if self.wire.has_changed:
            self.wire.has_changed = False
            if self._unsent is None:
                received.append(Received(ResendRequested(), 0))
            unsent, self._unsent = self._unsent or [], None
            for frame in unsent:
                self.wire.send(frame)
        return received


def decoded(frame: bytes) -> Received:
    """What a frame to a job holds."""
    decoded = frames.decode(frame, ToJob)
    return Received(decoded.message, decoded.number)
