"""The client's session as a state machine: times are numbers, frames are lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ganger.storage import errors, settings
from ganger.storage.job_views import LogLine, StatusChange
from ganger.storage.jobs import JobStatus, LogEntry
from ganger.transport import exchanges, frames, messages, session, watches
from ganger.transport.session import LinkEvent, Session

UNREACHABLE = "no daemon answers"
TIMEOUT = 30.0
HEARTBEAT = settings.CLIENT_HEARTBEAT_SECONDS


class Talk:
    """A session, a clock, and the daemon's end of the line."""

    def __init__(self, *, connected: bool = True) -> None:
        self.now = 1000.0
        self.is_open = connected
        self.sent: list[frames.Frame] = []
        self.session = Session(UNREACHABLE, TIMEOUT)
        self.session.opened(self.now)
        if connected:
            self.link(LinkEvent.REACHED, LinkEvent.MADE)

    def link(self, *events: LinkEvent) -> None:
        for event in events:
            self.is_open = event is LinkEvent.MADE
            self.session.link_changed(event, self.now)

    def reconnect(self) -> list[frames.Frame]:
        self.link(LinkEvent.LOST, LinkEvent.REACHED, LinkEvent.MADE)
        return self.turn()

    def call(
        self, message: messages.Request[exchanges.ReplyT], seconds: float = TIMEOUT
    ) -> exchanges.Call[exchanges.ReplyT]:
        call = self.session.request(message, now=self.now, deadline=self.now + seconds)
        self.turn()
        return call

    def watch(self, *ids: int, seconds: float | None = None) -> exchanges.Stream:
        deadline = None if seconds is None else self.now + seconds
        stream = self.session.watch(list(ids) or None, log=True, now=self.now, deadline=deadline)
        self.turn()
        return stream

    def turn(self, seconds: float = 0.0) -> list[frames.Frame]:
        """Let time pass; returns what was sent."""
        self.now += seconds
        new: list[frames.Frame] = []

        def send(data: bytes) -> bool:
            if self.is_open:
                new.append(frames.decode(data, messages.ClientRequest))
            return self.is_open

        self.session.tick(self.now)
        self.session.flush(send, self.now)
        self.sent += new
        return new

    def reply(self, message: messages.Message, number: int | None = None) -> None:
        number = self.sent[-1].number if number is None else number
        self.session.received(frames.encode(message, number), self.now)

    def refuse(self, error: errors.GangerError, number: int | None = None) -> None:
        self.reply(messages.Failure(error.name, error.text), number)

    def tell(self, number: int, job_id: int, status: JobStatus) -> None:
        self.reply(messages.JobChanged(job=row(job_id, status)), number)

    def log(self, number: int, job_id: int, *serials: int) -> None:
        entries: list[LogEntry] = [(each, (1, 500_000), "message", str(each)) for each in serials]
        self.reply(messages.JobLogged(id=job_id, op_index=0, entries=entries), number)

    def read(self, stream: exchanges.Stream) -> list[str]:
        """What a reader of the watch is given: ``3:running`` and ``3#1`` for a log line."""
        parts = []
        while (part := self.session.next_part(stream, self.now)) is not None:
            match part:
                case StatusChange():
                    parts.append(f"{part.job_id}:{part.status}")
                case LogLine():
                    parts.append(f"{part.job_id}#{part.serial}")
        return parts


def row(job_id: int, status: JobStatus = JobStatus.QUEUED) -> messages.JobSummary:
    return messages.JobSummary(id=job_id, status=status, summary="EXEC(make)", priority=0)


def failed(exchange: exchanges.Exchange) -> str:
    assert exchange.is_done
    return type(exchange.error).__name__


def ended(exchange: exchanges.Exchange) -> bool:
    """Whether it has come to a good end."""
    return exchange.is_done and exchange.error is None


# Requests with one reply.


