"""Watches of the client's session: nothing twice, nothing lost, and an end."""

from __future__ import annotations

import pytest
from tests.transport.client.talk import HEARTBEAT, TIMEOUT, Talk, ended, failed, row, watching

from ganger.storage import errors
from ganger.storage.jobs.job_views import StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.client import in_flight, session, watch_progress
from ganger.transport.zmq.connection_event import ConnectionEvent


def test_a_watch_gives_changes_and_lines_until_the_daemon_ends_it() -> None:
    talk, watch = watching(3)
    number = watch.number
    talk.tell(number, 3, JobStatus.QUEUED)
    talk.log(number, 3, 1, 2)
    talk.tell(number, 3, JobStatus.SUCCESS)
    talk.log(number, 3, 3)
    assert not ended(watch)
    talk.reply(messages.WatchEnded(), number)
    assert ended(watch)
    assert talk.read(watch) == ["3:queued", "3#1", "3#2", "3:success", "3#3"]


def test_each_change_names_the_status_before() -> None:
    talk, watch = watching(3)
    talk.tell(watch.number, 3, JobStatus.QUEUED)
    talk.tell(watch.number, 3, JobStatus.RUNNING)
    parts = [talk.session.next_part(watch, talk.now) for _ in range(2)]
    assert [part.previous for part in parts if isinstance(part, StatusChange)] == [None, "queued"]


def test_a_resumed_watch_asks_from_where_it_stands_and_repeats_nothing() -> None:
    talk, watch = watching(3, 4, 5)
    old = watch.number
    for job_id in (3, 4, 5):
        talk.tell(old, job_id, JobStatus.RUNNING)
    talk.log(old, 3, 1, 2)
    talk.tell(old, 4, JobStatus.ERROR)
    (again,) = talk.reconnect()
    assert again.message == messages.WatchJobs(ids=[3, 5], log=True, log_after={3: 2})

    talk.tell(again.number, 3, JobStatus.RUNNING)
    talk.log(again.number, 3, 2, 3)
    talk.tell(again.number, 5, JobStatus.SUCCESS)
    assert talk.read(watch) == [
        "3:running", "4:running", "5:running", "3#1", "3#2", "4:error", "3#3", "5:success",
    ]  # fmt: skip


def test_a_resumed_watch_of_all_jobs_asks_for_the_ends_it_may_have_missed() -> None:
    talk, watch = watching()
    for job_id in (3, 4, 5):
        talk.tell(watch.number, job_id, JobStatus.RUNNING)
    talk.log(watch.number, 3, 1, 2)
    talk.tell(watch.number, 4, JobStatus.ERROR)
    (again,) = talk.reconnect()
    assert again.message == messages.WatchJobs(log=True, log_after={3: 2, 5: 0})


def test_after_a_reconnect_parts_of_the_old_connection_are_not_believed() -> None:
    talk, watch = watching(3)
    old = watch.number
    (again,) = talk.reconnect()
    talk.tell(again.number, 3, JobStatus.SUCCESS)
    talk.tell(old, 3, JobStatus.RUNNING)
    assert talk.read(watch) == ["3:success"]


def test_a_watch_with_nothing_left_to_see_ends_at_a_reconnect() -> None:
    talk, watch = watching(3)
    talk.tell(watch.number, 3, JobStatus.SUCCESS)
    assert talk.reconnect() == []
    assert watch.is_done
    assert watch.error is None


@pytest.mark.parametrize(
    "error", [errors.StoppingError(), errors.BusyError(), errors.ComponentRestartedError()]
)
def test_a_watch_outlives_what_passes(error: errors.GangerError) -> None:
    talk, watch = watching(3)
    talk.refuse(error, watch.number)
    (again,) = talk.turn(in_flight.RETRY_SECONDS_MIN)
    assert again.number == watch.number
    talk.tell(watch.number, 3, JobStatus.SUCCESS)
    assert talk.read(watch) == ["3:success"]


def test_a_watch_ended_too_early_is_taken_up_again() -> None:
    talk, watch = watching(3)
    talk.reply(messages.WatchEnded(), watch.number)
    assert not watch.is_done
    assert [type(frame.message) for frame in talk.turn(1)] == [messages.WatchJobs]


