"""The job queue on a stage: what its table of messages answers by itself."""

from __future__ import annotations

from tests.actors.queue.queue_stage import Queue, spec

from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

RUNNING = JobStatus.RUNNING


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


def test_the_last_id_can_be_read(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    assert queue.actor.say(messages.ReadLastId()).answer == messages.LastId(last_id=2)


def test_a_gathered_watch_hears_of_changes_when_the_time_has_come(queue: Queue) -> None:
    asker = queue.actor.ask(messages.WatchJobs(is_gathered=True))
    queue.submitted(spec())
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    assert asker.answers == []
    queue.stage.run_timers()
    queue.actor.turn(queue.stage.take_one(messages.GatheredDue))
    told = [(job.id, str(job.status)) for job in asker.answer_as(messages.JobsChanged).jobs]
    assert told == [(1, "queued"), (2, "queued"), (1, "canceled")]
