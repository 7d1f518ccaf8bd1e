"""What users ask of jobs in a queue on a stage: cancel, priority, archive, retry."""

from __future__ import annotations

import errno
import os

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.refusals import refuse, refusing

from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


# Cancel and priority.
def test_a_pending_job_is_canceled_durably(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    asker = queue.actor.say(messages.CancelJob(id=1))
    assert asker.answers == []
    queue.actor.end_turn()
    assert asker.answer == messages.CancelOutcome(
        accepted=True, text="Dequeued job 1", has_ended=True
    )
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, CANCELED)]
    queue.crash_machine()
    job = queue.job(1)
    assert [(op.status, op.result) for op in job.ops] == [(CANCELED, None)] * 2


def test_a_job_that_cannot_be_canceled_is_reported_in_the_words_of_ganeti(queue: Queue) -> None:
    queue.finish_new()
    for job_id in (1, 9):
        text = f"Job {job_id} not found in queue"
        answer = queue.actor.ask(messages.CancelJob(id=job_id)).answer
        assert answer == messages.CancelOutcome(accepted=False, text=text)


def test_a_repeated_cancellation_is_answered_as_done_before(queue: Queue) -> None:
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    again = queue.actor.ask(messages.CancelJob(id=1)).answer_as(messages.CancelOutcome)
    assert (again.accepted, again.was_canceled) == (False, True)
    assert again.seconds_ago < 5
    queue.restart()
    row = queue.actor.component.store.table.find(1)
    assert row is not None
    assert row.ended is not None
    row.ended -= 100
    again = queue.actor.ask(messages.CancelJob(id=1)).answer_as(messages.CancelOutcome)
    assert again.was_canceled
    assert 100 <= again.seconds_ago < 110


def test_a_job_whose_cancellation_is_not_durable_is_not_called_gone(queue: Queue) -> None:
    queue.submitted(spec())
    asked = [
        queue.actor.say(message)
        for message in (
            messages.CancelJob(id=1),
            messages.CancelJob(id=1),
            messages.ChangeJobPriority(id=1, priority=3),
        )
    ]
    with refusing("pwrite"):
        queue.actor.end_turn()
    assert [asker.refusal[0] for asker in asked] == ["ReadOnlyError"] * 3
    assert queue.statuses() == {1: "queued"}


def test_a_running_job_answers_for_itself(queue: Queue) -> None:
    queue.start_new()
    cancel = queue.actor.ask(messages.CancelJob(id=1))
    change = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    asked = [sent.message for sent in queue.stage.take(messages.DeliverToJob, to="executor")]
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


def test_a_job_that_was_killed_because_it_did_not_react_was_canceled_on_request(
    queue: Queue,
) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    kill = queue.actor.ask(messages.CancelJob(id=1, kill=True))
    cancel = queue.actor.ask(messages.CancelJob(id=1))
    queue.lose_process(1, was_killed=True)
    assert queue.statuses()[1] == "error"
    assert kill.answer == messages.CancelOutcome(
        accepted=True, text="Job 1 did not react, and was killed"
    )
    assert not cancel.answer_as(messages.CancelOutcome).accepted
    again = queue.actor.ask(messages.CancelJob(id=1, kill=True))
    assert not again.answer_as(messages.CancelOutcome).accepted


@pytest.mark.parametrize("is_newer_granted", [False, True])
def test_a_granted_priority_ends_older_requests_which_an_executor_may_have_lost(
    queue: Queue, *, is_newer_granted: bool
) -> None:
    queue.start_new()
    askers = [queue.actor.ask(messages.ChangeJobPriority(id=1, priority=one)) for one in (5, 6)]
    asked = [sent.message for sent in queue.stage.take(messages.DeliverToJob, to="executor")]
    granted = asked[is_newer_granted]
    assert isinstance(granted, messages.PriorityRequested)
    queue.actor.ask(
        messages.PriorityAnswered(
            job_id=1, token=granted.token, priority=granted.priority, accepted=True, text="yes"
        )
    )
    assert [len(asker.answers) for asker in askers] == [1, int(is_newer_granted)]


def test_an_answer_that_is_not_waited_for_is_ignored(queue: Queue) -> None:
    queue.start_new()
    queue.actor.notify(messages.CancelAnswered(job_id=1, token=99, accepted=True, text=""))


