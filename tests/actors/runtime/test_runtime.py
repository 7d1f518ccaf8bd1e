"""Requests between components: replies, restarts, deadlines; and requests that come too late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.runtime.addresses import JOB_QUEUE
from ganger.actors.runtime.component import Component
from ganger.actors.runtime.mailbox import Expired
from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


class Curious(Component):
    """Asks the queue, and notes what comes of it."""

    name = "curious"

    def boot(self) -> None:
        self.heard: list[int | str] = []
        self.handled: list[messages.Message] = []

    def receive(self, envelope: Envelope) -> None:
        self.handled.append(envelope.message)

    def wonder(self) -> None:
        def heard(reply: messages.LastId) -> None:
            self.heard.append(reply.last_id)

        def refused(error: errors.GangerError) -> None:
            self.heard.append(error.name)

        self.runtime.ask(JOB_QUEUE, messages.ReadLastId(), heard, refused)


@pytest.fixture
def curious(stage: Stage) -> Staged[Curious]:
    return stage.start(Curious)


def asked(stage: Stage) -> Envelope:
    [request] = stage.take_requests(messages.ReadLastId)
    return request


def reply(curious: Staged[Curious], request: Envelope, last_id: int) -> None:
    request.reply(messages.LastId(last_id=last_id))
    curious.handle_mail()


def test_a_reply_is_handled_once(stage: Stage, curious: Staged[Curious]) -> None:
    curious.component.wonder()
    request = asked(stage)
    assert curious.component.runtime.asks
    reply(curious, request, 7)
    reply(curious, request, 8)
    assert curious.component.heard == [7]
    assert not curious.component.runtime.asks


def test_replies_may_come_in_any_order(stage: Stage, curious: Staged[Curious]) -> None:
    curious.component.wonder()
    curious.component.wonder()
    first, second = stage.take_requests(messages.ReadLastId)
    reply(curious, second, 2)
    reply(curious, first, 1)
    assert curious.component.heard == [2, 1]


def test_a_refusal_is_an_error(stage: Stage, curious: Staged[Curious]) -> None:
    curious.component.wonder()
    asked(stage).refuse(errors.ReadOnlyError("no"))
    curious.handle_mail()
    assert curious.component.heard == ["ReadOnlyError"]


def test_a_reply_that_cannot_be_used_is_an_error(stage: Stage, curious: Staged[Curious]) -> None:
    def refuse(_: messages.LastId) -> None:
        raise errors.JobStateError("ended")

    heard: list[str] = []
    component = curious.component
    component.runtime.ask(
        JOB_QUEUE, messages.ReadLastId(), refuse, lambda error: heard.append(error.text)
    )
    reply(curious, asked(stage), 7)
    assert heard == ["ended"]


def test_a_request_is_repeated_when_a_component_was_replaced(
    stage: Stage, curious: Staged[Curious]
) -> None:
    curious.component.wonder()
    lost = asked(stage)
    # Its receiver is being restarted: that is no answer yet.
    lost.refuse(errors.ComponentRestartedError())
    curious.handle_mail()
    assert stage.take_requests(messages.ReadLastId) == []
    curious.hear_of_restart("job_queue")
    again = asked(stage)
    # The predecessor's reply comes late.
    reply(curious, lost, 1)
    assert curious.component.heard == []
    reply(curious, again, 2)
    assert curious.component.heard == [2]
    curious.hear_of_restart("job_queue")
    assert stage.take_requests(messages.ReadLastId) == []


def test_a_request_that_is_not_answered_in_time_fails(
    stage: Stage, curious: Staged[Curious]
) -> None:
    curious.component.wonder()
    request = asked(stage)
    curious.handle(Expired(request.number + 1))
    assert curious.component.heard == []
    curious.handle(Expired(request.number))
    reply(curious, request, 1)
    assert curious.component.heard == ["DeadlineError"]


def test_a_repeated_request_keeps_its_deadline(stage: Stage, curious: Staged[Curious]) -> None:
    curious.component.wonder()
    first = asked(stage)
    curious.hear_of_restart("job_queue")
    second = asked(stage)
    assert first.deadline == second.deadline is not None
    curious.handle(Expired(first.number))
    assert curious.component.heard == []
    # Its alarm goes on, and is now about the second.
    [waiting] = curious.component.runtime._asked.values()
    assert waiting.alarm.item == Expired(second.number)
    curious.handle(waiting.alarm.item)
    assert curious.component.heard == ["DeadlineError"]


def test_a_request_that_is_given_up_hears_nothing_more(
    stage: Stage, curious: Staged[Curious]
) -> None:
    runtime, heard = curious.component.runtime, curious.component.heard
    handles = [
        runtime.ask(
            JOB_QUEUE,
            messages.ReadLastId(),
            lambda _: heard.append(1),
            lambda error: heard.append(error.name),
        )
        for _ in range(2)
    ]
    curious.hear_of_restart("lock_manager")
    requests = stage.take_requests(messages.ReadLastId)
    for _ in range(2):
        runtime.stop_asking(handles[0])
    for request in requests:
        reply(curious, request, 7)
    assert heard == [1]
    assert not runtime.asks
    runtime.stop_asking(handles[1])


class Unscanned(dict[int, Any]):
    """It may be looked into, and not gone through."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all requests are gone through")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_giving_up_one_of_many_requests_looks_at_no_other(curious: Staged[Curious]) -> None:
    runtime = curious.component.runtime
    handles = []
    for _ in range(3_000):
        curious.component.wonder()
        handles.append(runtime._handles_last)
    runtime._asked, runtime._numbers = Unscanned(runtime._asked), Unscanned(runtime._numbers)
    for handle in handles:
        runtime.stop_asking(handle)
    assert not runtime.asks
    assert len(runtime._numbers) == 0


def test_replies_to_a_predecessor_match_no_request(stage: Stage, curious: Staged[Curious]) -> None:
    curious.component.wonder()
    old = asked(stage)
    successor = stage.start(Curious, 2)
    successor.component.wonder()
    assert asked(stage).number != old.number
    old.reply(messages.LastId(last_id=1))
    successor.handle_mail()
    assert successor.component.heard == []


@pytest.mark.parametrize(("seconds", "is_late"), [(-0.001, True), (0.0, False), (60.0, False)])
def test_a_request_whose_deadline_has_passed_is_not_executed(
    curious: Staged[Curious], seconds: float, *, is_late: bool
) -> None:
    asker = Asker()
    request = messages.CancelJob(id=1)
    curious.handle(Envelope(request, asker, deadline=curious.component.runtime.clock() + seconds))
    assert curious.component.handled == ([] if is_late else [request])
    if is_late:
        assert asker.refusal[0] == "DeadlineError"
