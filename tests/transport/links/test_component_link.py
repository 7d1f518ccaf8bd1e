"""Two processes of a daemon, as far as their components see each other."""

from __future__ import annotations

import pytest
from tests.actors.runtime.stage import Asker

from ganger.storage import errors
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.envelopes import Directory, Envelope
from ganger.transport.links.component_link import ComponentLink, LinkedReceiver

OWNER = Owner(7, "/l/job_000007_1", 815)
REQUEST = messages.RequestLocks(OWNER, 0, [("node/a", "shared")])


class Component:
    """Stands for an actor; it keeps what comes."""

    def __init__(self) -> None:
        self.got: list[Envelope] = []

    def tell(self, envelope: Envelope) -> bool:
        self.got.append(envelope)
        return True

    def depth(self) -> int:
        return 0


class Sides:
    """Two processes and what is between them: frames arrive at once."""

    def __init__(self) -> None:
        self.now = [1_000.0, 5.0]
        self.is_cut = False
        self.here, self.there = Directory(), Directory()
        self.link = ComponentLink(self.here, self._to_there, lambda: self.now[0])
        self.other = ComponentLink(self.there, self._to_here, lambda: self.now[1])
        self.locks, self.queue = Component(), Component()
        self.here.enter("lock_manager", LinkedReceiver(self.link, "lock_manager"))
        self.here.enter("job_queue", self.queue)
        self.there.enter("lock_manager", self.locks)
        self.there.enter("job_queue", LinkedReceiver(self.other, "job_queue"))

    def _to_there(self, frame: bytes) -> bool:
        if not self.is_cut:
            self.other.take(frame)
        return not self.is_cut

    def _to_here(self, frame: bytes) -> bool:
        if not self.is_cut:
            self.link.take(frame)
        return not self.is_cut


@pytest.fixture(name="sides")
def two_sides() -> Sides:
    return Sides()


def test_a_request_reaches_the_other_process_and_its_replies_come_back(sides: Sides) -> None:
    asker = Asker()
    sides.here.tell("lock_manager", Envelope(REQUEST, asker, 41))
    [found] = sides.locks.got
    assert found.message == REQUEST
    found.reply(messages.LocksPending([OWNER]))
    found.reply(messages.LocksGranted())
    found.reply(messages.LocksGranted())
    assert asker.answers == [messages.LocksPending([OWNER]), messages.LocksGranted()]
    assert [envelope.number for envelope in asker.envelopes] == [41, 41]
    assert sides.here.depth("lock_manager") == 0


def test_two_requests_with_the_same_number_of_their_senders_get_their_own_replies(
    sides: Sides,
) -> None:
    first, second = Asker(), Asker()
    for asker in (first, second):
        sides.here.tell("lock_manager", Envelope(REQUEST, asker, 1))
    assert sides.here.depth("lock_manager") == 2
    for found, reply in zip(
        sides.locks.got, (messages.LocksGranted(), messages.LocksPending([])), strict=True
    ):
        found.reply(reply)
    assert first.answer == messages.LocksGranted()
    assert second.answer == messages.LocksPending([])


def test_both_processes_ask_each_other(sides: Sides) -> None:
    asker = Asker()
    sides.there.tell("job_queue", Envelope(messages.ReadLastId(), asker, 5))
    [found] = sides.queue.got
    found.reply(messages.LastId(last_id=8))
    assert asker.answer == messages.LastId(last_id=8)


def test_a_notice_is_not_waited_for(sides: Sides) -> None:
    sides.here.tell("lock_manager", Envelope(messages.RecheckOwners()))
    [found] = sides.locks.got
    assert found.reply_to is None
    assert sides.link.open == {}


def test_a_deadline_is_the_same_moment_on_the_clock_of_the_other_process(sides: Sides) -> None:
    sides.here.tell("lock_manager", Envelope(REQUEST, Asker(), 1, deadline=1_002.5))
    [found] = sides.locks.got
    assert found.deadline == 7.5


def test_a_refusal_comes_back_as_a_refusal(sides: Sides) -> None:
    asker = Asker()
    sides.here.tell("lock_manager", Envelope(REQUEST, asker, 1))
    sides.locks.got[0].refuse(errors.LockRequestError("no such lock"))
    assert asker.refusal == ("LockRequestError", "no such lock")


def test_a_request_to_a_component_that_is_being_restarted_there_is_refused(sides: Sides) -> None:
    sides.there.remove("lock_manager")
    asker = Asker()
    sides.here.tell("lock_manager", Envelope(REQUEST, asker, 1))
    assert asker.refusal[0] == "ComponentRestartedError"


def test_a_request_to_a_process_that_is_gone_is_refused_and_forgotten(sides: Sides) -> None:
    sides.is_cut = True
    asker = Asker()
    sides.here.tell("lock_manager", Envelope(REQUEST, asker, 1))
    assert asker.refusal[0] == "ComponentRestartedError"
    assert sides.link.open == {}


def test_a_replaced_component_answers_nothing_more(sides: Sides) -> None:
    asker = Asker()
    sides.here.tell("lock_manager", Envelope(REQUEST, asker, 1))
    sides.link.forget("config_store")
    assert len(sides.link.open) == 1
    sides.link.forget("lock_manager")
    sides.locks.got[0].reply(messages.LocksGranted())
    assert asker.answers == []


def test_a_message_to_the_component_with_the_socket_is_handled_before_what_follows(
    sides: Sides,
) -> None:
    sides.there.remove("lock_manager")

    def start(envelope: Envelope[messages.StartComponent]) -> None:
        sides.there.enter(envelope.message.component, sides.locks)

    sides.other = ComponentLink(sides.there, lambda _: True, lambda: 0.0, ("listener", start))
    sides.link.tell("listener", Envelope(messages.StartComponent("lock_manager", 2)))
    sides.here.tell("lock_manager", Envelope(REQUEST, Asker(), 1))
    assert [found.message for found in sides.locks.got] == [REQUEST]


def test_a_message_that_no_frame_can_hold_is_refused(sides: Sides) -> None:
    asker = Asker()
    odd = messages.RequestLocks(OWNER, 0, [("node/a", object())])  # type: ignore[list-item]
    sides.here.tell("lock_manager", Envelope(odd, asker, 1))
    assert asker.refusal[0] == "FrameError"
    assert sides.locks.got == []


def test_a_reply_that_no_frame_can_hold_becomes_an_error(sides: Sides) -> None:
    asker = Asker()
    sides.here.tell("lock_manager", Envelope(REQUEST, asker, 1))
    sides.locks.got[0].reply(messages.LocksTaken(locks=[object()]))  # type: ignore[list-item]
    assert asker.refusal[0] == "FrameError"
