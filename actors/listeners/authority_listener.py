"""The listener of the process that has some of the daemon's components for itself.

Over its local socket the daemon's own process sends what its components tell these, and hears what
they tell in turn (`ComponentLink`). Processes of jobs, and programs that own locks, send their
requests here directly. The kernel says who is at the other end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...storage import errors
from ...transport import messages
from ...transport.envelopes import Envelope
from ...transport.links.component_link import ComponentLink
from ...transport.messages import JOB_MESSAGES, RECEIVERS
from ...transport.zmq.router import Router
from ..runtime.actor import start
from ..runtime.addresses import NODE_HUB, SUPERVISOR
from .wire_listener import WireAddress, WireListener

if TYPE_CHECKING:
    from pathlib import Path

    from ...transport import frames
    from ...transport.zmq.peers import Incoming
    from ..runtime.component import Component, Runtime


class AuthorityListener(WireListener):
    """Owns the sockets of this process, and starts its other components.

    ``socket``: where it listens. ``components``: each class with its dispatcher. ``opened`` is
    called when the socket is there, ``failed`` with a reason when this process must end.
    """

    name = "authority_listener"

    def __init__(
        self,
        runtime: Runtime,
        socket: Path,
        components: Mapping[str, tuple[type[Component], str]],
        opened: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        super().__init__(runtime)
        self._socket = socket
        self._components = components
        self._opened = opened
        self._failed = failed
        self._daemon_pid = os.getppid()
        self._daemon: bytes | None = None
        own = (self.name, self.receive)
        self.link = ComponentLink(runtime.host.directory, self._send_to_daemon, runtime.clock, own)
        self.is_stopping = False

    def boot(self) -> None:
        """Open the socket."""
        super().boot()
        self._opened()

    def close(self) -> None:
        """Close the socket; without it, this process serves nothing."""
        super().close()
        if not self.is_stopping:
            self._failed(str(sys.exc_info()[1]))

    def receive(self, envelope: Envelope[messages.AuthorityListenerMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.StartComponent():
                self._start(message)
            case messages.ReadPulse():
                envelope.reply(messages.Done())
            case messages.ComponentReplaced():
                # One of the daemon's.
                self.link.forget(message.component)
                self.runtime.host.repeat_asks(message.component)
            case messages.ReplyDue() | messages.FramesWaiting() | messages.LocalSocketMissing():
                super().receive(Envelope(message))

    def _open_sockets(self) -> Router:
        budget = self.runtime.host.budget
        listener_max = None if budget is None else budget.listener
        return Router(self._socket, descriptors_max=listener_max)

    def _start(self, message: messages.StartComponent) -> None:
        """Start a component; what its predecessor had not answered is refused."""
        name = message.component
        component, dispatcher = self._components[name]
        self._refuse_forgotten(name)
        try:
            start(self.runtime.host, component, dispatcher, message.incarnation)
        except (OSError, RuntimeError) as error:
            # The system has no descriptor or thread for it.
            self.log.error("component cannot be started", name=name, error=str(error))
            failed = messages.ComponentFailed(name, message.incarnation, str(error))
            self.runtime.tell(SUPERVISOR, failed)

    # ------------------------------------------------------------ the daemon

    def _send_to_daemon(self, frame: bytes) -> bool:
        """Send a frame, in any thread; False before the daemon has said its first word."""
        if self._daemon is None:
            return False
        if not self._router.send(self._daemon, frame):
            self._failed("the daemon does not read what is sent to it")
            return False
        if self._router.has_more:
            # No descriptor reports it any more.
            self.runtime.host.directory.tell(self.name, Envelope(messages.FramesWaiting()))
        return True

    def _take_in(self, incoming: Incoming) -> None:
        if incoming.identity.pid != self._daemon_pid:
            super()._take_in(incoming)
            return
        if self._daemon is None:
            self._daemon = incoming.peer
            self._router.keep(incoming.peer)
        self.link.take(incoming.data)

    # ------------------------------------------------------------ jobs

    def _pass_on(self, frame: frames.Frame, peer: bytes, address: WireAddress, size: int) -> None:
        if isinstance(frame.message, messages.AttachJob):
            self._send(peer, frame.number, messages.Done())
            return
        receiver = RECEIVERS[type(frame.message)]
        if not isinstance(frame.message, JOB_MESSAGES) or receiver not in self._components:
            kind = type(frame.message).__name__
            raise errors.NotAllowedError(f"{kind}: ask at the socket of the daemon")
        super()._pass_on(frame, peer, address, size)

    def _forget_peer(self, peer: bytes) -> None:
        """A job's process has gone, or does not read."""
        for key in [key for key in self._unanswered.copy() if key[0] == peer]:
            self._unanswered.pop(key, None)
        if NODE_HUB.name in self._components:
            self.runtime.tell(NODE_HUB, messages.PeerGone(peer=peer))