def test_replies_find_their_requests_in_any_order() -> None:
    talk = Talk()
    first, second = talk.call(messages.ReadJob(id=1)), talk.call(messages.ReadJob(id=2))
    talk.reply(messages.JobDocument(id=2, body=b"two"), second.number)
    assert not first.is_done
    talk.reply(messages.JobDocument(id=1, body=b"one"), first.number)
    assert [first.result().body, second.result().body] == [b"one", b"two"]
    assert talk.session.is_idle


def test_a_failure_becomes_the_error_of_its_name() -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=7))
    talk.refuse(errors.UnknownJobError("job 7: there is no such job"))
    with pytest.raises(errors.UnknownJobError, match="job 7"):
        call.result()


def test_a_reply_of_another_kind_is_an_error() -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=7))
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


def test_answers_nobody_waits_for_are_ignored() -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=1))
    talk.session.forget(call)
    talk.reply(messages.JobDocument(id=1, body=b""), call.number)
    talk.reply(messages.Done(), 0)
    assert talk.session.is_idle


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


def test_the_daemon_is_told_how_much_time_is_left() -> None:
    talk = Talk()
    talk.call(messages.ReadInfo(), 8.0)
    talk.now += 5.0
    (again,) = talk.reconnect()
    assert [talk.sent[0].deadline_seconds, again.deadline_seconds] == [8.0, 3.0]


# Deadlines.


def test_a_call_ends_at_its_deadline_and_not_before() -> None:
    talk = Talk()
    call = talk.call(messages.ReadInfo(), 3.0)
    assert talk.session.wait_seconds(talk.now) == 3.0
    talk.turn(2.9)
    assert not call.is_done
    talk.turn(0.1)
    with pytest.raises(errors.DeadlineError, match="read_info"):
        call.result()
    assert talk.session.is_idle


def test_without_a_connection_a_deadline_means_unreachable() -> None:
    talk = Talk()
    talk.link(LinkEvent.LOST)
    call = talk.call(messages.ReadInfo(), 3.0)
    talk.turn(3.0)
    with pytest.raises(errors.DaemonUnreachableError, match=UNREACHABLE):
        call.result()


def test_a_first_connection_nobody_accepts_is_given_up_soon() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo())
    talk.turn(session.GRACE_SECONDS - 0.01)
    assert not call.is_done
    talk.turn(0.01)
    assert failed(call) == "DaemonUnreachableError"
    assert talk.session.wants_new_line


def test_a_daemon_that_accepts_but_is_slow_gets_all_the_time_there_is() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo())
    talk.link(LinkEvent.REACHED)
    talk.turn(TIMEOUT - 1)
    assert not call.is_done


def test_a_first_connection_that_ends_again_and_again_is_given_up() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo())
    for attempt in range(session.HANDSHAKES_FAILED_MAX):
        assert not call.is_done, attempt
        talk.link(LinkEvent.REACHED, LinkEvent.FAILED, LinkEvent.LOST)
        talk.turn(session.GRACE_SECONDS)
    with pytest.raises(errors.DaemonUnreachableError, match="is the server key right"):
        call.result()


def test_a_refused_key_ends_everything_at_once() -> None:
    talk = Talk(connected=False)
    call, stream = talk.call(messages.ReadInfo()), talk.watch(1)
    talk.link(LinkEvent.REACHED, LinkEvent.REFUSED)
    assert failed(call) == failed(stream) == "NotAllowedError"
    assert talk.session.wants_new_line


def test_a_crowded_daemon_is_waited_for_and_named_at_the_deadline() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadInfo(), 3.0)
    talk.link(LinkEvent.REACHED, LinkEvent.TURNED_AWAY, LinkEvent.LOST)
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


def test_without_a_connection_nothing_is_sent_until_there_is_one() -> None:
    talk = Talk(connected=False)
    call = talk.call(messages.ReadJob(id=1))
    assert talk.sent == []
    assert [frame.number for frame in talk.reconnect()] == [call.number]


@pytest.mark.parametrize("error", [errors.ComponentRestartedError(), errors.BusyError()])
def test_a_passing_refusal_is_answered_by_asking_again_with_growing_pauses(
    error: errors.GangerError,
) -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=1))
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


