"""Log entries of running jobs in a queue on a stage, and the watches that follow them."""

from __future__ import annotations

from unittest import mock

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker

from ganger.actors.store import queue_reader
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


def test_log_lines_reach_watchers_at_once(queue: Queue) -> None:
    queue.start_new()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    entries: list[jobs.LogEntry] = [(1, (5, 6), "stdout", "hello")]
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries))
    expected = messages.JobLogged(id=1, op_index=0, entries=entries)
    assert watcher.answers[-1] == expected
    assert queue.job(1).ops[0].log == entries


def entries(*serials: int) -> list[jobs.LogEntry]:
    return [(serial, (5, 6), "stdout", str(serial)) for serial in serials]


def received(watcher: Asker) -> list[int | str]:
    """What a watch received since the last call: serials of log entries, and statuses."""
    shown: list[int | str] = []
    for answer in watcher.answers:
        match answer:
            case messages.JobLogged():
                shown += [entry[0] for entry in answer.entries]
            case messages.JobChanged():
                shown.append(str(answer.job.status))
    watcher.envelopes.clear()
    return shown


def state_of_process(queue: Queue, status: jobs.JobStatus, *serials: int) -> bytes:
    job = jobs.decode_job(queue.body_of_process(1, 20, status))
    job.ops[0].log = entries(*serials)
    return jobs.encode_job(job)


def follow(queue: Queue) -> Asker:
    """A watch of the running job 1 that has received the first two entries of its log."""
    queue.run_new()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(1, 2)))
    assert received(watcher) == ["running", 1, 2]
    return watcher


def test_log_lines_of_a_process_that_ended_on_its_own_come_before_its_end(queue: Queue) -> None:
    watcher = follow(queue)
    queue.write_as_process(1, state_of_process(queue, SUCCESS, 1, 2, 3, 4))
    queue.lose_process(1)
    assert received(watcher) == [3, 4, "success"]


@pytest.mark.parametrize("in_file", [True, False])
def test_log_lines_that_came_with_the_end_alone_come_before_it(
    queue: Queue, *, in_file: bool
) -> None:
    watcher = follow(queue)
    body = state_of_process(queue, SUCCESS, 1, 2, 3)
    queue.write_as_process(1, body)
    state = queue.state(1, 20, SUCCESS, body=None if in_file else body, log_serial=3)
    queue.actor.ask(state)
    assert received(watcher) == [3, "success"]


def test_log_lines_that_a_killed_process_has_left_in_its_file_are_sent(queue: Queue) -> None:
    watcher = follow(queue)
    queue.write_as_process(1, state_of_process(queue, JobStatus.RUNNING, 1, 2, 3))
    queue.lose_process(1)
    assert received(watcher) == [3, "error"]


def test_log_lines_that_a_killed_process_sent_are_kept(queue: Queue) -> None:
    watcher = follow(queue)
    queue.lose_process(1)
    assert received(watcher) == ["error"]
    assert queue.job(1).ops[0].log == entries(1, 2)


def test_log_lines_sent_again_are_in_the_job_once(queue: Queue) -> None:
    watcher = follow(queue)
    for serials in ((4,), (1, 2), (2, 3, 4)):
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(*serials)))
    assert queue.job(1).ops[0].log == entries(1, 2, 3, 4)
    assert received(watcher) == [3, 4]


def test_log_lines_that_were_never_sent_are_read_from_the_file(queue: Queue) -> None:
    follow(queue)
    queue.restart()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True, log_after={1: 2}), number=4)
    assert received(watcher) == ["running"]
    job = queue.job(1)
    job.ops[0].log = entries(1, 2, 3, 4)
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5)))
    assert received(watcher) == [3, 4, 5]
    assert queue.job(1).ops[0].log == entries(1, 2, 3, 4, 5)


def test_log_lines_that_are_missing_are_not_waited_for_for_ever(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = follow(queue)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(4)))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5)))
    assert received(watcher) == []
    monkeypatch.setattr(queue_reader, "GAP_SECONDS", 0.0)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(6)))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(7)))
    assert received(watcher) == [4, 5, 6, 7]


