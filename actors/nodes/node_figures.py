"""What hosts say of themselves when a query asks: all are asked at once, for a short time.

A node that has not answered in time is not waited for again until it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.envelopes import Envelope
    from ...transport.messages import HostFigures
    from ..runtime.component import Runtime

ANSWER_SECONDS = 4.0
"""How long a query waits for hosts."""

_TEXTS = frozenset({"bootid"})


class _Question(msgspec.Struct):
    """Who asks, which nodes have not answered yet, and what the others have said."""

    envelope: Envelope[Any]
    left: set[str]
    found: dict[str, HostFigures]


class NodeFigures:
    """All questions. ``say`` sends a node a frame, if it is there."""

    def __init__(
        self,
        runtime: Runtime,
        say: Callable[[str, int, messages.MeasureFigures], bool],
        next_number: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._say = say
        self._next_number = next_number
        self._asked: dict[str, int] = {}
        """The nodes that have not answered, each with the number of its request."""
        self._overdue: set[str] = set()
        """Those of them that have had their time."""
        self._questions: dict[int, _Question] = {}

    def take(self, envelope: Envelope[Any]) -> None:
        """The configuration store asks."""
        asked: messages.ReadFigures = envelope.message
        left = {name for name in asked.nodes if self._ask(name, asked.storage)}
        question = _Question(envelope, left, {})
        if not left:
            self._end(question)
            return
        number = self._next_number()
        self._questions[number] = question
        self._runtime.later(ANSWER_SECONDS, messages.FiguresDue(question=number))

    def _ask(self, name: str, storage: list[str]) -> bool:
        """Whether an answer of this node may come in time."""
        if name not in self._asked:
            number = self._next_number()
            if not self._say(name, number, messages.MeasureFigures(storage=storage)):
                return False
            self._asked[name] = number
        return name not in self._overdue

    def take_answer(self, number: int, node: str, message: messages.FiguresMeasured) -> None:
        """A node answers."""
        if self._asked.get(node) == number:
            self._close(node, _sound(message.host))

    def note_silence(self, node: str) -> None:
        """The node's connection has ended."""
        if node in self._asked:
            self._close(node, None)

    def note_due(self, message: messages.FiguresDue) -> None:
        """The nodes that have not answered yet have had their time."""
        question = self._questions.pop(message.question, None)
        if question is not None:
            self._overdue |= question.left
            self._runtime.log.warning("nodes do not say how they are", nodes=sorted(question.left))
            self._end(question)

    def _close(self, node: str, host: HostFigures | None) -> None:
        del self._asked[node]
        self._overdue.discard(node)
        for number, question in list(self._questions.items()):
            if node not in question.left:
                continue
            question.left.discard(node)
            if host is not None:
                question.found[node] = host
            if not question.left:
                del self._questions[number]
                self._end(question)

    def _end(self, question: _Question) -> None:
        question.envelope.reply(messages.FiguresRead(hosts=question.found))


def _sound(host: HostFigures) -> HostFigures:
    """The same with those figures that have the type of their field."""
    figures: dict[str, int | str | None] = {
        name: value
        for name, value in host.figures.items()
        if isinstance(value, str if name in _TEXTS else int)
    }
    return msgspec.structs.replace(host, figures=figures)
