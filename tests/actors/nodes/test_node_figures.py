"""What the hub asks of hosts for a query, and how long it waits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from ganger.actors.nodes import node_figures
from ganger.actors.nodes.node_figures import NodeFigures
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable


def told(figures: dict[str, int | str | None]) -> messages.FiguresMeasured:
    return messages.FiguresMeasured(host=messages.HostFigures(figures=figures))


class Hub:
    """The parts around: the hosts that are there, what they are asked, and what is answered."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.asked: list[tuple[str, int]] = []
        self.due: list[messages.FiguresDue] = []
        self.answers: list[dict[str, Any]] = []
        self.warnings: list[Any] = []
        self.log = self
        numbers = itertools.count(1)
        self.figures = NodeFigures(self, self.say, numbers.__next__)  # type: ignore[arg-type]

    def say(self, node: str, number: int, _: messages.MeasureFigures) -> bool:
        if node in self.there:
            self.asked.append((node, number))
        return node in self.there

    def later(self, seconds: float, message: messages.FiguresDue) -> None:
        assert seconds == node_figures.ANSWER_SECONDS
        self.due.append(message)

    def warning(self, *_: object, **fields: Any) -> None:
        self.warnings.append(fields)

    def tell(self, envelope: Envelope) -> None:
        assert isinstance(envelope.message, messages.FiguresRead)
        hosts = envelope.message.hosts
        self.answers.append({name: host.figures for name, host in hosts.items()})

    def ask(self, *nodes: str) -> None:
        request = messages.ReadFigures(nodes=list(nodes), storage=["/srv"])
        self.figures.take(Envelope(request, self))

    def hear(self, node: str, figures: dict[str, int | str | None]) -> None:
        number = dict(self.asked)[node]
        self.figures.take_answer(number, node, told(figures))


def test_all_are_asked_at_once_and_answered_together() -> None:
    hub = Hub("a", "b")
    hub.ask("a", "b", "silent")
    assert [node for node, _ in hub.asked] == ["a", "b"]
    hub.hear("b", {"mfree": 2})
    assert hub.answers == []
    hub.hear("a", {"mfree": 1})
    assert hub.answers == [{"a": {"mfree": 1}, "b": {"mfree": 2}}]


def test_without_anybody_the_answer_comes_at_once() -> None:
    hub = Hub()
    hub.ask("a")
    assert hub.answers == [{}]
    assert hub.due == []


def test_questions_that_come_meanwhile_share_the_answer() -> None:
    hub = Hub("a")
    hub.ask("a")
    hub.ask("a")
    assert len(hub.asked) == 1
    hub.hear("a", {"mfree": 1})
    assert hub.answers == [{"a": {"mfree": 1}}] * 2


def test_a_slow_host_is_waited_for_once_until_it_has_answered() -> None:
    hub = Hub("a", "b")
    hub.ask("a", "b")
    hub.hear("b", {"mfree": 2})
    hub.figures.note_due(hub.due[0])
    assert hub.answers == [{"b": {"mfree": 2}}]
    assert hub.warnings == [{"nodes": ["a"]}]
    hub.ask("a")
    assert hub.answers[-1] == {}
    hub.hear("a", {"mfree": 1})
    hub.ask("a")
    hub.hear("a", {"mfree": 3})
    assert hub.answers[-1] == {"a": {"mfree": 3}}


def gone(hub: Hub) -> None:
    hub.figures.note_silence("a")


def late(hub: Hub) -> None:
    hub.figures.note_due(hub.due[0])
    hub.figures.note_silence("a")


@pytest.mark.parametrize("ends", [gone, late])
def test_a_host_whose_connection_ends_is_not_waited_for(ends: Callable[[Hub], None]) -> None:
    hub = Hub("a")
    hub.ask("a")
    ends(hub)
    assert hub.answers == [{}]
    # What it says under an old number counts no more.
    hub.ask("a")
    hub.figures.take_answer(hub.asked[0][1], "a", told({"mfree": 9}))
    assert len(hub.answers) == 1
    hub.hear("a", {"mfree": 1})
    assert hub.answers[-1] == {"a": {"mfree": 1}}


def test_figures_of_the_wrong_type_are_none() -> None:
    hub = Hub("a")
    hub.ask("a")
    hub.hear("a", {"mfree": "much", "bootid": 7, "ctotal": 4, "dfree": None})
    assert hub.answers == [{"a": {"ctotal": 4}}]
