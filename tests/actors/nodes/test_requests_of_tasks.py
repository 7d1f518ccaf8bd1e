"""What a node's link asks the components of its daemon for the master, and for how long."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest

from ganger.actors.nodes.node_link import NodeLink
from ganger.storage import settings
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
    made = Link()
    vars(made.link)["_seal"] = None
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


def test_a_link_looks_for_its_master_only_while_none_has_answered(link: Link) -> None:
    link.link._look_later()
    assert link.later.call_args.args == (settings.NODE_CALL_SECONDS, messages.MasterDue())
    link.look()
    assert link.dealer.move.call_count == 1
    assert link.later.call_count == 2
    link.hear(messages.NodeGreeted(cluster="c", name="web1"))
    link.look()
    assert link.dealer.move.call_count == 1
    assert link.later.call_count == 2
    link.link._follow(ConnectionEvent.LOST)
    link.link._follow(ConnectionEvent.FAILED)
    assert link.later.call_count == 3
    link.look()
    assert link.dealer.move.call_count == 2
