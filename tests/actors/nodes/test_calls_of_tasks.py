"""Calls to nodes and ends of left tasks, as nodes come, go silent, join anew and are forgotten."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ganger.actors.nodes.left_tasks import LeftTasks
from ganger.actors.nodes.node_calls import NodeCalls
from ganger.storage import errors
from ganger.storage.nodes.host_table import HostRecord, HostTable
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


def table(**fields: Any) -> HostTable:
    host = HostRecord(name="web1", key="k", **{"joined": 100.0, **fields})
    return HostTable(endpoint="", hosts={"web1": host})


class Asker:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def tell(self, envelope: Envelope[Any]) -> None:
        self.heard.append(envelope.message)


class Nodes:
    """The hub's connections: one node, which is there or not."""

    def __init__(self) -> None:
        self.is_there = True
        self.started: list[tuple[str, bytes]] = []
        self.said: list[tuple[int, Any]] = []
        numbers = itertools.count(1)
        sending = self.say, lambda _: 55.0, lambda: next(numbers)
        there_since = lambda _: 110.0 if self.is_there else 0.0  # noqa: E731 - short
        self.calls = NodeCalls(*sending, there_since, self.note_start, begun=10.0)
        self.left = LeftTasks(*sending)

    def say(self, node: str, number: int, message: Any) -> bool:
        assert node == "web1"
        if self.is_there:
            self.said.append((number, message))
        return self.is_there

    def note_start(self, node: str, message: messages.TaskAnswered) -> None:
        self.started.append((node, message.frame))

    def call(self, frame: bytes = b"x", began: float = 120.0, node: str = "web1") -> Asker:
        asker = Asker()
        call = messages.CallNode(1, node, frame, "key", began)
        self.calls.take(Envelope(call, asker, 1, None, b"peer"), table())
        return asker

    def end(self, began: float = 120.0, **fields: Any) -> Asker:
        asker = Asker()
        asked = messages.EndLeftTask("lock", "web1", "key", began)
        self.left.take(Envelope(asked, asker, 1), table(**fields))
        return asker


@pytest.fixture(name="nodes")
def nodes_of_a_hub() -> Nodes:
    return Nodes()


def test_a_call_waits_for_a_silent_node_and_its_process_hears_when_that_is_back(
    nodes: Nodes,
) -> None:
    nodes.is_there = False
    asker = nodes.call()
    assert asker.heard == [messages.NodeSilent(since=55.0)]
    nodes.is_there = True
    nodes.calls.look_again("web1", table())
    assert nodes.said == [(1, messages.CallTask(b"x"))]
    assert asker.heard[1:] == [messages.NodeSilent(since=0.0)]
    nodes.calls.take_answer(1, "web1", messages.TaskAnswered(b"y"))
    assert asker.heard[2:] == [messages.TaskAnswered(b"y")]
    assert nodes.calls.count("web1") == 0


def test_a_call_is_sent_once_over_each_connection(nodes: Nodes) -> None:
    nodes.call()
    nodes.calls.look_again("web1", table())
    assert len(nodes.said) == 1
    nodes.calls.note_silence("web1")
    nodes.calls.look_again("web1", table())
    assert len(nodes.said) == 2


def test_an_answer_of_another_node_does_not_count(nodes: Nodes) -> None:
    asker = nodes.call()
    nodes.calls.take_answer(1, "web2", messages.TaskAnswered(b"y"))
    nodes.calls.take_answer(7, "web1", messages.TaskAnswered(b"y"))
    assert asker.heard == []


def test_a_repeated_call_of_a_process_that_was_told_of_the_silence_tells_it_the_end_of_that(
    nodes: Nodes,
) -> None:
    assert nodes.call(began=105.0).heard == [messages.NodeSilent(since=0.0)]
    assert nodes.call(began=120.0).heard == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (table(joined=150.0), "node web1 has joined anew since the command began"),
        (table(forgotten=150.0), "the tasks of node web1 were forgotten on request"),
        (HostTable(endpoint=""), "node web1 was removed"),
    ],
)
def test_a_call_is_refused_when_the_node_cannot_tell(
    nodes: Nodes, changed: HostTable, why: str
) -> None:
    nodes.is_there = False
    asker = nodes.call()
    nodes.is_there = True
    nodes.calls.look_again("web1", changed)
    assert nodes.said == []
    text = f"{why}: it is not known whether the command still runs on web1"
    assert asker.heard[1:] == [messages.Failure("JobStateError", text)]


def test_there_is_no_call_to_an_unknown_node(nodes: Nodes) -> None:
    with pytest.raises(errors.BadRequestError, match="there is no node 'web9'"):
        nodes.call(node="web9")


