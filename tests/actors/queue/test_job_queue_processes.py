"""The job queue on a stage: hand-overs, running jobs, their ends and their dependencies."""

from __future__ import annotations

import os
import time

import msgspec
import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker

from ganger.actors.queue import lifecycle, queries
from ganger.storage import jobs
from ganger.storage.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


# Start and hand-over.
def test_a_chosen_job_is_marked_as_being_forked_and_asked_for(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    assert queue.file(1)["livelock"] == queue.stage.daemon_lock.path
    started = queue.stage.take_one(messages.StartJobs, to="executor")
    assert started.jobs == [(1, False)]
    queue.choose(1)
    assert queue.stage.take(messages.StartJobs) == []


def test_the_lock_file_is_in_the_job_file_before_the_child_may_go_on(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    lock_file = queue.greet(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    assert queue.file(1)["livelock"] == lock_file
    assert msgspec.json.decode(go.body) == queue.file(1)
    assert go.queue == os.fspath(queue.stage.places.queue)
    confirmed = queue.stage.take_one(messages.HandOverConfirmed, to="executor")
    assert confirmed == messages.HandOverConfirmed(job_id=1, lock_file=lock_file)


def test_a_lost_confirmation_is_repeated_for_the_same_child_only(queue: Queue) -> None:
    queue.submitted(spec())
    lock_file = queue.start(1)
    queue.ask_hand_over(1, lock_file)
    assert len(queue.channels[1].answers) == 2
    queue.ask_hand_over(1, "/l/of-another")
    assert len(queue.channels[1].answers) == 2


@pytest.mark.parametrize("job_id", [1, 9])
def test_a_child_for_a_job_that_is_not_being_started_is_refused(queue: Queue, job_id: int) -> None:
    queue.submitted(spec())
    lock_file = queue.greet(job_id)
    assert queue.channels[job_id].answers == []
    refused = queue.stage.take_one(messages.RefuseHandOver, to="executor")
    assert refused == messages.RefuseHandOver(job_id=job_id, lock_file=lock_file)


def test_a_job_canceled_before_its_hand_over_is_never_handed_over(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    canceled = queue.actor.say(messages.CancelJob(id=1))
    queue.greet(1)
    queue.actor.end_turn()
    assert canceled.answer_as(messages.CancelOutcome).accepted
    assert queue.channels[1].answers == []
    assert len(queue.stage.take(messages.RefuseHandOver)) == 1
    queue.crash_machine()
    assert queue.statuses() == {1: "canceled"}


def test_a_job_canceled_in_the_turn_of_its_hand_over_hears_of_it(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.greet(1)
    canceled = queue.actor.say(messages.CancelJob(id=1))
    queue.actor.end_turn()
    assert canceled.answers == []
    told = queue.stage.take_one(messages.DeliverToJob, to="executor")
    assert (told.job_id, type(told.message)) == (1, messages.CancelRequested)


def test_a_hand_over_does_not_lose_a_priority_of_the_same_turn(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    changed = queue.actor.say(messages.ChangeJobPriority(id=1, priority=-5))
    lock_file = queue.greet(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    job = jobs.decode_job(go.body)
    assert ([op.priority for op in job.ops], job.livelock) == ([-5], lock_file)
    # From here on the file is the process's, and the flush must not go back behind it.
    job.extra[jobs.STATE_SERIAL_KEY] = 10
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.end_turn()
    assert changed.answer_as(messages.PriorityOutcome).accepted
    assert queue.file(1)["ganger_serial"] == 10
    queue.restart()
    assert queue.job(1).livelock == lock_file


def test_a_replaced_queue_takes_up_a_job_that_was_being_forked(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.restart()
    queue.actor.notify(messages.ReportAllJobs())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in everything.jobs] == [1]
    queue.start(1)


def test_a_process_that_could_not_be_made_fails_its_job(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.choose(1)
    queue.actor.notify(messages.StartFailed(job_id=1, text="no memory"))
    queue.actor.end_turn()
    job = queue.job(1)
    assert job.status is ERROR
    assert [op.result for op in job.ops] == ["job 1 failed to start: no memory"] * 2
    source, text, _ = job.ops[0].input["reason"][-1]
    assert (source, text) == ("gnt:daemon:luxid:startjobs", "job 1 failed to start: no memory")


def test_a_job_chosen_by_mistake_gives_its_run_slot_back(queue: Queue) -> None:
    # The word of its end went straight to the scheduler, and overtook the word of its arrival.
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    queue.stage.told.clear()
    queue.choose(1, 77)
    reported = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert reported.jobs == [(1, CANCELED), (77, None)]
    assert queue.stage.take(messages.StartJobs) == []


# Running jobs.
def test_a_state_is_answered_and_told_after_the_flush(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1]), number=4)
    before = len(watcher.answers)
    asker = queue.record(1, 10, RUNNING)
    assert (asker.answers, len(watcher.answers)) == ([], before)
    queue.actor.end_turn()
    assert asker.answer == messages.StateRecorded(serial=10)
    changed = watcher.answers[before:]
    assert [c.job.status for c in changed if isinstance(c, messages.JobChanged)] == [RUNNING]


def test_a_recorded_state_survives_the_machine(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.record(1, 10, SUCCESS, RUNNING)
    queue.actor.end_turn()
    queue.crash_machine()
    # The machine died while the second opcode ran: the job ends in an error that says so.
    job = queue.job(1)
    assert [op.status for op in job.ops] == [ERROR, ERROR]
    assert "detected death of job 1" in job.ops[0].result


def test_an_older_state_does_not_win(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    for late in (
        queue.record(1, 9, QUEUED),
        queue.actor.say(queue.state(1, 9, QUEUED, body=None)),
    ):
        queue.actor.end_turn()
        assert late.answer == messages.StateRecorded(serial=9)
    assert queue.statuses() == {1: "running"}
    assert queue.job(1).serial == 10


def test_a_repeated_state_is_answered_again(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    again = queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    assert again.answer == messages.StateRecorded(serial=10)


def test_a_state_that_the_process_flushed_itself_is_believed(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    body = queue.body_of_process(1, 10, SUCCESS)
    queue.write_as_process(1, body)
    flushes = queue.actor.component.store.ledger.flushes
    asker = queue.actor.ask(queue.state(1, 10, SUCCESS, body=None, ended=5.0))
    assert asker.answer == messages.StateRecorded(serial=10)
    assert queue.actor.component.store.ledger.flushes == flushes
    assert queue.actor.say(messages.ReadJob(id=1)).answer_as(messages.JobDocument).body == body


def test_a_waiting_job_is_shown_so_without_a_flush(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    flushes = queue.actor.component.store.ledger.flushes
    waits = messages.JobWaits(job_id=1, serial=5, body=queue.body_of_process(1, 5, WAITING))
    queue.actor.notify(waits)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "waiting"}
    assert queue.actor.component.store.ledger.flushes == flushes


def test_the_end_of_a_job_is_told_to_all_whom_it_concerns(queue: Queue) -> None:
    queue.submitted(spec())
    lock_file = queue.start(1)
    queue.record(1, 10, SUCCESS)
    assert queue.stage.told == []
    queue.actor.end_turn()
    finished = queue.stage.take_one(messages.JobsFinished, to="scheduler")
    assert finished.jobs == [(1, SUCCESS)]
    ended = queue.stage.take_one(messages.OwnerEnded, to="lock_manager")
    assert ended.lock_file == lock_file


def test_the_end_of_a_job_without_locks_does_not_concern_the_lock_manager(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, SUCCESS, has_locks=False)
    queue.actor.end_turn()
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]
    assert queue.stage.take(messages.OwnerEnded) == []


def test_log_lines_reach_watchers_at_once(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    entries: list[jobs.LogEntry] = [(1, (5, 6), "stdout", "hello")]
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries))
    expected = messages.JobLogged(id=1, op_index=0, entries=entries)
    assert watcher.answers[-1] == expected
    assert queue.job(1).ops[0].log == entries


def entries(*serials: int) -> list[jobs.LogEntry]:
    return [(serial, (5, 6), "stdout", str(serial)) for serial in serials]


def told(watcher: Asker) -> list[int | str]:
    """What a watcher was told since it was asked last: serials of log entries, and statuses."""
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
    """Somebody follows the running job 1, and was told of the first two entries of its log."""
    queue.submitted(spec())
    queue.start_running(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(1, 2)))
    assert told(watcher) == ["running", 1, 2]
    return watcher


def test_log_lines_of_a_process_that_ended_on_its_own_come_before_its_end(queue: Queue) -> None:
    watcher = follow(queue)
    queue.write_as_process(1, state_of_process(queue, SUCCESS, 1, 2, 3, 4))
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert told(watcher) == [3, 4, "success"]


@pytest.mark.parametrize("in_file", [True, False])
def test_log_lines_that_came_with_the_end_alone_come_before_it(
    queue: Queue, *, in_file: bool
) -> None:
    watcher = follow(queue)
    body = state_of_process(queue, SUCCESS, 1, 2, 3)
    queue.write_as_process(1, body)
    state = queue.state(1, 20, SUCCESS, body=None if in_file else body, log_serial=3)
    queue.actor.say(state)
    queue.actor.end_turn()
    assert told(watcher) == [3, "success"]


def test_log_lines_that_a_killed_process_has_left_in_its_file_are_told(queue: Queue) -> None:
    watcher = follow(queue)
    queue.write_as_process(1, state_of_process(queue, JobStatus.RUNNING, 1, 2, 3))
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert told(watcher) == [3, "error"]


def test_log_lines_that_a_killed_process_told_are_kept(queue: Queue) -> None:
    watcher = follow(queue)
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert told(watcher) == ["error"]
    assert queue.job(1).ops[0].log == entries(1, 2)


def test_log_lines_told_again_are_in_the_job_once(queue: Queue) -> None:
    watcher = follow(queue)
    for serials in ((4,), (1, 2), (2, 3, 4)):
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(*serials)))
    assert queue.job(1).ops[0].log == entries(1, 2, 3, 4)
    assert told(watcher) == [3, 4]


def test_log_lines_that_nobody_told_are_read_from_the_file(queue: Queue) -> None:
    follow(queue)
    queue.restart()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True, log_after={1: 2}), number=4)
    assert told(watcher) == ["running"]
    job = queue.job(1)
    job.ops[0].log = entries(1, 2, 3, 4)
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5)))
    assert told(watcher) == [3, 4, 5]
    assert queue.job(1).ops[0].log == entries(1, 2, 3, 4, 5)


