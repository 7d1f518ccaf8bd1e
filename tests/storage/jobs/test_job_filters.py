"""Conditions on listed jobs: all must be met, and needles stand in the JSON of each such job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.jobs.job_filters import JobFilter
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.listing import JobSummary
from ganger.storage.jobs.outcomes import Outcome
from ganger.storage.queue_files.archived_hints import Hint

JOB = JobSummary(
    id=17,
    status=JobStatus.SUCCESS,
    summary="EXEC(make all)",
    priority=0,
    received=1_000.0,
    reason='the "nightly" run',
    name="dump-ä",
    plan="nightly",
    user="key:laptop",
    outcome=Outcome.SUCCESS,
)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": "dump-ä"},
        {"name": "nightly"},
        {"name": "du?p-*"},
        {"user": "laptop"},
        {"user": "key:laptop"},
        {"reason": '"nightly"'},
        {"reason": 'THE "Nightly'},
        {"since": 1_000.0, "until": 1_000.1},
        {"text": "MAKE nightly 17"},
        {"outcomes": [Outcome.FAILED, Outcome.SUCCESS]},
        {"name": "dump-ä", "user": "laptop", "text": "laptop"},
    ],
)
def test_a_job_that_meets_all_conditions_is_shown(given: dict[str, Any]) -> None:
    wanted = JobFilter(**given)
    assert wanted.test()(JOB)
    line = msgspec.json.encode(JOB)
    assert wanted.needles().are_in(line)
    assert wanted.needles().name in ("", JOB.name, JOB.plan, JOB.user, "laptop")
    assert Hint.of(1, [JOB]).may_have(wanted.needles())


@pytest.mark.parametrize(
    "given",
    [
        {"name": "dump"},
        {"name": "*x"},
        {"user": "key"},
        {"reason": "weekly"},
        {"since": 1_000.1},
        {"until": 1_000.0},
        {"outcomes": [Outcome.LOST]},
        {"text": "make install"},
        {"name": "dump-ä", "user": "alice"},
    ],
)
def test_one_condition_that_is_not_met_hides_a_job(given: dict[str, Any]) -> None:
    assert not JobFilter(**given).test()(JOB)


def test_a_status_is_looked_for_as_it_stands_there() -> None:
    line = msgspec.json.encode(JOB)
    assert JobFilter().needles([JobStatus.SUCCESS, JobStatus.ERROR]).are_in(line)
    assert not JobFilter().needles([JobStatus.ERROR]).are_in(line)


def test_a_job_without_a_time_or_a_name_meets_no_condition_on_them() -> None:
    bare = JobSummary(id=1, status=JobStatus.QUEUED, summary="", priority=0)
    assert not JobFilter(since=0.0).test()(bare)
    assert not JobFilter(name="*").test()(bare)


def test_an_exact_name_has_no_signs_for_others() -> None:
    called = msgspec.structs.replace(JOB, name="a*")
    assert JobFilter(name="a*").test(is_exact=True)(called)
    assert not JobFilter(name="d*").test(is_exact=True)(JOB)


@pytest.mark.parametrize("field", ["name", "user", "reason", "text"])
def test_an_empty_condition_is_refused(field: str) -> None:
    with pytest.raises(errors.BadRequestError, match=f"{field}: expected 1 to"):
        msgspec.structs.replace(JobFilter(), **{field: ""}).check()


def test_a_sigma_behind_a_line_feed_is_found() -> None:
    job = msgspec.structs.replace(JOB, reason="a\n\u03a3")
    for wanted in (JobFilter(reason="\u03a3"), JobFilter(text="\u03a3")):
        assert wanted.test()(job)
        assert wanted.needles().are_in(msgspec.json.encode(job))


_TEXTS = st.text(st.sampled_from('abkKäÄ\u212aΣς"\\\n\t ,:{}1'), max_size=6)
_NAMES = st.sampled_from(["", "a", "key:b", "b", "ä"])


@given(
    st.builds(
        JobSummary,
        id=st.integers(1, 300),
        status=st.just(JobStatus.SUCCESS),
        summary=_TEXTS,
        priority=st.just(0),
        received=st.none() | st.integers(1, 3),
        reason=_TEXTS,
        name=_NAMES,
        plan=_NAMES,
        user=_NAMES,
        outcome=st.none() | st.sampled_from(Outcome),
    ),
    st.builds(
        JobFilter,
        name=st.none() | _NAMES | st.text("abäk:*?[", max_size=4),
        user=st.none() | _NAMES,
        reason=st.none() | _TEXTS,
        text=st.none() | _TEXTS,
        since=st.none() | st.integers(1, 3),
        until=st.none() | st.integers(1, 3),
        outcomes=st.none() | st.lists(st.sampled_from(Outcome)),
    ),
)
def test_no_job_that_passes_lacks_a_needle(job: JobSummary, wanted: JobFilter) -> None:
    line = msgspec.json.encode(job)
    needles = wanted.needles()
    if wanted.test()(job):
        assert needles.are_in(line)
        assert needles.name in ("", job.name, job.plan, job.user, job.user.rpartition(":")[2])
        assert Hint.of(1, [JOB, job]).may_have(needles)
    elif not needles.are_in(line):
        assert needles
