"""What the doors for Ganeti's programs share: a socket for documents, kept open and looked at.

What comes in is up to each door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, assert_never

from ...transport import messages
from ..runtime.component import Component
from .document_sockets import STALLED_SECONDS, DocumentSocket

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ...transport.envelopes import Envelope


class DocumentDoor(Component[messages.InstalledListenerMessage]):
    """Owns a socket for documents, which `boot` makes."""

    protocol: ClassVar[str]
    """What is spoken at the socket."""

    connections_max: ClassVar[int]
    """Most connections of the socket at a time; more wait in the backlog."""

    _socket: DocumentSocket
    _is_look_due = False

    def _connections(self) -> int:
        """How many connections the socket may have: too many would take others' descriptors."""
        budget = self.runtime.host.budget
        return (
            self.connections_max
            if budget is None
            else budget.doors.get(self.name, self.connections_max)
        )

    def _open(self) -> None:
        """Open the socket, again if its file was deleted, and note the file for the watchdog."""
        self._open_socket()
        if self._socket.file is not None:
            self.runtime.host.local_sockets[self.name] = self._socket.file

    def _open_socket(self) -> None:
        """Open the socket; log why it is not open."""
        raise NotImplementedError

    def _note(self, path: Path, problem: str) -> None:
        """Tell the supervisor and the watchdog how the socket is; log a new ``problem``."""
        states = self.runtime.host.listener_states
        before = states.get(self.name)
        if problem and (before is None or before.problem != problem):
            self.log.error("a socket is not open", protocol=self.protocol, error=problem)
        states[self.name] = messages.SocketState(
            protocol=self.protocol, path=str(path), problem=problem
        )

    def close(self) -> None:
        """Close the socket."""
        if hasattr(self, "_socket"):
            self._socket.close()

    def receive(self, envelope: Envelope[messages.InstalledListenerMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.StalledDue():
                self._is_look_due = False
                for number in self._socket.end_stalled():
                    self.log.warning("a connection makes no progress and is ended", number=number)
                self._look_later()
            case messages.LocalSocketMissing():
                self._open()
            case _:
                assert_never(message)

    def readable(self, descriptors: Iterable[int]) -> None:
        """A socket has news."""
        self._socket.readable(descriptors)
        self._look_later()

    def _look_later(self) -> None:
        if self._socket.needs_looks and not self._is_look_due:
            self._is_look_due = True
            self.runtime.later(STALLED_SECONDS / 2, messages.StalledDue())