def test_the_priority_of_a_pending_job_changes_durably(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    asker = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    text = "Priorities of pending opcodes for job 1 have been changed to -5"
    assert asker.answer == messages.PriorityOutcome(accepted=True, text=text)
    # The way of its arrival, so that it cannot come before it.
    sent = queue.stage.take_one(messages.JobReprioritised, to="filter_evaluator")
    assert sent == messages.JobReprioritised(id=1, priority=-5, number=1)
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
    late = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=9))
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


def test_a_repeated_archival_is_answered_as_done_before(queue: Queue) -> None:
    queue.finish_new()
    queue.actor.ask(messages.ArchiveJob(id=1))
    again = queue.actor.ask(messages.ArchiveJob(id=1))
    assert again.refusal == ("ArchivedJobError", "there is no live job 1")


def test_the_file_of_a_job_is_moved_when_its_process_is_gone(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, SUCCESS)
    askers = [queue.actor.ask(messages.ArchiveJob(id=1)) for _ in range(2)]
    assert [asker.answers for asker in askers] == [[], []]
    queue.write_as_process(1, queue.body_of_process(1, 10, SUCCESS))
    queue.lose_process(1, has_left=True)
    expected = messages.ArchiveOutcome(archived=[1])
    assert [asker.answer for asker in askers] == [expected, expected]
    assert queue.statuses(archived=True) == {1: "success"}


def test_a_retry_is_noted_when_the_process_of_the_job_is_gone(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, ERROR)
    queue.write_as_process(1, queue.body_of_process(1, 10, ERROR))
    retries = [queue.actor.ask(messages.RetryJob(id=1)) for _ in range(2)]
    assert [again.answer_as(messages.JobsSubmitted).ids for again in retries] == [[2], [3]]
    asker = queue.actor.ask(messages.ArchiveJob(id=1))
    queue.lose_process(1, has_left=True)
    assert asker.answer == messages.ArchiveOutcome(archived=[1])
    assert queue.job(1).extra[jobs.RETRIED_BY_KEY] == [2, 3]
    queue.crash_machine()
    assert queue.job(1).extra[jobs.RETRIED_BY_KEY] == [2, 3]


def test_the_newest_requests_to_processes_are_kept(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganger.storage.settings.QUESTIONS_MAX", 2)
    queue.start_new()
    askers = [queue.actor.ask(messages.CancelJob(id=1)) for _ in range(3)]
    for sent in queue.stage.take(messages.DeliverToJob, to="executor"):
        assert isinstance(sent.message, messages.CancelRequested)
        queue.actor.turn(
            messages.CancelAnswered(
                job_id=1, token=sent.message.token, accepted=False, text="too late"
            )
        )
    assert [len(asker.answers) for asker in askers] == [0, 1, 1]


def test_old_final_jobs_are_archived_together(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(*[spec() for _ in range(6)])
    limit = 2_000_000_000.0
    # (started, ended): without an end the start counts, and without both it is not known to be old.
    times = [(None, limit - 1), (None, limit), (limit - 1, None), (limit, None), (None, None)]
    for job_id, (started, ended) in enumerate(times, start=1):
        queue.finish(job_id)
        row = queue.actor.component.store.table.find(job_id)
        assert row is not None
        row.started, row.ended = started, ended
    monkeypatch.setattr("time.time", lambda: limit + 3_600.0)
    old = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=3_600.0)).answer
    assert old == messages.ArchiveOutcome(archived=[1, 3])
    rest = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0)).answer
    assert rest == messages.ArchiveOutcome(archived=[2, 4, 5])
    assert queue.statuses() == {6: "queued"}


def test_archiving_many_has_a_limit(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.storage.settings.AUTOARCHIVE_JOBS_MAX", 2)
    queue.submitted(*[spec() for _ in range(3)])
    for job_id in (1, 2, 3):
        queue.actor.ask(messages.CancelJob(id=job_id))
    outcome = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0)).answer
    assert outcome == messages.ArchiveOutcome(archived=[1, 2], left=1)


def test_others_have_their_turn_while_many_are_archived(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganger.storage.settings.ARCHIVED_AT_ONCE", 2)
    queue.submitted(*[spec() for _ in range(5)])
    for job_id in range(1, 6):
        queue.actor.ask(messages.CancelJob(id=job_id))
    asker = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0))
    assert asker.answers == []
    assert sorted(queue.statuses()) == [3, 4, 5]
    # One of the jobs that are left is archived by somebody else.
    queue.actor.ask(messages.ArchiveJob(id=4))
    for _ in range(2):
        assert queue.actor.take_slice()
    assert asker.answer == messages.ArchiveOutcome(archived=[1, 2, 3, 5])
    assert queue.statuses() == {}