def test_a_watch_refused_for_too_long_ends_with_the_refusal() -> None:
    talk, watch = watching(3)
    for _ in range(100):
        if watch.is_done:
            break
        talk.refuse(errors.BusyError("too many watches"), watch.number)
        talk.turn(1.0)
    assert failed(watch) == "BusyError"


def test_a_watch_that_got_news_in_between_is_not_given_up() -> None:
    talk, watch = watching(3)
    for serial in range(1, 9):
        talk.refuse(errors.BusyError("too many watches"), watch.number)
        talk.turn(TIMEOUT / 2)
        talk.log(watch.number, 3, serial)
    assert not watch.is_done


def test_a_watch_of_an_unknown_job_ends_with_that_error() -> None:
    talk, watch = watching(3)
    talk.refuse(errors.UnknownJobError("job 3: there is no such job"))
    assert failed(watch) == "UnknownJobError"
    assert talk.session.is_idle


def test_at_its_deadline_a_watch_names_the_jobs_that_have_not_ended() -> None:
    talk, watch = watching(*range(1, 15), seconds=2.0)
    talk.tell(watch.number, 1, JobStatus.SUCCESS)
    talk.tell(watch.number, 2, JobStatus.RUNNING)
    (notice,) = talk.turn(2.0)
    assert notice.message == messages.StopWatch(request_id=watch.number)
    assert failed(watch) == "DeadlineError"
    text = str(watch.error)
    assert "2 (running), 3 (not heard of)" in text
    assert text.endswith("and 3 more")
    assert "1 (" not in text.replace("11 (", "")


def test_at_its_deadline_a_watch_of_all_jobs_has_nothing_to_name() -> None:
    talk, watch = watching(seconds=2.0)
    talk.turn(2.0)
    assert (failed(watch), str(watch.error)) == ("DeadlineError", "the time is over")


def test_a_forgotten_watch_is_taken_leave_of_once() -> None:
    talk, watch = watching(3)
    talk.session.forget(watch)
    talk.session.forget(watch)
    (notice,) = talk.turn()
    assert notice.message == messages.StopWatch(request_id=watch.number)
    assert talk.session.is_idle


def test_a_watch_that_a_lost_connection_has_ended_reports_nothing() -> None:
    talk, watch = watching(3)
    talk.session.forget(watch)
    talk.link(ConnectionEvent.LOST)
    assert talk.session.is_idle
    assert talk.reconnect() == []


# Probes.


def test_a_silent_watch_is_probed_and_an_answer_contents_it() -> None:
    talk, watch = watching(3)
    talk.tell(watch.number, 3, JobStatus.RUNNING)
    assert talk.turn(HEARTBEAT - 0.1) == []
    (probe,) = talk.turn(0.1)
    assert probe.message == messages.ListJobs(ids=[3], limit=watch_progress.PROBE_IDS_MAX)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING)]))
    assert talk.turn(HEARTBEAT - 0.1) == []
    assert len(talk.turn(0.1)) == 1


def test_a_watch_that_receives_messages_is_not_probed() -> None:
    talk, watch = watching(3)
    for serial in range(1, 9):
        assert talk.turn(HEARTBEAT / 2) == []
        talk.log(watch.number, 3, serial)


def test_a_probe_that_shows_a_missed_status_revives_the_watch() -> None:
    talk, watch = watching(3)
    old = watch.number
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
    assert talk.read(watch) == ["3:queued", "3:waiting", "3:running"]
    assert not watch.is_done


def test_once_the_new_watch_has_spoken_the_old_one_is_not_heard() -> None:
    talk, watch = watching(3)
    old = watch.number
    talk.turn(HEARTBEAT)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING)]))
    _, again = talk.turn()
    talk.tell(again.number, 3, JobStatus.RUNNING)
    talk.tell(old, 3, JobStatus.WAITING)
    assert talk.read(watch) == ["3:running"]


def test_a_watch_of_all_jobs_is_probed_by_the_next_job() -> None:
    talk, watch = watching()
    talk.tell(watch.number, 17, JobStatus.QUEUED)
    (probe,) = talk.turn(HEARTBEAT)
    assert isinstance(probe.message, messages.ListJobs)
    assert (probe.message.after, probe.message.limit) == (17, 1)
    # Jobs that ended before the watch began are never sent.
    assert probe.message.statuses == ["queued", "waiting", "canceling", "running"]
    talk.reply(messages.JobRows(rows=[row(18)]))
    assert [type(frame.message) for frame in talk.turn()] == [
        messages.StopWatch,
        messages.WatchJobs,
    ]


