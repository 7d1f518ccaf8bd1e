"""Submissions under a key that is known: the same one is answered with its ids, another refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.operations.unlock import OpUnlock
from tests.actors.queue.queue_stage import DELAY, Queue, spec

from ganger.actors.admission import submission_keys, submitting
from ganger.storage.filters.rules import parse_rule
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.opcodes import catalogue
from ganger.transport import messages
from ganger.transport.messages import JobSpec, SubmitJobs

ERROR = JobStatus.ERROR
TRUE: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}
FALSE: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["false"]}


def job(*ops: dict[str, Any], **fields: Any) -> JobSpec:
    return JobSpec(ops=list(ops), **fields)


def refusal(queue: Queue, *specs: JobSpec) -> str:
    name, text = queue.submit(*specs, key="k").refusal
    assert name == "BadRequestError"
    return text


def archive(queue: Queue, *ids: int) -> None:
    for job_id in ids:
        queue.actor.ask(messages.CancelJob(id=job_id))
        queue.actor.ask(messages.ArchiveJob(id=job_id)).answer_as(messages.ArchiveOutcome)


def forget_digests(queue: Queue) -> None:
    """As if an older version had stored the jobs."""
    queue.rest()
    paths = [path for path in queue.files() if path.parent.name != "spool"]
    for path in paths:
        found = jobs.decode_job(path.read_bytes())
        for key in (jobs.DIGEST_KEY, jobs.BATCH_KEY):
            found.extra.pop(key, None)
        found.advance_serial()
        path.write_bytes(jobs.encode_job(found))
    queue.restart()


versions = pytest.mark.parametrize("is_older", [False, True], ids=["digests", "no digests"])


@versions
@pytest.mark.parametrize(
    "other",
    [
        job(FALSE),
        job(TRUE, priority=3),
        job({**TRUE, "env": {"A": "b"}}),
        job(TRUE, TRUE),
        job(TRUE, reason=[("me", "another one", 5)]),
        job({**TRUE, "reason": [["me", "another one", 5]]}),
    ],
)
def test_another_job_under_the_same_key_is_refused(
    queue: Queue, other: JobSpec, *, is_older: bool
) -> None:
    queue.submitted(job(TRUE), key="k")
    if is_older:
        forget_digests(queue)
    assert refusal(queue, other) == "key: this job is not job 1, which is stored under it"
    assert queue.statuses() == {1: "queued"}


@versions
def test_in_a_batch_the_job_that_is_another_one_is_named_with_its_id(
    queue: Queue, *, is_older: bool
) -> None:
    queue.submitted()
    queue.submitted(job(TRUE), job(TRUE), job(TRUE), key="k")
    if is_older:
        forget_digests(queue)
    text = refusal(queue, job(TRUE), job(TRUE), job(FALSE))
    assert text == "key: job 2 of the submission is not job 4, which is stored under it"


@versions
def test_what_differs_only_in_time_is_the_same(queue: Queue, *, is_older: bool) -> None:
    def made(now: int) -> JobSpec:
        own = {**TRUE, "reason": [["cron", "nightly", now]], "stdin": "x" * 2_000}
        return job(own, DELAY, reason=[("me", "why", now)], depends=[(-1, ["success"])])

    assert queue.submitted(spec(), made(1), key="k") == [1, 2]
    if is_older:
        forget_digests(queue)
    assert queue.submitted(spec(), made(2), key="k") == [1, 2]
    assert queue.submitted(spec(), key="other") == [3]


def test_what_an_older_version_has_stored_is_compared_with_its_defaults_filled_in(
    queue: Queue,
) -> None:
    queue.submitted(job(TRUE), job(DELAY), key="k")
    forget_digests(queue)
    assert queue.submitted(job(TRUE), job(DELAY), key="k") == [1, 2]
    archive(queue, 1)
    assert queue.submitted(job(TRUE), job(DELAY), key="k") == [1, 2]


@versions
@pytest.mark.parametrize("archived", [(1,), (2, 3), (4,), (1, 4)])
def test_a_batch_of_which_some_jobs_are_archived_is_still_the_same(
    queue: Queue, archived: tuple[int, ...], *, is_older: bool
) -> None:
    batch = [job({**TRUE, "comment": str(number)}) for number in range(4)]
    assert queue.submitted(*batch, key="k") == [1, 2, 3, 4]
    queue.submitted(spec())
    if is_older:
        forget_digests(queue)
    archive(queue, *archived)
    assert queue.submitted(*batch, key="k") == [1, 2, 3, 4]
    queue.restart()
    assert queue.submitted(*batch, key="k") == [1, 2, 3, 4]
    changed = [*batch[:-1], job(FALSE)]
    assert refusal(queue, *changed).startswith("key: job 3 of the submission is not job 4")


def test_rejected_jobs_of_a_batch_are_reported_again_though_the_first_job_is_archived(
    queue: Queue,
) -> None:
    rule = {
        "uuid": "0b1c2d3e-0000-4000-8000-000000000001",
        "priority": 0,
        "watermark": 0,
        "action": "REJECT",
        "predicates": [["opcode", ["=", "comment", "no"]]],
        "reason": [],
    }
    rules = [parse_rule(rule)]
    queue.actor.ask(messages.RuleChainChanged(chain=2, serial=2, reads_opcodes=True, rules=rules))
    no = job({**TRUE, "comment": "no"})
    batch = [no, job(TRUE), no, job(DELAY)]
    first = queue.submit(*batch, key="k").answer_as(messages.JobsSubmitted)
    assert (first.ids, set(first.rejected)) == ([2, 4], {0, 2})
    archive(queue, 2)
    again = queue.submit(*batch, key="k").answer_as(messages.JobsSubmitted)
    assert (again.ids, again.rejected, again.is_repeat) == (first.ids, first.rejected, True)
    assert "is not job 4" in refusal(queue, *batch[:3], job(TRUE))


def test_another_number_of_jobs_is_refused(queue: Queue) -> None:
    queue.submitted(job(TRUE), job(TRUE), key="k")
    text = refusal(queue, job(TRUE))
    assert text == "key: a submission of 2 jobs, not 1, is stored under it (ids 1, 2)"


def test_what_is_on_its_way_to_the_disk_is_compared_too(queue: Queue) -> None:
    first = queue.actor.say(SubmitJobs(jobs=[job(TRUE)], key="k"))
    other = queue.actor.say(SubmitJobs(jobs=[job(FALSE)], key="k"))
    more = queue.actor.say(SubmitJobs(jobs=[job(TRUE), job(TRUE)], key="k"))
    same = queue.actor.ask(SubmitJobs(jobs=[job(TRUE)], key="k"))
    assert first.answer == messages.JobsSubmitted(ids=[1])
    assert same.answer == messages.JobsSubmitted(ids=[1], is_repeat=True)
    assert other.refusal[1] == "key: this job is not job 1, which is stored under it"
    assert more.refusal[1] == "key: a submission of 1 jobs, not 2, is stored under it (ids 1)"


def test_a_repeated_retry_is_the_same_and_a_submission_under_its_key_is_not(queue: Queue) -> None:
    queue.submitted(job(TRUE))
    queue.finish(1, ERROR)

    def retry(**fields: Any) -> Any:
        return queue.actor.ask(messages.RetryJob(id=1, key="k", **fields))

    assert retry().answer_as(messages.JobsSubmitted).ids == [2]
    again = retry().answer_as(messages.JobsSubmitted)
    assert (again.ids, again.is_repeat) == ([2], True)
    assert "is not job 2" in retry(ops=[FALSE]).refusal[1]
    assert "is not job 2" in refusal(queue, job(TRUE))


def test_a_secret_is_in_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue._from_users, "OP_UNLOCK", OpUnlock)
    one, other = (job({"OP_ID": "OP_UNLOCK", "pin": pin}) for pin in ("1", "2"))
    assert submitting.digest(one) == submitting.digest(other) != ""


def test_the_order_of_names_does_not_matter() -> None:
    turned = dict(reversed(TRUE.items()))
    assert submitting.digest(job(TRUE)) == submitting.digest(job(turned))


def test_what_cannot_be_stored_has_no_digest() -> None:
    assert submitting.digest(job({"OP_ID": object()})) == ""
    assert submitting.digest(job({"OP_ID": ["\ud800"]})) == ""


@pytest.mark.parametrize(
    ("batch", "ids"),
    [
        ([0, 3], range(7, 10)),
        ([2, 3], range(5, 8)),
        # No such place: the job is taken for one of an older version.
        ([3, 3], range(6, 10)),
        ([-1, 3], range(6, 10)),
        (None, range(6, 10)),
    ],
)
def test_the_ids_of_a_batch_follow_from_the_place_of_one_of_its_jobs(
    batch: list[int] | None, ids: range
) -> None:
    known = jobs.Job(id=7, ops=[], extra={} if batch is None else {jobs.BATCH_KEY: batch})
    assert submission_keys._ids_of_batch(known, [7, 8], 3) == ids