def test_what_is_refused_until_the_deadline_ends_with_that_refusal() -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=1), 0.2)
    while not call.is_done:
        talk.refuse(errors.BusyError("too much to do"), call.number)
        talk.turn(talk.session.wait_seconds(talk.now) or 0)
    with pytest.raises(errors.BusyError, match="too much to do"):
        call.result()


def test_what_a_daemon_said_before_it_went_is_not_the_reason_in_the_end() -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=1), 3.0)
    talk.refuse(errors.ComponentRestartedError())
    talk.link(LinkEvent.LOST)
    talk.turn(3.0)
    assert failed(call) == "DaemonUnreachableError"


def test_a_daemon_that_stops_is_believed_by_a_call() -> None:
    talk = Talk()
    call = talk.call(messages.ReadJob(id=1))
    talk.refuse(errors.StoppingError())
    assert failed(call) == "StoppingError"


def test_a_wish_to_stop_reaches_no_second_daemon() -> None:
    talk = Talk()
    call = talk.call(messages.StopDaemon())
    assert talk.reconnect() == []
    assert failed(call) == "ConnectionLostError"


def test_a_wish_to_stop_that_never_left_is_sent_when_it_can_be() -> None:
    talk = Talk(connected=False)
    talk.call(messages.StopDaemon())
    assert [type(frame.message) for frame in talk.reconnect()] == [messages.StopDaemon]


# Watches.


def test_a_watch_gives_changes_and_lines_and_ends_when_the_daemon_says_so() -> None:
    talk = Talk()
    stream = talk.watch(3)
    number = stream.number
    talk.tell(number, 3, JobStatus.QUEUED)
    talk.log(number, 3, 1, 2)
    talk.tell(number, 3, JobStatus.SUCCESS)
    talk.log(number, 3, 3)
    assert not ended(stream)
    talk.reply(messages.WatchEnded(), number)
    assert ended(stream)
    assert talk.read(stream) == ["3:queued", "3#1", "3#2", "3:success", "3#3"]


def test_each_change_names_the_status_before() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.tell(stream.number, 3, JobStatus.QUEUED)
    talk.tell(stream.number, 3, JobStatus.RUNNING)
    parts = [talk.session.next_part(stream, talk.now) for _ in range(2)]
    assert [part.previous for part in parts if isinstance(part, StatusChange)] == [None, "queued"]


def test_a_resumed_watch_asks_from_where_it_stands_and_repeats_nothing() -> None:
    talk = Talk()
    stream = talk.watch(3, 4, 5)
    old = stream.number
    for job_id in (3, 4, 5):
        talk.tell(old, job_id, JobStatus.RUNNING)
    talk.log(old, 3, 1, 2)
    talk.tell(old, 4, JobStatus.ERROR)
    (again,) = talk.reconnect()
    assert again.message == messages.WatchJobs(ids=[3, 5], log=True, log_after={3: 2})

    talk.tell(again.number, 3, JobStatus.RUNNING)
    talk.log(again.number, 3, 2, 3)
    talk.tell(again.number, 5, JobStatus.SUCCESS)
    assert talk.read(stream) == [
        "3:running", "4:running", "5:running", "3#1", "3#2", "4:error", "3#3", "5:success",
    ]  # fmt: skip


def test_after_a_reconnect_parts_of_the_old_connection_are_not_believed() -> None:
    talk = Talk()
    stream = talk.watch(3)
    old = stream.number
    (again,) = talk.reconnect()
    talk.tell(again.number, 3, JobStatus.SUCCESS)
    talk.tell(old, 3, JobStatus.RUNNING)
    assert talk.read(stream) == ["3:success"]


def test_a_watch_with_nothing_left_to_see_ends_at_a_reconnect() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.tell(stream.number, 3, JobStatus.SUCCESS)
    assert talk.reconnect() == []
    assert stream.is_done
    assert stream.error is None


