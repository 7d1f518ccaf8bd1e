"""What the daemon's listening sockets, local and remote, have in common.

A message is one frame each way; a listener drops and counts anything else. It numbers the peers
itself, and ignores a peer that chose its own name: it could be that of a peer that has left, and
get that one's replies.
"""

from __future__ import annotations

import abc
import collections

from ...storage import settings
from .peers import Connections, Incoming, Kind

RECEIVE_BYTES_MAX = settings.FRAMES_BYTES_OPEN_MAX
"""Bytes after which one call of `Router.receive` gives no further message."""

SEND_QUEUE_BYTES_MAX = 4 * settings.FRAME_BYTES_MAX
"""Bytes waiting for one peer, above which it counts as gone."""

SEND_QUEUES_BYTES_MAX = 8 * settings.FRAME_BYTES_MAX
"""Bytes waiting for all peers together, above which slow readers count as gone."""

PREFIXES: dict[bytes, Kind] = {b"L": "local", b"R": "remote"}


def can_wait(size: int, waiting: int, of_all: int) -> bool:
    """Whether so many bytes may be sent to a peer for which others wait, of those for all."""
    if waiting == 0:
        return True
    return waiting + size <= SEND_QUEUE_BYTES_MAX and of_all + size <= SEND_QUEUES_BYTES_MAX


class Listener(abc.ABC):
    """A listening socket, and the connections that it has let in.

    It uses at most ``descriptors_max`` descriptors, and counts in ``dropped`` what it drops.
    """

    kind: Kind

    def __init__(self, dropped: collections.Counter[str], descriptors_max: int) -> None:
        self._descriptors_max = descriptors_max
        self._batch_max = min(settings.ACCEPTED_AT_ONCE, max(2, descriptors_max // 16))
        self.peers_max = min(settings.PEERS_MAX, descriptors_max - 2 * self._batch_max - 2)
        """Connections above which the handshake of a further one is refused."""
        self.is_paused = False
        """Whether the listener accepts no connection now."""
        self.endpoint = ""
        self._dropped = dropped
        self._prefix = next(prefix for prefix, name in PREFIXES.items() if name == self.kind)
        self.connections = Connections()
        self.is_emptied = False
        """Whether nothing is left to `receive` of which no descriptor will report."""

    @abc.abstractmethod
    def filenos(self) -> list[int]:
        """Descriptors to poll for reading."""

    @property
    @abc.abstractmethod
    def has_room(self) -> bool:
        """Whether there are descriptors for further connections."""

    @abc.abstractmethod
    def look(self) -> bool:
        """Whether there is something to `receive`."""

    @abc.abstractmethod
    def follow_connections(self) -> None:
        """Take in which connections came and went; accept those for which there is room now."""

    @abc.abstractmethod
    def receive(self, limit: int) -> list[Incoming]:
        """Up to ``limit`` messages. With 0 the descriptors are quiet about what waits."""

    @abc.abstractmethod
    def send(self, receiver: bytes, data: bytes) -> bool:
        """Send a frame; False if the receiver is gone or too much waits for it."""

    @abc.abstractmethod
    def end(self, descriptor: int) -> bool:
        """End a connection; False if it has ended already."""

    def suspects(self, silent: list[int]) -> list[int]:
        """Those of these connections that may keep much memory."""
        return silent

    @abc.abstractmethod
    def forget(self, receiver: bytes) -> None:
        """A peer has left: nothing waits for it any more."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what the listener has."""
