"""The tasks that dead processes of jobs have left on nodes: which must still be ended there.

The executor asks for each, again and again, and keeps the locks of the process until the reply. A
node that is silent is asked when it is back. The hub has the connections (`node_hub`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage.nodes import host_table
from ...storage.nodes.host_table import TaskStanding
from ...transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.nodes.host_table import HostTable
    from ...transport.envelopes import Envelope

KEYS_MAX = 10_000
"""So many of the last keys are remembered of which no task may start any more."""


_ENVELOPES_MAX = 4
"""So many of the last requests for one task are answered: one may overtake its repetition."""


class _Left(msgspec.Struct):
    number: int
    asked: messages.EndLeftTask
    envelopes: list[Envelope[Any]]

    def reply(self, message: messages.TasksEnded | messages.TaskEndAwaited) -> None:
        for envelope in self.envelopes:
            envelope.reply(message)


class LeftTasks:
    """All of them, by their keys. ``say`` sends a node a frame, if it is there.

    ``since``: since when a node is silent.
    """

    def __init__(
        self,
        say: Callable[[str, int, messages.EndTask], bool],
        since: Callable[[str], float],
        next_number: Callable[[], int],
    ) -> None:
        self._say = say
        self._since = since
        self._next_number = next_number
        self._left: dict[str, _Left] = {}
        self._by_number: dict[int, str] = {}
        self._keys: dict[str, None] = {}

    def is_given_up(self, key: str) -> bool:
        """Whether the process that wanted this task is dead: what it has sent comes too late."""
        return key in self._keys

    def count(self, node: str) -> int:
        """How many there are on this node."""
        return sum(left.asked.node == node for left in self._left.values())

    def take(self, envelope: Envelope[Any], table: HostTable | None) -> None:
        """The executor asks."""
        asked = envelope.message
        self._keys[asked.key] = None
        if len(self._keys) > KEYS_MAX:
            del self._keys[next(iter(self._keys))]
        envelopes = [envelope]
        if (known := self._left.pop(asked.key, None)) is not None:
            del self._by_number[known.number]
            envelopes = [*known.envelopes, envelope][-_ENVELOPES_MAX:]
        left = _Left(self._next_number(), asked, envelopes)
        self._left[asked.key] = left
        self._by_number[left.number] = asked.key
        self._ask(left, table)

    def look_again(self, node: str, table: HostTable | None) -> None:
        """The node has called, or its record has changed."""
        for left in list(self._left.values()):
            if left.asked.node == node:
                self._ask(left, table)

    def note_silence(self, node: str) -> None:
        """The node's connection has ended."""
        for left in self._left.values():
            if left.asked.node == node:
                left.reply(self._waits(left.asked))

    def take_end(
        self, number: int, node: str, message: messages.LeftTaskEnded, table: HostTable | None
    ) -> None:
        """A node answers. If it began anew since the task did, it may have forgotten it."""
        key = self._by_number.get(number)
        if key is None or self._left[key].asked.node != node:
            return
        text = f"the command on {node} was ended"
        if not message.existed:
            text = f"its command never began on {node}"
            host = None if table is None else table.hosts.get(node)
            if host is not None and self._left[key].asked.began < host.era_since:
                text = f"{node} {host_table.FORGOTTEN_IN_ERA}"
        elif not message.was_killed:
            text = f"its command on {node} had ended by then"
        self._end(self._left[key], text)

    def _ask(self, left: _Left, table: HostTable | None) -> None:
        asked = left.asked
        match host_table.standing(table, asked.node, asked.began):
            case TaskStanding.OPEN:
                if not self._say(asked.node, left.number, messages.EndTask(key=asked.key)):
                    left.reply(self._waits(asked))
            case TaskStanding.JOINED_SINCE:
                text = f"node {asked.node} has joined anew, and cannot tell: {_forget(asked.node)}"
                left.reply(messages.TaskEndAwaited(text))
            case TaskStanding.FORGOTTEN | TaskStanding.REMOVED as why:
                self._end(left, host_table.unknown_end(asked.node, why))

    def _end(self, left: _Left, text: str) -> None:
        del self._left[left.asked.key], self._by_number[left.number]
        left.reply(messages.TasksEnded(text))

    def _waits(self, asked: messages.EndLeftTask) -> messages.TaskEndAwaited:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._since(asked.node)))
        text = f"node {asked.node}, which is silent since {when}, has ended its command"
        return messages.TaskEndAwaited(text)


def _forget(node: str) -> str:
    return f"`ganger node forget-tasks {node}` waits for it no longer"
