"""How a job process reaches the daemon: the inherited channel, and the local socket after it.

While the daemon that forked the process lives, frames go over the channel. When the channel is
closed, the process goes on alone, and attaches itself to the daemon's successor at its local
socket as soon as there is one. The messages and frames are the same.

Components that live in another process than the daemon's (`JobGo.direct`) are asked there, over
their local socket, as long as the daemon that said so lives. Its successor passes on what it gets
for them, wherever they live.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

from ...transport import frames
from ...transport.links.attached_wire import AttachedWire, decoded
from ...transport.links.link import ATTACH_SECONDS, Link, Received
from ...transport.messages import RECEIVERS, AttachJob, Message, Request, ResendRequested
from ..processes.channels import Channel, ChannelClosedError

if TYPE_CHECKING:
    from collections.abc import Mapping


class DaemonLink(Link[Request[Any]]):
    """The link to the daemon, over all jobs of this process.

    So a late reply for one job answers no request of the next.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel: Channel | None = channel
        self._attach: AttachJob | None = None
        self._socket = ""
        self._successor: AttachedWire | None = None
        self._direct: Mapping[str, str] = {}
        self._direct_wires: dict[str, AttachedWire] = {}
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
        self.open.clear()
        self._close_direct()

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
            return self._direct_wire(socket).send_ahead(frame)
        try:
            self._channel.send(frame)
        except ChannelClosedError:
            self._lose_channel()
            return False
        return True

    def receive(self) -> list[Received]:
        """Everything that has come; never blocks."""
        received, self._put_back = self._put_back, []
        for socket, direct in self._direct_wires.items():
            reached = direct.reached
            received += direct.receive()
            if direct.reached > reached:
                received += self._resend_directly(socket, direct)
        if self._channel is not None:
            try:
                while (frame := self._channel.receive()) is not None:
                    received.append(decoded(frame))
            except ChannelClosedError:
                self._lose_channel()
        elif (successor := self._successor) is not None:
            reached = successor.reached
            received += successor.receive()
            self.is_up = successor.is_up
            self.has_changed |= successor.reached > reached
        return received

    def _resend_directly(self, socket: str, wire: AttachedWire) -> list[Received]:
        """The process at ``socket`` knows us: send what it has missed, or have all sent again."""
        if wire.reached > 1:
            return [Received(ResendRequested(), 0)]
        if not wire.has_missed:
            return []
        for number, request in self.due():
            if self._direct.get(RECEIVERS[type(request)]) == socket:
                wire.send(frames.encode(request, number))
        return []

    def put_back(self, received: list[Received]) -> None:
        """Let the next `receive` begin with these: the caller had no use for them."""
        self._put_back = received + self._put_back

    def wait(self, descriptors: dict[int, int], timeout_seconds: float | None) -> list[int]:
        """Wait for a message or for ``descriptors`` (each with its mask): the ready ones."""
        if self._put_back:
            return []
        if self._channel is not None and not (descriptors or self._direct_wires):
            # As nearly always.
            self._channel.wait(_milliseconds(timeout_seconds))
            return []
        own = {} if self._channel is None else {self._channel.fileno(): select.POLLIN}
        must_ask_again = False
        for wire in self._wires():
            if wire.has_something():
                return []
            own |= wire.descriptors()
            must_ask_again |= not wire.is_up
        poll = select.poll()
        for descriptor, mask in (own | descriptors).items():
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

    def _wires(self) -> list[AttachedWire]:
        return [*self._direct_wires.values()] if self._successor is None else [self._successor]

    def _lose_channel(self) -> None:
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        self.is_up = False
        # The processes of that daemon end with it.
        self._close_direct()
        if self._socket:
            self._seek_successor()

    def _seek_successor(self) -> None:
        assert self._attach is not None
        self._successor = AttachedWire(self._socket, self._attach)

    def _direct_wire(self, socket: str) -> AttachedWire:
        found = self._direct_wires.get(socket)
        if found is None:
            assert self._attach is not None
            found = self._direct_wires[socket] = AttachedWire(socket, self._attach)
        return found

    def _close_direct(self) -> None:
        for direct in self._direct_wires.values():
            direct.close()
        self._direct_wires.clear()


def _milliseconds(seconds: float | None) -> int | None:
    # A poll counts in milliseconds; the caller's loop waits for less than half of one.
    return None if seconds is None else max(0, round(seconds * 1000))