@pytest.mark.parametrize(
    "error", [errors.StoppingError(), errors.BusyError(), errors.ComponentRestartedError()]
)
def test_a_watch_outlives_what_passes(error: errors.GangerError) -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.refuse(error, stream.number)
    (again,) = talk.turn(session.RETRY_SECONDS_MIN)
    assert again.number == stream.number
    talk.tell(stream.number, 3, JobStatus.SUCCESS)
    assert talk.read(stream) == ["3:success"]


def test_a_watch_ended_too_early_is_taken_up_again() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.reply(messages.WatchEnded(), stream.number)
    assert not stream.is_done
    assert [type(frame.message) for frame in talk.turn(1)] == [messages.WatchJobs]


def test_a_watch_refused_for_too_long_ends_with_the_refusal() -> None:
    talk = Talk()
    stream = talk.watch(3)
    for _ in range(100):
        if stream.is_done:
            break
        talk.refuse(errors.BusyError("too many watches"), stream.number)
        talk.turn(1.0)
    assert failed(stream) == "BusyError"


def test_a_watch_that_got_news_in_between_is_not_given_up() -> None:
    talk = Talk()
    stream = talk.watch(3)
    for serial in range(1, 9):
        talk.refuse(errors.BusyError("too many watches"), stream.number)
        talk.turn(TIMEOUT / 2)
        talk.log(stream.number, 3, serial)
    assert not stream.is_done


def test_a_watch_of_an_unknown_job_ends_with_that_error() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.refuse(errors.UnknownJobError("job 3: there is no such job"))
    assert failed(stream) == "UnknownJobError"
    assert talk.session.is_idle


def test_at_its_deadline_a_watch_names_the_jobs_that_have_not_ended() -> None:
    talk = Talk()
    stream = talk.watch(*range(1, 15), seconds=2.0)
    talk.tell(stream.number, 1, JobStatus.SUCCESS)
    talk.tell(stream.number, 2, JobStatus.RUNNING)
    (notice,) = talk.turn(2.0)
    assert notice.message == messages.StopWatch(request_id=stream.number)
    assert failed(stream) == "DeadlineError"
    text = str(stream.error)
    assert "2 (running), 3 (not heard of)" in text
    assert text.endswith("and 3 more")
    assert "1 (" not in text.replace("11 (", "")


def test_a_forgotten_watch_is_taken_leave_of_once() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.session.forget(stream)
    talk.session.forget(stream)
    (notice,) = talk.turn()
    assert notice.message == messages.StopWatch(request_id=stream.number)
    assert talk.session.is_idle


def test_nothing_is_said_of_a_watch_that_a_lost_connection_has_ended() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.session.forget(stream)
    talk.link(LinkEvent.LOST)
    assert talk.session.is_idle
    assert talk.reconnect() == []


# Probes.


def test_a_silent_watch_is_probed_and_an_answer_contents_it() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.tell(stream.number, 3, JobStatus.RUNNING)
    assert talk.turn(HEARTBEAT - 0.1) == []
    (probe,) = talk.turn(0.1)
    assert probe.message == messages.ListJobs(ids=[3], limit=watches.PROBE_IDS_MAX)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING)]))
    assert talk.turn(HEARTBEAT - 0.1) == []
    assert len(talk.turn(0.1)) == 1


def test_a_watch_that_hears_something_is_not_probed() -> None:
    talk = Talk()
    stream = talk.watch(3)
    for serial in range(1, 9):
        assert talk.turn(HEARTBEAT / 2) == []
        talk.log(stream.number, 3, serial)


def test_a_probe_that_shows_an_untold_status_revives_the_watch() -> None:
    talk = Talk()
    stream = talk.watch(3)
    old = stream.number
    talk.tell(old, 3, JobStatus.QUEUED)
    talk.turn(HEARTBEAT)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING)]))
    stop, again = talk.turn()
    assert stop.message == messages.StopWatch(request_id=old)
    assert isinstance(again.message, messages.WatchJobs)

    # It lived after all: what was on its way counts, the end of the old one does not.
    talk.tell(old, 3, JobStatus.WAITING)
    talk.reply(messages.WatchEnded(), old)
    talk.tell(again.number, 3, JobStatus.RUNNING)
    assert talk.read(stream) == ["3:queued", "3:waiting", "3:running"]
    assert not stream.is_done


