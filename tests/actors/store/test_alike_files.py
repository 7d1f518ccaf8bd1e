"""A row read by a pattern is the row that decoding gives, and nothing else matches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.queue.leftovers import Leftovers

from ganger.actors.store.alike_files import MADE_MAX, AlikeFiles
from ganger.actors.store.job_rows import Phase
from ganger.actors.store.job_table import JobTable
from ganger.actors.store.row_templates import row_of
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import JobsStored, StateStored


def new_job(job_id: int, *, at: int = 5, ops: int = 1, **parameters: Any) -> jobs.Job:
    """As the queue makes it at submission."""
    entries = [
        jobs.OpcodeEntry(
            input={
                "priority": 0,
                "reason": [["gnt:opcode:test_delay", f"job={job_id};index={index}", at * 1_000]],
                "OP_ID": "OP_TEST_DELAY",
                **parameters,
            }
        )
        for index in range(ops)
    ]
    extra = {
        jobs.STATE_SERIAL_KEY: 1,
        jobs.SUBMISSION_KEY: f"{job_id:032x}",
        jobs.DIGEST_KEY: f"{job_id % 7:024x}",
        jobs.BATCH_KEY: [job_id, 5_000],
    }
    return jobs.Job(id=job_id, ops=entries, received_timestamp=(at, job_id), extra=extra)


def learnt(*templates: jobs.Job) -> AlikeFiles:
    """What knows these jobs; each came twice."""
    JobTable()
    alike = AlikeFiles()
    for job in templates:
        for _ in range(2):
            row = row_of(job, Phase.PENDING)
        alike.note(jobs.encode_job(job), row)
    return alike


@pytest.mark.parametrize("ops", [1, 3])
def test_the_row_of_a_like_job_is_the_one_that_decoding_gives(ops: int) -> None:
    alike = learnt(new_job(7, ops=ops, duration=1))
    for job in (new_job(123_456, at=99, ops=ops, duration=1), new_job(8, ops=ops, duration=1)):
        found = alike.row(job.id, jobs.encode_job(job))
        assert found is not None
        assert found == row_of(job, Phase.PENDING)
        assert found.shared_inputs is row_of(job, Phase.PENDING).shared_inputs


_PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "duration": st.integers(0, 12),
        "text": st.sampled_from(
            ["", "job=7;index=0", "7", "5000", '"ganger_batch":[7,5000]', "ü\n"]
        ),
        "more": st.sampled_from([{"id": 7}, {"ganger_batch": [7, 5000]}, [7, 8], None]),
    },
)


@given(
    template=_PARAMETERS,
    parameters=_PARAMETERS,
    ids=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    change=st.sampled_from(
        ["", "priority", "status", "livelock", "serial", "reason", "key", "extra", "ops"]
    ),
)
def test_whatever_matches_has_the_row_that_decoding_gives(
    template: dict[str, Any], parameters: dict[str, Any], ids: tuple[int, int], change: str
) -> None:
    alike = learnt(new_job(ids[0], **template))
    job = new_job(ids[1], ops=2 if change == "ops" else 1, **parameters)
    op = job.ops[0]
    match change:
        case "priority":
            op.priority = -3
        case "status":
            op.status = JobStatus.RUNNING
        case "livelock":
            job.livelock = "/x"
        case "serial":
            job.extra[jobs.STATE_SERIAL_KEY] = 2
        case "reason":
            op.input["reason"] = [["user", "rate-limit:2:x", 1], *op.input["reason"]]
        case "key":
            job.extra[jobs.SUBMISSION_KEY] = 'a"b'
        case "extra":
            job.extra["other"] = 1
    found = alike.row(job.id, jobs.encode_job(job))
    assert found is None or found == row_of(job, Phase.PENDING)
    if not change and template == parameters:
        assert found is not None
    if change and change != "ops":
        assert found is None


def test_a_text_with_a_wrong_checksum_or_another_id_does_not_match() -> None:
    alike = learnt(new_job(7))
    body = jobs.encode_job(new_job(8))
    assert alike.row(8, body) is not None
    assert alike.row(9, body) is None
    for damaged in (
        body.replace(b"[5,8]", b"[6,8]"),
        body[:-3] + b'f"}' if body[-3:] != b'f"}' else body[:-3] + b'e"}',
        body[:-1],
        body + b"\n",
        body[: -jobs.CHECKSUM_BYTES] + b"}",
        body.replace(b"job=8;", b"job=9;"),
    ):
        assert damaged != body
        assert alike.row(8, damaged) is None


def test_a_job_that_differs_from_all_others_makes_no_pattern() -> None:
    JobTable()
    alike = AlikeFiles()
    job = new_job(7, duration=3)
    # Others share no parameters with it, so that rules must read its file.
    alike.note(jobs.encode_job(job), row_of(job, Phase.PENDING))
    assert alike.row(8, jobs.encode_job(new_job(8, duration=3))) is None


def test_patterns_are_few() -> None:
    templates = [new_job(7, duration=number) for number in range(MADE_MAX + 5)]
    alike = learnt(*templates)
    matched = [alike.row(7, jobs.encode_job(job)) is not None for job in templates]
    assert matched.index(True) == MADE_MAX - 4
    assert sum(matched) == 4


def test_of_file_and_journal_the_newer_one_counts_also_for_like_jobs(tmp_path: Any) -> None:
    disk = Leftovers(tmp_path)
    old = {job_id: jobs.encode_job(new_job(job_id)) for job_id in range(1, 8)}
    newer = new_job(5)
    newer.ops[0].priority = -3
    newer.extra[jobs.STATE_SERIAL_KEY] = 2
    body = jobs.encode_job(newer)
    disk.journal(JobsStored([(job_id, 1, text) for job_id, text in old.items()]))
    disk.journal(StateStored(5, 2, body))
    for job_id in (1, 2, 3, 5, 6):
        disk.write(job_id, old[job_id])
    # A torn file, and one that is ahead of the journal.
    disk.write(4, old[4][:100])
    newer.id = 6
    newer.ops[0].input["reason"][0][1] = "job=6;index=0"
    disk.write(6, jobs.encode_job(newer))
    loaded = disk.load()
    assert [(row.id, row.priority, row.serial) for row in loaded.table] == [
        (1, 0, 1),
        (2, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
        (5, -3, 2),
        (6, -3, 2),
        (7, 0, 1),
    ]
    assert loaded.quarantined == []
    assert disk.directory.read(4) == old[4]
    assert disk.directory.read(5) == body
    assert disk.directory.read(7) == old[7]
    assert disk.directory.read(3) == old[3]
    disk.close()


def test_a_like_file_with_a_wrong_checksum_is_put_aside(tmp_path: Any) -> None:
    disk = Leftovers(tmp_path)
    for job_id in range(1, 5):
        disk.write(job_id, jobs.encode_job(new_job(job_id)))
    disk.write(4, jobs.encode_job(new_job(4)).replace(b"[5,4]", b"[6,4]"))
    loaded = disk.load()
    assert [row.id for row in loaded.table] == [1, 2, 3]
    assert loaded.quarantined == ["job-4: not a job: its checksum is wrong"]
    disk.close()
