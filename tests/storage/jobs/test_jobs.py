"""The job model: statuses, transitions, and the JSON of job files."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ganger.storage import errors
from ganger.storage.jobs import job_ends, jobs
from ganger.storage.jobs.jobs import JobStatus, OpcodeEvent

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

NOW = (1_700_000_000, 250_000)


def job(*statuses: JobStatus, **fields: Any) -> jobs.Job:
    ops = [
        jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY", "reason": []}, status=status)
        for status in statuses
    ]
    return jobs.Job(id=7, ops=ops, **fields)


def statuses_of(of: jobs.Job) -> list[JobStatus]:
    return [op.status for op in of.ops]


# Statuses.


def test_the_final_statuses_are_the_last_three() -> None:
    assert [status for status in JobStatus if status.is_final] == [CANCELED, SUCCESS, ERROR]


def test_statuses_are_ranked_in_the_order_of_ganeti() -> None:
    words = ["queued", "waiting", "canceling", "running", "canceled", "success", "error"]
    assert sorted(JobStatus, key=lambda status: status.rank) == words


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], SUCCESS),
        ([SUCCESS, SUCCESS], SUCCESS),
        ([QUEUED], QUEUED),
        ([SUCCESS, QUEUED], QUEUED),
        ([SUCCESS, WAITING, QUEUED], WAITING),
        ([WAITING, RUNNING], RUNNING),
        ([RUNNING, WAITING], WAITING),
        ([SUCCESS, ERROR, CANCELED], ERROR),
        ([SUCCESS, CANCELED, ERROR], CANCELED),
        ([CANCELING, ERROR], CANCELING),
        ([RUNNING, ERROR], ERROR),
        ([QUEUED, CANCELED], CANCELED),
    ],
)
def test_the_status_of_a_job_follows_from_its_opcodes(
    statuses: list[JobStatus], expected: JobStatus
) -> None:
    assert jobs.job_status(statuses) is expected
    assert job(*statuses).status is expected


@pytest.mark.parametrize("status", JobStatus)
@pytest.mark.parametrize("event", OpcodeEvent)
def test_a_transition_that_is_not_in_the_table_is_refused(
    status: JobStatus, event: OpcodeEvent
) -> None:
    expected = jobs.TRANSITIONS.get((status, event))
    if expected is not None:
        assert jobs.next_status(status, event) is expected
        return
    with pytest.raises(errors.JobStateError) as caught:
        jobs.next_status(status, event)
    assert caught.value.text == f"an opcode in status {status} cannot {event.replace('_', ' ')}"


@pytest.mark.parametrize("event", sorted(set(OpcodeEvent) - {OpcodeEvent.LOSE_PROCESS}))
@pytest.mark.parametrize("status", [CANCELED, SUCCESS, ERROR])
def test_nothing_follows_a_final_status_but_the_loss_of_the_process(
    status: JobStatus, event: OpcodeEvent
) -> None:
    with pytest.raises(errors.JobStateError):
        jobs.next_status(status, event)


def test_a_priority_is_taken_up_to_its_bounds() -> None:
    for priority in (-20, 19):
        jobs.check_priority(priority, "here")
    for beyond in (-21, 20):
        with pytest.raises(errors.BadRequestError, match=f"here: expected -20 to 19, got {beyond}"):
            jobs.check_priority(beyond, "here")


def test_the_most_urgent_opcode_that_is_not_final_gives_the_priority() -> None:
    known = job(SUCCESS, QUEUED, QUEUED)
    for op, priority in zip(known.ops, [-20, 5, -3], strict=True):
        op.priority = priority
    assert known.priority == -3
    assert job(SUCCESS).priority == 0


# The JSON of a job file.

FOREIGN: dict[str, Any] = {
    "id": 7,
    "ops": [
        {
            "input": {"OP_ID": "OP_X", "unknown": [1, None, 0.5, {"a": "ä"}]},
            "status": "success",
            "result": {"any": ["thing"]},
            "log": [[1, [1_700_000_000, 5], "message", "hello"], [2, [1_700_000_001, 6], "k", [3]]],
            "start_timestamp": [1, 2],
            "exec_timestamp": [3, 4],
            "end_timestamp": [5, 6],
            "priority": -5,
            "of_a_later_version": {"x": 1},
        },
        {"input": {}, "status": "queued", "another": True},
    ],
    "received_timestamp": [1_700_000_000, 1],
    "start_timestamp": None,
    "end_timestamp": None,
    "livelock": "/run/l/job_000007_1",
    "process_id": 815,
    "hooks": ["kept"],
    "ganger_serial": 4,
}


FOREIGN_TEXT = json.dumps(FOREIGN).encode()
"""As another program writes it, without a checksum: with spaces."""


def test_unknown_keys_survive_a_rewrite() -> None:
    read = jobs.decode_job(FOREIGN_TEXT)
    again = msgspec.json.decode(jobs.encode_job(read))
    defaults: dict[str, Any] = {
        "result": None,
        "log": [],
        "priority": 0,
        "start_timestamp": None,
        "exec_timestamp": None,
        "end_timestamp": None,
    }
    del again[jobs.CHECKSUM_KEY]
    assert again == FOREIGN | {"ops": [FOREIGN["ops"][0], defaults | FOREIGN["ops"][1]]}


def test_a_mixture_of_two_versions_is_not_believed() -> None:
    old = jobs.encode_job(jobs.decode_job(FOREIGN_TEXT))
    place = old.index(b'"status":"') + len(b'"status":"')
    mixed = old[:place] + bytes([old[place] ^ 1]) + old[place + 1 :]
    with pytest.raises(errors.StorageError, match="checksum"):
        jobs.decode_job(mixed)


def test_an_old_end_behind_our_keys_is_not_believed() -> None:
    job = jobs.decode_job(FOREIGN_TEXT)
    job.extra[jobs.SUBMISSION_KEY] = "key-29579177278321"
    written = jobs.encode_job(job)
    cut = written.index(b"key-2") + len(b"key-2")
    # The disk has the first sectors of this text, and the last one and the size of another.
    mixed = written[:cut] + b'2b"}'
    assert msgspec.json.decode(mixed)[jobs.SUBMISSION_KEY] == "key-22b"
    with pytest.raises(errors.StorageError, match="checksum is missing"):
        jobs.decode_job(mixed)


def test_a_file_of_another_program_needs_no_checksum() -> None:
    job = jobs.decode_job(FOREIGN_TEXT)
    assert jobs.CHECKSUM_KEY not in job.extra
    written = jobs.encode_job(job)
    assert jobs.decode_job(written) == job


def test_unknown_keys_stay_with_their_opcode_when_the_job_goes_on() -> None:
    read = jobs.decode_job(FOREIGN_TEXT)
    read.ops[1].apply(OpcodeEvent.START)
    again = msgspec.json.decode(jobs.encode_job(read))
    assert [op.get("another") for op in again["ops"]] == [None, True]
    assert again["ops"][1]["status"] == "running"


def test_optional_keys_get_their_default() -> None:
    read = jobs.decode_job(b'{"id": 3, "ops": [{"input": {}, "priority": null}]}')
    assert read == jobs.Job(id=3, ops=[jobs.OpcodeEntry(input={})], op_extras=[{}])


def test_a_process_id_may_be_a_decimal_text() -> None:
    assert jobs.decode_job(b'{"id": 3, "ops": [], "process_id": "815"}').process_id == 815


def test_a_number_larger_than_a_machine_word_is_kept() -> None:
    text = b'{"id":3,"ops":[],"big":%d}' % 2**70
    assert msgspec.json.decode(jobs.encode_job(jobs.decode_job(text)))["big"] == 2**70


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "truncated"),
        (b"\x00" * 300, "not a job"),
        (b'{"id": 3, "ops": [', "truncated"),
        (b"[1]", "expected a JSON object"),
        (b"null", "expected a JSON object"),
        (b'{"ops": []}', "id"),
        (b'{"id": 3}', "ops"),
        (b'{"id": "3", "ops": []}', "id"),
        (b'{"id": true, "ops": []}', "id"),
        (b'{"id": 3, "ops": 5}', "ops"),
        (b'{"id": 3, "ops": "abc"}', "ops"),
        (b'{"id": 3, "ops": null}', "ops"),
        (b'{"id": 3, "ops": [5]}', r"ops\[0\]"),
        (b'{"id": 3, "ops": [{}]}', "input"),
        (b'{"id": 3, "ops": [{"input": {}, "status": "odd"}]}', "odd"),
        (b'{"id": 3, "ops": [{"input": {}, "log": null}]}', "log"),
        (b'{"id": 3, "ops": [{"input": {}, "log": [[1, [1, 2], "k"]]}]}', "log"),
        (b'{"id": 3, "ops": [], "process_id": "x"}', "'x'"),
        (b'{"id": 3, "ops": [], "end_timestamp": [1]}', "end_timestamp"),
        (b'{"id": 3, "ops": [], "x": "\xff"}', "utf-8"),
        (b'{"id": 3, "ops": [], "ganger_serial": "x"}', "ganger_serial"),
        (b'{"id": 3, "ops": [], "ganger_serial": true}', "ganger_serial"),
        (b'{"id": 3, "ops": [], "ganger_serial": -1}', "ganger_serial"),
        (b'{"id": 3, "ops": [], "ganger_key": []}', "ganger_key"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_a_malformed_job_is_refused_with_a_reason(data: bytes, text: str) -> None:
    with pytest.raises(errors.StorageError, match=text) as caught:
        jobs.decode_job(data)
    assert caught.value.text.startswith("not a job: ")
    assert "\n" not in caught.value.text


def test_each_version_has_a_higher_serial() -> None:
    known = job(QUEUED)
    assert known.serial == 0
    assert [known.advance_serial(), known.advance_serial(), known.serial] == [1, 2, 2]
    assert jobs.decode_job(jobs.encode_job(known)).serial == 2


def test_jobs_do_not_share_their_unknown_keys() -> None:
    one, other = job(QUEUED), job(QUEUED)
    one.advance_serial()
    assert other.serial == 0


def test_the_newest_log_entry_may_belong_to_any_opcode() -> None:
    known = job(SUCCESS, RUNNING, QUEUED)
    assert known.last_log_serial == 0
    known.ops[0].log.append((1, NOW, "message", "a"))
    known.ops[1].log.append((2, NOW, "message", "b"))
    assert known.last_log_serial == 2


def test_time_stamps_are_seconds_and_microseconds() -> None:
    assert jobs.timestamp(1_700_000_000.25) == NOW
    assert jobs.seconds(NOW) == 1_700_000_000.25
    assert jobs.seconds(None) is None


# How jobs end.


def test_a_pending_job_is_canceled_whole_and_without_a_result() -> None:
    known = job(QUEUED, QUEUED)
    job_ends.cancel_pending(known, NOW)
    assert statuses_of(known) == [CANCELED, CANCELED]
    assert [op.result for op in known.ops] == [None, None]
    assert [op.end_timestamp for op in known.ops] == [NOW, NOW]
    assert (known.start_timestamp, known.end_timestamp) == (None, NOW)


def test_a_job_that_lost_its_process_fails_whole() -> None:
    known = job(SUCCESS, RUNNING, QUEUED)
    job_ends.fail_whole(known, NOW, source="gnt:daemon", text="it died")
    assert statuses_of(known) == [ERROR, ERROR, ERROR]
    assert [op.result for op in known.ops] == ["it died"] * 3
    trail = [["gnt:daemon", "it died", 1_700_000_000_250_000_000]]
    assert [op.input["reason"] for op in known.ops] == [trail] * 3
    assert known.end_timestamp == NOW


@pytest.mark.parametrize("trail", [None, "text", {"a": 1}])
def test_an_opcode_without_a_usable_reason_trail_can_fail_too(trail: object) -> None:
    known = job(RUNNING)
    known.ops[0].input = {"reason": trail}
    job_ends.fail_whole(known, NOW, source="s", text="t")
    assert known.ops[0].input["reason"] == [["s", "t", 1_700_000_000_250_000_000]]


def test_the_opcodes_behind_a_failed_one_fail_for_that_reason() -> None:
    known = job(SUCCESS, RUNNING, QUEUED)
    job_ends.fail_from(known, 1, NOW, ["OpExecError", ["no"]])
    assert statuses_of(known) == [SUCCESS, ERROR, ERROR]
    assert known.ops[1].result == ["OpExecError", ["no"]]
    assert known.ops[2].result == ["OpExecError", ["Preceding opcode failed"]]
    assert (known.ops[1].end_timestamp, known.ops[2].end_timestamp) == (NOW, None)


def test_a_job_process_cancels_from_its_opcode_on() -> None:
    known = job(SUCCESS, WAITING, QUEUED)
    job_ends.cancel_from(known, 1, NOW)
    assert statuses_of(known) == [SUCCESS, CANCELED, CANCELED]
    assert [op.result for op in known.ops] == [None, *["Job canceled by request"] * 2]


@pytest.mark.parametrize("wrong", [0, -1, True, "7", 2**63, [7]])
def test_what_is_no_job_id_is_named(wrong: object) -> None:
    with pytest.raises(errors.BadRequestError, match="expected a positive number of 64 bits"):
        jobs.check_id(wrong)