def test_a_watch_without_a_deadline_outlasts_a_daemon_that_does_not_answer() -> None:
    talk, watch = watching(3)
    old = watch.number
    talk.tell(old, 3, JobStatus.QUEUED)
    talk.turn(HEARTBEAT)
    for _ in range(20):
        (probe,) = talk.turn(TIMEOUT)
        assert isinstance(probe.message, messages.ListJobs)
        assert not watch.is_done
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.QUEUED)]))
    talk.tell(old, 3, JobStatus.SUCCESS)
    talk.reply(messages.WatchEnded(), old)
    assert ended(watch)
    assert talk.read(watch) == ["3:queued", "3:success"]


def test_a_watch_with_a_deadline_ends_beside_a_daemon_that_does_not_answer() -> None:
    talk, watch = watching(3, seconds=2 * TIMEOUT)
    talk.turn(HEARTBEAT)
    talk.turn(TIMEOUT)
    assert not watch.is_done
    talk.turn(TIMEOUT - HEARTBEAT)
    assert failed(watch) == "DeadlineError"
    assert talk.session.is_idle


def test_a_daemon_that_falls_silent_and_then_goes_away_ends_a_watch() -> None:
    talk, watch = watching(3)
    talk.turn(HEARTBEAT)
    talk.turn(TIMEOUT)
    talk.link(ConnectionEvent.LOST)
    talk.turn(TIMEOUT)
    assert failed(watch) == "DaemonUnreachableError"


def test_a_watch_without_a_daemon_for_too_long_ends_as_unreachable() -> None:
    talk, watch = watching(3)
    talk.link(ConnectionEvent.LOST)
    talk.turn(HEARTBEAT)
    talk.turn(TIMEOUT)
    assert failed(watch) == "DaemonUnreachableError"
    assert talk.session.is_idle


def test_a_probe_outlives_a_reconnect_no_more_than_its_reason() -> None:
    talk = Talk()
    talk.watch(3)
    talk.turn(HEARTBEAT)
    assert [type(frame.message) for frame in talk.reconnect()] == [messages.WatchJobs]


# Readers that do not read.


def test_a_watch_that_is_not_read_rests_and_goes_on_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "PARTS_MAX", 3)
    talk, watch = watching(3)
    old = watch.number
    talk.tell(old, 3, JobStatus.QUEUED)
    talk.log(old, 3, 1, 2, 3)
    assert [frame.message for frame in talk.turn()] == [messages.StopWatch(request_id=old)]
    talk.log(old, 3, 4)
    talk.turn(10 * TIMEOUT)
    assert talk.read(watch) == ["3:queued", "3#1", "3#2", "3#3"]
    (again,) = talk.turn()
    assert again.message == messages.WatchJobs(ids=[3], log=True, log_after={3: 3})
    talk.log(again.number, 3, 4)
    assert talk.read(watch) == ["3#4"]


def test_a_gathered_watch_gives_each_change_once_and_is_gathered_again_when_resumed() -> None:
    talk, watch = watching(is_gathered=True)
    rows = [(3, JobStatus.QUEUED), (4, JobStatus.QUEUED), (3, JobStatus.SUCCESS)]
    changed = messages.JobsChanged(jobs=[row(*each) for each in rows])
    told: list[None] = []
    watch.changed = lambda: told.append(None)
    talk.reply(changed, watch.number)
    assert told == [None]
    assert talk.read(watch) == ["3:queued", "4:queued", "3:success"]
    repeated = messages.JobsChanged(jobs=[row(4, JobStatus.QUEUED)])
    talk.reply(repeated, watch.number)
    assert (talk.read(watch), told) == ([], [None])
    (again,) = talk.reconnect()
    assert again.message == messages.WatchJobs(log=True, log_after={4: 0}, is_gathered=True)


