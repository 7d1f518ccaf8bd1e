"""What every link promises: numbers, last replies, and what is due after a break."""

from __future__ import annotations

import pytest

from ganger.storage import errors
from ganger.storage.locks.locks import Owner
from ganger.transport.links.link import ATTACH_SECONDS, Attachment, Link
from ganger.transport.messages import Failure, LocksGranted, LocksPending, Message

PENDING = LocksPending([Owner(7, "/l/job_000007_1", 815)])
PASSING = Failure(errors.ComponentRestartedError().name, "it is being restarted")
FINAL = Failure("LockRequestError", "no such lock")


def test_each_request_has_a_number_that_no_other_one_gets() -> None:
    link = Link[str]()
    numbers = [link.ask("a"), link.next_number(), link.ask("b")]
    link.withdraw(numbers[0])
    numbers.append(link.ask("c"))
    assert numbers == [1, 2, 3, 4]
    assert link.open == {3: "b", 4: "c"}


@pytest.mark.parametrize(
    ("repeats", "replies", "answered"),
    [
        (True, [PENDING, PENDING, LocksGranted()], [True, True, True]),
        (True, [LocksGranted(), LocksGranted(), PENDING], [True, False, False]),
        (True, [PASSING, LocksGranted()], [True, True]),
        (True, [FINAL, LocksGranted()], [True, False]),
        (False, [PENDING, LocksGranted()], [True, True]),
        (False, [PASSING, LocksGranted()], [True, False]),
        (False, [FINAL, LocksGranted()], [True, False]),
    ],
)
def test_a_request_is_open_until_its_last_reply(
    replies: list[Message], answered: list[bool], *, repeats: bool
) -> None:
    link = Link[str](repeats=repeats)
    number = link.ask("asked")
    assert link.take_reply(number + 1, LocksGranted()) is None
    found = [link.take_reply(number, reply) for reply in replies]
    assert found == ["asked" if one else None for one in answered]
    assert link.open == {}


def test_after_a_break_what_is_open_is_due_under_its_numbers_and_in_its_order() -> None:
    link = Link[str]()
    first, second, third, fourth = map(link.ask, "abcd")
    link.take_reply(first, LocksGranted())
    link.take_reply(second, PENDING)
    link.take_reply(third, PASSING)
    # It was changed meanwhile, and keeps its place.
    link.withdraw(second)
    link.open[second] = "B"
    assert link.due() == [(second, "B"), (third, "c"), (fourth, "d")]


def test_what_nobody_will_answer_is_dropped() -> None:
    link = Link[str](repeats=False)
    numbers = [link.ask(one) for one in ("lock_manager", "config_store", "lock_manager")]
    link.drop(lambda asked: asked == "lock_manager")
    assert link.open == {numbers[1]: "config_store"}
    assert link.take_reply(numbers[0], LocksGranted()) is None


# Attachments.


def test_an_attachment_is_asked_again_until_it_is_answered() -> None:
    attachment = Attachment()
    number = attachment.ask(100.0)
    assert attachment.is_answer(number)
    assert not attachment.is_answer(Link[str]().ask("a request"))
    assert not attachment.is_due(100.0 + ATTACH_SECONDS / 2)
    assert not attachment.take_answer(number, is_yes=False)
    assert attachment.is_due(100.0 + ATTACH_SECONDS)
    again = attachment.ask(101.0)
    assert not attachment.is_due(101.0)
    # The answer to an earlier one counts, and that to the second changes nothing.
    assert attachment.take_answer(number, is_yes=True)
    assert attachment.is_up
    assert not attachment.take_answer(again, is_yes=True)
    assert not attachment.is_due(200.0)


def test_an_answer_over_an_earlier_connection_does_not_count() -> None:
    attachment = Attachment()
    early = attachment.ask(0.0)
    attachment.note_connection()
    number = attachment.ask(0.0)
    assert not attachment.take_answer(early, is_yes=True)
    assert attachment.take_answer(number, is_yes=True)
    attachment.note_connection()
    assert not attachment.is_up
    assert not attachment.take_answer(number, is_yes=True)
