"""The client's session as a state machine: one request, one reply, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transport.client.talk import TIMEOUT, UNREACHABLE, Talk, calling, failed

from ganger.storage import errors, settings
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.client import in_flight, reachability
from ganger.transport.client.session import INTERRUPTIONS_MAX, LOSSES_MAX
from ganger.transport.zmq.connection_event import ConnectionEvent

# Requests with one reply.


def test_replies_find_their_requests_in_any_order() -> None:
    talk = Talk()
    first, second = talk.call(messages.ReadJob(id=1)), talk.call(messages.ReadJob(id=2))
    talk.reply(messages.JobDocument(id=2, body=b"two"), second.number)
    assert not first.is_done
    talk.reply(messages.JobDocument(id=1, body=b"one"), first.number)
    assert [first.result().body, second.result().body] == [b"one", b"two"]
    assert talk.session.is_idle


def test_a_call_on_a_connection_that_stands_needs_no_look_before_its_deadline() -> None:
    talk = Talk()
    for _ in range(2):
        call = talk.call(messages.ReadJob(id=1), seconds=5.0)
        deadline = call.deadline
        assert talk.session.wake_at == deadline
        talk.session.forget(call)
    talk.link(ConnectionEvent.LOST)
    talk.turn()
    later = talk.session.request(messages.ReadJob(id=1), now=talk.now, deadline=talk.now + 5)
    assert talk.session.wake_at == talk.now
    talk.session.forget(later)


def test_a_failure_becomes_the_error_of_its_name() -> None:
    talk, call = calling(messages.ReadJob(id=7))
    talk.refuse(errors.UnknownJobError("job 7: there is no such job"))
    with pytest.raises(errors.UnknownJobError, match="job 7"):
        call.result()


def test_a_reply_of_another_kind_is_an_error() -> None:
    talk, call = calling(messages.ReadJob(id=7))
    talk.reply(messages.Done())
    with pytest.raises(errors.FrameError, match="read_job: the daemon answered with done"):
        call.result()


def test_a_reply_that_cannot_be_read_fails_its_request_alone() -> None:
    talk = Talk()
    first, second = talk.call(messages.ReadJob(id=1)), talk.call(messages.ReadJob(id=2))
    # Something only a component says.
    talk.reply(messages.Boot(), first.number)
    talk.session.received(b"\xc1 no msgpack", talk.now)
    assert failed(first) == "UnreadableMessageError"
    assert not second.is_done


def test_replies_without_a_waiting_call_are_ignored() -> None:
    talk, call = calling(messages.ReadJob(id=1))
    talk.session.forget(call)
    talk.reply(messages.JobDocument(id=1, body=b""), call.number)
    talk.reply(messages.Done(), 0)
    assert talk.session.is_idle


def test_the_daemon_hears_that_nobody_waits_for_a_change_any_more() -> None:
    asked = messages.AwaitJobChange(1, ["status"], seconds=60.0)
    talk, call = calling(asked)
    talk.session.forget(call)
    talk.session.forget(call)
    assert [frame.message for frame in talk.turn()] == [messages.StopWatch(request_id=call.number)]
    late = talk.call(asked, 5.0)
    assert [frame.message for frame in talk.turn(5.0)] == [
        messages.StopWatch(request_id=late.number)
    ]
    assert failed(late) == "DeadlineError"
    answered = talk.call(asked)
    talk.reply(messages.JobAwaited(values=b"[]", log=b"[]", is_final=True))
    talk.session.forget(answered)
    assert talk.turn() == []
    unsent = Talk(connected=False)
    unsent.session.forget(unsent.call(asked))
    assert unsent.session.is_idle


def test_waiting_for_a_change_goes_on_with_a_successor() -> None:
    asked = messages.AwaitJobChange(1, ["status"], seconds=60.0)
    talk, call = calling(asked)
    (again,) = talk.reconnect()
    assert (again.message, again.number) == (asked, call.number)
    talk.refuse(errors.RequestInterruptedError("component job_queue was restarted"))
    (third,) = talk.turn(1.0)
    assert third.message == asked


def test_what_cannot_be_sent_is_the_callers_error() -> None:
    talk = Talk()
    for value, text in ((object(), "object"), (2**70, "holds a value that cannot be sent")):
        spec = messages.JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": value}])
        with pytest.raises(errors.BadRequestError, match=text):
            talk.call(messages.SubmitJobs(jobs=[spec]))
    assert talk.session.is_idle


def test_a_request_larger_than_a_frame_is_refused_before_it_is_sent() -> None:
    talk = Talk()
    spec = messages.JobSpec(ops=[{"OP_ID": "OP_EXEC", "stdin": "x" * settings.FRAME_BYTES_MAX}])
    with pytest.raises(errors.FrameError, match=str(settings.FRAME_BYTES_MAX)):
        talk.call(messages.SubmitJobs(jobs=[spec]))
    assert not talk.sent


def test_a_request_carries_the_time_that_is_left() -> None:
    talk = Talk()
    talk.call(messages.ReadInfo(), 8.0)
    talk.now += 5.0
    (again,) = talk.reconnect()
    assert [talk.sent[0].deadline_seconds, again.deadline_seconds] == [8.0, 3.0]


# Deadlines.


def test_a_call_ends_at_its_deadline_and_not_before() -> None:
    talk, call = calling(messages.ReadInfo(), 3.0)
    assert talk.session.wait_seconds(talk.now) == 3.0
    talk.turn(2.9)
    assert not call.is_done
    talk.turn(0.1)
    with pytest.raises(errors.DeadlineError, match="read_info"):
        call.result()
    assert talk.session.is_idle


def test_without_a_connection_a_deadline_means_unreachable() -> None:
    talk = Talk()
    talk.link(ConnectionEvent.LOST)
    call = talk.call(messages.ReadInfo(), 3.0)
    talk.turn(3.0)
    with pytest.raises(errors.DaemonUnreachableError, match=UNREACHABLE):
        call.result()


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_request_that_a_daemon_had_before_it_went_has_an_unknown_outcome(restarts: int) -> None:
    talk, call = calling(messages.ArchiveJob(id=1), 3.0)
    for _ in range(restarts):
        talk.reconnect()
    talk.link(ConnectionEvent.LOST)
    talk.turn(3.0)
    with pytest.raises(errors.DaemonUnreachableError) as caught:
        call.result()
    assert caught.value.text == f"the outcome of archive_job is unknown: {UNREACHABLE}"


def busy_until_the_deadline(talk: Talk, call: in_flight.PendingCall[Any]) -> None:
    while not call.is_done:
        talk.refuse(errors.BusyError("too much to do"), call.number)
        talk.turn(talk.session.wait_seconds(talk.now) or 0)


def answered_by_nobody(talk: Talk, _: object) -> None:
    talk.turn(3.0)


def lost_with_its_daemon(talk: Talk, _: object) -> None:
    talk.link(ConnectionEvent.LOST)
    talk.turn(3.0)


def lost_then_refused(talk: Talk, call: in_flight.PendingCall[Any]) -> None:
    talk.reconnect()
    busy_until_the_deadline(talk, call)


def lost_with_its_component(talk: Talk, call: in_flight.PendingCall[Any]) -> None:
    while not call.is_done:
        talk.refuse(errors.ComponentRestartedError("job_queue is restarted"), call.number)
        talk.turn(talk.session.wait_seconds(talk.now) or 0)


def lost_again_and_again(talk: Talk, _: object) -> None:
    for _ in range(LOSSES_MAX + 1):
        talk.link(ConnectionEvent.LOST)
        talk.reconnect()


def lost_over_its_component(talk: Talk, call: in_flight.PendingCall[Any]) -> None:
    while not call.is_done:
        talk.refuse(errors.RequestInterruptedError("job_queue is restarted"), call.number)
        talk.turn(talk.session.wait_seconds(talk.now) or 0)


LOST_ANSWERS: dict[Callable[[Talk, Any], None], str] = {
    answered_by_nobody: "DeadlineError",
    lost_with_its_daemon: "ConnectionLostError",
    lost_then_refused: "DeadlineError",
    lost_with_its_component: "ComponentRestartedError",
    lost_again_and_again: "ConnectionLostError",
    lost_over_its_component: "RequestFatalError",
}


@pytest.mark.parametrize("lose", LOST_ANSWERS)
@pytest.mark.parametrize(
    "asked",
    [
        messages.SubmitJobs(jobs=[], key="k"),
        messages.RetryJob(id=1, key="k"),
        messages.SetLimits(running_jobs_max=3, request="k"),
    ],
)
def test_a_lost_answer_says_unknown_and_that_the_same_key_makes_a_repetition_safe(
    lose: Callable[[Talk, Any], None], asked: messages.Request[Any]
) -> None:
    talk, call = calling(asked, 3.0)
    lose(talk, call)
    assert isinstance(call.error, errors.GangerError)
    assert failed(call) == LOST_ANSWERS[lose]
    assert "is unknown" in call.error.text
    assert call.error.text.endswith(f"; {errors.SAFE_UNDER_KEY}")


@pytest.mark.parametrize("lose", LOST_ANSWERS)
def test_without_a_key_a_lost_answer_promises_no_safe_repetition(
    lose: Callable[[Talk, Any], None],
) -> None:
    talk, call = calling(messages.ArchiveJob(id=1), 3.0)
    lose(talk, call)
    assert isinstance(call.error, errors.GangerError)
    assert failed(call) == LOST_ANSWERS[lose]
    assert errors.SAFE_UNDER_KEY not in call.error.text


def test_what_was_refused_each_time_has_a_known_outcome() -> None:
    talk, call = calling(messages.SubmitJobs(jobs=[], key="k"), 0.2)
    busy_until_the_deadline(talk, call)
    with pytest.raises(errors.BusyError) as caught:
        call.result()
    assert caught.value.text == "too much to do"


def test_of_a_dry_run_nothing_is_unknown() -> None:
    talk, call = calling(messages.SubmitJobs(jobs=[], dry_run=True), 3.0)
    talk.link(ConnectionEvent.LOST)
    talk.turn(3.0)
    with pytest.raises(errors.DaemonUnreachableError) as caught:
        call.result()
    assert caught.value.text == UNREACHABLE


def test_of_a_request_that_was_never_sent_nothing_is_unknown() -> None:
    talk = Talk()
    talk.link(ConnectionEvent.LOST)
    call = talk.call(messages.ArchiveJob(id=1), 3.0)
    talk.turn(3.0)
    with pytest.raises(errors.DaemonUnreachableError) as caught:
        call.result()
    assert caught.value.text == UNREACHABLE


def test_a_first_connection_that_is_not_accepted_is_given_up_soon() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo())
    talk.turn(reachability.GRACE_SECONDS - 0.01)
    assert not call.is_done
    talk.turn(0.01)
    assert failed(call) == "DaemonUnreachableError"
    assert talk.session.wants_new_socket


def test_a_daemon_that_accepts_but_is_slow_gets_all_the_time_there_is() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo())
    talk.link(ConnectionEvent.REACHED)
    talk.turn(TIMEOUT - 1)
    assert not call.is_done


def test_a_first_connection_that_ends_again_and_again_is_given_up() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo())
    for attempt in range(reachability.HANDSHAKES_FAILED_MAX):
        assert not call.is_done, attempt
        talk.link(ConnectionEvent.REACHED, ConnectionEvent.FAILED, ConnectionEvent.LOST)
        talk.turn(reachability.GRACE_SECONDS)
    with pytest.raises(errors.DaemonUnreachableError, match="is the server key right"):
        call.result()


def test_a_refused_key_ends_everything_at_once() -> None:
    talk = Talk(connected=False)
    call, watch = talk.call(messages.ReadInfo()), talk.watch(1)
    talk.link(ConnectionEvent.REACHED, ConnectionEvent.REFUSED)
    assert failed(call) == failed(watch) == "NotAllowedError"
    assert talk.session.wants_new_socket


def test_a_crowded_daemon_is_waited_for_and_named_at_the_deadline() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo(), 3.0)
    talk.link(ConnectionEvent.REACHED, ConnectionEvent.TURNED_AWAY, ConnectionEvent.LOST)
    talk.turn(2.9)
    assert not call.is_done
    talk.turn(0.1)
    with pytest.raises(errors.BusyError, match="too many connections"):
        call.result()


# What is sent again.


def test_after_a_reconnect_every_open_request_is_sent_again_in_order() -> None:
    talk = Talk()
    first, second = talk.call(messages.ReadJob(id=1)), talk.call(messages.ReadJob(id=2))
    done = talk.call(messages.ReadJob(id=3))
    talk.reply(messages.JobDocument(id=3, body=b""), done.number)
    assert [frame.number for frame in talk.reconnect()] == [first.number, second.number]


@pytest.mark.parametrize(
    "message",
    [
        messages.SubmitJobs(jobs=[messages.JobSpec(ops=[{"OP_ID": "OP_TEST_DELAY"}])], key="k"),
        messages.RetryJob(id=1, key="k"),
    ],
)
def test_of_a_submission_that_was_sent_twice_the_second_answer_counts(
    message: messages.Request[messages.JobsSubmitted],
) -> None:
    talk, call = calling(message)
    first = talk.sent[-1].number
    (again,) = talk.reconnect()
    assert again.message == message
    talk.refuse(errors.QueueDrainedError(), first)
    assert not call.is_done
    talk.reply(messages.JobsSubmitted(ids=[7]), again.number)
    assert call.result().ids == [7]
    assert talk.session.is_idle


def test_without_a_connection_nothing_is_sent_until_there_is_one() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadJob(id=1))
    assert talk.sent == []
    assert [frame.number for frame in talk.reconnect()] == [call.number]


@pytest.mark.parametrize("error", [errors.ComponentRestartedError(), errors.BusyError()])
def test_a_passing_refusal_is_answered_by_asking_again_with_growing_pauses(
    error: errors.GangerError,
) -> None:
    talk, call = calling(messages.ReadJob(id=1))
    pauses = []
    for _ in range(8):
        talk.refuse(error, call.number)
        pause = talk.session.wait_seconds(talk.now)
        assert pause is not None
        assert talk.turn(pause * 0.99) == []
        (again,) = talk.turn(pause * 0.02)
        assert again.number == call.number
        pauses.append(round(pause, 3))
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    talk.reply(messages.JobDocument(id=1, body=b""), call.number)
    assert call.result().id == 1


def test_what_a_component_did_not_survive_is_not_sent_to_its_successor() -> None:
    talk, call = calling(messages.ReadJob(id=1))
    talk.refuse(errors.RequestFatalError("component job_queue did not survive this request"))
    assert failed(call) == "RequestFatalError"
    assert talk.turn(5.0) == []


def test_what_may_have_ended_its_component_is_repeated_a_few_times_only() -> None:
    talk, call = calling(messages.ReadJob(id=1), 60.0)
    for _ in range(INTERRUPTIONS_MAX):
        talk.refuse(errors.RequestInterruptedError("component job_queue was restarted"))
        assert [again.number for again in talk.turn(2.0)] == [call.number]
    talk.refuse(errors.RequestInterruptedError("component job_queue was restarted"))
    assert failed(call) == "RequestFatalError"
    with pytest.raises(errors.RequestFatalError, match="4 times over this request"):
        call.result()


def test_what_may_have_ended_the_daemon_is_not_repeated_for_ever() -> None:
    talk, call = calling(messages.ReadJob(id=1), 600.0)
    for _ in range(LOSSES_MAX):
        talk.link(ConnectionEvent.LOST)
        assert [again.number for again in talk.reconnect()] == [call.number]
    talk.link(ConnectionEvent.LOST)
    with pytest.raises(errors.DaemonUnreachableError, match=f"lost {LOSSES_MAX + 1} times before"):
        call.result()


def test_what_is_refused_until_the_deadline_ends_with_that_refusal() -> None:
    talk, call = calling(messages.ReadJob(id=1), 0.2)
    while not call.is_done:
        talk.refuse(errors.BusyError("too much to do"), call.number)
        talk.turn(talk.session.wait_seconds(talk.now) or 0)
    with pytest.raises(errors.BusyError, match="too much to do"):
        call.result()


def test_a_reply_of_a_daemon_that_has_ended_is_not_the_final_reason() -> None:
    talk, call = calling(messages.ReadJob(id=1), 3.0)
    talk.refuse(errors.ComponentRestartedError())
    talk.link(ConnectionEvent.LOST)
    talk.turn(3.0)
    assert failed(call) == "ConnectionLostError"


def test_a_daemon_that_stops_is_believed_by_a_call() -> None:
    talk, call = calling(messages.ReadJob(id=1))
    talk.refuse(errors.StoppingError())
    assert failed(call) == "StoppingError"


def test_a_request_to_stop_reaches_no_second_daemon() -> None:
    talk, call = calling(messages.StopDaemon())
    assert talk.reconnect() == []
    assert failed(call) == "ConnectionLostError"


def test_a_request_waits_for_the_news_of_a_connection_that_could_take_it_already() -> None:
    talk = Talk(connected=False)
    talk.is_open = True
    call = talk.call(messages.StopDaemon())
    assert talk.sent == []
    talk.link(ConnectionEvent.MADE)
    assert [frame.number for frame in talk.turn()] == [call.number]


def test_a_request_to_stop_that_was_never_sent_is_sent_when_possible() -> None:
    talk = Talk(connected=False)
    talk.call(messages.StopDaemon())
    assert [type(frame.message) for frame in talk.reconnect()] == [messages.StopDaemon]


EVENTS = st.sampled_from(["busy", "restarted", "lost", "made", "moment", "second", "other"])


@given(st.lists(EVENTS, max_size=30))
def test_each_connection_carries_a_request_once_until_it_is_refused(events: list[str]) -> None:
    talk, call = calling(messages.ReadJob(id=1), 600.0)
    under_way = 1
    for event in events:
        match event:
            case "busy" | "restarted" if talk.is_open and under_way:
                refusal = {
                    "busy": errors.BusyError(),
                    "restarted": errors.ComponentRestartedError(),
                }
                talk.refuse(refusal[event], call.number)
                under_way = 0
            case "lost" if talk.is_open:
                talk.link(ConnectionEvent.LOST)
                under_way = 0
            case "made" if not talk.is_open:
                talk.link(ConnectionEvent.REACHED, ConnectionEvent.MADE)
            case "other":
                talk.session.forget(talk.call(messages.ReadInfo()))
        seconds = {"moment": 0.01, "second": 1.1}.get(event, 0.0)
        under_way += sum(frame.number == call.number for frame in talk.turn(seconds))
        assert under_way <= talk.is_open
    if not talk.is_open:
        talk.link(ConnectionEvent.REACHED, ConnectionEvent.MADE)
    # It is sent again, however often it was refused.
    under_way += sum(frame.number == call.number for frame in talk.turn(1.1))
    assert under_way == 1
    talk.reply(messages.JobDocument(id=1, body=b""), call.number)
    assert call.result().id == 1
    assert talk.session.is_idle


# What the first sending may have done already.

DELETION = messages.DeleteFilter(uuid="aaaaaaaa-0000-4000-8000-000000000000")
GONE = errors.UnknownFilterError("Filter rule does not exist")


def test_a_deletion_whose_answer_was_lost_is_done_when_the_rule_is_gone() -> None:
    talk, call = calling(DELETION)
    assert [frame.message for frame in talk.reconnect()] == [DELETION]
    talk.refuse(GONE)
    assert call.result() == messages.Done()
    assert talk.session.is_idle


def test_a_deletion_that_a_restarted_component_may_have_done_is_done_when_the_rule_is_gone() -> (
    None
):
    talk, call = calling(DELETION)
    talk.refuse(errors.ComponentRestartedError())
    assert talk.turn(in_flight.RETRY_SECONDS_MIN)
    talk.refuse(GONE)
    assert call.result() == messages.Done()


@pytest.mark.parametrize(
    "message",
    [
        messages.RequestLocks(Owner("a", "b", 1), 0, [("node/a", "shared")]),
        messages.AskDependencies(job_id=1, depends=[]),
    ],
)
def test_a_request_whose_replies_no_client_can_read_is_refused_by_name(
    message: messages.Request[Any],
) -> None:
    talk = Talk()
    with pytest.raises(errors.BadRequestError, match=in_flight.name_of(message)):
        talk.call(message)
    assert (talk.sent, talk.session.is_idle) == ([], True)


def test_every_request_for_clients_has_replies_that_they_can_read() -> None:
    for request in get_args(messages.ClientRequest):
        if issubclass(request, messages.Request) and not issubclass(request, messages.WatchJobs):
            assert in_flight.is_for_clients(request), request


ARCHIVAL = messages.ArchiveJob(id=7)
ARCHIVED = errors.ArchivedJobError("there is no live job 7")
CANCELED_BEFORE = messages.CancelOutcome(accepted=False, text="gone", was_canceled=True)


def test_an_archival_whose_answer_was_lost_is_done_when_the_job_is_archived() -> None:
    talk, call = calling(ARCHIVAL)
    assert [frame.message for frame in talk.reconnect()] == [ARCHIVAL]
    talk.refuse(ARCHIVED)
    assert call.result() == messages.ArchiveOutcome(archived=[7])


def test_an_archival_of_a_job_that_there_is_not_is_refused_also_when_it_is_repeated() -> None:
    talk, call = calling(ARCHIVAL)
    talk.reconnect()
    talk.refuse(errors.UnknownJobError("there is no live job 7"))
    sent_once = Talk()
    other = sent_once.call(ARCHIVAL)
    sent_once.refuse(ARCHIVED)
    assert [failed(call), failed(other)] == ["UnknownJobError", "ArchivedJobError"]


def test_a_cancel_whose_answer_was_lost_is_accepted_when_the_job_is_canceled() -> None:
    talk, call = calling(messages.CancelJob(id=7))
    talk.reconnect()
    talk.reply(CANCELED_BEFORE)
    assert call.result() == messages.CancelOutcome(
        accepted=True, text="Job 7 was canceled", has_ended=True
    )


@pytest.mark.parametrize(("seconds_ago", "is_ours"), [(0.1, True), (3.0, True), (3.1, False)])
def test_a_repeated_cancel_of_a_job_that_others_had_canceled_is_not_accepted(
    seconds_ago: float, *, is_ours: bool
) -> None:
    talk, call = calling(messages.CancelJob(id=7))
    talk.reconnect()
    talk.now += 3.0
    talk.reply(msgspec.structs.replace(CANCELED_BEFORE, seconds_ago=seconds_ago))
    assert call.result().accepted == is_ours


def test_a_cancel_that_came_too_late_is_not_accepted() -> None:
    sent_once = Talk()
    first = sent_once.call(messages.CancelJob(id=7))
    sent_once.reply(CANCELED_BEFORE)
    repeated = Talk()
    second = repeated.call(messages.CancelJob(id=7))
    repeated.reconnect()
    repeated.reply(messages.CancelOutcome(accepted=False, text="it had ended"))
    assert not first.result().accepted
    assert not second.result().accepted


def test_a_deletion_that_was_not_executed_before_is_refused_when_there_is_no_rule() -> None:
    sent_once = Talk()
    first = sent_once.call(DELETION)
    sent_once.refuse(GONE)
    not_taken = Talk()
    second = not_taken.call(DELETION)
    not_taken.refuse(errors.BusyError())
    assert not_taken.turn(in_flight.RETRY_SECONDS_MIN)
    not_taken.refuse(GONE)
    never_left = Talk(connected=False)
    third = never_left.call(DELETION)
    never_left.reconnect()
    never_left.refuse(GONE)
    assert [failed(call) for call in (first, second, third)] == ["UnknownFilterError"] * 3


def test_other_errors_and_other_requests_keep_their_errors_when_sent_again() -> None:
    talk = Talk()
    deletion, listing = talk.call(DELETION), talk.call(messages.ListFilters(uuids=["x"]))
    talk.reconnect()
    talk.refuse(errors.FilterRuleError("uuid: Unable to parse UUID"), deletion.number)
    talk.refuse(GONE, listing.number)
    assert [failed(call) for call in (deletion, listing)] == [
        "FilterRuleError",
        "UnknownFilterError",
    ]


# The callback.


@pytest.mark.parametrize(
    "end",
    [
        lambda talk: talk.reply(messages.Done()),
        lambda talk: talk.turn(TIMEOUT),
        lambda talk: talk.session.fail_all(RuntimeError()),
        lambda talk: talk.link(ConnectionEvent.REFUSED),
    ],
)
def test_a_call_notifies_of_its_end_whatever_ends_it(end: Callable[[Talk], None]) -> None:
    talk = Talk()
    called = []
    call = talk.call(messages.StopDaemon())
    call.changed = lambda: called.append(call.is_done)
    end(talk)
    assert called == [True]