def test_once_the_new_watch_has_spoken_the_old_one_is_not_heard() -> None:
    talk = Talk()
    stream = talk.watch(3)
    old = stream.number
    talk.turn(HEARTBEAT)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING)]))
    _, again = talk.turn()
    talk.tell(again.number, 3, JobStatus.RUNNING)
    talk.tell(old, 3, JobStatus.WAITING)
    assert talk.read(stream) == ["3:running"]


def test_a_watch_of_all_jobs_is_probed_by_the_next_job() -> None:
    talk = Talk()
    stream = talk.watch()
    talk.tell(stream.number, 17, JobStatus.QUEUED)
    (probe,) = talk.turn(HEARTBEAT)
    assert probe.message == messages.ListJobs(after=17, limit=1)
    talk.reply(messages.JobRows(rows=[row(18)]))
    assert [type(frame.message) for frame in talk.turn()] == [
        messages.StopWatch,
        messages.WatchJobs,
    ]


def test_a_watch_whose_probe_gets_no_answer_ends() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.turn(HEARTBEAT)
    talk.turn(TIMEOUT - 0.1)
    assert not stream.is_done
    talk.turn(0.1)
    assert failed(stream) == "DeadlineError"


def test_a_watch_without_a_daemon_for_too_long_ends_as_unreachable() -> None:
    talk = Talk()
    stream = talk.watch(3)
    talk.link(LinkEvent.LOST)
    talk.turn(HEARTBEAT)
    talk.turn(TIMEOUT)
    assert failed(stream) == "DaemonUnreachableError"
    assert talk.session.is_idle


def test_a_probe_outlives_a_reconnect_no_more_than_its_reason() -> None:
    talk = Talk()
    talk.watch(3)
    talk.turn(HEARTBEAT)
    assert [type(frame.message) for frame in talk.reconnect()] == [messages.WatchJobs]


# Readers who do not read.


def test_a_watch_that_is_not_read_rests_and_goes_on_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "PARTS_MAX", 3)
    talk = Talk()
    stream = talk.watch(3)
    old = stream.number
    talk.tell(old, 3, JobStatus.QUEUED)
    talk.log(old, 3, 1, 2, 3)
    assert [frame.message for frame in talk.turn()] == [messages.StopWatch(request_id=old)]
    talk.log(old, 3, 4)
    talk.turn(10 * TIMEOUT)
    assert talk.read(stream) == ["3:queued", "3#1", "3#2", "3#3"]
    (again,) = talk.turn()
    assert again.message == messages.WatchJobs(ids=[3], log=True, log_after={3: 3})
    talk.log(again.number, 3, 4)
    assert talk.read(stream) == ["3#4"]


def test_a_watch_of_all_jobs_remembers_only_so_many_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "FINISHED_MAX", 2)
    talk = Talk()
    stream = talk.watch()
    for job_id in (1, 2, 3, 2):
        talk.tell(stream.number, job_id, JobStatus.SUCCESS)
    assert talk.read(stream) == ["1:success", "2:success", "3:success"]
    talk.tell(stream.number, 1, JobStatus.SUCCESS)
    assert talk.read(stream) == ["1:success"]


# The callback.


@pytest.mark.parametrize(
    "end",
    [
        lambda talk: talk.reply(messages.Done()),
        lambda talk: talk.turn(TIMEOUT),
        lambda talk: talk.session.fail_all(RuntimeError()),
        lambda talk: talk.link(LinkEvent.REFUSED),
    ],
)
def test_whoever_waits_is_called_whatever_ends_the_call(end: Callable[[Talk], None]) -> None:
    talk = Talk()
    called = []
    call = talk.call(messages.StopDaemon())
    call.changed = lambda: called.append(call.is_done)
    end(talk)
    assert called == [True]
