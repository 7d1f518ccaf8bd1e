"""The calls of jobs' processes that nodes have not answered. The hub has the connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors
from ...storage.nodes import host_table
from ...storage.nodes.host_table import TaskStanding
from ...transport import messages
from ...transport.envelopes import Envelope
from .left_tasks import KEYS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.nodes.host_table import HostRecord, HostTable


class _Call(msgspec.Struct):
    """A call that the node has not answered. ``sent``: over the present connection.

    ``told_silent``: its sender believes that the node is silent.
    """

    node: str
    envelope: Envelope[messages.CallNode]
    sent: bool = False
    told_silent: bool = False


class NodeCalls:
    """All of them, by number. ``sending``: sends a node a frame, if it is there.

    ``since``: since when a node is silent. ``there_since``: or is there; 0.0: it is not.
    ``started`` is told how it has answered the start of a task. ``why``: why a node is silent; "":
    nobody knows. ``begun``: since when the hub is there, on the clock that never goes back.
    """

    def __init__(
        self,
        say: Callable[[str, int, messages.CallTask], bool],
        since: Callable[[str], float],
        next_number: Callable[[], int],
        there_since: Callable[[str], float],
        started: Callable[[str, messages.TaskAnswered], None],
        *,
        why: Callable[[str], str] = lambda _: "",
        begun: float = 0.0,
    ) -> None:
        self._say = say
        self._since = since
        self._next_number = next_number
        self._there_since = there_since
        self._started = started
        self._why = why
        self._begun = begun
        self._calls: dict[int, _Call] = {}
        self._eras: dict[str, str] = {}
        """By the keys of the last tasks the era of the node to which each start was sent first."""

    def count(self, node: str) -> int:
        """How many there are to this node."""
        return sum(call.node == node for call in self._calls.values())

    def jobs(self, node: str) -> set[int]:
        """The jobs that wait for this node."""
        calls = self._calls.values()
        return {call.envelope.message.job_id for call in calls if call.node == node}

    def take(self, envelope: Envelope[Any], table: HostTable | None) -> None:
        """A process calls. `BadRequestError`: there is no such node."""
        node = envelope.message.node
        host = None if table is None else table.hosts.get(node)
        if host is None or not host.is_node:
            raise host_table.unknown(table or host_table.HostTable(endpoint=""), node)
        number = self._next_number()
        # It may have said so to a predecessor of the hub.
        told_silent = envelope.message.began < self._there_since(node)
        self._calls[number] = _Call(node, envelope, told_silent=told_silent)
        self._send_or_refuse(number, table)

    def look_again(self, node: str, table: HostTable | None) -> None:
        """The node has called, or its record has changed."""
        for number, call in sorted(self._calls.items()):
            if call.node == node:
                self._send_or_refuse(number, table)

    def note_silence(self, node: str) -> None:
        """The node's connection has ended: its calls wait until it is back."""
        for call in self._calls.values():
            if call.node == node:
                call.sent = False
                self._tell_silent(call)

    def take_answer(self, number: int, node: str | None, message: messages.Message) -> None:
        """The node has answered, or refused."""
        call = self._calls.get(number)
        if call is not None and node == call.node:
            del self._calls[number]
            call.envelope.reply(message)
            if call.envelope.message.is_start and isinstance(message, messages.TaskAnswered):
                self._started(node, message)

    def forget_caller(self, peer: bytes) -> None:
        """A job's process has gone: nobody waits for its calls."""
        for number, call in list(self._calls.items()):
            if call.envelope.peer == peer:
                del self._calls[number]

    def _send_or_refuse(self, number: int, table: HostTable | None) -> None:
        """Send the call, unless the node cannot know its task."""
        call: Any = self._calls[number]
        asked = call.envelope.message
        why = host_table.standing(table, call.node, asked.began)
        if why is not TaskStanding.OPEN:
            del self._calls[number]
            call.envelope.refuse(errors.JobStateError(host_table.unknown_end(call.node, why)))
        elif not call.sent:
            host = table.hosts[call.node] if table else None
            known_key = asked.key if host and self._may_be_earlier(host, asked) else ""
            request = messages.CallTask(frame=asked.frame, known_key=known_key)
            call.sent = self._say(call.node, number, request)
            if call.sent and host and asked.is_start and not known_key:
                self._note_start(asked.key, host.era)
            if not call.sent:
                self._tell_silent(call)
            elif call.told_silent:
                # Its answer may come much later.
                call.told_silent = False
                call.envelope.reply(messages.NodeSilent(since=0.0))

    def _tell_silent(self, call: _Call) -> None:
        call.told_silent = True
        silent = messages.NodeSilent(since=self._since(call.node), why=self._why(call.node))
        call.envelope.reply(silent)

    def _may_be_earlier(self, host: HostRecord, asked: messages.CallNode) -> bool:
        """Whether the task may have been sent to an earlier era of the host.

        If its data directory was put back since then, the host does not know what has begun.
        """
        if (era := self._eras.get(asked.key)) is not None:
            return era != host.era
        if asked.is_start and asked.asked >= self._begun:
            return False
        return bool(host.era) and asked.began < host.era_since

    def _note_start(self, key: str, era: str) -> None:
        self._eras.setdefault(key, era)
        if len(self._eras) > KEYS_MAX:
            del self._eras[next(iter(self._eras))]
