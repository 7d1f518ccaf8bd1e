"""How a job process reaches the daemon: the inherited channel, and a ZeroMQ socket after it.

While the daemon that forked the process lives, frames go over the channel. When the channel is
closed, the process goes on alone, and attaches itself to the daemon's successor over ZeroMQ as
soon as there is one. The messages and frames are the same. The process imports the socket
library only then, because that costs more than a short job.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import msgspec

from ...transport import frames
from ...transport.messages import AttachJob, Done, Message, ToJob
from ..processes.channels import Channel, ChannelClosedError

if TYPE_CHECKING:
    from ...transport.zmq.connection_event import ConnectionEvent
    from ...transport.zmq.dealer import Dealer


ATTACH_SECONDS = 0.5
"""How long to wait for the successor's answer to `AttachJob` before sending it again."""


class Received(msgspec.Struct, frozen=True):
    """A message from the daemon, and the number of the request it answers (0: none)."""

    message: Message
    number: int


class Link:
    """The way to the daemon. ``is_up``: the last known state of the connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel: Channel | None = channel
        self._attach: AttachJob | None = None
        self._attach_number = -1
        self._socket = ""
        self._asked_at = 0.0
        self._early: bytes | ConnectionEvent | None = None
        self._dealer: Dealer | None = None
        self.is_up = True
        self.has_changed = False
        """Set when a successor was reached: requests without an answer must be sent again."""

    def use_socket(self, path: str, attach: AttachJob) -> None:
        """Set where the daemon's successor will listen, and the first message to it."""
        self._socket = path
        self._attach = attach
        if self._channel is None:
            # The daemon died right after `JobGo`, its last message.
            self._seek_successor()

    def descriptors(self) -> list[int]:
        """What to poll while waiting for messages."""
        if self._channel is not None:
            return [self._channel.fileno()]
        return [] if self._dealer is None else self._dealer.filenos()

    def send(self, message: Message, number: int) -> bool:
        """Send; False if the link is down and the message is lost."""
        if not self.is_up:
            return False
        frame = frames.encode(message, number)
        if self._channel is None:
            return self._dealer is not None and self._dealer.send(frame)
        try:
            self._channel.send(frame)
        except ChannelClosedError:
            self._lose_channel()
            return False
        return True

    def receive(self) -> list[Received]:
        """Everything that has come; never blocks."""
        received = []
        if self._channel is not None:
            try:
                while (frame := self._channel.receive()) is not None:
                    received.append(_decoded(frame))
            except ChannelClosedError:
                self._lose_channel()
        elif self._dealer is not None:
            received = self._receive_from_wire(self._dealer)
            if not self.is_up and time.monotonic() >= self._asked_at + ATTACH_SECONDS:
                # That successor has gone too, or was not ready to answer.
                self._ask_to_attach(self._dealer)
        return received

    def wait(self, descriptors: dict[int, int], timeout_seconds: float | None) -> list[int]:
        """Wait for a message or for ``descriptors`` (each with its mask): the ready ones."""
        if self._dealer is not None:
            # The socket's descriptor is edge-triggered: a send may have consumed the event of a
            # message that came in meanwhile, and the poll would wait for ever.
            self._early = self._dealer.receive(0)
            if self._early is not None:
                return []
        poll = select.poll()
        own = self.descriptors()
        for descriptor in own:
            poll.register(descriptor, select.POLLIN)
        for descriptor, mask in descriptors.items():
            poll.register(descriptor, mask)
        must_ask_again = not self.is_up and self._dealer is not None
        if must_ask_again and (timeout_seconds is None or timeout_seconds > ATTACH_SECONDS):
            timeout_seconds = ATTACH_SECONDS
        # A poll counts in milliseconds; the caller's loop waits for less than half of one.
        limit = None if timeout_seconds is None else max(0, round(timeout_seconds * 1000))
        return [found for found, _ in poll.poll(limit) if found not in own]

    def close(self) -> None:
        """Close what is open."""
        if self._channel is not None:
            self._channel.close()
        if self._dealer is not None:
            self._dealer.close()

    def _receive_from_wire(self, dealer: Dealer) -> list[Received]:
        received = []
        while (event := self._early or dealer.receive(0)) is not None:
            self._early = None
            if not isinstance(event, bytes):
                # Connected or disconnected: in both cases no daemon knows this process yet.
                self.is_up = False
                self._ask_to_attach(dealer)
                continue
            found = _decoded(event)
            if found.number == self._attach_number:
                if isinstance(found.message, Done):
                    self.is_up = self.has_changed = True
                continue
            received.append(found)
        return received

    def _lose_channel(self) -> None:
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        self.is_up = False
        if self._socket:
            self._seek_successor()

    def _seek_successor(self) -> None:
        from ...transport.zmq.dealer import Dealer  # noqa: PLC0415 - costs more than a short job

        self._dealer = Dealer(f"ipc://{self._socket}")
        self._ask_to_attach(self._dealer)

    def _ask_to_attach(self, dealer: Dealer) -> None:
        # Requests count from 1, so attachments count from 2**31.
        self._asked_at = time.monotonic()
        self._attach_number = 2**31 if self._attach_number < 0 else self._attach_number + 1
        assert self._attach is not None
        dealer.send(frames.encode(self._attach, self._attach_number))


def _decoded(frame: bytes) -> Received:
    decoded = frames.decode(frame, ToJob)
    return Received(decoded.message, decoded.number)
