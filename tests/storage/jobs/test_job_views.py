"""Jobs as users see them."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.storage import errors, settings
from ganger.storage.jobs import job_views, listing
from ganger.storage.jobs.jobs import Job, JobStatus, LogEntry, OpcodeEntry, encode_job

EXEC = {"OP_ID": "OP_EXEC", "argv": ["make", "all"]}
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}


def document(*inputs: dict[str, Any], **fields: Any) -> bytes:
    ops = [OpcodeEntry(input=each) for each in inputs]
    return encode_job(Job(id=7, ops=ops, **fields))


def test_a_job_is_shown_with_its_opcodes() -> None:
    log: list[LogEntry] = [(1, (10, 500_000), "message", "hello"), (2, (11, 0), "data", {"a": 1})]
    ops = [
        OpcodeEntry(
            input=EXEC,
            status=JobStatus.ERROR,
            result=["OpExecError", ["no"]],
            log=log,
            priority=3,
            start_timestamp=(1, 0),
            exec_timestamp=(2, 250_000),
            end_timestamp=(3, 0),
        )
    ]
    job = job_views.job_info(
        encode_job(Job(id=7, ops=ops, received_timestamp=(0, 1), process_id=99)), archived=True
    )
    assert (job.id, job.status, job.process_id, job.archived) == (7, "error", 99, True)
    assert (job.received, job.started, job.ended, job.is_final) == (0.000001, None, None, True)
    assert job.ops is not None
    (op,) = job.ops
    assert (op.op_id, op.input, op.result) == ("OP_EXEC", EXEC, ["OpExecError", ["no"]])
    assert (op.priority, op.started, op.executed, op.ended) == (3, 1.0, 2.25, 3.0)
    assert [(line.serial, line.time, line.kind, line.text) for line in op.log] == [
        (1, 10.5, "message", "hello"),
        (2, 11.0, "data", '{"a":1}'),
    ]


def test_the_summary_of_a_job_is_that_of_its_opcodes_in_order() -> None:
    assert job_views.job_info(document(EXEC, DELAY)).summary.startswith("EXEC(make all), TEST_DEL")


@pytest.mark.parametrize(
    ("trail", "reason"),
    [
        ([["gnt:user", "because", 1], ["gnt:opcode:x", "later", 2]], "because"),
        ([["gnt:user", "", 1], ["gnt:client", "second", 2]], "second"),
        ([["odd"], 5, ["gnt:user", "found"]], "found"),
        ([], ""),
        (None, ""),
        ("text", ""),
    ],
)
def test_the_reason_is_the_first_text_of_the_trail(trail: object, reason: str) -> None:
    assert job_views.job_info(document({**DELAY, "reason": trail})).reason == reason


def test_dependencies_are_those_of_the_first_opcode() -> None:
    wanted = [[3, ["success"]], [4, ["error", "success"]], ["odd"], [5, "odd"]]
    job = job_views.job_info(document({**DELAY, "depends": wanted}, EXEC))
    assert job.depends == [(3, ("success",)), (4, ("error", "success"))]
    assert job_views.job_info(document(EXEC)).depends == []


def test_unknown_opcodes_are_shown_too() -> None:
    job = job_views.job_info(document({"OP_ID": "OP_FROM_ELSEWHERE", "x": 1}))
    assert job.summary == "FROM_ELSEWHERE"


@pytest.mark.parametrize(
    ("opcodes", "shown"),
    [
        ([{"OP_ID": "OP_FROM_ELSEWHERE", "x": 1}], ["FROM_ELSEWHERE(1)"]),
        ([{"OP_ID": "OP_FROM_ELSEWHERE"}, EXEC], ["FROM_ELSEWHERE", "EXEC(make all)"]),
    ],
    ids=["its opcode", "its opcodes together"],
)
def test_the_daemon_says_of_a_job_what_opcodes_do_that_are_not_installed_here(
    opcodes: list[dict[str, Any]], shown: list[str]
) -> None:
    summary = ", ".join(["FROM_ELSEWHERE(1)", *shown[1:]])
    job = job_views.job_info(document(*opcodes), summary=summary)
    assert job.summary == summary
    assert job.ops is not None
    assert [op.summary for op in job.ops] == shown


def test_a_malformed_job_is_an_error() -> None:
    with pytest.raises(errors.StorageError, match="not a job"):
        job_views.job_info(b"[]")


# Ad-hoc rate limits (scheduler facts, section 5).


def reasons(*texts: object) -> dict[str, Any]:
    return {**DELAY, "reason": [["gnt:user", text, 1] for text in texts]}


@pytest.mark.parametrize(
    ("text", "bucket", "number"),
    [
        ("rate-limit:3:moves", "3:moves", 3),
        ("rate-limit:3:", "3:", 3),
        ("rate-limit:03:moves", "03:moves", 3),
        ("rate-limit:3:a:b", "3:a:b", 3),
        ("rate-limit:10:x y", "10:x y", 10),
        (f"rate-limit:{'9' * 18}:", "9" * 18 + ":", 10**18 - 1),
    ],
)
def test_a_reason_may_name_a_bucket_and_how_many_jobs_it_takes(
    text: str, bucket: str, number: int
) -> None:
    assert job_views.rate_limits([reasons(text)]) == ((bucket, number),)


@pytest.mark.parametrize(
    "text",
    [
        "", "rate-limit:", "rate-limit:3", "rate-limit:0:x", "rate-limit:00:x", "rate-limit:-1:x",
        "rate-limit:x:3", "rate-limit:1.5:x", "rate-limit: 3:x", "rate-limit:3 :x",
        "rate-limit:+3:x", "rate-limit:1_0:x", "rate-limit:\u0663:x", "rate-limit:\u00b2:x",
        "Rate-limit:3:x", " rate-limit:3:x", f"rate-limit:{'9' * 19}:x", 5, None,
    ],
)  # fmt: skip
def test_any_other_reason_is_only_a_reason(text: object) -> None:
    assert job_views.rate_limits([reasons(text)]) == ()


def test_each_bucket_of_any_entry_of_any_opcode_counts_once() -> None:
    ops = [
        reasons("because", "rate-limit:3:x"),
        EXEC,
        reasons("rate-limit:4:x", "rate-limit:3:x", "rate-limit:1:y"),
    ]
    assert sorted(job_views.rate_limits(ops)) == [("1:y", 1), ("3:x", 3), ("4:x", 4)]


@pytest.mark.parametrize("character", ["x", "é"])
def test_a_text_of_a_listing_is_cut_to_its_bytes(character: str) -> None:
    text = character * (settings.SUMMARY_BYTES_MAX // len(character.encode()))
    assert listing.in_listing(text) == text
    cut = listing.in_listing(text + "x")
    assert cut.endswith(f"{character}...")
    assert 0 <= settings.SUMMARY_BYTES_MAX - len(cut.encode()) < len(character.encode())


@pytest.mark.parametrize("trail", [None, "rate-limit:3:x", [["rate-limit:3:x"]], [5, None]])
def test_a_broken_trail_names_no_bucket(trail: object) -> None:
    assert job_views.rate_limits([{**DELAY, "reason": trail}]) == ()
