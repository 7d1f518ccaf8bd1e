"""How a job process reaches the daemon: the inherited channel, and a ZeroMQ socket after it.

While the daemon that forked the process lives, frames go over the channel. When the channel is
closed, the process goes on alone, and attaches itself to the daemon's successor over ZeroMQ as
soon as there is one. The messages and frames are the same. The process imports the socket
library only then, because that costs more than a short job.

Components that live in another process than the daemon's (`JobGo.direct`) are asked there, over a
ZeroMQ socket as well, as long as the daemon that said so lives. Its successor passes on what it
gets for them, wherever they live.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import msgspec

from ...transport import frames
from ...transport.messages import RECEIVERS, AttachJob, Done, Message, ResendRequested, ToJob
from ..processes.channels import Channel, ChannelClosedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...transport.zmq.connection_event import ConnectionEvent
    from ...transport.zmq.dealer import Dealer


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
        from ...transport.zmq.dealer import Dealer  # noqa: PLC0415 - costs more than a short job

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
            found = _decoded(event)
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


class Link:
    """The way to the daemon. ``is_up``: the last known state of the connection."""

    last_number = 0
    """The number of the last request, over all jobs of this process.

    So a late reply for one job answers no request of the next.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel: Channel | None = channel
        self._attach: AttachJob | None = None
        self._socket = ""
        self._successor: WireLink | None = None
        self._direct: Mapping[str, str] = {}
        self._direct_links: dict[str, DirectLink] = {}
        self.is_up = True
        self.has_changed = False
        """Set when a successor was reached: requests without an answer must be sent again."""
        self._put_back: list[Received] = []

    @property
    def is_first(self) -> bool:
        """Whether it is still the channel to the daemon that made this process."""
        return self._channel is not None and self.is_up

    def leave_job(self) -> None:
        """Forget what it knew of the job: without one, the process ends with its channel."""
        self._attach = None
        self._socket = ""
        self._direct = {}
        self._put_back = []
        for direct in self._direct_links.values():
            direct.wire.close()
        self._direct_links.clear()

    def use_socket(self, path: str, attach: AttachJob, direct: Mapping[str, str]) -> None:
        """Set where the daemon's successor will listen, and the first message to it.

        ``direct``: the components of other processes, each with the socket there.
        """
        self._socket = path
        self._attach = attach
        self._direct = direct
        if self._channel is None:
            # The daemon died right after `JobGo`, its last message.
            self._seek_successor()

    def send(self, message: Message, number: int) -> bool:
        """Send; False if the link is down and the message is lost."""
        if not self.is_up:
            return False
        frame = frames.encode(message, number)
        if self._channel is None:
            return self._successor is not None and self._successor.send(frame)
        if self._direct and (socket := self._direct.get(RECEIVERS[type(message)])) is not None:
            return self._direct_link(socket).send(frame)
        try:
            self._channel.send(frame)
        except ChannelClosedError:
            self._lose_channel()
            return False
        return True

    def receive(self) -> list[Received]:
        """Everything that has come; never blocks."""
        received, self._put_back = self._put_back, []
        for direct in self._direct_links.values():
            received += direct.receive()
        if self._channel is not None:
            try:
                while (frame := self._channel.receive()) is not None:
                    received.append(_decoded(frame))
            except ChannelClosedError:
                self._lose_channel()
        elif (successor := self._successor) is not None:
            received += successor.receive()
            self.is_up = successor.is_up
            self.has_changed |= successor.has_changed
            successor.has_changed = False
        return received

    def put_back(self, received: list[Received]) -> None:
        """Let the next `receive` begin with these: the caller had no use for them."""
        self._put_back = received + self._put_back

    def wait(self, descriptors: dict[int, int], timeout_seconds: float | None) -> list[int]:
        """Wait for a message or for ``descriptors`` (each with its mask): the ready ones."""
        if self._put_back:
            return []
        if self._channel is not None and not (descriptors or self._direct_links):
            # As nearly always.
            self._channel.wait(_milliseconds(timeout_seconds))
            return []
        own = [] if self._channel is None else [self._channel.fileno()]
        must_ask_again = False
        for wire in self._wires():
            if wire.has_something():
                return []
            own += wire.filenos()
            must_ask_again |= not wire.is_up
        poll = select.poll()
        for descriptor in own:
            poll.register(descriptor, select.POLLIN)
        for descriptor, mask in descriptors.items():
            poll.register(descriptor, mask)
        if must_ask_again and (timeout_seconds is None or timeout_seconds > ATTACH_SECONDS):
            timeout_seconds = ATTACH_SECONDS
        ready = poll.poll(_milliseconds(timeout_seconds))
        return [found for found, _ in ready if found not in own]

    def close(self) -> None:
        """Close what is open."""
        if self._channel is not None:
            self._channel.close()
        for wire in self._wires():
            wire.close()

    def _wires(self) -> list[WireLink]:
        if self._successor is not None:
            return [self._successor]
        return [direct.wire for direct in self._direct_links.values()]

    def _lose_channel(self) -> None:
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        self.is_up = False
        # The processes of that daemon end with it.
        for direct in self._direct_links.values():
            direct.wire.close()
        self._direct_links.clear()
        if self._socket:
            self._seek_successor()

    def _seek_successor(self) -> None:
        assert self._attach is not None
        self._successor = WireLink(self._socket, self._attach)

    def _direct_link(self, socket: str) -> DirectLink:
        found = self._direct_links.get(socket)
        if found is None:
            assert self._attach is not None
            found = self._direct_links[socket] = DirectLink(socket, self._attach)
        return found


def _milliseconds(seconds: float | None) -> int | None:
    # A poll counts in milliseconds; the caller's loop waits for less than half of one.
    return None if seconds is None else max(0, round(seconds * 1000))


def _decoded(frame: bytes) -> Received:
    decoded = frames.decode(frame, ToJob)
    return Received(decoded.message, decoded.number)
