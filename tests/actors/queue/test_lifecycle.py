"""The lives of jobs in a queue on a stage: states, returns, exits and deaths."""

from __future__ import annotations

import errno
import os
import time

import pytest
from tests.actors.queue.queue_rules import REJECTS, begin, take_rules
from tests.actors.queue.queue_stage import Queue, spec
from tests.refusals import refusing

from ganger.actors.queue import lifecycle
from ganger.storage.alive import process_identity
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Ending, Outcome
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


def test_a_whole_job_is_never_shown_ahead_of_the_listing(queue: Queue) -> None:
    queue.start_new()
    # The process flushes its own file, as it does when the disk refused the journal.
    queue.write_as_process(1, queue.body_of_process(1, 10, RUNNING))
    queue.actor.ask(queue.state(1, 10, RUNNING, body=None))
    assert queue.statuses() == {1: "running"}
    with refusing("fsync"):
        # The listing has this state already.
        assert queue.job(1).status is RUNNING
    queue.write_as_process(1, queue.body_of_process(1, 11, ERROR))
    with refusing("fsync", number=errno.EIO):
        error, text = queue.actor.say(messages.ReadJob(id=1)).refusal
        assert (error, os.strerror(errno.EIO) in text) == ("StorageError", True)
        assert queue.statuses() == {1: "running"}
    assert queue.job(1).status is ERROR
    assert queue.statuses() == {1: "error"}
    # Its process tells of it a moment later.
    recorded = queue.actor.ask(queue.state(1, 11, ERROR, body=None, ended=5.0))
    assert recorded.answer == messages.StateRecorded(serial=11)
    row = queue.actor.component.store.table.find(1)
    assert row is not None
    assert row.ended == 5.0
    queue.lose_process(1, has_left=True)
    assert queue.statuses() == {1: "error"}


def test_between_opcodes_too_a_canceled_dependency_wins_over_a_failed_one(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec(ops=2))
    queue.finish(1, JobStatus.ERROR)
    queue.start(3)
    asked = messages.AskDependencies(job_id=3, depends=[(1, ["success"]), (2, [])])

    def outcome() -> str:
        return queue.actor.ask(asked).answer_as(messages.DependencyOutcome).verdict

    # It goes back to the queue, where the other one decides.
    assert outcome() == "open"
    queue.actor.ask(messages.CancelJob(id=2))
    assert outcome() == "canceled"


def test_a_process_that_could_not_be_made_fails_its_job(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.choose(1)
    queue.actor.turn(messages.StartFailed(job_id=1, text="no memory"))
    job = queue.job(1)
    assert job.status is ERROR
    assert [op.result for op in job.ops] == ["job 1 failed to start: no memory"] * 2
    source, text, _ = job.ops[0].input["reason"][-1]
    assert (source, text) == ("gnt:daemon:luxid:startjobs", "job 1 failed to start: no memory")
    # Nothing of the start is kept.
    assert queue.actor.component.hand_over._starting == {}


# Running jobs.
def test_a_state_is_answered_and_announced_after_the_flush(queue: Queue) -> None:
    queue.start_new()
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
    queue.recorded(1, 10, SUCCESS, RUNNING)
    queue.crash_machine()
    # The machine died while the second opcode ran: the job ends in an error that says so.
    job = queue.job(1)
    assert [op.status for op in job.ops] == [ERROR, ERROR]
    assert "detected death of job 1" in job.ops[0].result


def test_an_older_state_does_not_win(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, RUNNING)
    for late in (
        queue.record(1, 9, QUEUED),
        queue.actor.say(queue.state(1, 9, QUEUED, body=None)),
    ):
        queue.actor.end_turn()
        assert late.answer == messages.StateRecorded(serial=9)
    assert queue.statuses() == {1: "running"}
    assert queue.job(1).serial == 10


def test_a_repeated_state_is_answered_again_and_neither_judged_nor_stored_again(
    queue: Queue,
) -> None:
    queue.start_new()
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)
    flushes = queue.actor.component.store.ledger.flushes
    take_rules(queue, {**REJECTS, "action": "PAUSE"})
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)
    assert queue.actor.component.store.ledger.flushes == flushes
    assert not begin(queue, 1, 11, RUNNING).answer_as(messages.GateAnswered).is_open


def test_the_file_of_a_dead_process_counts_where_it_is_as_new_for_it_has_the_log(
    queue: Queue,
) -> None:
    queue.start_new()
    queue.recorded(1, 10, RUNNING)
    job = queue.job(1)
    job.ops[0].log = [(1, (1, 2), "message", "only here")]
    queue.write_as_process(1, jobs.encode_job(job))
    queue.lose_process(1)
    assert queue.job(1).status is ERROR
    assert queue.job(1).ops[0].log == job.ops[0].log