def test_log_lines_that_are_missing_are_not_waited_for_for_ever(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = follow(queue)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(4)))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5)))
    assert told(watcher) == []
    monkeypatch.setattr(queries, "GAP_SECONDS", 0.0)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(6)))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(7)))
    assert told(watcher) == [4, 5, 6, 7]


@pytest.mark.parametrize("is_late", [True, False])
def test_lines_that_are_missing_in_the_middle_are_read_from_the_file(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    watcher = follow(queue)
    if is_late:
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5)))
        assert told(watcher) == []
        monkeypatch.setattr(queries, "GAP_SECONDS", 0.0)
    job = jobs.decode_job((queue.stage.places.queue / "job-1").read_bytes())
    known = queue.job(1)
    job.extra[jobs.STATE_SERIAL_KEY] = known.serial
    job.ops[0].log = entries(1, 2, 3, 4, 5)
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(5, 6)))
    assert told(watcher) == [3, 4, 5, 6]
    assert queue.job(1).ops[0].log == entries(1, 2, 3, 4, 5, 6)


def test_serials_that_are_missing_in_a_recorded_log_are_not_waited_for(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    job = jobs.decode_job(queue.body_of_process(1, 10, RUNNING))
    job.ops[0].log = entries(3, 7)
    body = jobs.encode_job(job)
    queue.actor.say(queue.state(1, 10, RUNNING, body=body, log_serial=7))
    queue.actor.end_turn()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(8)))
    assert told(watcher) == [3, 7, "running", 8]