def test_archiving_many_ends_when_its_client_is_gone(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganger.storage.settings.ARCHIVED_AT_ONCE", 2)
    queue.submitted(*[spec() for _ in range(5)])
    for job_id in range(1, 6):
        queue.actor.ask(messages.CancelJob(id=job_id))
    queue.actor.say(messages.AutoArchiveJobs(age_seconds=-1.0), peer=b"p")
    queue.actor.turn(messages.PeerGone(peer=b"p"))
    queue.actor.work_off()
    assert sorted(queue.statuses()) == [3, 4, 5]


def test_an_archived_job_stays_so_after_a_crash(queue: Queue) -> None:
    queue.finish_new()
    job = queue.job(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    for loss in (queue.crash_machine, queue.restart):
        loss()
        assert queue.statuses(archived=True) == {1: "success"}
        assert queue.statuses() == {}
        assert queue.job(1) == job


def wish_of(kind: str) -> messages.CancelJob | messages.ChangeJobPriority:
    return (
        messages.CancelJob(id=1)
        if kind == "cancel"
        else messages.ChangeJobPriority(id=1, priority=5)
    )


def answer_as_process(queue: Queue) -> messages.CancelAnswered | messages.PriorityAnswered:
    [sent] = queue.stage.take(messages.DeliverToJob, to="executor")
    asked = sent.message
    if isinstance(asked, messages.CancelRequested):
        return messages.CancelAnswered(job_id=1, token=asked.token, accepted=True, text="yes")
    assert isinstance(asked, messages.PriorityRequested)
    return messages.PriorityAnswered(
        job_id=1, token=asked.token, priority=asked.priority, accepted=True, text="yes"
    )


@pytest.mark.parametrize("kind", ["cancel", "priority"])
@pytest.mark.parametrize("is_later", [False, True])
def test_an_answer_of_a_jobs_process_is_passed_on_only_if_its_state_is_stored(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, kind: str, *, is_later: bool
) -> None:
    queue.start_new()
    asker = queue.actor.ask(wish_of(kind))
    answer = answer_as_process(queue)
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync", number=errno.EIO)
        recorded = queue.record(1, 10, CANCELING if kind == "cancel" else WAITING)
        if is_later:
            # In a turn of its own, when the disk works again: that state was refused all the same.
            queue.actor.end_turn()
            patch.undo()
            queue.actor.notify(messages.DiskRetried())
        queue.actor.turn(answer)
    # The process has done as it was asked, and only a loss of power would undo it.
    assert recorded.refusal[0] == asker.refusal[0] == "OutcomeUnknownError"
    assert os.strerror(errno.EIO) in asker.refusal[1]
    [row] = queue.actor.say(messages.ListJobs()).answer_as(messages.JobRows).rows
    assert row.priority == 0
    queue.actor.notify(messages.DiskRetried())
    queue.record(1, 11, CANCELING if kind == "cancel" else WAITING)
    again = queue.actor.ask(wish_of(kind))
    queue.actor.turn(answer_as_process(queue))
    assert isinstance(again.answer, messages.CancelOutcome | messages.PriorityOutcome)
    assert again.answer.accepted


@pytest.mark.parametrize("kind", ["cancel", "priority"])
def test_a_living_job_is_not_even_asked_while_the_disk_refuses(queue: Queue, kind: str) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    with refusing("fdatasync", number=errno.EIO):
        queue.submit(spec())
        assert queue.actor.ask(wish_of(kind)).refusal[0] == "ReadOnlyError"
        assert queue.stage.take(messages.DeliverToJob) == []
        # To end what fills the disk, say, nothing must be stored.
        queue.actor.ask(messages.CancelJob(id=1, kill=True))
        assert len(queue.stage.take(messages.DeliverToJob)) == 1


def test_nothing_is_archived_while_the_disk_refuses(queue: Queue) -> None:
    queue.finish_new()
    with refusing("fdatasync"):
        queue.submit(spec())
        for request in (messages.ArchiveJob(id=1), messages.AutoArchiveJobs(age_seconds=-1.0)):
            assert queue.actor.ask(request).refusal[0] == "ReadOnlyError"
    queue.actor.notify(messages.DiskRetried())
    queue.restart()
    assert queue.statuses() == {1: "success"}
