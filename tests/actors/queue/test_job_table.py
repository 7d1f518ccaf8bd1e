"""The rows that the queue keeps of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ganger.actors.queue import job_table
from ganger.actors.queue.job_table import JobTable, Phase, Row, Traits, row_of
from ganger.storage import job_views, jobs, opcodes
from ganger.storage.jobs import JobStatus
from ganger.storage.opcodes import catalogue
from ganger.storage.prediction.lock_types import UNKNOWN_EXCLUSIVE, exclusive, forecast_of
from ganger.transport.messages import JobSummary, PendingJob

if TYPE_CHECKING:
    from collections.abc import Iterator


def row(job_id: int, status: JobStatus = JobStatus.QUEUED, **fields: Any) -> Row:
    made = Row(id=job_id, status=status, priority=0, traits=Traits(summary="X"))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def table(*rows: Row) -> JobTable:
    made = JobTable()
    for one in rows:
        made.add(one)
    return made


def job(*inputs: dict[str, Any], **fields: Any) -> jobs.Job:
    return jobs.Job(id=7, ops=[jobs.OpcodeEntry(input=one) for one in inputs], **fields)


DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}


def test_rows_are_found_by_id_and_stand_in_id_order() -> None:
    known = table(row(3), row(5), row(9))
    assert [one.id for one in known] == [3, 5, 9]
    assert len(known) == 3
    found = known.find(5)
    assert found is not None
    assert found.id == 5
    assert known.find(4) is None


def test_a_removed_row_is_gone_and_removing_it_again_is_harmless() -> None:
    known = table(row(3), row(5))
    known.remove(3)
    known.remove(3)
    assert [one.id for one in known] == [5]


def test_rows_are_paged_by_id() -> None:
    known = table(*map(row, range(1, 6)))
    page, has_more = known.page(after=0, limit=2, statuses=None)
    assert ([one.id for one in page], has_more) == ([1, 2], True)
    page, has_more = known.page(after=2, limit=2, statuses=None)
    assert ([one.id for one in page], has_more) == ([3, 4], True)
    page, has_more = known.page(after=4, limit=2, statuses=None)
    assert ([one.id for one in page], has_more) == ([5], False)
    assert known.page(after=5, limit=2, statuses=None) == ([], False)


def test_a_page_that_is_just_full_is_the_last_one() -> None:
    assert table(row(1), row(2)).page(after=0, limit=2, statuses=None)[1] is False


def test_pages_may_have_only_certain_statuses() -> None:
    known = table(row(1), row(2, JobStatus.ERROR), row(3), row(4, JobStatus.RUNNING), row(5))
    wanted = [JobStatus.ERROR, JobStatus.RUNNING]
    page, has_more = known.page(after=0, limit=1, statuses=wanted)
    assert ([one.id for one in page], has_more) == ([2], True)
    page, has_more = known.page(after=2, limit=1, statuses=wanted)
    assert ([one.id for one in page], has_more) == ([4], False)
    assert known.page(after=0, limit=9, statuses=[]) == ([], False)


def test_jobs_are_counted_by_status() -> None:
    known = table(row(1), row(2), row(3, JobStatus.ERROR))
    counts = known.counts()
    assert set(counts) == {str(status) for status in JobStatus}
    assert {status: count for status, count in counts.items() if count} == {
        "queued": 2,
        "error": 1,
    }


def test_counts_follow_what_happens_to_the_rows() -> None:
    rows = [row(number) for number in range(1, 5)]
    known = table(*rows)
    known.give_status(rows[0], JobStatus.RUNNING)
    known.give_status(rows[1], JobStatus.ERROR)
    known.remove(2)
    known.give_status(rows[1], JobStatus.SUCCESS)
    known.add(row(3, JobStatus.CANCELED))
    assert rows[1].status is JobStatus.SUCCESS
    found = {status: count for status, count in known.counts().items() if count}
    assert found == {"queued": 1, "running": 1, "canceled": 1}


def test_rows_are_found_by_phase() -> None:
    known = table(row(1), row(2, phase=Phase.ENDED), row(3, phase=Phase.STARTING))
    assert [one.id for one in known.in_phase(Phase.ENDED, Phase.STARTING)] == [2, 3]


def test_jobs_with_a_run_slot_are_found_without_a_look_at_the_others() -> None:
    class Watched(JobTable):
        def __iter__(self) -> Iterator[Row]:
            raise AssertionError("it looks at all rows")

    known = Watched()
    for job_id in range(1, 6):
        known.add(row(job_id))
    known.add(row(6, phase=Phase.HANDED_OVER))
    for job_id, phase in ((5, Phase.STARTING), (2, Phase.STARTING), (3, Phase.HANDED_OVER)):
        found = known.find(job_id)
        assert found is not None
        known.give_slot(found, phase)
    with_slot = (Phase.STARTING, Phase.HANDED_OVER)
    assert [one.id for one in known.in_phase(*with_slot)] == [2, 3, 5, 6]
    assert [one.id for one in known.in_phase(Phase.HANDED_OVER)] == [3, 6]
    (second, *_) = known.in_phase(Phase.STARTING)
    second.phase = Phase.PENDING
    known.remove(3)
    assert [one.id for one in known.in_phase(*with_slot)] == [5, 6]
    known.give_slot(second, Phase.STARTING)
    assert [one.id for one in known.in_phase(*with_slot)] == [2, 5, 6]


def test_the_jobs_of_a_key_are_known_as_long_as_they_are_live() -> None:
    known = table(row(1, key="a"), row(2, key="a"), row(3, key="b"), row(4))
    assert known.ids_of_key("a") == [1, 2]
    assert known.ids_of_key("b") == [3]
    assert known.ids_of_key("c") is None
    known.remove(1)
    assert known.ids_of_key("a") == [2]
    known.remove(2)
    assert known.ids_of_key("a") is None


def test_what_is_answered_for_a_key_is_a_copy() -> None:
    known = table(row(1, key="a"))
    ids = known.ids_of_key("a")
    assert ids is not None
    ids.append(99)
    assert known.ids_of_key("a") == [1]


# From a job to its row.


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
    taken = forecast_of(node=exclusive(["master"]))
    assert made.as_pending() == PendingJob(id=7, priority=0, forecast=taken)
    assert row_of(job(DELAY), Phase.PENDING).foreseen is made.foreseen
    assert row_of(job(DELAY), Phase.HANDED_OVER).foreseen is None


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


def test_ids_after_one_follow_what_comes_and_goes() -> None:
    table = JobTable()
    for job_id in (3, 5, 8):
        table.add(row_of(jobs.Job(id=job_id, ops=[]), Phase.ENDED))
    assert list(table.ids_after(0)) == [3, 5, 8]
    assert list(table.ids_after(5)) == [8]
    table.add(row_of(jobs.Job(id=9, ops=[]), Phase.ENDED))
    assert list(table.ids_after(4)) == [5, 8, 9]
    table.remove(8)
    assert list(table.ids_after(5)) == [9]
    assert list(table.ids_after(9)) == []


def test_jobs_with_the_same_texts_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests have jobs like these.
    monkeypatch.setattr(job_table, "_templates", {})
    extra = {jobs.SUBMISSION_KEY: "k" * 20, jobs.DIGEST_KEY: "d" * 24}
    bodies = [jobs.encode_job(job({**DELAY, "reason": [["me", "why", 1]]}, extra=extra))] * 2
    one, other = (row_of(jobs.decode_job(body), Phase.PENDING) for body in bodies)
    assert one.shared_inputs is None, "it may be the only one"
    shared, other.shared_inputs = other.shared_inputs, None
    assert one == other
    other.shared_inputs = shared
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
    assert made.reason == job_views.job_reason(asked)
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
