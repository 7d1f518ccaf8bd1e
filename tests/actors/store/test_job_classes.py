"""From a job to its row, and what rows of equal jobs share."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core_alone import NEEDS_HIDDEN

from ganger.actors.store import job_classes
from ganger.actors.store.job_classes import row_of
from ganger.actors.store.job_rows import Phase
from ganger.storage import opcodes
from ganger.storage.jobs import job_views, jobs, listing
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.opcodes import catalogue
from ganger.storage.prediction.lock_types import UNKNOWN_EXCLUSIVE, forecast_of
from ganger.transport.messages import JobSummary, PendingJob


def job(*inputs: dict[str, Any], **fields: Any) -> jobs.Job:
    return jobs.Job(id=7, ops=[jobs.OpcodeEntry(input=one) for one in inputs], **fields)


DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}


def test_a_row_has_what_listings_show() -> None:
    known = job(
        DELAY | {"reason": [["gnt:user", "because", 5], ["gnt:client", "x", 6]]},
        {"OP_ID": "OP_X"},
        received_timestamp=(1, 500_000),
        start_timestamp=(2, 0),
        process_id=815,
        livelock="/l/job_000007_1",
        extra={"ganger_serial": 4, "ganger_key": "k"},
    )
    known.ops[1].priority = -5
    made = row_of(known, Phase.HANDED_OVER)
    assert made.as_summary() == JobSummary(
        id=7,
        status=JobStatus.QUEUED,
        summary="TEST_DELAY(1500000000 ns), X",
        priority=-5,
        received=1.5,
        started=2.0,
        process_id=815,
        reason="because",
    )
    assert (made.serial, made.key, made.lock_file) == (4, "k", "/l/job_000007_1")
    assert made.as_summary(archived=True).archived


def test_the_scheduler_gets_priority_dependencies_and_the_locks_of_opcodes() -> None:
    free = DELAY | {"depends": [[3, ["success"]], [4, []]], "on_master": False}
    made = row_of(job(free), Phase.PENDING)
    assert made.as_pending() == PendingJob(id=7, priority=0, depends=((3, ("success",)), (4, ())))
    made = row_of(job(DELAY), Phase.PENDING)
    # The configuration knows the UUID of the master node.
    taken, question = forecast_of(node=UNKNOWN_EXCLUSIVE), '[{"OP_ID":"OP_TEST_DELAY"}]'
    assert made.as_pending() == PendingJob(id=7, priority=0, forecast=taken, question=question)
    assert row_of(job(DELAY), Phase.PENDING).foreseen is made.foreseen
    assert row_of(job(DELAY), Phase.HANDED_OVER).foreseen is None


@NEEDS_HIDDEN
def test_what_the_configuration_decides_is_a_question() -> None:
    startup = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "i1"}
    made = row_of(job(startup), Phase.PENDING).as_pending()
    assert made.question == '[{"OP_ID":"OP_INSTANCE_STARTUP","instance_name":"i1"}]'
    assert made.forecast is not None
    assert made.forecast.instance == UNKNOWN_EXCLUSIVE


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.PENDING, JobStatus.WAITING),
        (Phase.STARTING, JobStatus.QUEUED),
        (Phase.HANDED_OVER, JobStatus.QUEUED),
    ],
)
def test_a_pending_job_with_dependencies_waits(phase: Phase, expected: JobStatus) -> None:
    assert row_of(job(DELAY | {"depends": [[3, []]]}), phase).status is expected
    assert row_of(job(DELAY | {"depends": None}), phase).status is JobStatus.QUEUED


def test_only_the_first_opcode_holds_a_pending_job_back() -> None:
    made = row_of(job(DELAY, DELAY | {"depends": [[3, []]]}), Phase.PENDING)
    assert (made.depends, made.status) == ((), JobStatus.QUEUED)


@pytest.mark.parametrize("depends", [5, "x", [[1]], [["a", []]], [[1, ["done"]]]])
def test_dependencies_that_another_program_wrote_wrongly_do_no_harm(depends: object) -> None:
    assert row_of(job(DELAY | {"depends": depends}), Phase.PENDING).depends == ()


def test_a_job_without_opcodes_has_a_row() -> None:
    made = row_of(job(), Phase.ENDED)
    assert (made.status, made.summary, made.reason) == (JobStatus.SUCCESS, "", "")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [(DELAY, False), ({"OP_ID": "OP_OF_SOMEBODY"}, False), ({"OP_ID": 5}, False), ({}, False)],
)
def test_what_is_not_installed_needs_no_user_opcodes(
    fields: dict[str, Any], *, expected: bool
) -> None:
    assert row_of(job(fields), Phase.PENDING).needs_user_opcodes is expected


@pytest.mark.parametrize(
    ("trail", "expected"),
    [
        ([["gnt:user", "why", 1], ["gnt:opcode:x", "job=7;index=0", 2]], "why"),
        ([["gnt:opcode:x", "job=7;index=0", 2]], ""),
        ([["gnt:user"], 5, None], ""),
        ("text", ""),
        (None, ""),
    ],
)
def test_the_reason_is_the_text_of_the_submitter(trail: object, expected: str) -> None:
    assert row_of(job(DELAY | {"reason": trail}), Phase.PENDING).reason == expected


def test_jobs_with_the_same_texts_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests have jobs like these.
    monkeypatch.setattr(job_classes, "_templates", {})
    extra = {jobs.SUBMISSION_KEY: "k" * 20, jobs.DIGEST_KEY: "d" * 24}
    bodies = [jobs.encode_job(job({**DELAY, "reason": [["me", "why", 1]]}, extra=extra))] * 2
    one, other = (row_of(jobs.decode_job(body), Phase.PENDING) for body in bodies)
    assert (one.whole_class.number, one.inputs) == (0, None), "it may be the only one"
    known = other.whole_class
    assert known.number
    other.inputs = None
    assert one == other
    other.job_class = known
    for name in ("summary", "reason", "key", "digest"):
        assert getattr(one, name)
        assert getattr(one, name) is getattr(other, name)


@pytest.mark.parametrize(
    "trail",
    [
        None,
        [],
        "odd",
        ["odd"],
        [["gnt:opcode:test_delay"]],
        [["gnt:opcode:test_delay", "job=1;index=0", 1]],
        [["gnt:opcode:test_delay", "rate-limit:3:disks", 1]],
        [["me", "job=1", 1]],
        [["me", "why", 1], ["gnt:opcode:test_delay", "job=1;index=0", 1]],
        [[None, "job=1", 1]],
        [["gnt:opcode:test_delay", 5, 1]],
    ],
)
def test_reasons_are_looked_at_though_jobs_share_what_else_is_known(trail: object) -> None:
    asked = job({**DELAY, "reason": trail})
    row_of(job(DELAY), Phase.PENDING)
    made = row_of(asked, Phase.PENDING)
    assert made.reason == listing.job_reason(asked)
    assert made.limits == job_views.rate_limits([asked.ops[0].input])


def test_jobs_share_what_is_known_only_if_their_parameters_are_the_same() -> None:
    made = [
        row_of(job(DELAY | {"duration": duration}), Phase.PENDING).summary
        for duration in (1, 1.0, True, 2)
    ]
    assert made == ["TEST_DELAY(1000000000 ns)"] * 2 + ["TEST_DELAY", "TEST_DELAY(2000000000 ns)"]
    first, second = job(DELAY, DELAY), job(DELAY, DELAY | {"depends": [[3, []]]})
    second.ops[0].status = JobStatus.SUCCESS
    assert row_of(first, Phase.PENDING).depends == ()
    assert row_of(second, Phase.PENDING).depends == ((3, ()),)


def test_plug_ins_that_are_loaded_change_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job({"OP_ID": "OP_FROM_A_PLUG_IN"})
    assert not row_of(asked, Phase.PENDING).needs_user_opcodes
    kind = type("OpFromAPlugIn", (opcodes.Opcode,), {"op_id": "OP_FROM_A_PLUG_IN"})
    monkeypatch.setitem(catalogue._from_users, "OP_FROM_A_PLUG_IN", kind)
    monkeypatch.setattr(catalogue, "_loads", catalogue._loads + 1)
    assert row_of(asked, Phase.PENDING).needs_user_opcodes
