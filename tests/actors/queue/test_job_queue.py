"""The job queue on a stage: what users ask of it, and what it tells of itself."""

from __future__ import annotations

import math
import os
from unittest import mock

import pytest
from tests.actors.queue.queue_stage import DELAY, Queue, spec

from ganger.storage import errors, jobs, settings
from ganger.storage.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import JobSpec, SubmitJobs

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


# Submission.
def test_ids_are_answered_after_the_flush_and_not_before(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queue.actor.say(SubmitJobs(jobs=[spec(), spec()]))
    second = queue.actor.say(SubmitJobs(jobs=[spec()]))
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: flushed.append(len(first.answers)))
    queue.actor.end_turn()
    # One flush for both, while nobody had an answer.
    assert flushed == [0]
    assert first.answer == messages.JobsSubmitted(ids=[1, 2])
    assert second.answer == messages.JobsSubmitted(ids=[3])


def test_acknowledged_jobs_survive_daemon_and_machine(queue: Queue) -> None:
    assert queue.submitted(spec(), spec()) == [1, 2]
    queue.restart()
    assert queue.statuses() == {1: "queued", 2: "queued"}
    queue.crash_machine()
    assert queue.statuses() == {1: "queued", 2: "queued"}
    assert queue.submitted(spec()) == [3]


def test_a_submission_that_was_not_acknowledged_is_not_there(queue: Queue) -> None:
    queue.submitted(spec())
    unanswered = queue.actor.say(SubmitJobs(jobs=[spec()]))
    queue.restart()
    assert unanswered.answers == []
    assert queue.statuses() == {1: "queued"}


def test_new_jobs_are_announced_when_they_are_durable(queue: Queue) -> None:
    queue.actor.say(SubmitJobs(jobs=[spec(), spec((-1, ["success"]), priority=-5)]))
    assert queue.stage.take(messages.JobsArrived) == []
    queue.actor.end_turn()
    arrived = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job for one in arrived.jobs] == [
        messages.PendingJob(id=1, priority=0),
        messages.PendingJob(id=2, priority=-5, depends=((1, ("success",)),)),
    ]
    assert (arrived.is_all, [one.inputs for one in arrived.jobs]) == (False, [None, None])


def test_the_inputs_of_opcodes_are_announced_when_rules_read_them(queue: Queue) -> None:
    queue.submitted(spec())
    queue.stage.told.clear()
    changed = messages.RuleChainChanged(chain=7, serial=1, reads_opcodes=True)
    queue.actor.notify(changed, messages.ReportAllJobs())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert everything.is_all
    # A long queue is not read for it: the scheduler asks for those that come to the front.
    assert [one.inputs for one in everything.jobs] == [None]
    queue.actor.notify(messages.ReportJobs(ids=[1]))
    asked_for = queue.stage.take_one(messages.JobsArrived)
    assert [[op["OP_ID"] for op in one.inputs or ()] for one in asked_for.jobs] == [
        ["OP_TEST_DELAY"]
    ]
    queue.submitted(spec())
    new = queue.stage.take_one(messages.JobsArrived)
    assert [one.inputs is not None for one in new.jobs] == [True]


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (
            JobSpec(ops=[{"OP_ID": "QUITE_ANOTHER"}]),
            ("OpcodeError", "job 1 of the submission: unknown opcode 'QUITE_ANOTHER'"),
        ),
        (
            spec((7, [])),
            ("DependencyError", "job 1 of the submission: depends[0]: there is no job 7 (yet)"),
        ),
        (
            JobSpec(ops=[DELAY, DELAY | {"depends": [[2, []]]}]),
            (
                "DependencyError",
                "job 1 of the submission: opcode 1: depends[0]: there is no job 2",
            ),
        ),
    ],
)
def test_one_bad_job_fails_its_batch_and_stores_nothing(
    queue: Queue, bad: JobSpec, refusal: tuple[str, str]
) -> None:
    queue.submitted(spec())
    (queue.stage.places.queue / "serial").write_bytes(b"3\n")
    queue.restart()
    assert queue.submit(spec(), bad, spec()).refusal == refusal
    assert queue.statuses() == {1: "queued"}
    assert queue.stage.take(messages.JobsArrived) == []
    assert queue.submitted(spec()) == [4]