def test_of_a_log_too_long_to_be_kept_the_rest_is_told(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_APPENDED_ENTRIES_MAX", 3)
    follow(queue)
    for serial in (3, 4, 5, 6):
        queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(serial)))
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=5)
    assert told(watcher) == [4, 5, 6, "running"]


def test_log_lines_of_one_opcode_do_not_wait_while_the_next_one_does(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.record(1, 10, RUNNING, QUEUED)
    queue.actor.end_turn()
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    job = jobs.decode_job(queue.body_of_process(1, 20, SUCCESS, WAITING))
    job.ops[0].log = entries(1, 2)
    queue.actor.notify(messages.JobWaits(job_id=1, serial=20, body=jobs.encode_job(job)))
    assert told(watcher) == ["running", 1, 2, "waiting"]


def test_nothing_is_told_after_the_end(queue: Queue) -> None:
    watcher = follow(queue)
    of_all = queue.actor.say(messages.WatchJobs(log=True), number=5)
    body = state_of_process(queue, SUCCESS, 1, 2)
    queue.actor.say(queue.state(1, 20, SUCCESS, body=body, log_serial=2))
    queue.actor.end_turn()
    assert told(watcher) == ["success"]
    assert told(of_all) == [1, 2, "running", "success"]
    queue.actor.notify(messages.JobLogAppended(job_id=1, op_index=0, entries=entries(1, 2)))
    queue.actor.say(queue.state(1, 20, SUCCESS, body=None, log_serial=2))
    queue.actor.end_turn()
    assert told(of_all) == []


@pytest.mark.parametrize("log", [True, False])
def test_a_watch_keeps_nothing_of_jobs_that_it_does_not_follow(queue: Queue, *, log: bool) -> None:
    queue.submitted(spec())
    after = {**dict.fromkeys(range(2, 100), 5), 1: 2}
    queue.actor.say(messages.WatchJobs(ids=[1], log=log, log_after=after), number=4)
    (watch,) = queue.actor.component.store.reader.watches._watches.values()
    assert watch._log_serials == ({1: 2} if log else {})


@pytest.mark.parametrize("call", ["stop", "gone"])
def test_a_watch_can_be_given_up(queue: Queue, call: str) -> None:
    queue.submitted(spec())
    queue.start(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1]), number=4, peer=b"p")
    stop = messages.StopWatch(request_id=4)
    if call == "stop":
        queue.actor.say(stop, peer=b"p")
    else:
        queue.actor.notify(messages.PeerGone(peer=b"p"))
    before = len(watcher.answers)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    assert len(watcher.answers) == before