def test_for_what_is_missing_before_each_gap_the_reader_waits_anew(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = follow(queue)
    clock = mock.Mock(return_value=100.0)
    monkeypatch.setattr("ganger.actors.store.queue_reader.time.monotonic", clock)
    for serials, expected in (((4,), []), ((3, 4), [3, 4]), ((6,), []), ((5, 6), [5, 6])):
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(*serials)))
        assert received(watcher) == expected
        clock.return_value += queue_reader.GAP_SECONDS


@pytest.mark.parametrize("is_late", [True, False])
def test_lines_that_are_missing_in_the_middle_are_read_from_the_file(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    watcher = follow(queue)
    if is_late:
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5)))
        assert received(watcher) == []
        monkeypatch.setattr(queue_reader, "GAP_SECONDS", 0.0)
    job = jobs.decode_job((queue.stage.places.queue / "job-1").read_bytes())
    known = queue.job(1)
    job.extra[jobs.STATE_SERIAL_KEY] = known.serial
    job.ops[0].log = entries(1, 2, 3, 4, 5)
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5, 6)))
    assert received(watcher) == [3, 4, 5, 6]
    assert queue.job(1).ops[0].log == entries(1, 2, 3, 4, 5, 6)


def test_serials_that_are_missing_in_a_recorded_log_are_not_waited_for(queue: Queue) -> None:
    queue.start_new()
    job = jobs.decode_job(queue.body_of_process(1, 10, RUNNING))
    job.ops[0].log = entries(3, 7)
    body = jobs.encode_job(job)
    queue.actor.ask(queue.state(1, 10, RUNNING, body=body, log_serial=7))
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(8)))
    assert received(watcher) == [3, 7, "running", 8]


def test_of_a_log_too_long_to_be_kept_the_rest_is_sent(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reader, "_APPENDED_ENTRIES_MAX", 3)
    follow(queue)
    for serial in (3, 4, 5, 6):
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(serial)))
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=5)
    assert received(watcher) == [4, 5, 6, "running"]


def test_log_lines_of_one_opcode_do_not_wait_while_the_next_one_does(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.recorded(1, 10, RUNNING, QUEUED)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    job = jobs.decode_job(queue.body_of_process(1, 20, SUCCESS, WAITING))
    job.ops[0].log = entries(1, 2)
    queue.actor.notify(messages.JobWaits(job_id=1, serial=20, body=jobs.encode_job(job)))
    assert received(watcher) == ["running", 1, 2, "waiting"]


def test_nothing_is_sent_after_the_end(queue: Queue) -> None:
    watcher = follow(queue)
    of_all = queue.actor.say(messages.WatchJobs(log=True), number=5)
    body = state_of_process(queue, SUCCESS, 1, 2)
    queue.actor.ask(queue.state(1, 20, SUCCESS, body=body, log_serial=2))
    assert received(watcher) == ["success"]
    assert received(of_all) == [1, 2, "running", "success"]
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(1, 2)))
    queue.actor.ask(queue.state(1, 20, SUCCESS, body=None, log_serial=2))
    assert received(of_all) == []


@pytest.mark.parametrize("log", [True, False])
def test_a_watch_keeps_nothing_of_jobs_that_it_does_not_follow(queue: Queue, *, log: bool) -> None:
    queue.submitted(spec())
    after = {**dict.fromkeys(range(2, 100), 5), 1: 2}
    queue.actor.say(messages.WatchJobs(ids=[1], log=log, log_after=after), number=4)
    (watch,) = queue.actor.component.store.reader.watches._watches.values()
    assert watch._log_serials == ({1: 2} if log else {})


@pytest.mark.parametrize("call", ["stop", "gone"])
def test_a_watch_can_be_given_up(queue: Queue, call: str) -> None:
    queue.start_new()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1]), number=4, peer=b"p")
    stop = messages.StopWatch(request_id=4)
    if call == "stop":
        queue.actor.say(stop, peer=b"p")
    else:
        queue.actor.notify(messages.PeerGone(peer=b"p"))
    before = len(watcher.answers)
    queue.recorded(1, 10, RUNNING)
    assert len(watcher.answers) == before
