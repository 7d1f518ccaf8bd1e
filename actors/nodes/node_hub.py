"""The hub: all nodes have called it, and it passes the calls of jobs' processes on to them.

A call stays open until the node has answered it. When a node's connection ends, the hub tells who
has called that the node is silent, and sends the calls again when the node is back: they may be
repeated. It keeps no call for longer than its sender is there, and nothing on disk but the table of
hosts (`storage.nodes.host_table`).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from ...storage import errors, settings
from ...storage.access import keys
from ...storage.nodes import host_table, seals
from ...transport import frames, messages
from ...transport.envelopes import Envelope
from ...transport.zmq.router import Router
from ...transport.zmq.sockets import new_key_pair
from ..runtime.component import Component
from . import announcing, listing, versions
from .left_tasks import LeftTasks
from .listing import Session
from .node_calls import NodeCalls
from .node_figures import NodeFigures
from .node_records import NodeRecords
from .seen_tasks import SeenTasks
from .silences import Silences

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.nodes.host_table import HostRecord, HostTable, Visitor
    from ...transport.zmq.peers import Incoming
    from ..runtime.component import Runtime

DEFAULT_ENDPOINT = "tcp://0.0.0.0:7611"
"""Where the hub listens for nodes, unless the operator says otherwise."""


class NodeHub(Component[messages.NodeHubMessage]):
    """Owns the connections of the nodes, and the table of hosts."""

    name = "node_hub"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._table: HostTable | None = None
        self._router: Router | None = None
        self._former: list[Router] = []
        self._problem = ""
        self._listen_at = -math.inf
        self._look_at = 0.0
        self._sessions: dict[str, Session] = {}
        self._names: dict[bytes, str] = {}
        """Which node has the connection of this peer."""
        silent = self.places.hosts.with_name("silent.json")
        self._silences = Silences(runtime.wall_clock, silent)
        self._numbers = itertools.count(1)
        self._records = NodeRecords(runtime)
        self._seen = SeenTasks(runtime, self.places.hosts.with_name("seen.json"))
        sending = self._say_to, self._silences.since_of, self._numbers.__next__
        self._calls, self._left = (
            NodeCalls(
                *sending,
                self._there_since,
                self._seen.note_start,
                why=self._silences.why,
                begun=runtime.clock(),
            ),
            LeftTasks(*sending),
        )
        self._silences.tell = self._calls.note_silence
        self._figures = NodeFigures(runtime, self._say_to, self._numbers.__next__)

    def boot(self) -> None:
        """Read the table, and listen."""
        self._table = host_table.read(self.places.hosts)
        self._seen.read()
        self._silences.read(host_table.joined_names(self._table))
        self._listen()

    def close(self) -> None:
        """Close the socket."""
        for router in filter(None, (*self._former, self._router)):
            router.close()

    def receive(self, envelope: Envelope[messages.NodeHubMessage]) -> None:  # noqa: C901, PLR0912 - a table
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.InviteNode():
                self._records.serve(envelope, lambda: self._invite(envelope, message))
            case messages.ListNodes():
                envelope.reply(self._listed())
            case messages.ReadJoinedNodes():
                envelope.reply(messages.JoinedNodes(host_table.joined_names(self._table)))
            case messages.RemoveNode():
                self._remove(envelope, message.name)
            case messages.ForgetTasks():
                self._forget_tasks(envelope, message.name)
            case messages.CallNode():
                if self._left.is_given_up(message.key):
                    raise errors.JobStateError("the process that wanted this task is dead")
                self._calls.take(envelope, self._table)
            case messages.EndLeftTask():
                self._left.take(envelope, self._table)
            case messages.ReadFigures():
                self._figures.take(envelope)
            case messages.FiguresDue():
                self._figures.note_due(message)
            case messages.NodesRemoved():
                self._note_removed(message.names)
            case messages.PeerGone():
                self._calls.forget_caller(message.peer)
            case messages.SeenTasksDue():
                self._seen.write_what_is_due()
            case messages.FormerListenerDue():
                self._former.pop(0).close()
            case messages.FramesWaiting():
                pass  # The end of this turn reads them.
            case _:
                assert_never(message)

    # ------------------------------------------------------------ the socket

    def _listen(self) -> None:
        if self._table is None or self._router is not None:
            return
        self._listen_at = self.runtime.clock() + settings.DISK_RETRY_SECONDS
        try:
            self._open(self._table.endpoint)
        except errors.OperatorError as error:
            if error.text != self._problem:
                self.log.error("nodes cannot call", error=error.text)
            self._problem = error.text
            self.runtime.later(settings.DISK_RETRY_SECONDS, messages.FramesWaiting())

    def _open(self, endpoint: str) -> None:
        budget = self.runtime.host.budget
        self._router = Router(
            None,
            remote=endpoint,
            keys=self.places.hosts.parent,
            knows=self._knows,
            descriptors_max=None if budget is None else budget.listener,
        )
        self._problem = ""
        for descriptor in self._router.filenos():
            self.runtime.watch(descriptor)

    def _knows(self, key: str) -> bool:
        return self._table is not None and host_table.visitor_of(self._table, key) is not None

    def readable(self, descriptors: Iterable[int]) -> None:
        """The socket has news."""
        if self._look_at == math.inf:
            # A new connection may be the reason.
            self._look_at = 0.0
        self._read_once(list(descriptors))

    def turn_ended(self) -> None:
        """Read the rest: the descriptors are edge-triggered, also after a send."""
        if self._router is None and self.runtime.clock() >= self._listen_at:
            self._listen()
        self._end_silent()
        while self._router is not None and self._router.has_more:
            self._read_once()
            if self.runtime.has_mail:
                return

    def _end_silent(self) -> None:
        """From time to time, end connections that cost too much or never said a word."""
        now = self.runtime.clock()
        if self._router is None:
            return
        if now >= self._look_at:
            ended = self._router.guard_memory() + self._router.end_unheard()
            if ended:
                self.log.warning("silent connections of hosts are ended", count=ended)
            has_some = self._router.has_connections
            self._look_at = now + self._router.look_seconds if has_some else math.inf
        self.runtime.patience_seconds = self._look_at - now if self._look_at < math.inf else None

    def _read_once(self, reported: list[int] | None = None) -> None:
        if self._router is None:
            return
        for incoming in self._router.receive(reported=reported):
            self._take_in(incoming)
        for key, address in self._router.take_refused():
            self.log.warning("a host is refused: its key is unknown", key=key, address=address)
            self._silences.refuse_caller(address)
        for peer in self._router.take_left():
            self._forget_peer(peer)

    def _take_in(self, incoming: Incoming) -> None:
        number = 0
        try:
            frame = frames.decode(incoming.data, messages.FromNode)
            number, node = frame.number, self._names.get(incoming.peer, "")
            match frame.message:
                case messages.TaskAnswered() | messages.Failure():
                    self._calls.take_answer(number, node, frame.message)
                case messages.LeftTaskEnded() as message:
                    self._left.take_end(number, node, message, self._table)
                case messages.FiguresMeasured() as message:
                    self._figures.take_answer(number, node, message)
                case messages.JoinCluster() as message:
                    self._take_join(incoming, number, message)
                case messages.GreetMaster() as message:
                    self._greet(incoming, number, message)
                case messages.RotateKey() as message:
                    self._rotate(incoming, number, message)
        except errors.GangerError as error:
            if isinstance(error, frames.UnreadableMessageError):
                number = error.number
            if self._silences.is_news(error.text):
                self.log.warning("a node is refused", error=error.text)
            self._refuse(incoming.peer, number, error)

    def _visitor(self, incoming: Incoming) -> Visitor:
        assert self._table is not None
        found = host_table.visitor_of(self._table, incoming.identity.key or "")
        if found is None:
            # It was removed after it had connected.
            raise errors.NotAllowedError("this host was removed from the cluster")
        return found

    def _refuse(self, peer: bytes, number: int, error: errors.GangerError) -> None:
        self._say(peer, number, messages.Failure(error.name, error.text))

    def _say(self, peer: bytes, number: int, message: messages.Message) -> bool:
        if self._router is None:
            return False
        sent = self._router.send(peer, frames.encode(message, number))
        if self._router.has_more:
            self.runtime.host.directory.tell(self.name, Envelope(messages.FramesWaiting()))
        return sent

    # ------------------------------------------------------------ nodes come and go

    def _take_join(self, incoming: Incoming, number: int, message: messages.JoinCluster) -> None:
        """Let the host in, when the configuration has its node object."""
        visitor = self._visitor(incoming)

        def refuse(error: errors.GangerError) -> None:
            self.log.warning("a host may not join", node=visitor.name, error=error.text)
            self._refuse(incoming.peer, number, error)

        def let_in() -> None:
            try:
                # It may have been removed meanwhile.
                joined = self._joined(self._visitor(incoming), message)
                self._store(joined, "a node has joined", visitor.name)
            except errors.GangerError as error:
                refuse(error)
                return
            self._say(incoming.peer, number, self._greeting(visitor.name))

        try:
            self._joined(visitor, message)
        except errors.GangerError as error:
            refuse(error)
            return
        self._records.ensure(visitor.name, incoming.identity.address, let_in, refuse)

    def _joined(self, visitor: Visitor, message: messages.JoinCluster) -> HostTable:
        """The table after this host has joined; raises why it may not."""
        assert self._table is not None
        key = keys.check_key(message.key, "the host's key")
        now = self.runtime.wall_clock()
        return host_table.joined(self._table, visitor, key, message.directory, now)

    def _store(self, table: HostTable, event: str, name: str) -> None:
        """Store this table, unless it is the present one."""
        if table is not self._table:
            joined = 0.0 if self._table is None else self._table.hosts[name].joined
            self._write(table)
            if joined < table.hosts[name].joined:
                # What was there before is not this node any more.
                self._cut(name, f"another host has joined as {name}")
                self._seen.forget(name)
            self.log.info(event, node=name)

    def _write(self, table: HostTable) -> None:
        host_table.write(self.places.hosts, table)
        self._table = table

    def _greet(self, incoming: Incoming, number: int, message: messages.GreetMaster) -> None:
        visitor = self._visitor(incoming)
        assert self._table is not None
        if visitor.invitation is not None:
            raise errors.NotAllowedError("with the key of a token a host can only join")
        host = self._table.hosts[visitor.name]
        if host.is_removed:
            raise errors.NotAllowedError(host.problem)
        if message.directory != host.directory:
            text = f"node {visitor.name} has joined with another data directory"
            raise errors.NotAllowedError(f"{text}; `ganger node invite {host.name}` lets it join")
        versions.check_node(host.name, message.live, self._silences)
        self._check_copy(host, incoming.peer, message)
        called = host_table.called(self._table, visitor.name, incoming.identity.key or "")
        self._store(called, "a node calls with its new key", visitor.name)
        if (earlier := self._sessions.get(visitor.name)) and earlier.peer != incoming.peer:
            self._end_session(visitor.name)
        address, now = incoming.identity.address, self.runtime.wall_clock()
        session = Session(incoming.peer, address, now, message.live, message.run)
        self._sessions[visitor.name] = session
        self._names[incoming.peer] = visitor.name
        self._silences.end(visitor.name)
        self._say(incoming.peer, number, self._greeting(visitor.name))
        self.log.info("a node has called", node=visitor.name, address=incoming.identity.address)
        self._check_object(visitor.name)
        self._look_again(visitor.name)

    def _rotate(self, incoming: Incoming, number: int, message: messages.RotateKey) -> None:
        assert self._table is not None
        visitor = self._visitor(incoming)
        key = keys.check_key(message.key, "the host's new key")
        rotating = host_table.rotating(self._table, visitor, key, message.directory)
        self._store(rotating, "a node has a new key", visitor.name)
        self._say(incoming.peer, number, self._greeting(visitor.name))

    def _check_copy(self, host: HostRecord, peer: bytes, message: messages.GreetMaster) -> None:
        """Refuse a second daemon with the node's keys, and a data directory that has forgotten."""
        assert self._router is not None
        assert self._table is not None
        # The node's former daemon may have ended just now.
        for left in self._router.take_left():
            self._forget_peer(left)
        session = self._sessions.get(host.name)
        if session is not None and session.peer != peer and session.run != message.run:
            text = f"node {host.name} is connected already, from {session.address}"
            raise errors.NotAllowedError(f"{text}: another daemon has the same keys")
        seal = seals.Seal(message.seal, message.following_seal)
        problem = seals.refusal(host, seal, message.last_id, self._seen.of(host.name))
        seal_then = host.seal if problem else seal.following
        table = host_table.sealed(self._table, host.name, seal_then, problem)
        if not problem:
            since = self._silences.since_of(host.name)
            table = host_table.in_era(table, host.name, str(message.live.get("era", "")), since)
        if table.hosts[host.name] != host:
            self._write(table)
        if problem:
            self._silences.refuse(host.name, problem)
            raise errors.NotAllowedError(problem)

    def _look_again(self, name: str) -> None:
        """The node has called, or its record has changed: what waits for it goes on."""
        self._calls.look_again(name, self._table)
        self._left.look_again(name, self._table)

    def _check_object(self, name: str) -> None:
        """Refuse the host if its node object was removed while nobody could tell the hub."""
        assert self._table is not None
        host = self._table.hosts[name]

        def is_missing() -> None:
            # It may have joined anew meanwhile.
            if self._table is not None and self._table.hosts.get(name) == host:
                self._note_removed([name])

        self._records.look(name, is_missing)

    def _note_removed(self, names: Iterable[str]) -> None:
        """The node objects of these hosts are gone: they must join anew."""
        table = self._table
        for host in [] if table is None else [table.hosts.get(name) for name in names]:
            if self._table is None or host is None or not host.is_node:
                continue
            table = host_table.without_object(self._table, host.name)
            self._write(table)
            self.log.warning("a node was removed from the configuration", node=host.name)
            self._cut(host.name, table.hosts[host.name].problem)
            self._look_again(host.name)

    def _greeting(self, name: str) -> messages.NodeGreeted:
        cluster = "" if self._records.cluster is None else self._records.cluster[0]
        return announcing.greeting(name, cluster, self._router, self._table)

    def _forget_peer(self, peer: bytes) -> None:
        if (name := self._names.get(peer)) is not None:
            self._end_session(name)

    def _cut(self, name: str, problem: str) -> None:
        """End the node's connection, if it is there, and say why."""
        if (session := self._sessions.get(name)) is not None:
            self._refuse(session.peer, 0, errors.NotAllowedError(problem))
            self._end_session(name)

    def _end_session(self, name: str) -> None:
        """The node's connection has ended: its calls wait until it is back."""
        session = self._sessions.pop(name)
        del self._names[session.peer]
        if self._router is not None:
            self._router.end(session.peer)
        self._silences.begin(name, session.address)
        self.log.warning("a node is silent", node=name)
        self._calls.note_silence(name)
        self._left.note_silence(name)
        self._figures.note_silence(name)

    def _say_to(self, node: str, number: int, message: messages.Message) -> bool:
        session = self._sessions.get(node)
        return session is not None and self._say(session.peer, number, message)

    def _there_since(self, node: str) -> float:
        session = self._sessions.get(node)
        return 0.0 if session is None else session.since

    # ------------------------------------------------------------ what operators ask

    def _invite(self, envelope: Envelope[Any], message: messages.InviteNode) -> None:
        assert self._records.cluster is not None
        announcing.check(message)
        table = self._table or host_table.HostTable(endpoint=message.endpoint or DEFAULT_ENDPOINT)
        if message.endpoint and message.endpoint != table.endpoint:
            table = msgspec.structs.replace(table, endpoint=message.endpoint)
        now = self.runtime.wall_clock()
        seconds = message.seconds or host_table.INVITATION_SECONDS
        pair, until = new_key_pair(), now + seconds
        table = host_table.invited(table, message.name, pair.public, until, now)
        kept = tuple(message.announced) or table.announced
        table = msgspec.structs.replace(table, announced=kept)
        before = self._router
        if before is None or self._table is None or self._table.endpoint != table.endpoint:
            # `OperatorError`: it is impossible, and nothing has changed.
            self._open(table.endpoint)
        assert self._router is not None
        self._write(table)
        if before is not None:
            for name, session in self._sessions.items():
                before.send(session.peer, frames.encode(self._greeting(name), 0))
            if before is not self._router:
                self._leave(before)
        token = announcing.token(
            message.name, self._router, kept, cluster=self._records.cluster, pair=pair, until=until
        )
        envelope.reply(messages.NodeInvited(token=token, until=until))

    def _leave(self, before: Router) -> None:
        """Hosts that were there have just been told where to call: let the frames leave."""
        for descriptor in before.filenos():
            self.runtime.forget(descriptor)
        for name in list(self._sessions):
            self._end_session(name)
        self._former.append(before)
        self.runtime.later(announcing.LEAVE_SECONDS, messages.FormerListenerDue())

    def _listed(self) -> messages.NodesListed:
        if self._table is None:
            return messages.NodesListed(nodes=[])
        waiting = self._calls.count, self._left.count
        nodes = [
            listing.state(host, self._sessions.get(name), self._silences, *waiting)
            for name, host in sorted(self._table.hosts.items())
        ]
        return messages.NodesListed(
            nodes=nodes, endpoint=self._table.endpoint, problem=self._problem
        )

    def _remove(self, envelope: Envelope[Any], name: str) -> None:
        """Remove the node object, if no instance needs it; then its key and its connection."""
        # Unknown hosts are refused before anything is removed.
        host_table.removed(self._table or host_table.HostTable(endpoint=""), name)

        def gone() -> None:
            try:
                self._forget_host(envelope, name)
            except errors.GangerError as error:
                envelope.refuse(error)

        self._records.remove(name, gone, envelope.refuse)

    def _forget_host(self, envelope: Envelope[Any], name: str) -> None:
        assert self._table is not None
        table = host_table.removed(self._table, name)
        self._write(table)
        if name in self._sessions:
            self._end_session(name)
        self._look_again(name)
        envelope.reply(messages.Done())

    def _forget_tasks(self, envelope: Envelope[Any], name: str) -> None:
        now = self.runtime.wall_clock()
        table = host_table.forgotten(self._table or host_table.HostTable(endpoint=""), name, now)
        self._write(table)
        count = len(self._calls.jobs(name)) + self._left.count(name)
        self._look_again(name)
        envelope.reply(messages.TasksForgotten(jobs=count))