# The end of a process.
def test_a_process_that_left_in_order_is_believed(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    assert queue.statuses() == {1: "success"}
    assert queue.actor.component.store.ledger.serial(1) is None


def test_a_process_killed_while_it_ran_fails_its_job(queue: Queue) -> None:
    queue.submitted(spec(ops=3))
    queue.start(1)
    queue.record(1, 10, SUCCESS, RUNNING, QUEUED)
    queue.actor.end_turn()
    queue.stage.told.clear()
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    job = queue.job(1)
    assert [op.status for op in job.ops] == [ERROR, ERROR, ERROR]
    assert job.ops[0].input["reason"][-1][0] == "gnt:daemon:luxid:deathdetection"
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, ERROR)]
    queue.crash_machine()
    assert queue.statuses() == {1: "error"}


def test_a_process_killed_before_anything_began_is_replaced(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in arrived.jobs] == [1]
    assert queue.statuses() == {1: "queued"}
    queue.start(1)


def test_the_file_of_a_dead_process_is_believed_if_it_is_newer(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.write_as_process(1, queue.body_of_process(1, 12, SUCCESS))
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "success"}
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]


@pytest.mark.parametrize("has_left", [True, False])
def test_the_last_word_of_a_process_counts_though_it_is_gone(
    queue: Queue,
    has_left: bool,  # noqa: FBT001
) -> None:
    queue.submitted(spec())
    queue.start(1)
    asker = queue.record(1, 10, SUCCESS)
    queue.end_process(1, has_left=has_left)
    # Both came in one turn; nothing is told before the flush.
    assert queue.stage.take(messages.JobsFinished) == []
    queue.actor.end_turn()
    assert asker.answer == messages.StateRecorded(serial=10)
    assert queue.statuses() == {1: "success"}
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]
    queue.crash_machine()
    assert queue.statuses() == {1: "success"}


