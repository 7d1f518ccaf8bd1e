"""The directory: an envelope finds its receiver, or its sender hears that it did not."""

from __future__ import annotations

import pytest
from tests.actors.runtime.stage import Asker

from ganger.transport import messages
from ganger.transport.envelopes import Directory, Envelope


class Receiver:
    """Answers at once while it lives, as a socket to another process would pass it on."""

    def __init__(self) -> None:
        self.lives = True
        self.taken: list[Envelope] = []

    def tell(self, envelope: Envelope) -> bool:
        if self.lives:
            self.taken.append(envelope)
            envelope.reply(messages.Done())
        return self.lives

    def depth(self) -> int:
        return len(self.taken)


REFUSAL = ("ComponentRestartedError", "component queue is being restarted")


@pytest.fixture
def directory() -> Directory:
    return Directory()


def ask(directory: Directory) -> Asker:
    asker = Asker()
    directory.tell("queue", Envelope(messages.ReadInfo(), asker, number=3))
    return asker


def test_a_name_leads_to_the_receiver_that_is_behind_it_now(directory: Directory) -> None:
    first, second = Receiver(), Receiver()
    directory.enter("queue", first)
    assert ask(directory).answer == messages.Done()
    directory.enter("queue", second)
    assert ask(directory).answer == messages.Done()
    assert [first.depth(), second.depth()] == [1, 1]
    assert directory.depth("queue") == 1


def test_a_request_without_a_receiver_is_refused(directory: Directory) -> None:
    assert ask(directory).refusal == REFUSAL
    assert directory.depth("queue") == 0


def test_a_request_to_a_receiver_that_has_ended_is_refused(directory: Directory) -> None:
    receiver = Receiver()
    directory.enter("queue", receiver)
    receiver.lives = False
    assert ask(directory).refusal == REFUSAL


def test_a_name_can_be_removed_twice(directory: Directory) -> None:
    receiver = Receiver()
    directory.enter("queue", receiver)
    directory.remove("queue")
    directory.remove("queue")
    assert ask(directory).refusal == REFUSAL
    assert receiver.taken == []


def test_a_notice_without_a_receiver_is_lost_without_harm(directory: Directory) -> None:
    directory.tell("queue", Envelope(messages.Boot()))
