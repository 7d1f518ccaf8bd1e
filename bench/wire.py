"""A connection to the daemon, without the client's session: for figures of the daemon itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganger.storage.disk import paths
from ganger.transport import frames
from ganger.transport.messages import ClientReply, LocksGranted, LocksPending, Message
from ganger.transport.zmq.dealer import Dealer

if TYPE_CHECKING:
    from pathlib import Path

_REPLIES = ClientReply | LocksGranted | LocksPending


class Wire:
    """Requests and replies over a connection of its own.

    ``of_locks``: to the process that has the lock manager, if that is another one.
    """

    def __init__(self, data: Path, *, of_locks: bool = False) -> None:
        places = paths.places(data)
        is_apart = of_locks and places.authority_socket.exists()
        self._dealer = Dealer(f"ipc://{places.authority_socket if is_apart else places.socket}")
        self._number = 0

    def close(self) -> None:
        """End the connection."""
        self._dealer.close()

    def say(self, message: Message) -> int:
        """Send a request; returns its number."""
        self._number += 1
        data = frames.encode(message, self._number)
        while not self._dealer.send(data):
            self._dealer.receive(0.1)
        return self._number

    def hear(self) -> tuple[int, Message]:
        """The next reply and the number of its request."""
        while True:
            item = self._dealer.receive(60.0)
            if isinstance(item, bytes):
                frame = frames.decode(item, _REPLIES)
                return frame.number, frame.message
            assert item is not None, "no reply within a minute"

    def call(self, message: Message) -> Message:
        """Send a request, and wait for its reply."""
        number = self.say(message)
        while (reply := self.hear())[0] != number:
            pass
        return reply[1]