def test_a_dependency_may_be_live_or_archived(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.finish(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    assert queue.submitted(spec((1, []), (2, []))) == [3]
    assert queue.statuses() == {2: "queued", 3: "waiting"}


def test_a_dry_run_checks_everything_and_stores_nothing(queue: Queue) -> None:
    assert queue.submitted(spec(), spec((-1, [])), dry_run=True, key="k") == []
    assert queue.submit(spec((9, [])), dry_run=True).refusal[0] == "DependencyError"
    assert queue.statuses() == {}
    assert queue.submitted(spec(), key="k") == [1]


def test_a_repeated_key_stores_nothing_and_answers_the_first_ids(queue: Queue) -> None:
    assert queue.submitted(spec(), spec(), key="k") == [1, 2]
    again = queue.submit(spec(), spec(), key="k").answer
    assert again == messages.JobsSubmitted(ids=[1, 2], is_repeat=True)
    queue.restart()
    assert queue.submit(spec(), spec(), key="k").answer == again
    assert queue.submitted(spec(), key="other") == [3]


def test_a_key_repeated_before_the_flush_waits_for_it(queue: Queue) -> None:
    first = queue.actor.say(SubmitJobs(jobs=[spec()], key="k"))
    again = queue.actor.say(SubmitJobs(jobs=[spec()], key="k"))
    assert again.answers == []
    queue.actor.end_turn()
    assert first.answer == messages.JobsSubmitted(ids=[1])
    assert again.answer == messages.JobsSubmitted(ids=[1], is_repeat=True)
    assert queue.statuses() == {1: "queued"}


def test_a_key_is_free_again_when_its_jobs_are_archived(queue: Queue) -> None:
    queue.submitted(spec(), key="k")
    queue.finish(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    assert queue.submitted(spec(), key="k") == [2]


def file_numbers(queue: Queue) -> list[int]:
    return sorted(int(path.name.removeprefix("job-")) for path in queue.files())


def test_the_files_of_pending_jobs_follow_some_at_a_time_when_nothing_else_comes(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the disk is: the number of files is the limit here, not the time.
    monkeypatch.setattr(settings, "FILES_SLICE_SECONDS", math.inf)
    once = settings.FILES_AT_ONCE
    last = 2 * once + 1
    queue.submitted(*[spec()] * last)
    runtime = queue.actor.component.runtime
    # The newest go first: the oldest may start soon, and are written then.
    for written in (0, once, 2 * once):
        assert file_numbers(queue) == list(range(last - written + 1, last + 1))
        assert runtime.patience_seconds == settings.FILES_REST_SECONDS
        queue.actor.be_quiet()
    assert file_numbers(queue) == list(range(1, last + 1))
    assert runtime.patience_seconds is None
    assert queue.file_of("serial") == f"{last}\n"


def test_a_job_that_starts_has_its_file_at_once_and_only_the_others_wait(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.choose(1)
    assert file_numbers(queue) == [1]
    assert queue.file(1)["livelock"] == queue.stage.daemon_lock.path
    queue.rest()
    assert file_numbers(queue) == [1, 2]
    assert queue.file(1)["livelock"] == queue.stage.daemon_lock.path


def test_a_queue_that_is_never_quiet_writes_files_too(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 5)
    queue.submitted(*[spec()] * 5)
    assert file_numbers(queue) == []
    once = settings.FILES_PER_TURN
    queue.submitted(*[spec()] * 20)
    assert len(file_numbers(queue)) == once
    # There are still too many: it goes on as soon as nothing waits.
    runtime = queue.actor.component.runtime
    assert runtime.patience_seconds == 0
    queue.submitted(spec())
    assert len(file_numbers(queue)) == 2 * once
    # What comes is not kept waiting.
    queue.stage.dispatcher.has_work = True
    queue.actor.component.quiet()
    assert len(file_numbers(queue)) == 2 * once + 1
    queue.stage.dispatcher.has_work = False
    queue.rest()
    assert file_numbers(queue) == list(range(1, 5 + 20 + 2))


def test_a_journal_that_grows_on_and_on_has_files_written_whatever_waits(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(*[spec()] * 20)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 1_000)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 2)
    monkeypatch.setattr(settings, "FILES_SLICE_SECONDS", 60.0)
    queue.stage.dispatcher.has_work = True
    queue.actor.end_turn()
    queue.stage.dispatcher.has_work = False
    assert file_numbers(queue) == list(range(1, 21))


def test_files_wait_for_the_disk_and_not_for_ever(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec())
    full = errors.StorageError("job-2: no space left")
    with monkeypatch.context() as patch:
        patch.setattr(
            queue.actor.component.store.ledger.directory, "write", mock.Mock(side_effect=full)
        )
        queue.actor.be_quiet()
        assert queue.actor.component.runtime.patience_seconds is None
        assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.actor.notify(messages.DiskRetried())
    queue.actor.end_turn()
    assert file_numbers(queue) == [1, 2]
    assert queue.submitted(spec()) == [3]


# Cancel and priority.
def test_a_pending_job_is_canceled_durably(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    asker = queue.actor.say(messages.CancelJob(id=1))
    assert asker.answers == []
    queue.actor.end_turn()
    assert asker.answer == messages.CancelOutcome(accepted=True, text="Dequeued job 1")
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, CANCELED)]
    queue.crash_machine()
    job = queue.job(1)
    assert [(op.status, op.result) for op in job.ops] == [(CANCELED, None)] * 2


def test_what_cannot_be_canceled_is_told_with_the_text_of_ganeti(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    for job_id in (1, 9):
        text = f"Job {job_id} not found in queue"
        answer = queue.actor.ask(messages.CancelJob(id=job_id)).answer
        assert answer == messages.CancelOutcome(accepted=False, text=text)


def test_who_asks_again_hears_that_the_job_was_canceled_before(queue: Queue) -> None:
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    again = queue.actor.ask(messages.CancelJob(id=1)).answer_as(messages.CancelOutcome)
    assert (again.accepted, again.was_canceled) == (False, True)


def test_a_running_job_answers_for_itself(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    cancel = queue.actor.ask(messages.CancelJob(id=1))
    change = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    asked = [told.message for told in queue.stage.take(messages.DeliverToJob, to="executor")]
    wish, change_wish = asked
    assert isinstance(wish, messages.CancelRequested)
    assert isinstance(change_wish, messages.PriorityRequested)
    assert cancel.answers == change.answers == []
    queue.actor.notify(
        messages.CancelAnswered(job_id=1, token=wish.token, accepted=False, text="too late"),
        messages.PriorityAnswered(
            job_id=1, token=change_wish.token, priority=-5, accepted=True, text="changed"
        ),
    )
    # What they answer for is in the journal's buffer: it is durable when the turn has ended.
    assert cancel.answers == change.answers == []
    queue.actor.end_turn()
    assert cancel.answer == messages.CancelOutcome(accepted=False, text="too late")
    assert change.answer == messages.PriorityOutcome(accepted=True, text="changed")
    [row] = queue.actor.say(messages.ListJobs()).answer_as(messages.JobRows).rows
    assert row.priority == -5


def test_an_answer_nobody_waits_for_is_ignored(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.actor.notify(messages.CancelAnswered(job_id=1, token=99, accepted=True, text=""))


def test_the_priority_of_a_pending_job_changes_durably(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    asker = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    text = "Priorities of pending opcodes for job 1 have been changed to -5"
    assert asker.answer == messages.PriorityOutcome(accepted=True, text=text)
    # The way of its arrival, so that it cannot come before it.
    told = queue.stage.take_one(messages.JobReprioritised, to="filter_evaluator")
    assert told == messages.JobReprioritised(id=1, priority=-5, number=1)
    queue.crash_machine()
    assert [op.priority for op in queue.job(1).ops] == [-5, -5]


@pytest.mark.parametrize("priority", [-21, 20, 100])
def test_a_priority_out_of_range_is_refused(queue: Queue, priority: int) -> None:
    queue.submitted(spec())
    refusal = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=priority)).refusal
    assert refusal == ("BadRequestError", f"priority: expected -20 to 19, got {priority}")


def test_several_changes_in_one_turn_all_count(queue: Queue) -> None:
    queue.submitted(spec())
    changed = [
        queue.actor.say(messages.ChangeJobPriority(id=1, priority=priority)) for priority in (5, 7)
    ]
    canceled = queue.actor.say(messages.CancelJob(id=1))
    late = queue.actor.say(messages.ChangeJobPriority(id=1, priority=9))
    queue.actor.end_turn()
    assert all(one.answer_as(messages.PriorityOutcome).accepted for one in changed)
    assert canceled.answer_as(messages.CancelOutcome).accepted
    assert not late.answer_as(messages.PriorityOutcome).accepted
    for loss in (queue.restart, queue.crash_machine):
        loss()
        job = queue.job(1)
        assert (job.status, job.ops[0].priority) == (CANCELED, 7)


# Archive.
def test_a_final_job_is_archived(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.finish(1)
    before = queue.job(1)
    assert queue.actor.ask(messages.ArchiveJob(id=1)).answer == messages.ArchiveOutcome(
        archived=[1]
    )
    assert queue.statuses() == {2: "queued"}
    assert queue.statuses(archived=True) == {1: "success", 2: "queued"}
    assert queue.job(1) == before
    assert (queue.stage.places.archive / "0" / "job-1").exists()


def test_only_final_live_jobs_can_be_archived(queue: Queue) -> None:
    queue.submitted(spec())
    expected = "job 1 has status queued: only a final job can be archived"
    assert queue.actor.ask(messages.ArchiveJob(id=1)).refusal == ("JobStateError", expected)
    assert queue.actor.ask(messages.ArchiveJob(id=9)).refusal == (
        "UnknownJobError",
        "there is no live job 9",
    )


def test_who_archives_again_hears_that_it_is_in_the_archive(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    again = queue.actor.ask(messages.ArchiveJob(id=1))
    assert again.refusal == ("ArchivedJobError", "there is no live job 1")


def test_the_file_of_a_job_is_moved_when_its_process_is_gone(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, SUCCESS)
    queue.actor.end_turn()
    askers = [queue.actor.ask(messages.ArchiveJob(id=1)) for _ in range(2)]
    assert [asker.answers for asker in askers] == [[], []]
    queue.write_as_process(1, queue.body_of_process(1, 10, SUCCESS))
    queue.end_process(1, has_left=True)
    queue.actor.end_turn()
    expected = messages.ArchiveOutcome(archived=[1])
    assert [asker.answer for asker in askers] == [expected, expected]
    assert queue.statuses(archived=True) == {1: "success"}


def test_a_retry_is_noted_when_the_process_of_the_job_is_gone(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, ERROR)
    queue.actor.end_turn()
    queue.write_as_process(1, queue.body_of_process(1, 10, ERROR))
    retries = [queue.actor.ask(messages.RetryJob(id=1)) for _ in range(2)]
    assert [again.answer_as(messages.JobsSubmitted).ids for again in retries] == [[2], [3]]
    asker = queue.actor.ask(messages.ArchiveJob(id=1))
    queue.end_process(1, has_left=True)
    queue.actor.end_turn()
    assert asker.answer == messages.ArchiveOutcome(archived=[1])
    assert queue.job(1).extra[jobs.RETRIED_BY_KEY] == [2, 3]
    queue.crash_machine()
    assert queue.job(1).extra[jobs.RETRIED_BY_KEY] == [2, 3]


def test_old_final_jobs_are_archived_together(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec(), spec())
    for job_id in (1, 2):
        queue.finish(job_id)
    row = queue.actor.component.store.table.find(2)
    assert row is not None
    row.ended = 2_000_000_000.0
    monkeypatch.setattr("time.time", lambda: 2_000_000_100.0)
    old = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=3_600.0)).answer
    assert old == messages.ArchiveOutcome(archived=[1])
    rest = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0)).answer
    assert rest == messages.ArchiveOutcome(archived=[2])
    assert queue.statuses() == {3: "queued"}


def test_archiving_many_has_a_limit(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.storage.settings.AUTOARCHIVE_JOBS_MAX", 2)
    queue.submitted(*[spec() for _ in range(3)])
    for job_id in (1, 2, 3):
        queue.actor.ask(messages.CancelJob(id=job_id))
    outcome = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0)).answer
    assert outcome == messages.ArchiveOutcome(archived=[1, 2], left=1)


def test_an_archived_job_stays_so_after_a_crash(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    job = queue.job(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    for loss in (queue.crash_machine, queue.restart):
        loss()
        assert queue.statuses(archived=True) == {1: "success"}
        assert queue.statuses() == {}
        assert queue.job(1) == job


# What the queue finds and tells of itself.
def test_quarantined_files_are_named(queue: Queue) -> None:
    (queue.stage.places.queue / "job-7").write_bytes(b"torn")
    queue.restart()
    asker = queue.actor.say(messages.ReadQueueState())
    report = asker.answer_as(messages.QueueReport)
    [quarantined] = report.quarantined
    assert quarantined.startswith("job-7: not a job: ")
    assert report.counts["last_id"] == 7
    assert queue.submitted(spec()) == [8]
    assert (queue.stage.places.queue / "job-7").read_bytes() == b"torn"


def test_jobs_are_counted(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec((-1, [])))
    queue.actor.ask(messages.CancelJob(id=1))
    asker = queue.actor.say(messages.ReadQueueState())
    counts = asker.answer_as(messages.QueueReport).counts
    assert (counts["queued"], counts["waiting"], counts["canceled"]) == (1, 1, 1)


def test_an_unknown_job_is_an_error_and_not_the_end(queue: Queue) -> None:
    assert queue.actor.ask(messages.ReadJob(id=9)).refusal == (
        "UnknownJobError",
        "there is no job 9",
    )
    assert queue.actor.ask(messages.WatchJobs(ids=[9])).refusal[0] == "UnknownJobError"
    queue.actor.notify(
        messages.JobLogAppended(job_id=9, op_index=0, entries=[]),
        messages.JobWaits(job_id=9, serial=1, body=b"{}"),
        messages.JobExited(job_id=9, lock_file="/l/x", has_left=False),
        messages.StartFailed(job_id=9, text="x"),
        messages.JobsChosen(start=[9], unsatisfiable=[(9, "failed", "")], eligible=[9]),
    )
    queue.actor.end_turn()
    unknown = queue.actor.ask(queue.state(9, 1, RUNNING, body=b"{}"))
    assert unknown.answer == messages.StateRecorded(serial=1)


def test_an_orderly_end_writes_every_file(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.actor.close()
    assert (queue.file(1)["id"], queue.file(2)["id"]) == (1, 2)


def test_questions_are_asked_anew_when_who_was_asked_is_replaced(queue: Queue) -> None:
    queue.submitted(spec())
    why = queue.actor.say(messages.ExplainJob(id=1))
    what_if = queue.actor.say(messages.Simulate())
    queue.stage.told.clear()
    queue.actor.notify(messages.ComponentReplaced(component="scheduler"))
    token = queue.stage.take_one(messages.ExplainPending, to="filter_evaluator").token
    page = queue.stage.take_one(messages.JudgeSimulation, to="filter_evaluator")
    queue.actor.notify(messages.PendingExplained(token=token, position=None))
    assert why.answer_as(messages.JobExplained).text
    text = "refused"
    queue.actor.notify(messages.SimulationFailed(token=page.token, text=text))
    assert what_if.refusal == ("BadRequestError", text)
    # Nothing is open any more.
    queue.stage.told.clear()
    queue.actor.notify(messages.ComponentReplaced(component="scheduler"))
    assert queue.stage.told == []
