"""Which jobs a list shows, in which order, with a search, and how many there are."""

from __future__ import annotations

import pytest

from ganger import JobStatus
from ganger.rapi import job_lists
from ganger.rapi.job_lists import Wanted, ordered
from ganger.storage.jobs.job_views import JobInfo
from ganger.storage.jobs.outcomes import Outcome

S = JobStatus


def job(job_id: int, status: JobStatus = S.QUEUED, **more: object) -> JobInfo:
    given = {"summary": "EXEC(true)", "priority": 0, "received": float(job_id), **more}
    return JobInfo(id=job_id, status=status, **given)  # type: ignore[arg-type]


def ids(jobs: list[JobInfo]) -> list[int]:
    return [one.id for one in jobs]


ALL = [
    job(1, S.SUCCESS, started=2.0, ended=30.0, outcome=Outcome.SUCCESS),
    job(
        2, S.ERROR, started=3.0, ended=40.0, outcome=Outcome.FAILED, reason_ended="last line: Boom"
    ),
    job(3, S.CANCELED, ended=20.0, outcome=Outcome.REJECTED),
    job(4, priority=5, name="beta"),
    job(5, name="Alpha", plan="nightly"),
    job(6, S.WAITING, user="rapi:joe"),
    job(7, S.RUNNING, started=8.0, reason="weekly backup"),
    job(8, S.RUNNING, started=9.0),
    job(9, S.CANCELING),
]


def test_usually_what_runs_and_waits_comes_first_and_what_ended_last_before_others() -> None:
    assert ids(ordered(ALL, "active", 100.0)) == [8, 7, 9, 6, 5, 4, 2, 1, 3]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("id", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("-id", [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        ("name", [5, 4, 9, 8, 7, 6, 3, 2, 1]),
        ("-name", [4, 5, 9, 8, 7, 6, 3, 2, 1]),
        ("-elapsed", [7, 8, 2, 1, 9, 6, 5, 4, 3]),
        ("-ended", [2, 1, 3, 9, 8, 7, 6, 5, 4]),
        ("-priority", [4, 9, 8, 7, 6, 5, 3, 2, 1]),
    ],
)
def test_each_order_has_jobs_without_a_value_last(sort: str, expected: list[int]) -> None:
    assert ids(ordered(ALL, sort, 100.0)) == expected


@pytest.mark.parametrize("name", job_lists.SORTS)
def test_every_order_has_every_job_both_ways(name: str) -> None:
    for sort in (name, f"-{name}"):
        assert sorted(ids(ordered(ALL, sort, 100.0))) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (Wanted(statuses=["running", "error"]), [2, 7, 8]),
        (Wanted(outcomes=["failed", "rejected"]), [2, 3]),
        (Wanted(statuses=["error"], outcomes=["rejected"]), []),
        (Wanted(words=["boom"]), [2]),
        (Wanted(words=["night"]), [5]),
        (Wanted(words=["alp", "exec"]), [5]),
        (Wanted(words=["joe"]), [6]),
        (Wanted(words=["weekly", "7"]), [7]),
        (Wanted(words=["weekly", "8"]), []),
    ],
)
def test_statuses_outcomes_and_words_choose(wanted: Wanted, expected: list[int]) -> None:
    assert ids([*wanted.among(ALL)]) == expected


def test_counts_name_every_value() -> None:
    found = job_lists.counts(ALL, "status", S)
    assert list(found) == list(S)
    assert {name: count for name, count in found.items() if count != 1} == {
        "queued": 2,
        "running": 2,
    }
    assert job_lists.counts(ALL, "outcome", (Outcome.FAILED, Outcome.LOST)) == {
        "failed": 1,
        "lost": 0,
    }