@pytest.mark.parametrize(
    ("exit_code", "end"),
    [
        (None, "its process ended without a result"),
        (0, "(it exited with code 0)"),
        (-9, "(it was ended by SIGKILL)"),
    ],
)
def test_the_text_of_a_death_says_how_the_process_ended(exit_code: int | None, end: str) -> None:
    assert lifecycle.death_text(jobs.Job(id=1, ops=[]), exit_code).endswith(end)


def test_the_death_of_a_process_of_an_earlier_boot_names_the_restart() -> None:
    job = jobs.Job(id=1, ops=[], livelock="/l/job_000001_1_4711.88123.1a2b3c4d")
    assert lifecycle.death_text(job).endswith("without a result (the machine was restarted)")
    job.livelock = f"/l/job_000001_1_4711.88123.{process_identity.boot()}"
    assert lifecycle.death_text(job).endswith("without a result")


def test_a_state_that_the_process_flushed_itself_is_believed(queue: Queue) -> None:
    queue.start_new()
    body = queue.body_of_process(1, 10, SUCCESS)
    queue.write_as_process(1, body)
    flushes = queue.actor.component.store.ledger.flushes
    asker = queue.actor.ask(queue.state(1, 10, SUCCESS, body=None, ended=5.0))
    assert asker.answer == messages.StateRecorded(serial=10)
    assert queue.actor.component.store.ledger.flushes == flushes
    assert queue.actor.say(messages.ReadJob(id=1)).answer_as(messages.JobDocument).body == body


def test_a_waiting_job_is_shown_so_without_a_flush(queue: Queue) -> None:
    queue.start_new()
    flushes = queue.actor.component.store.ledger.flushes
    waits = messages.JobWaits(job_id=1, serial=5, body=queue.body_of_process(1, 5, WAITING))
    queue.actor.turn(waits)
    assert queue.statuses() == {1: "waiting"}
    assert queue.actor.component.store.ledger.flushes == flushes


def test_the_end_of_a_job_is_announced_to_scheduler_and_lock_manager(queue: Queue) -> None:
    lock_file = queue.start_new()
    queue.record(1, 10, SUCCESS)
    assert queue.stage.sent == []
    queue.actor.end_turn()
    finished = queue.stage.take_one(messages.JobsFinished, to="scheduler")
    assert finished.jobs == [(1, SUCCESS)]
    ended = queue.stage.take_one(messages.OwnerEnded, to="lock_manager")
    assert ended.lock_file == lock_file


def test_the_end_of_a_job_without_locks_does_not_concern_the_lock_manager(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, SUCCESS, has_locks=False)
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]
    assert queue.stage.take(messages.OwnerEnded) == []


# The end of a process.
def test_a_process_that_left_in_order_is_believed(queue: Queue) -> None:
    queue.finish_new()
    assert queue.statuses() == {1: "success"}
    assert queue.actor.component.store.ledger.files.serial(1) is None


def test_a_process_killed_while_it_ran_fails_its_job(queue: Queue) -> None:
    queue.submitted(spec(ops=3))
    queue.start(1)
    queue.recorded(1, 10, SUCCESS, RUNNING, QUEUED)
    queue.stage.sent.clear()
    queue.lose_process(1)
    job = queue.job(1)
    assert [op.status for op in job.ops] == [ERROR, ERROR, ERROR]
    assert job.ops[0].input["reason"][-1][0] == "gnt:daemon:luxid:deathdetection"
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, ERROR)]
    queue.crash_machine()
    assert queue.statuses() == {1: "error"}


def test_a_process_killed_before_anything_began_is_replaced(queue: Queue) -> None:
    queue.start_new()
    queue.lose_process(1)
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in arrived.jobs] == [1]
    assert queue.statuses() == {1: "queued"}
    queue.start(1)


def test_the_file_of_a_dead_process_is_believed_if_it_is_newer(queue: Queue) -> None:
    queue.start_new()
    queue.write_as_process(1, queue.body_of_process(1, 12, SUCCESS))
    queue.lose_process(1)
    assert queue.statuses() == {1: "success"}
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]


@pytest.mark.parametrize("has_left", [True, False])
def test_the_last_state_of_a_process_counts_though_it_has_ended(
    queue: Queue, *, has_left: bool
) -> None:
    queue.start_new()
    asker = queue.record(1, 10, SUCCESS)
    queue.end_process(1, has_left=has_left)
    # Both came in one turn; nothing is announced before the flush.
    assert queue.stage.take(messages.JobsFinished) == []
    queue.actor.end_turn()
    assert asker.answer == messages.StateRecorded(serial=10)
    assert queue.statuses() == {1: "success"}
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]
    queue.crash_machine()
    assert queue.statuses() == {1: "success"}


