"""Addresses: an envelope finds its way, or its sender hears that it did not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pykka
import pytest

from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.addresses import Directory, Envelope


class Sender:
    """Collects what it is told."""

    def __init__(self) -> None:
        self.received: list[Envelope] = []

    def tell(self, envelope: Envelope) -> None:
        self.received.append(envelope)

    @property
    def failures(self) -> list[tuple[str, str]]:
        return [
            (envelope.message.error, envelope.message.text)
            for envelope in self.received
            if isinstance(envelope.message, messages.Failure)
        ]


class Listener(pykka.ThreadingActor):
    """Answers everything."""

    def on_receive(self, message: Any) -> None:
        message.reply(messages.Done())


@pytest.fixture
def reference() -> Iterator[pykka.ActorRef[Listener]]:
    started = Listener.start()
    yield started
    started.stop()


@pytest.fixture
def directory() -> Directory:
    return Directory()


def test_an_answer_carries_the_number_of_its_request() -> None:
    sender = Sender()
    request = Envelope(messages.ReadInfo(), sender, number=7, peer=b"p")
    request.reply(messages.Done())
    request.refuse(errors.BusyError("later"))
    assert sender.received == [
        Envelope(messages.Done(), number=7),
        Envelope(messages.Failure("BusyError", "later"), number=7),
    ]


def test_nobody_hears_the_answer_to_what_nobody_asked() -> None:
    notice = Envelope(messages.Boot())
    notice.reply(messages.Done())
    notice.refuse(errors.BusyError())


def test_an_address_leads_to_who_is_behind_the_name_now(
    directory: Directory, reference: pykka.ActorRef[Listener]
) -> None:
    address = directory.address("queue")
    sender = Sender()
    directory.enter("queue", reference)
    address.tell(Envelope(messages.ReadInfo(), sender, number=3))
    reference.stop()
    assert sender.received == [Envelope(messages.Done(), number=3)]
    successor = Listener.start()
    directory.enter("queue", successor)
    address.tell(Envelope(messages.ReadInfo(), sender, number=4))
    successor.stop()
    assert [envelope.number for envelope in sender.received] == [3, 4]


def test_a_request_to_nobody_is_refused(directory: Directory) -> None:
    sender = Sender()
    directory.address("queue").tell(Envelope(messages.ReadInfo(), sender))
    expected = ("ComponentRestartedError", "component queue is being restarted")
    assert sender.failures == [expected]


def test_a_request_to_the_dead_is_refused(
    directory: Directory, reference: pykka.ActorRef[Listener]
) -> None:
    directory.enter("queue", reference)
    reference.stop()
    sender = Sender()
    directory.address("queue").tell(Envelope(messages.ReadInfo(), sender))
    assert len(sender.failures) == 1
    assert not directory.tell("queue", Envelope(messages.Boot()))


def test_a_name_can_be_removed(directory: Directory, reference: pykka.ActorRef[Listener]) -> None:
    directory.enter("queue", reference)
    assert directory.tell("queue", Envelope(messages.Boot()))
    directory.remove("queue")
    directory.remove("queue")
    assert not directory.tell("queue", Envelope(messages.Boot()))


def test_a_notice_to_nobody_is_lost_without_harm(directory: Directory) -> None:
    directory.address("queue").notify(messages.Boot())


def test_the_depth_of_a_mailbox_can_be_asked(directory: Directory) -> None:
    assert directory.depth("queue") == 0
    # Not started: nothing is taken out of its mailbox.
    waiting = Listener()
    directory.enter("queue", waiting.actor_ref)
    for _ in range(3):
        directory.address("queue").notify(messages.Boot())
    assert directory.depth("queue") == 3
