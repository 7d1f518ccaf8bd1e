"""The component that keeps the process of the nodes' connections. Without nodes there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from ...storage.nodes import host_table
from ...transport import messages
from ...transport.envelopes import Envelope
from ...transport.links.component_link import LinkedReceiver
from ..runtime.addresses import NODE_HUB
from ..processes.process_keeper import LISTENER, ProcessKeeper, ProcessLostError

if TYPE_CHECKING:
    from pathlib import Path


class NodeKeeper(ProcessKeeper[messages.NodeKeeperMessage]):
    """Starts the process with the first invitation, or with the daemon if there were some."""

    name = "node_keeper"
    does = "the nodes"

    @property
    def _names(self) -> list[str]:
        return [NODE_HUB.name]

    @property
    def _socket(self) -> Path:
        return self.places.node_socket

    def boot(self) -> None:
        """Start the process, if hosts have joined or were invited."""
        if host_table.read(self.places.hosts) is not None:
            self._begin()

    def receive(self, envelope: Envelope[messages.NodeKeeperMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.InviteNode() | messages.ListNodes() | messages.RemoveNode():
                self._pass_on(envelope, message)
            case messages.ReplaceProcess():
                raise ProcessLostError(message.reason)
            case messages.PulseDue():
                self._ask_for_pulse()
            case messages.FramesWaiting():
                pass  # The end of this turn reads them.
            case messages.ComponentReplaced():
                if self._dealer is not None and message.component != self.name:
                    self._link.tell(LISTENER, Envelope(message))
            case _:
                assert_never(message)

    def _pass_on(self, envelope: Envelope[Any], message: messages.NodesRequest) -> None:
        """Have the hub answer; while there is none, nobody has ever been invited."""
        if self._dealer is None and isinstance(message, messages.InviteNode):
            self._begin()
        if self._dealer is not None:
            self._link.tell(NODE_HUB.name, envelope)
        elif isinstance(message, messages.ListNodes):
            envelope.reply(messages.NodesListed(nodes=[]))
        else:
            nobody = host_table.HostTable(endpoint="")
            envelope.refuse(host_table.unknown(nobody, message.name))

    def _begin(self) -> None:
        self._open()
        name, host = NODE_HUB.name, self.runtime.host
        self._link.tell(LISTENER, Envelope(messages.StartComponent(name, self.runtime.incarnation)))
        # Later messages to it arrive after this one.
        host.directory.enter(name, LinkedReceiver(self._link, name))
        if self.runtime.incarnation > 1:
            host.repeat_asks(name)