def test_a_job_that_was_running_when_its_process_died_is_not_started_again(
    queue: Queue,
) -> None:
    queue.start_new()
    queue.record(1, 10, RUNNING)
    queue.lose_process(1)
    assert queue.statuses() == {1: "error"}
    assert queue.stage.take(messages.JobsArrived) == []


def test_the_end_of_an_earlier_process_does_not_matter(queue: Queue) -> None:
    queue.start_new()
    exited = messages.JobExited(job_id=1, lock_file="/l/of-another", has_left=False)
    queue.actor.turn(exited)
    queue.recorded(1, 10, RUNNING)
    assert queue.statuses() == {1: "running"}


def test_running_jobs_go_on_through_a_restart(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    lock_file = queue.start(1)
    queue.recorded(1, 10, RUNNING)
    queue.restart()
    queue.actor.notify(messages.ReportRunning(), messages.ReportAllJobs())
    adopted = queue.stage.take_one(messages.AdoptJobs, to="executor")
    assert [(job_id, path) for job_id, path, _ in adopted.jobs] == [(1, lock_file)]
    everything = queue.stage.take_one(messages.JobsArrived)
    assert everything.is_all
    assert [one.job.id for one in everything.running] == [1]
    assert [one.job.id for one in everything.jobs] == [2]
    queue.recorded(1, 11, SUCCESS)
    assert queue.statuses() == {1: "success", 2: "queued"}


def test_jobs_that_died_with_the_daemon_are_final_when_it_is_ready(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, RUNNING)
    queue.kill_all()
    queue.restart()
    assert queue.statuses() == {1: "error"}
    queue.restart()
    assert queue.statuses() == {1: "error"}


def test_a_running_job_gets_the_outcome_of_its_next_opcodes_dependencies(
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
    assert outcome(9) == messages.DependencyOutcome(
        verdict="failed",
        text="Dependency error: Job 9 not found",
        ending=Ending(Outcome.SKIPPED, "job 9 does not exist", 9),
    )


def test_a_job_whose_cancel_was_accepted_does_not_start_again_when_its_process_dies(
    queue: Queue,
) -> None:
    queue.start_new()
    cancel = queue.actor.say(messages.CancelJob(id=1))
    (sent,) = queue.stage.take(messages.DeliverToJob, to="executor")
    assert isinstance(sent.message, messages.CancelRequested)
    # All this comes in one turn, and the process had no time to write its file.
    queue.record(1, 10, CANCELING)
    answer = messages.CancelAnswered(
        job_id=1, token=sent.message.token, accepted=True, text="it will be canceled"
    )
    queue.actor.notify(answer)
    queue.lose_process(1)
    assert cancel.answer_as(messages.CancelOutcome).accepted
    assert queue.statuses() == {1: "error"}
    assert queue.stage.take(messages.JobsArrived) == []


def test_a_job_that_goes_back_is_queued_when_its_process_has_left(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    lock_file = queue.start(1)
    queue.recorded(1, 10, RUNNING, QUEUED)
    job = jobs.decode_job(queue.body_of_process(1, 20, SUCCESS, QUEUED))
    job.livelock = job.process_id = None
    body = jobs.encode_job(job)
    queue.write_as_process(1, body)
    queue.actor.turn(messages.JobReturns(job_id=1, serial=20, body=body))
    # Until then the scheduler does not know what holds it back.
    assert queue.statuses() == {1: "running"}
    assert queue.stage.take(messages.JobsArrived) == []
    queue.lose_process(1, has_left=True)
    assert queue.statuses() == {1: "queued"}
    arrived = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in arrived.jobs] == [1]
    # Its locks are free.
    ended = queue.stage.take_one(messages.OwnerEnded, to="lock_manager")
    assert ended.lock_file == lock_file


@pytest.mark.parametrize("is_told", [True, False])
def test_a_job_that_goes_back_while_it_waits_for_locks_is_queued_again(
    queue: Queue, *, is_told: bool
) -> None:
    queue.start_new()
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
    queue.lose_process(1, has_left=True)
    assert queue.statuses() == {1: "queued"}


def test_a_death_does_not_carry_the_second_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock that costs less goes in steps of milliseconds.
    monkeypatch.setattr(time, "time", lambda: 1_795_309_440.001)
    job = jobs.Job(id=7, ops=[])
    assert "job 7 at 2026-11-22 01:04:00 UTC" in lifecycle.death_text(job)
    assert "job 7 was killed on request at 2026-11-22 01:04:00 UTC" in lifecycle.kill_text(job)