def test_a_job_whose_process_said_that_it_runs_and_died_is_not_started_again(
    queue: Queue,
) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "error"}
    assert queue.stage.take(messages.JobsArrived) == []


def test_the_end_of_an_earlier_process_does_not_matter(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    exited = messages.JobExited(job_id=1, lock_file="/l/of-another", has_left=False)
    queue.actor.notify(exited)
    queue.actor.end_turn()
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "running"}


def test_running_jobs_go_on_through_a_restart(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    lock_file = queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    queue.restart()
    queue.actor.notify(messages.ReportRunning(), messages.ReportAllJobs())
    adopted = queue.stage.take_one(messages.AdoptJobs, to="executor")
    assert [(job_id, path) for job_id, path, _ in adopted.jobs] == [(1, lock_file)]
    everything = queue.stage.take_one(messages.JobsArrived)
    assert everything.is_all
    assert [one.job.id for one in everything.running] == [1]
    assert [one.job.id for one in everything.jobs] == [2]
    queue.record(1, 11, SUCCESS)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "success", 2: "queued"}


def test_jobs_that_died_with_the_daemon_are_final_when_it_is_ready(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    queue.kill_all()
    queue.restart()
    assert queue.statuses() == {1: "error"}
    queue.restart()
    assert queue.statuses() == {1: "error"}


# Dependencies.
def test_a_job_waits_until_the_scheduler_says_that_it_is_eligible(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    watcher = queue.actor.say(messages.WatchJobs(ids=[2]), number=4)
    assert queue.statuses() == {1: "queued", 2: "waiting"}
    queue.restart()
    assert queue.statuses() == {1: "queued", 2: "waiting"}
    assert queue.file(2)["ops"][0]["status"] == "queued"
    queue.choose(eligible=[2])
    assert queue.statuses() == {1: "queued", 2: "queued"}
    assert len(watcher.answers) == 1


def test_an_unsatisfiable_job_ends_without_a_process(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, [])), spec((-2, []), ops=2))
    queue.choose(unsatisfiable=[(2, "canceled", ""), (3, "failed", "no luck")])
    assert queue.statuses() == {1: "queued", 2: "canceled", 3: "error"}
    assert [op.result for op in queue.job(3).ops] == [
        ["OpExecError", ["no luck"]],
        ["OpExecError", ["Preceding opcode failed"]],
    ]
    assert queue.job(2).ops[0].result == "Job canceled by request"
    finished = [job for told in queue.stage.take(messages.JobsFinished) for job in told.jobs]
    assert finished == [(2, CANCELED), (3, ERROR)]


def test_a_running_job_is_told_how_the_dependencies_of_its_next_opcode_stand(
    queue: Queue,
) -> None:
    def outcome(target: int, *wanted: str) -> messages.DependencyOutcome:
        asked = messages.AskDependencies(job_id=2, depends=[(target, list(wanted))])
        return queue.actor.say(asked).answer_as(messages.DependencyOutcome)

    queue.submitted(spec(), spec())
    queue.start(2)
    # It does not wait for them: with an open one it gives the job back to the queue.
    assert outcome(1, "success").verdict == "open"
    queue.finish(1)
    assert outcome(1, "success") == messages.DependencyOutcome(verdict="satisfied")
    assert outcome(1, "error").verdict == "failed"
    missing = messages.DependencyOutcome(verdict="failed", text="Dependency error: Job 9 not found")
    assert outcome(9) == missing


