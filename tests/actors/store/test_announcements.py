"""What a queue on a stage announces to be judged: jobs, pages, priorities."""

from __future__ import annotations

import pytest
from tests.actors.queue.queue_rules import EXEC, UUID, take_rules
from tests.actors.queue.queue_stage import Queue, spec

from ganger.storage import settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files import job_files
from ganger.transport import messages
from ganger.transport.messages import JobSpec

RUNNING = JobStatus.RUNNING
HOLDS_URGENT = {
    "uuid": UUID,
    "watermark": 0,
    "action": "PAUSE",
    "predicates": [["opcode", ["<", "priority", 0]]],
}


def test_pending_and_running_jobs_are_sent_to_be_judged_anew(queue: Queue) -> None:
    take_rules(queue)
    queue.submitted(spec(), spec(), spec())
    queue.start(2)
    queue.record(2, 10, RUNNING)
    queue.finish(3)
    queue.actor.notify(messages.ReportJobs(ids=[1, 2, 3, 99]))
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert (sent.is_repeat, sent.is_all, sent.sweep) == (True, False, None)
    assert [one.job.id for one in sent.jobs] == [1]
    assert [one.job.id for one in sent.running] == [2]
    assert all(one.body is not None for one in (*sent.jobs, *sent.running))


def test_jobs_whose_files_rules_could_not_read_are_sent_with_their_texts(queue: Queue) -> None:
    take_rules(queue)
    queue.submitted(spec(), spec())
    queue.rest()
    first, second = (queue.stage.places.queue / f"job-{number}" for number in (1, 2))
    whole = first.read_bytes()
    first.write_bytes(bytes(10))
    second.unlink()
    queue.stage.sent.clear()
    queue.actor.notify(messages.ReportJobs(ids=[1, 2], are_read=True))
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    # The journal makes up for the damaged one. The evaluator holds one without a text.
    assert [one.body for one in sent.jobs] == [whole, b""]
    assert first.read_bytes() == whole
    assert not any(one.is_in_file for one in sent.jobs)


def test_inputs_are_sent_only_where_rules_read_them(queue: Queue) -> None:
    take_rules(queue, reads=False)
    queue.submitted(spec())
    queue.actor.notify(messages.ReportJobs(ids=[1]))
    for sent in queue.stage.take(messages.JobsArrived):
        assert [(one.inputs, one.body) for one in sent.jobs] == [(None, None)]


def test_ad_hoc_limits_are_announced_with_each_job_also_after_a_restart(queue: Queue) -> None:
    take_rules(queue, reads=False)
    reason = [("gnt:user", "rate-limit:3:moves", 1)]
    queue.submitted(spec(reason=reason))
    limits = [one.job.limits for one in queue.stage.take_one(messages.JobsArrived).jobs]
    assert limits == [(("3:moves", 3),)]
    queue.crash_machine()
    queue.actor.notify(messages.ReportAllJobs())
    limits = [one.job.limits for one in queue.stage.take_one(messages.JobsArrived).jobs]
    assert limits == [(("3:moves", 3),)]


def test_the_queue_is_sent_page_by_page_pending_jobs_only(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SWEEP_JOBS", 2)
    take_rules(queue)
    queue.submitted(*[spec()] * 6)
    queue.start(2)
    queue.stage.sent.clear()
    pages = []
    after: int | None = 0
    while after is not None:
        queue.actor.notify(messages.SweepJobs(after=after, chain=7))
        page = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
        assert (page.sweep, page.is_repeat) == (7, True)
        pages.append([one.job.id for one in page.jobs])
        after = page.next_after
    assert pages == [[1, 3], [4, 5], [6]]


def test_a_report_of_the_whole_queue_has_pages(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REPORT_JOBS", 2)
    take_rules(queue)
    queue.submitted(*[spec()] * 6)
    queue.start(2)
    queue.stage.sent.clear()
    queue.actor.notify(messages.ReportAllJobs())
    page = first = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert (first.is_all, [one.job.id for one in first.running]) == (True, [2])
    pages = [[one.job.id for one in first.jobs]]
    while page.next_after is not None:
        queue.actor.notify(messages.ReportRest(report=first.report, after=page.next_after))
        page = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
        assert (page.is_all, page.is_rest, page.report) == (False, True, first.report)
        pages.append([one.job.id for one in page.jobs])
    assert pages == [[1, 3], [4, 5], [6]]
    # Another report has begun: nobody waits for the rest of this one.
    queue.actor.notify(messages.ReportAllJobs())
    queue.stage.sent.clear()
    queue.actor.notify(messages.ReportRest(report=first.report, after=3))
    assert queue.stage.take(messages.JobsArrived) == []


def test_an_empty_queue_is_one_empty_page(queue: Queue) -> None:
    take_rules(queue)
    queue.actor.notify(messages.SweepJobs(after=0, chain=7))
    page = queue.stage.take_one(messages.JobsArrived)
    assert (page.jobs, page.next_after) == ([], None)


def test_a_job_is_judged_by_the_priority_that_it_has_now(queue: Queue) -> None:
    take_rules(queue, HOLDS_URGENT)
    [job_id] = queue.submitted(JobSpec(ops=[EXEC, {**EXEC, "priority": -3}]))
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert arrived.jobs[0].inputs is not None
    assert [op["priority"] for op in arrived.jobs[0].inputs] == [0, -3]
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=7))
    queue.actor.notify(messages.ReportJobs(ids=[job_id]))
    [one] = queue.stage.take_one(messages.JobsArrived).jobs
    assert one.is_in_file
    inputs = job_files.read_inputs(queue.stage.places.queue, job_id)
    assert [op["priority"] for op in inputs] == [7, 7]


def test_the_file_of_a_job_is_judged_by_the_priorities_of_now(queue: Queue) -> None:
    [job_id] = queue.submitted(spec())
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=-5))
    queue.rest()
    [op] = job_files.read_inputs(queue.stage.places.queue, job_id)
    assert op["priority"] == -5


def test_a_new_priority_of_a_running_job_is_announced_too(queue: Queue) -> None:
    [job_id] = queue.submitted(spec())
    queue.start_running(job_id)
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=-5))
    [sent] = queue.stage.take(messages.DeliverToJob)
    assert isinstance(sent.message, messages.PriorityRequested)
    answer = messages.PriorityAnswered(
        job_id=job_id, token=sent.message.token, priority=-5, accepted=True, text="done"
    )
    queue.actor.ask(answer)
    changed = queue.stage.take_one(messages.JobReprioritised, to="filter_evaluator")
    assert (changed.id, changed.priority) == (job_id, -5)


def test_jobs_of_one_class_share_what_rules_see_until_their_priority_changes(
    queue: Queue,
) -> None:
    take_rules(queue)
    queue.submitted(spec(), spec(), spec())

    def reported() -> list[messages.JobToJudge]:
        queue.stage.sent.clear()
        queue.actor.notify(messages.ReportJobs(ids=[1, 2, 3]))
        return queue.stage.take_one(messages.JobsArrived).jobs

    first, second, third = reported()
    # The first of them might have been the only one.
    assert (first.job.job_class, first.class_inputs) == (0, None)
    assert second.job.job_class == third.job.job_class != 0
    assert second.class_inputs is third.class_inputs
    assert [op["OP_ID"] for op in second.class_inputs or []] == ["OP_TEST_DELAY"]
    for priority in (5, 0):
        queue.actor.ask(messages.ChangeJobPriority(id=3, priority=priority))
    assert [one.job.job_class for one in reported()] == [0, second.job.job_class, 0]
