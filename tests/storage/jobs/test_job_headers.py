"""What is read of a text without its opcodes is what decoding all of it gives."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors, opcodes
from ganger.storage.jobs import job_headers, jobs, origins
from ganger.storage.jobs.jobs import JobStatus

ENTRIES: list[Any] = [None, [], [[1, ["success"]]], [[1, ["odd"]]], "rubbish", 7]


def job(job_id: int = 5, priorities: tuple[int, ...] = (0,), **extra: Any) -> jobs.Job:
    ops = [
        jobs.OpcodeEntry(input={"OP_ID": "OP_X", "nested": {"id": [job_id]}}, priority=one)
        for one in priorities
    ]
    extras = {jobs.STATE_SERIAL_KEY: 3, **extra}
    return jobs.Job(id=job_id, ops=ops, received_timestamp=(9, 250_000), extra=extras)


@given(
    job_id=st.integers(1, 10**18 - 1),
    priorities=st.lists(st.integers(-20, 19), min_size=1, max_size=4),
    key=st.none() | st.text(max_size=5),
    depends=st.sampled_from(ENTRIES),
    depend=st.sampled_from(ENTRIES),
)
def test_a_head_says_what_the_whole_text_does(
    job_id: int, priorities: list[int], key: str | None, depends: object, depend: object
) -> None:
    extra = {} if key is None else {jobs.SUBMISSION_KEY: key, jobs.BATCH_KEY: [1, 2]}
    whole = job(job_id, tuple(priorities), **extra)
    whole.ops[0].input |= {"depends": depends, "depend": depend}
    head = job_headers.head_of(jobs.encode_job(whole))
    assert head is not None
    assert (head.id, head.priority, head.ganger_serial) == (job_id, whole.priority, 3)
    assert (head.ganger_key, head.received_timestamp) == (key, (9, 250_000))
    assert head.is_dependent is bool(dependencies(whole))


def dependencies(whole: jobs.Job) -> list[Any]:
    try:
        return list(opcodes.dependencies(whole.ops[0].input))
    except errors.DependencyError:
        return []


CHANGES: list[dict[str, Any]] = [
    {"livelock": "a lock file"},
    {"process_id": 7},
    {"start_timestamp": (1, 1)},
    {"end_timestamp": (1, 1)},
    {"ops": []},
    {"extra": {jobs.STATE_SERIAL_KEY: 3, "another": 1}},
    {"extra": {jobs.STATE_SERIAL_KEY: 3, origins.RETRY_OF_KEY: 1}},
    {"extra": {}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_more_than_a_new_job_has_no_head(change: dict[str, Any]) -> None:
    whole = job()
    for name, value in change.items():
        setattr(whole, name, value)
    assert job_headers.head_of(jobs.encode_job(whole)) is None


@pytest.mark.parametrize("status", [one for one in JobStatus if one is not JobStatus.QUEUED])
def test_a_job_that_has_begun_has_no_head(status: JobStatus) -> None:
    whole = job(priorities=(0, 0))
    whole.ops[1].status = status
    assert job_headers.head_of(jobs.encode_job(whole)) is None


def test_a_text_that_is_damaged_or_not_ours_has_no_head() -> None:
    body = jobs.encode_job(job())
    assert job_headers.head_of(body) is not None
    assert job_headers.head_of(body.replace(b"OP_X", b"OP_Y")) is None
    raw = msgspec.json.decode(body)
    assert job_headers.head_of(msgspec.json.encode(raw, order="sorted")) is None
    del raw[jobs.CHECKSUM_KEY]
    for other in (msgspec.json.encode(raw), body[:-9], b"", b"{}", b"[" * 10_000):
        assert job_headers.head_of(other) is None
