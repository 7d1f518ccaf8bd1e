"""The component that keeps the process of the nodes' connections. Without nodes there is none."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, assert_never

from ...storage.nodes import host_table
from ...storage.nodes.host_table import TaskStanding
from ...transport import messages
from ...transport.envelopes import Envelope
from ...transport.links.component_link import LinkedReceiver
from ..processes.process_keeper import LISTENER, ProcessKeeper, ProcessLostError
from ..runtime.addresses import NODE_HUB, NODE_KEEPER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ...transport.envelopes import Directory
    from ..runtime.component import Runtime


class _HubToCome:
    """Stands in the directory for the hub that does not live yet. Any thread may use it."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._waiting: deque[Envelope[Any]] = deque()

    def tell(self, envelope: Envelope) -> bool:
        """Keep it, and let the keeper look."""
        self._waiting.append(envelope)
        self._directory.tell(NODE_KEEPER.name, Envelope(messages.HubWanted()))
        return True

    def depth(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def take(self) -> Iterator[Envelope[Any]]:
        """Those that wait, each once."""
        while self._waiting:
            yield self._waiting.popleft()


class NodeKeeper(ProcessKeeper[messages.NodeKeeperMessage]):
    """Starts the process with the first invitation, or with the daemon if there were some."""

    name = "node_keeper"
    does = "the nodes"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._to_come = _HubToCome(runtime.host.directory)

    @property
    def _names(self) -> list[str]:
        return [NODE_HUB.name]

    @property
    def _socket(self) -> Path:
        return self.places.node_socket

    def boot(self) -> None:
        """Start the process, if hosts have joined or were invited."""
        self.runtime.host.directory.enter(NODE_HUB.name, self._to_come)
        if host_table.read(self.places.hosts) is not None:
            self._begin()
        else:
            # The executor may have asked before there was anybody.
            self.runtime.host.repeat_asks(NODE_HUB.name)

    def receive(self, envelope: Envelope[messages.NodeKeeperMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.HubWanted():
                for waiting in self._to_come.take():
                    self._pass_on(waiting)
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

    def _pass_on(self, envelope: Envelope[Any]) -> None:
        """Have the hub answer; while there is none, nobody has ever been invited."""
        message = envelope.message
        if self._dealer is None and isinstance(message, messages.InviteNode):
            self._begin()
        if self._dealer is not None:
            self._link.tell(NODE_HUB.name, envelope)
        elif isinstance(message, messages.ListNodes):
            envelope.reply(messages.NodesListed(nodes=[]))
        elif isinstance(message, messages.ReadFigures):
            envelope.reply(messages.FiguresRead(hosts={}))
        elif isinstance(message, messages.NodesRemoved):
            pass  # No host has ever joined as one of them.
        elif isinstance(message, messages.ReadJoinedNodes):
            envelope.reply(messages.JoinedNodes(names=[]))
        elif isinstance(message, messages.EndLeftTask):
            text = host_table.unknown_end(message.node, TaskStanding.REMOVED)
            envelope.reply(messages.TasksEnded(text))
        else:
            name = message.node if isinstance(message, messages.CallNode) else message.name
            envelope.refuse(host_table.unknown(host_table.HostTable(endpoint=""), name))

    def _begin(self) -> None:
        self._open()
        name, host = NODE_HUB.name, self.runtime.host
        self._link.tell(LISTENER, Envelope(messages.StartComponent(name, self.runtime.incarnation)))
        # Later messages to it arrive after this one.
        host.directory.enter(name, LinkedReceiver(self._link, name))
        host.repeat_asks(name)