def test_calls_of_a_process_that_is_gone_are_dropped(nodes: Nodes) -> None:
    nodes.call()
    assert nodes.calls.jobs("web1") == {1}
    nodes.calls.forget_caller(b"peer")
    assert nodes.calls.jobs("web1") == set()


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (messages.LeftTaskEnded(existed=True, was_killed=True), "the command on web1 was ended"),
        (messages.LeftTaskEnded(existed=True), "its command on web1 had ended by then"),
        (messages.LeftTaskEnded(existed=False), "its command never began on web1"),
    ],
)
def test_a_left_task_is_ended_by_its_node(
    nodes: Nodes, ended: messages.LeftTaskEnded, text: str
) -> None:
    asker = nodes.end()
    assert nodes.said == [(1, messages.EndTask("key"))]
    nodes.left.take_end(1, "web2", ended, table())
    assert asker.heard == []
    nodes.left.take_end(1, "web1", ended, table())
    assert asker.heard == [messages.TasksEnded(text)]
    assert nodes.left.is_given_up("key")


def test_a_request_that_was_overtaken_by_its_repetition_is_answered_too(nodes: Nodes) -> None:
    first, second = nodes.end(), nodes.end()
    nodes.left.take_end(1, "web1", messages.LeftTaskEnded(existed=True, was_killed=True), table())
    assert first.heard == second.heard == []
    nodes.left.take_end(2, "web1", messages.LeftTaskEnded(existed=True, was_killed=True), table())
    assert first.heard == second.heard == [messages.TasksEnded("the command on web1 was ended")]


def test_a_left_task_waits_for_its_node_until_an_operator_forgets_it(nodes: Nodes) -> None:
    nodes.is_there = False
    asker = nodes.end()
    [waits] = asker.heard
    assert "silent since 1970-01-01T00:00:55Z" in waits.text
    nodes.is_there = True
    nodes.left.look_again("web1", table(joined=150.0))
    assert nodes.said == []
    assert "has joined anew, and cannot tell: `ganger node forget-tasks" in asker.heard[1].text
    assert nodes.left.count("web1") == 1
    nodes.left.look_again("web1", table(joined=150.0, forgotten=160.0))
    assert "it is not known whether" in asker.heard[2].text
    assert nodes.left.count("web1") == 0


def start(nodes: Nodes, asked: float, began: float = 120.0, **fields: Any) -> Asker:
    asker = Asker()
    call = messages.CallNode(1, "web1", b"x", "key", began, is_start=True, asked=asked)
    nodes.calls.take(Envelope(call, asker, 1, None, b"peer"), table(**fields))
    return asker


def test_a_task_that_was_sent_to_an_earlier_era_starts_no_more(nodes: Nodes) -> None:
    start(nodes, asked=11.0, era="a")
    nodes.calls.note_silence("web1")
    nodes.calls.look_again("web1", table(era="a"))
    for _ in range(2):
        nodes.calls.note_silence("web1")
        # Whatever the clock says, this hub knows to which era it has sent the task.
        nodes.calls.look_again("web1", table(era="b", era_since=1.0))
    plain, known = messages.CallTask(b"x"), messages.CallTask(b"x", known_key="key")
    assert [message for _, message in nodes.said] == [plain, plain, known, known]


def test_a_task_that_waited_for_a_silent_host_starts_in_its_next_era(nodes: Nodes) -> None:
    nodes.is_there = False
    start(nodes, asked=11.0, era="a")
    nodes.is_there = True
    nodes.calls.look_again("web1", table(era="b", era_since=150.0))
    assert nodes.said == [(1, messages.CallTask(b"x"))]


@pytest.mark.parametrize(("era_since", "key"), [(121.0, "key"), (119.0, "")])
def test_what_a_process_has_asked_of_an_earlier_hub_starts_only_in_its_own_era(
    nodes: Nodes, era_since: float, key: str
) -> None:
    start(nodes, asked=9.0, era="b", era_since=era_since)
    nodes.calls.note_silence("web1")
    nodes.calls.look_again("web1", table(era="b", era_since=era_since))
    assert [message for _, message in nodes.said] == [messages.CallTask(b"x", known_key=key)] * 2


def test_what_a_host_does_not_know_may_have_begun_in_an_earlier_era(nodes: Nodes) -> None:
    told = []
    forgotten = "does not know the command: it is not known whether it began"
    for era_since in (119.0, 121.0):
        asker = nodes.end()
        number, _ = nodes.said[-1]
        answer = messages.LeftTaskEnded(existed=False)
        nodes.left.take_end(number, "web1", answer, table(era="b", era_since=era_since))
        told.append(asker.heard[-1].text)
    never = "its command never began on web1"
    assert told == [never, f"web1 was started anew since, and {forgotten}"]
