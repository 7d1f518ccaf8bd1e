"""Jobs are called by name: the newest of a name, all of a plan, the last one of a user."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from tests.actors.queue.queue_rules import take_rules
from tests.actors.queue.queue_stage import Queue, spec

from ganger.storage.jobs.origins import Submitter
from ganger.storage.queue_files import archive_index
from ganger.transport import messages

ALICE = Submitter(user="alice", uid=1000, via="socket")
BOB = Submitter(user="bob", via="rapi")


def find(queue: Queue, *names: str, submitter: Submitter | None = None) -> list[list[int]]:
    asked = queue.actor.ask(messages.FindJobs(names=list(names), submitter=submitter))
    while queue.actor.take_slice():
        pass
    return asked.answer_as(messages.JobsFound).found


def row(queue: Queue, job_id: int) -> messages.JobSummary:
    listed = queue.actor.ask(messages.ListJobs(ids=[job_id])).answer_as(messages.JobRows)
    return listed.rows[0]


def shown(queue: Queue, job_id: int) -> tuple[str, str, str]:
    found = row(queue, job_id)
    return found.name, found.plan, found.user


def archive(queue: Queue, *ids: int) -> None:
    for job_id in ids:
        queue.finish(job_id)
        queue.actor.ask(messages.ArchiveJob(id=job_id)).answer_as(messages.ArchiveOutcome)


def plan(queue: Queue, *names: str, **fields: Any) -> list[int]:
    return queue.submitted(*(spec(name=name) for name in names), plan="nightly", **fields)


def test_a_name_is_that_of_the_newest_job(queue: Queue) -> None:
    queue.submitted(spec(name="backup"))
    queue.submitted(spec(name="backup"))
    queue.submitted(spec())
    assert find(queue, "backup", "restore") == [[2], []]
    archive(queue, 2)
    assert find(queue, "backup") == [[1]]


def test_a_plan_is_all_jobs_of_its_newest_submission(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1_000, 2_000))
    monkeypatch.setattr("ganger.actors.admission.admission.time.time", lambda: float(next(clock)))
    plan(queue, "a", "b")
    plan(queue, "a", "c")
    assert find(queue, "nightly", "a", "b") == [[3, 4], [3], [2]]
    archive(queue, 3, 4)
    assert find(queue, "nightly") == [[1, 2]]


def test_archived_jobs_and_plans_are_found_too(queue: Queue) -> None:
    plan(queue, "a", "b")
    archive(queue, 1, 2)
    assert find(queue, "nightly", "b", "c") == [[1, 2], [2], []]


def test_lists_say_that_the_index_of_the_archive_is_built(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(queue, "a", "b")
    archive(queue, 1, 2)
    queue.submitted(spec(name="c"))
    queue.restart()
    shutil.rmtree(queue.stage.places.archive_index)
    monkeypatch.setattr(archive_index, "READ_BY_LISTING_MAX", 0)

    def listed() -> tuple[list[int], float | None]:
        asker = queue.actor.say(messages.ListJobs(archived=True))
        rows = asker.answer_as(messages.JobRows)
        return [row.id for row in rows.rows], rows.indexed

    def indexed() -> float | None:
        report = queue.actor.say(messages.ReadQueueState()).answer_as(messages.QueueReport)
        return report.archive_indexed

    assert indexed() is None
    assert listed() == ([3], 0.0)
    assert indexed() == 0.0
    assert queue.actor.say(messages.ListJobs()).answer_as(messages.JobRows).indexed is None
    asker = queue.actor.say(messages.FindJobs(names=["a"]))
    assert asker.answer_as(messages.JobsFound) == messages.JobsFound(found=[[]], indexed=0.0)
    queue.actor.work_off()
    assert listed() == ([1, 2, 3], None)
    assert indexed() is None
    assert find(queue, "a", "nightly") == [[1], [1, 2]]


def test_the_last_job_is_that_of_the_user_who_asks(queue: Queue) -> None:
    queue.submitted(spec(), submitter=ALICE)
    queue.submitted(spec(), submitter=BOB)
    assert find(queue, "@last", submitter=ALICE) == [[1]]
    assert find(queue, "@last", submitter=Submitter(user="alice", uid=1000, via="luxi")) == [[1]]
    assert find(queue, "@last", submitter=Submitter(user="carol", via="rapi")) == [[]]
    assert find(queue, "@last") == [[]]
    archive(queue, 1)
    assert find(queue, "@last", submitter=ALICE) == [[1]]


def test_name_plan_and_submitter_outlive_the_daemon(queue: Queue) -> None:
    plan(queue, "a", submitter=BOB)
    assert shown(queue, 1) == ("a", "nightly", "rapi:bob")
    queue.restart()
    take_rules(queue)
    assert shown(queue, 1) == ("a", "nightly", "rapi:bob")
    assert find(queue, "a", "nightly", "@last", submitter=BOB) == [[1], [1], [1]]


def test_a_retry_has_the_name_the_plan_and_the_submitter_who_asks_for_it(queue: Queue) -> None:
    plan(queue, "a", submitter=BOB)
    queue.finish(1)
    asked = messages.RetryJob(id=1, is_whole=True, submitter=ALICE)
    assert queue.actor.ask(asked).answer_as(messages.JobsSubmitted).ids == [2]
    assert shown(queue, 2) == ("a", "nightly", "alice")
    assert row(queue, 2).retry_of == 1
    assert find(queue, "a", "nightly") == [[2], [1, 2]]


def test_a_retry_is_of_the_plan_whose_jobs_are_in_the_archive(queue: Queue) -> None:
    plan(queue, "a", "b")
    plan(queue, "a", "b")
    archive(queue, 1, 2, 3, 4)
    for retried, retry in ((1, 5), (4, 6), (6, 7)):
        asked = messages.RetryJob(id=retried, is_whole=True)
        assert queue.actor.ask(asked).answer_as(messages.JobsSubmitted).ids == [retry]
        queue.finish(retry)
    assert find(queue, "nightly") == [[3, 4, 6, 7]]
    for retry in (5, 6, 7):
        queue.actor.ask(messages.ArchiveJob(id=retry)).answer_as(messages.ArchiveOutcome)
    assert find(queue, "nightly", "b") == [[3, 4, 6, 7], [7]]


def test_jobs_without_a_name_have_files_as_before(queue: Queue) -> None:
    queue.submitted(spec())
    assert not {name for name in queue.job(1).extra if name in ("ganger_name", "ganger_plan")}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("17", {}, "name: '17' looks like an id; use a letter"),
        ("@last", {}, "name: '@last' begins with @, which names must not"),
        ("a", {"plan": "1"}, "plan: '1' looks like an id; use a letter"),
    ],
)
def test_a_name_that_looks_like_an_id_is_refused(
    queue: Queue, name: str, fields: Any, expected: str
) -> None:
    error, text = queue.submit(spec(name=name), **fields).refusal
    assert (error, text) == ("BadRequestError", expected)


def test_another_name_under_the_same_key_is_another_submission(queue: Queue) -> None:
    assert queue.submitted(spec(name="a"), key="k") == [1]
    assert queue.submitted(spec(name="a"), key="k") == [1]
    assert queue.submit(spec(name="b"), key="k").refusal[0] == "BadRequestError"


def test_what_a_job_submits_is_its_users_and_is_stored_once(queue: Queue) -> None:
    queue.submitted(spec(), submitter=ALICE)
    asked = messages.SubmitFromJob(job_id=1, jobs=[spec(), spec()], key="jobs of 1")
    first = queue.actor.ask(asked).answer_as(messages.JobsSubmitted)
    again = queue.actor.ask(asked).answer_as(messages.JobsSubmitted)
    assert (first.ids, first.is_repeat) == ([2, 3], False)
    assert (again.ids, again.is_repeat) == ([2, 3], True)
    assert {row(queue, job_id).user for job_id in first.ids} == {"alice"}
