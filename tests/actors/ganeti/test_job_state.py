"""What a client that waits for a change of a job gets."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ganger.actors.ganeti import job_state
from ganger.actors.ganeti.job_state import JobState, checked_fields
from ganger.storage import errors
from ganger.storage.ganeti.queries.jobs import JobRow
from ganger.storage.jobs.jobs import Job, JobStatus, LogEntry, OpcodeEntry


def entries(*serials: int) -> list[LogEntry]:
    return [(serial, (5, 6), "message", f"line {serial}") for serial in serials]


def state(*logs: list[LogEntry], log_until: float = math.inf, **known: Any) -> JobState:
    ops = [
        OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"}, status=JobStatus.RUNNING, log=log)
        for log in logs
    ]
    return JobState(JobRow(7, Job(id=7, ops=ops), known=known), log_until)


def log(of: JobState, serial: int | None = None) -> list[int]:
    return [entry[0] for entry in json.loads(of.log_after(serial, b"[]"))]


def test_values_are_bare_and_null_for_what_is_not_there() -> None:
    values = state([], [], status="canceling").values(("id", "status", "opstatus", "end_ts"))
    assert json.loads(values) == [7, "canceling", ["running", "running"], None]
    assert state([]).values(()) == b"[]"


def test_an_unknown_field_makes_all_values_null() -> None:
    assert state([]).values(("id", "nope", "status")) == b"[null,null,null]"


@pytest.mark.parametrize(
    ("values", "is_same"),
    [
        ([7, ["running"]], True),
        ([7, ["queued"]], False),
        ([7], False),
        (None, False),
        ("nochange", False),
        ({}, False),
    ],
)
def test_values_are_compared_as_json(values: object, is_same: bool) -> None:  # noqa: FBT001
    assert state([]).has(("id", "opstatus"), values) is is_same


def test_the_order_of_keys_makes_no_difference() -> None:
    ops = [OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY", "duration": 1})]
    one = JobState(JobRow(7, Job(id=7, ops=ops)))
    assert one.has(("ops",), [[{"duration": 1, "OP_ID": "OP_TEST_DELAY"}]])


def test_the_log_of_all_opcodes_comes_in_order() -> None:
    found = state(entries(1, 2), [], entries(3, 4))
    assert log(found) == log(found, 0) == [1, 2, 3, 4]
    assert json.loads(found.log_after(3, b"[]")) == [[4, [5, 6], "message", "line 4"]]
    assert log(found, 4) == log(found, 99) == []
    assert [found.has_log_after(serial) for serial in (None, 0, 3, 4, 99)] == [
        *(True, True, True),
        *(False, False),
    ]
    assert not state([]).has_log_after(None)


def test_what_comes_behind_a_gap_waits_for_the_entries_before_it() -> None:
    assert log(state(entries(1, 2, 4, 5), log_until=2)) == [1, 2]
    assert log(state(entries(1, 2, 3), log_until=0)) == [1, 2, 3]
    assert log(state(entries(2, 3), log_until=0)) == []
    # Up to the serial of the job's state nothing is missing that could still come.
    assert log(state(entries(1, 2, 4, 5), log_until=5)) == [1, 2, 4, 5]
    assert not state(entries(4), log_until=2).has_log_after(2)


def test_marks_tell_values_from_others_and_are_short() -> None:
    logged = state(entries(*range(1, 100)))
    for fields in (("id",), ("oplog",), ("oplog", "id"), ()):
        assert len(logged.mark(fields)) <= 32
        assert logged.mark(fields) == state(entries(*range(1, 100))).mark(fields)
    assert logged.mark(("oplog",)) != state(entries(*range(1, 101))).mark(("oplog",))
    assert state([], status="queued").mark(("status",)) == b'["queued"]'


def test_an_unknown_field_makes_all_unknown() -> None:
    assert checked_fields(["status", "id", "status"]) == ("status", "id", "status")
    assert checked_fields(["status", "nope"]) == ("", "")
    assert checked_fields([]) == ()
    with pytest.raises(errors.BadRequestError, match="fields: expected at most 100, got 101"):
        checked_fields(["id"] * 101)


def test_a_long_log_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_state, "_ROOM_BYTES", 1_000)
    found = state([(serial, (5, 6), "message", "x" * 150) for serial in range(1, 9)])
    serial, parts = 0, []
    while part := log(found, serial):
        parts.append(part)
        serial = part[-1]
    assert len(parts) > 1
    assert [one for part in parts for one in part] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_values_that_fit_into_no_reply_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_state, "_ROOM_BYTES", job_state._LOG_ROOM_BYTES_MIN + 10)
    with pytest.raises(errors.BadRequestError, match=r"^job 7: these fields of it have \d+ bytes"):
        state([]).values(("ops",))
    assert state([]).values(("id",)) == b"[7]"


def test_text_that_is_no_unicode_is_answered() -> None:
    assert json.loads(state([], status="\ud800").values(("status",))) == ["\\ud800"]