def test_statuses_are_reported_live_archived_or_missing(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec())
    queue.finish(1, ERROR)
    queue.finish(2)
    queue.actor.ask(messages.ArchiveJob(id=2))
    queue.stage.told.clear()
    queue.actor.notify(messages.ReportStatuses(ids=[1, 2, 3, 9]))
    reported = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert reported.jobs == [(1, ERROR), (2, SUCCESS), (3, QUEUED), (9, None)]


def test_a_torn_file_in_the_archive_does_not_stop_the_queue(queue: Queue) -> None:
    (queue.stage.places.archive / "0").mkdir()
    (queue.stage.places.archive / "0" / "job-1").write_bytes(b"torn")
    queue.actor.notify(messages.ReportStatuses(ids=[1]))
    assert queue.stage.take_one(messages.StatusesReported).jobs == [(1, None)]
    assert "archived job cannot be read" in queue.stage.log_stream.getvalue()


def test_a_job_whose_cancel_was_accepted_does_not_start_again_when_its_process_dies(
    queue: Queue,
) -> None:
    queue.submitted(spec())
    queue.start(1)
    cancel = queue.actor.say(messages.CancelJob(id=1))
    (told,) = queue.stage.take(messages.DeliverToJob, to="executor")
    assert isinstance(told.message, messages.CancelRequested)
    # All this comes in one turn, and the process had no time to write its file.
    queue.record(1, 10, CANCELING)
    answer = messages.CancelAnswered(
        job_id=1, token=told.message.token, accepted=True, text="it will be canceled"
    )
    queue.actor.notify(answer)
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert cancel.answer_as(messages.CancelOutcome).accepted
    assert queue.statuses() == {1: "error"}
    assert queue.stage.take(messages.JobsArrived) == []


def test_a_job_that_goes_back_is_queued_when_its_process_has_left(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.record(1, 10, RUNNING, QUEUED)
    queue.actor.end_turn()
    job = jobs.decode_job(queue.body_of_process(1, 20, SUCCESS, QUEUED))
    job.livelock = job.process_id = None
    body = jobs.encode_job(job)
    queue.write_as_process(1, body)
    queue.actor.notify(messages.JobReturns(job_id=1, serial=20, body=body))
    queue.actor.end_turn()
    # Until then nobody can say what holds it back.
    assert queue.statuses() == {1: "running"}
    assert queue.stage.take(messages.JobsArrived) == []
    queue.end_process(1, has_left=True)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "queued"}
    arrived = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in arrived.jobs] == [1]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_job_that_goes_back_while_it_waits_for_locks_is_queued_again(
    queue: Queue, *, is_told: bool
) -> None:
    queue.submitted(spec())
    queue.start(1)
    waits = queue.body_of_process(1, 10, WAITING)
    queue.actor.notify(messages.JobWaits(job_id=1, serial=10, body=waits))
    job = jobs.decode_job(queue.body_of_process(1, 20, QUEUED))
    job.livelock = job.process_id = None
    body = jobs.encode_job(job)
    queue.write_as_process(1, body)
    if is_told:
        queue.actor.notify(messages.JobReturns(job_id=1, serial=20, body=body))
    queue.actor.end_turn()
    assert queue.statuses() == {1: "waiting"}
    queue.end_process(1, has_left=True)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "queued"}


def test_a_death_is_not_told_as_of_the_second_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock that costs less goes in steps of milliseconds.
    monkeypatch.setattr(time, "time", lambda: 1_795_309_440.001)
    job = jobs.Job(id=7, ops=[])
    assert "job 7 at 2026-11-22 01:04:00 UTC" in lifecycle.death_text(job)
    assert "job 7 was killed on request at 2026-11-22 01:04:00 UTC" in lifecycle.kill_text(job)