def test_a_gathered_watch_that_is_not_read_rests_and_goes_on_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "PARTS_MAX", 1)
    talk, watch = watching(is_gathered=True)
    old = watch.number
    talk.reply(messages.JobsChanged(jobs=[row(3), row(4)]), old)
    assert [frame.message for frame in talk.turn()] == [messages.StopWatch(request_id=old)]
    assert talk.read(watch) == ["3:queued", "4:queued"]
    (again,) = talk.turn()
    talk.reply(messages.JobsChanged(jobs=[row(4, JobStatus.SUCCESS)]), again.number)
    assert talk.read(watch) == ["4:success"]


def test_a_watch_of_all_jobs_remembers_only_so_many_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_progress, "FINISHED_MAX", 2)
    talk, watch = watching()
    for job_id in (1, 2, 3, 2):
        talk.tell(watch.number, job_id, JobStatus.SUCCESS)
    assert talk.read(watch) == ["1:success", "2:success", "3:success"]
    talk.tell(watch.number, 1, JobStatus.SUCCESS)
    assert talk.read(watch) == ["1:success"]


# A watch of the ends alone: what waiting is made of.


def test_a_watch_of_ends_is_not_revived_by_jobs_that_go_on() -> None:
    talk, watch = watching(3, 4, is_final_only=True)
    assert talk.sent[-1].message == messages.WatchJobs(ids=[3, 4], is_final_only=True)
    talk.turn(HEARTBEAT)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING), row(4)]))
    assert talk.turn() == []
    talk.turn(HEARTBEAT)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.ERROR), row(4)]))
    assert [type(frame.message) for frame in talk.turn()] == [
        messages.StopWatch,
        messages.WatchJobs,
    ]
    assert not watch.is_done


def test_a_wait_for_ends_is_over_before_the_message_that_the_watch_has_ended() -> None:
    talk, watch = watching(3, 4, is_final_only=True)
    talk.tell(watch.number, 4, JobStatus.SUCCESS)
    assert not watch.is_done
    talk.tell(watch.number, 3, JobStatus.ERROR)
    assert ended(watch)
    talk.reply(messages.WatchEnded(), watch.number)
    assert talk.turn() == []
    assert talk.read(watch) == ["4:success", "3:error"]


def test_a_wait_that_times_out_names_the_statuses_of_that_moment() -> None:
    talk, watch = watching(3, 4, 5, seconds=7.0, is_final_only=True)
    talk.tell(watch.number, 4, JobStatus.SUCCESS)
    (asked,) = talk.turn(7.0)
    assert asked.message == messages.ListJobs(ids=[3, 5], limit=watch_progress.PROBE_IDS_MAX)
    assert not watch.is_done
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING), row(5, JobStatus.WAITING)]))
    assert failed(watch) == "DeadlineError"
    assert str(watch.error) == "not final in 7 s: 3 (running), 5 (waiting)"


def test_jobs_that_ended_at_the_last_moment_have_ended() -> None:
    talk, watch = watching(3, seconds=7.0, is_final_only=True)
    talk.turn(7.0)
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.SUCCESS)]))
    assert ended(watch)
    assert talk.read(watch) == ["3:success"]


def test_the_last_word_is_not_waited_for_for_ever() -> None:
    talk, watch = watching(3, seconds=7.0, is_final_only=True)
    talk.turn(7.0)
    talk.turn(session.LAST_WORD_SECONDS)
    assert str(watch.error) == "not final in 8 s: 3 (not heard of)"
    # Without a connection no daemon can be asked.
    watch = talk.watch(3, seconds=7.0, is_final_only=True)
    talk.link(ConnectionEvent.LOST)
    talk.turn(7.0)
    assert str(watch.error) == "not final in 7 s: 3 (not heard of)"


def test_a_probe_that_is_under_way_at_the_deadline_is_not_taken_for_the_last_word() -> None:
    talk, watch = watching(3, seconds=HEARTBEAT + 1, is_final_only=True)
    (probe,) = talk.turn(HEARTBEAT)
    (asked,) = talk.turn(1.0)
    talk.reply(messages.JobRows(rows=[row(3)]), probe.number)
    assert not watch.is_done
    talk.reply(messages.JobRows(rows=[row(3, JobStatus.RUNNING)]), asked.number)
    assert str(watch.error).endswith("3 (running)")
