"""What a retry depends on, given how other jobs have ended and by which they were repeated."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.admission import retrying
from ganger.storage import errors, settings
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import JobEnd, Outcome

GOOD = JobEnd(JobStatus.SUCCESS, Outcome.SUCCESS)
FAILED = JobEnd(JobStatus.ERROR, Outcome.FAILED)
SKIPPED = JobEnd(JobStatus.ERROR, Outcome.SKIPPED)
CANCELED = JobEnd(JobStatus.CANCELED, Outcome.CANCELED)
RUNNING = JobEnd(JobStatus.RUNNING)
SUCCESS = ["success"]


def renewed(
    depends: list[Any], ends: dict[int, JobEnd], retries: dict[int, list[int]] | None = None
) -> Any:
    """The dependencies of job 100, a retry of job 50."""
    job = jobs.Job(id=100, ops=[jobs.OpcodeEntry(input={"OP_ID": "OP_X", "depends": depends})])
    retrying.renew_dependencies(job, 50, ends.get, lambda one: (retries or {}).get(one, []))
    return job.ops[0].input["depends"]


@pytest.mark.parametrize(
    ("ends", "retries", "target"),
    [
        # It is what the job waited for, or may become that.
        ({1: GOOD}, {1: [2]}, 1),
        ({1: RUNNING}, {}, 1),
        # The retry, the newest of several, the retry of a retry.
        ({1: FAILED, 2: RUNNING}, {1: [2]}, 2),
        ({1: FAILED, 2: GOOD, 3: RUNNING}, {1: [2, 3]}, 3),
        ({1: FAILED, 2: FAILED, 3: GOOD}, {1: [2], 2: [3]}, 3),
        ({1: SKIPPED, 2: GOOD}, {1: [2]}, 2),
        ({1: CANCELED, 2: GOOD}, {1: [2]}, 2),
        # The newest one failed, too; the one before did not.
        ({1: FAILED, 2: GOOD, 3: FAILED}, {1: [2, 3]}, 2),
        # One that was purged meanwhile.
        ({1: FAILED, 2: GOOD}, {1: [2, 3]}, 2),
    ],
)
def test_a_retry_depends_on_a_retry_that_may_still_do(
    ends: dict[int, JobEnd], retries: dict[int, list[int]], target: int
) -> None:
    assert renewed([[1, SUCCESS]], ends, retries) == [[target, SUCCESS]]


@pytest.mark.parametrize("words", [["failed"], ["any-failed"], ["always"], []])
def test_a_dependency_that_is_satisfied_stays_although_the_job_was_repeated(
    words: list[str],
) -> None:
    assert renewed([[1, words]], {1: FAILED, 2: GOOD}, {1: [2]}) == [[1, words]]


@pytest.mark.parametrize(
    ("depends", "ends", "retries", "why"),
    [
        ([[1, SUCCESS]], {1: FAILED}, {}, "it depends on job 1, which failed; retry job 1 first"),
        (
            [[1, SUCCESS]],
            {1: FAILED, 2: FAILED},
            {1: [2]},
            "it depends on job 2, which failed; retry job 2 first",
        ),
        (
            [[1, SUCCESS]],
            {1: CANCELED},
            {},
            "it depends on job 1, which was canceled; retry job 1 first",
        ),
        # What is open cannot save it.
        (
            [[1, SUCCESS], [3, SUCCESS]],
            {1: SKIPPED, 3: RUNNING},
            {},
            "it depends on job 1, which was skipped; retry job 1 first",
        ),
        # The alarm of a check that found nothing.
        (
            [[1, ["failed", "lost"]]],
            {1: GOOD},
            {},
            "it depends on job 1, which succeeded, not failed or lost",
        ),
        (
            [[1, ["any-failed"]]],
            {1: GOOD},
            {},
            "it runs if another job has failed, and job 1 did not fail",
        ),
        (
            [[1, ["any-failed"]], [2, ["any-failed"]]],
            {1: GOOD, 2: GOOD},
            {},
            "it runs if another job has failed, and none of the jobs 1, 2 failed",
        ),
    ],
)
def test_a_retry_that_would_be_skipped_is_refused_with_what_helps(
    depends: list[Any], ends: dict[int, JobEnd], retries: dict[int, list[int]], why: str
) -> None:
    with pytest.raises(errors.JobStateError) as refused:
        renewed(depends, ends, retries)
    assert refused.value.text == f"a retry of job 50 would be skipped: {why}"


def test_no_endless_line_of_retries_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "RETRIES_NOTED_MAX", 3)
    ends = dict.fromkeys(range(1, 9), FAILED) | {9: GOOD}
    retries = {one: [one + 1] for one in range(1, 9)}
    with pytest.raises(errors.JobStateError, match="retry job 3 first"):
        renewed([[1, SUCCESS]], ends, retries)


def test_each_opcode_has_its_dependencies() -> None:
    job = jobs.Job(
        id=100,
        ops=[
            jobs.OpcodeEntry(input={"OP_ID": "OP_X"}),
            jobs.OpcodeEntry(input={"OP_ID": "OP_X", "depends": [[1, SUCCESS]]}),
        ],
    )
    retrying.renew_dependencies(job, 50, {1: FAILED, 2: RUNNING}.get, {1: [2]}.get)  # type: ignore[arg-type]
    assert [op.input.get("depends") for op in job.ops] == [None, [[2, SUCCESS]]]
