"""What a node's link asks the components of its daemon for the master, and for how long."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest

from ganger.actors.nodes.node_link import NodeLink
from ganger.storage import settings
from ganger.storage.nodes.begun_tasks import Era
from ganger.storage.version import version
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope
from ganger.transport.zmq.connection_event import ConnectionEvent


class Link:
    """A link without a connection, and what it says to whom."""

    def __init__(self) -> None:
        self.forwarded: list[tuple[str, Envelope[Any]]] = []
        runtime = mock.Mock()
        runtime.host.master_states = []
        runtime.wall_clock.return_value = 1.0
        runtime.forward = lambda to, envelope: self.forwarded.append((to.name, envelope))
        self.later = runtime.later
        self.told: list[Envelope[Any]] = []
        """What components have told the link."""
        runtime.host.directory.tell = lambda _, envelope: self.told.append(envelope)
        runtime.ask = lambda _, __, then, ___: then(messages.JobsFound(found=[[]]))
        self.link = NodeLink(runtime)
        self.link._dealer = self.dealer = mock.Mock(endpoint="tcp://a:1")

    def hear(self, message: messages.Message, number: int = 1) -> None:
        """The master says this."""
        self.link._take_in(frames.encode(message, number))

    def call(self, request: messages.Message, number: int) -> Envelope[Any]:
        """The master asks this; what the component gets."""
        self.hear(messages.CallTask(frames.encode(request, 1)), number)
        return self.forwarded[-1][1]

    def look(self) -> None:
        """The time is over after which the link looks for another master."""
        self.link.receive(Envelope(messages.MasterDue()))


@pytest.fixture(name="link")
def link_of_a_node(monkeypatch: pytest.MonkeyPatch) -> Link:
    monkeypatch.setattr("ganger.storage.nodes.seals.settle", lambda _, seal: seal)
    monkeypatch.setattr(NodeLink, "_check", lambda *_: None)
    made = Link()
    vars(made.link)["_seal"] = None
    vars(made.link)["_era"] = Era("an era")
    vars(made.link)["_membership"] = mock.Mock(cluster_name="c", cluster="c")
    vars(made.link)["_membership"].name = "web1"
    made.link._endpoints = itertools.cycle(["tcp://a:1"])
    return made


def test_with_a_tasks_end_no_request_waits_for_its_output_any_more(link: Link) -> None:
    end = link.call(messages.AwaitTask(id=7), 1)
    waiting = link.call(messages.ReadOutput(id=7, wait_seconds=10.0), 2)
    link.call(messages.ReadOutput(id=8, wait_seconds=10.0), 3)
    link.forwarded.clear()
    link.link.receive(Envelope(messages.TaskEnded(handle=end.number, job_id=7)))
    [(reader, last), (queue, _)] = link.forwarded
    assert (reader, queue) == ("output_reader", "job_queue")
    # The reader answers the one that waits as soon as its sender asks for the same job again.
    assert last.peer == waiting.peer
    assert last.message.id == 7
    assert not last.message.wait_seconds
    # That answer is for nobody: the master asks anew for what is left.
    link.link._answer(waiting.number, b"page")
    link.dealer.send.assert_not_called()


def test_a_request_for_output_that_does_not_wait_is_answered_after_the_end(link: Link) -> None:
    end = link.call(messages.AwaitTask(id=7), 1)
    # The master has had the end of an earlier copy of that request, and asks for what is left.
    last = link.call(messages.ReadOutput(id=7, offset=5), 2)
    link.link.receive(Envelope(messages.TaskEnded(handle=end.number, job_id=7)))
    page = frames.encode(messages.OutputPage(data=b"", size=5), 1)
    link.link._answer(last.number, page)
    assert said(link) == [messages.OutputPage(data=b"", size=5)]


def test_the_end_of_a_short_task_answers_its_beginning(link: Link) -> None:
    submit = begin(link, 1)
    submit.reply(messages.JobsSubmitted(ids=[7]))
    watch = pass_on(link)
    assert watch.message == messages.WatchJobs(ids=[7], is_final_only=True)
    link.dealer.send.assert_not_called()
    watch.reply(messages.WatchEnded())
    read = pass_on(link)
    assert read.message == messages.ReadJob(id=7)
    read.reply(messages.JobDocument(id=7, body=b"{}"))
    pass_on(link)
    assert said(link) == [messages.JobDocument(id=7, body=b"{}")]
    link.later.return_value.cancel.assert_called_once()


def test_a_task_that_takes_longer_is_answered_with_its_id(link: Link) -> None:
    submit = begin(link, 1)
    submit.reply(messages.JobsSubmitted(ids=[7]))
    watch = pass_on(link)
    seconds, due = link.later.call_args.args
    assert seconds == 0.05
    link.link.receive(Envelope(due))
    assert said(link) == [messages.JobsSubmitted(ids=[7])]
    # The end comes while nobody has asked for it: that is for the next request.
    watch.reply(messages.WatchEnded())
    assert pass_on(link) is watch
    assert len(said(link)) == 1


@pytest.mark.parametrize(
    "answer",
    [messages.JobsSubmitted(ids=[7], is_repeat=True), messages.Failure("DiskFullError", "full")],
)
def test_a_task_that_did_not_begin_now_is_answered_at_once(
    link: Link, answer: messages.Message
) -> None:
    begin(link, 1).reply(answer)
    pass_on(link)
    assert said(link) == [answer]
    link.later.assert_not_called()


def begin(link: Link, number: int) -> Envelope[Any]:
    """The master has a task run; the submission that the queue gets."""
    spec = messages.JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": ["true"]}], name="task-1")
    link.call(messages.RunTask(spec=spec, key="task-1", seconds=0.05), number)
    submit = link.forwarded[-1][1]
    assert submit.message.key == "task-1"
    return submit


def pass_on(link: Link) -> Envelope[Any]:
    """The link takes what a component has told it; what it asks then."""
    link.link.receive(link.told.pop())
    assert link.forwarded
    return link.forwarded[-1][1]


def said(link: Link) -> list[messages.Message]:
    """What the master has been answered."""
    found = []
    for call in link.dealer.send.call_args_list:
        answered: Any = frames.decode(call.args[0], messages.FromNode).message
        found.append(frames.decode(answered.frame, messages.TaskReply).message)
    return found


def greeted(protocol: int) -> messages.NodeGreeted:
    return messages.NodeGreeted(cluster="c", name="web1", protocol=protocol, version="9.9")


def test_a_request_that_the_node_does_not_know_is_refused_under_its_own_number(
    link: Link,
) -> None:
    """It had the number of the frame within, and the job waited for ever."""
    unknown = frames.encode(messages.SubmitJobs(jobs=[]), 3)
    link.hear(messages.CallTask(unknown), 77)
    [call] = link.dealer.send.call_args_list
    answered = frames.decode(call.args[0], messages.FromNode)
    assert answered.number == 77
    assert isinstance(answered.message, messages.Failure)
    assert "submit_jobs" in answered.message.text


def test_a_master_with_other_messages_is_no_master(link: Link) -> None:
    link.hear(greeted(messages.NODE_PROTOCOL + 1))
    request = messages.AwaitTask(id=7)
    link.hear(messages.CallTask(frames.encode(request, 1)), 5)
    assert link.forwarded == []
    link.dealer.send.assert_not_called()
    [state] = link.link.runtime.host.master_states
    assert state.problem == (
        "the master runs Ganger 9.9 (node protocol "
        f"{messages.NODE_PROTOCOL + 1}), node web1 Ganger {version()} (node protocol "
        f"{messages.NODE_PROTOCOL}): install one version on both; what runs on the node goes on"
    )
    assert not state.connected


def test_a_link_looks_for_its_master_only_while_none_has_answered(link: Link) -> None:
    link.link._look_later()
    assert link.later.call_args.args == (settings.NODE_CALL_SECONDS, messages.MasterDue())
    link.look()
    assert link.dealer.move.call_count == 1
    assert link.later.call_count == 2
    link.hear(greeted(messages.NODE_PROTOCOL))
    link.look()
    assert link.dealer.move.call_count == 1
    assert link.later.call_count == 2
    link.link._follow(ConnectionEvent.LOST)
    link.link._follow(ConnectionEvent.FAILED)
    assert link.later.call_count == 3
    link.look()
    assert link.dealer.move.call_count == 2


@pytest.mark.parametrize(
    ("request_", "ids", "is_taken"),
    [
        (messages.RunTask(spec=messages.JobSpec(ops=[]), key="k"), [], False),
        (messages.AwaitTask(id=7), [8], False),
        (messages.AwaitTask(id=7), [7], True),
        (messages.CancelJob(id=7, kill=True), [], False),
        (messages.StoreInput(token="a" * 32, offset=0, data=b"", is_last=True), [], True),
    ],
)
def test_of_a_task_of_an_earlier_era_only_what_is_known_is_answered(
    link: Link, request_: messages.Message, ids: list[int], *, is_taken: bool
) -> None:
    """An id may be that of another task: the data directory may have been put back to a copy."""
    vars(link.link.runtime)["ask"] = lambda _, asked, then, __: then(
        messages.JobsFound(found=[ids if asked.names == ["k"] else []])
    )
    link.hear(messages.CallTask(frames.encode(request_, 1), known_key="k"))
    assert bool(link.forwarded) is is_taken
    if not is_taken:
        [failure] = said(link)
        assert isinstance(failure, messages.Failure)
        assert failure.text.endswith("it is not known whether it began")
