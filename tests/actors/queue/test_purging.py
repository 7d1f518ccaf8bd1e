"""Jobs that go for good: which may, what is left, and what a crash in the middle makes of it."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from tests.actors.queue.queue_stage import DELAY, ENDED, Queue, spec
from tests.refusals import refusing

from ganger.actors.queue import purging
from ganger.storage import errors, settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files import removal, spool
from ganger.transport import messages

AGE = time.time() - ENDED


def purge(queue: Queue, *ids: int, **fields: Any) -> messages.PurgeOutcome:
    asker = queue.actor.ask(messages.PurgeJobs(ids=list(ids) or None, **fields))
    queue.actor.work_off()
    return asker.answer_as(messages.PurgeOutcome)


def archive(queue: Queue, job_id: int) -> None:
    queue.actor.ask(messages.ArchiveJob(id=job_id)).answer_as(messages.ArchiveOutcome)


def ids(outcome: messages.PurgeOutcome) -> list[int]:
    return [job_id for job_id, _ in outcome.jobs]


def write_output(queue: Queue, job_id: int, size: int = 100_000) -> Path:
    path = Path(spool.output_path(queue.stage.places.queue, job_id))
    path.write_bytes(b"x" * size)
    return path


def large_input() -> dict[str, Any]:
    """An opcode whose standard input lies beside the job."""
    stdin = "x" * 20_000
    return {"OP_ID": "OP_EXEC", "argv": ["cat"], "stdin": stdin}


def left(queue: Queue) -> list[str]:
    return sorted(path.name for path in queue.stage.places.queue.rglob("job-*"))


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_purged_job_leaves_nothing_and_its_id_is_not_given_again(
    queue: Queue, *, is_archived: bool
) -> None:
    queue.finish_new()
    write_output(queue, 1)
    if is_archived:
        archive(queue, 1)
    [(job_id, size)] = purge(queue, 1).jobs
    assert job_id == 1
    assert size >= 100_000
    assert left(queue) == []
    assert queue.statuses(archived=True) == {}
    for asked in (messages.ReadJob(id=1), messages.ExplainJob(id=1), messages.ArchiveJob(id=1)):
        assert queue.actor.ask(asked).refusal[0] == "UnknownJobError"
    queue.restart()
    assert queue.statuses(archived=True) == {}
    assert queue.submitted(spec()) == [2]


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_purged_task_of_a_host_does_not_start_again(queue: Queue, *, is_archived: bool) -> None:
    """The master submits it again if the answer was lost: it would have run a second time."""
    queue.stage.host = msgspec.structs.replace(queue.stage.host, is_node=True)
    queue.restart()
    task = messages.JobSpec(ops=[DELAY], name="task-1-0-5.000000")
    queue.submitted(task, key="task-1-0-5.000000")
    queue.finish(1)
    if is_archived:
        archive(queue, 1)
    assert ids(purge(queue, 1)) == [1]
    for _ in range(2):
        refusal = queue.submit(task, key="task-1-0-5.000000").refusal
        assert refusal[0] == "JobStateError"
        assert "it has run, and was purged before its end was fetched" in refusal[1]
        queue.restart()
    assert queue.submitted(task, key="task-2-0-5.000000") == [2]


def test_a_host_whose_disk_keeps_no_key_keeps_the_task(queue: Queue) -> None:
    queue.stage.host = msgspec.structs.replace(queue.stage.host, is_node=True)
    queue.restart()
    queue.submitted(messages.JobSpec(ops=[DELAY], name="task-1-0-5.000000"))
    queue.finish(1)
    queue.stage.places.purged_tasks.mkdir()
    asker = queue.actor.ask(messages.PurgeJobs(ids=[1]))
    queue.actor.work_off()
    assert "purged.tasks: Is a directory" in asker.refusal[1]
    assert left(queue) == ["job-1"]


def test_a_dry_run_tells_the_same_and_removes_nothing(queue: Queue) -> None:
    queue.finish_new()
    dry = purge(queue, 1, is_dry_run=True)
    assert left(queue) == ["job-1"]
    assert purge(queue, 1) == dry


def test_only_a_job_that_has_ended_goes_and_the_others_say_why(queue: Queue) -> None:
    queue.submitted(spec())
    queue.run_new()
    queue.finish_new()
    outcome = purge(queue, 1, 2, 3, 4)
    assert ids(outcome) == [3]
    ended = "only a job that has ended can be purged"
    assert outcome.left_out == [
        (1, f"job 1 is queued: {ended}"),
        (2, f"job 2 is running: {ended}"),
        (4, "there is no job 4"),
    ]


def test_a_running_job_that_has_the_space_is_named_with_what_helps(queue: Queue) -> None:
    for _ in range(2):
        queue.run_new()
    queue.finish_new()
    for job_id in (1, 3):
        write_output(queue, job_id)
    outcome = purge(queue, bytes_min=50_000)
    assert ids(outcome) == [3]
    [(job_id, why)] = outcome.left_out
    assert (job_id, why.startswith("job 1 is running and takes 1")) == (1, True)
    assert why.endswith(": `ganger job cancel --kill 1` ends it, then purge it")
    assert purge(queue, age_seconds=-1.0).left_out == []


def test_a_job_whose_process_has_not_left_stays(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, JobStatus.SUCCESS)
    assert purge(queue, 1).left_out == [(1, "the process of job 1 is about to leave: try again")]
    assert ids(purge(queue, age_seconds=-1.0)) == []
    queue.lose_process(1, has_left=True)
    assert ids(purge(queue, age_seconds=-1.0)) == [1]


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_job_on_which_another_one_depends_stays_until_that_has_ended(
    queue: Queue, *, is_archived: bool
) -> None:
    for _ in range(2):
        queue.finish_new()
    if is_archived:
        archive(queue, 1)
        archive(queue, 2)
    later = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5, "depends": [[2, ["success"]]]}
    queue.submitted(spec((1, ["success"])))
    [needing] = queue.submitted(
        messages.JobSpec(ops=[{"OP_ID": "OP_TEST_DELAY", "duration": 1.5}, later])
    )
    outcome = purge(queue, age_seconds=-1.0)
    assert ids(outcome) == []
    assert outcome.left_out == [
        (1, "job 3 depends on job 1"),
        (2, f"job {needing} depends on job 2"),
    ]
    queue.actor.ask(messages.CancelJob(id=3))
    assert ids(purge(queue, 1)) == [1]


def test_the_age_counts_from_the_end_and_the_size_with_all_files(queue: Queue) -> None:
    for _ in range(3):
        queue.finish_new()
    write_output(queue, 2)
    write_output(queue, 3)
    archive(queue, 3)
    assert ids(purge(queue, age_seconds=AGE + 3_600)) == []
    sizes = purge(queue, bytes_min=50_000, is_dry_run=True)
    assert ids(sizes) == [2, 3]
    assert ids(purge(queue, bytes_min=10_000_000)) == []
    assert ids(purge(queue, 1, 2, bytes_min=50_000)) == [2]
    assert ids(purge(queue, age_seconds=AGE - 3_600)) == [1, 3]


def test_by_age_only_archived_jobs_that_the_index_calls_old_are_read(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in (1, 2, 3):
        queue.finish_new()
        archive(queue, job_id)
    directory = queue.actor.component.store.ledger.directory
    read, real = list[int](), directory.read_archived

    def read_archived(job_id: int) -> bytes | None:
        read.append(job_id)
        return real(job_id)

    monkeypatch.setattr(directory, "read_archived", read_archived)
    assert ids(purge(queue, age_seconds=AGE + 3_600)) == []
    assert read == []
    # The index says that job 2 is older than it is; its file is right.
    file = queue.stage.places.archive_index / "0"
    lines = file.read_bytes().splitlines(keepends=True)
    [old] = [line for line in lines if b'"id":2,' in line]
    file.write_bytes(b"".join(lines) + old.replace(b'"ended":', b'"ended":1.0,"x":'))
    assert ids(purge(queue, age_seconds=AGE + 3_600)) == []
    assert read == [2]
    assert ids(purge(queue, age_seconds=AGE - 3_600)) == [1, 2, 3]


def test_one_request_looks_at_a_page_and_says_where_the_next_begins(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PURGE_PAGE_JOBS", 2)
    monkeypatch.setattr(settings, "PURGED_AT_ONCE", 1)
    for _ in range(3):
        queue.finish_new()
    archive(queue, 1)
    first = purge(queue, age_seconds=-1.0)
    assert (ids(first), first.next_after) == ([1, 2], 2)
    second = purge(queue, age_seconds=-1.0, after=2)
    assert (ids(second), second.next_after) == ([3], None)
    refused = queue.actor.ask(messages.PurgeJobs(ids=[1, 2, 3])).refusal
    assert refused[1] == "ids: expected at most 2, got 3"


def test_a_request_may_have_enough_after_some_jobs(queue: Queue) -> None:
    for job_id in (1, 2, 3):
        queue.finish_new()
        write_output(queue, job_id)
    outcome = purge(queue, bytes_enough=150_000)
    assert (ids(outcome), outcome.next_after) == ([1, 2], None)


def test_whether_it_is_enough_needs_no_look_at_all_jobs_of_the_page(queue: Queue) -> None:
    class Jobs(list[tuple[int, int]]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("with 2,000 jobs that makes 2,000,000 steps")

    page = purging._Page(
        messages.PurgeJobs(bytes_enough=3), removal.JobFiles(queue.stage.places, lambda _: ())
    )
    page.jobs = Jobs()
    page.add(1, 2)
    assert not page.has_enough
    page.add(2, 1)
    assert page.has_enough


def test_the_files_of_few_jobs_go_in_one_turn(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REMOVED_AT_ONCE", 2)
    for _ in range(7):
        queue.finish_new()
    asker = queue.actor.ask(messages.PurgeJobs(age_seconds=-1.0))
    counts = [len(left(queue))]
    while queue.actor.take_slice():
        counts.append(len(left(queue)))
    assert len(asker.answer_as(messages.PurgeOutcome).jobs) == 7
    assert [count for count, _ in itertools.groupby(counts)] == [7, 5, 3, 1, 0]


def test_a_job_that_is_archived_while_it_is_purged_leaves_nothing(queue: Queue) -> None:
    queue.submitted(messages.JobSpec(ops=[large_input()]))
    queue.finish(1)
    write_output(queue, 1)
    purged = queue.actor.say(messages.PurgeJobs(ids=[1]))
    queue.actor.say(messages.ArchiveJob(id=1))
    queue.actor.end_turn()
    queue.actor.work_off()
    assert ids(purged.answer_as(messages.PurgeOutcome)) == [1]
    assert left(queue) == []


def test_an_archived_job_that_cannot_be_read_goes_by_its_id_and_not_by_its_age(
    queue: Queue,
) -> None:
    queue.finish_new()
    archive(queue, 1)
    (queue.stage.places.archive / "0/job-1").write_bytes(b"\0\0")
    assert ids(purge(queue, age_seconds=-1.0)) == []
    assert ids(purge(queue, 1)) == [1]


def test_a_kill_before_the_files_are_removed_leaves_that_to_the_next_start(
    queue: Queue,
) -> None:
    for _ in range(2):
        queue.finish_new()
    write_output(queue, 1)
    archive(queue, 1)
    with refusing("unlink"):
        queue.actor.ask(messages.PurgeJobs(ids=[1, 2]))
        queue.actor.work_off()
        assert "job-1-output" in left(queue)
        queue.restart()
    assert queue.statuses() == {}
    queue.restart()
    assert left(queue) == []
    assert queue.submitted(spec()) == [3]


def test_files_that_the_disk_keeps_go_as_soon_as_it_works_again(queue: Queue) -> None:
    queue.finish_new()
    with refusing("unlink"):
        assert ids(purge(queue, 1)) == [1]
        assert queue.actor.ask(messages.SubmitJobs(jobs=[spec()])).refusal[0] == "ReadOnlyError"
    queue.retry_disk()
    assert queue.submitted(spec()) == [2]
    assert "job-1" not in left(queue)


def test_a_purge_that_cannot_be_recorded_removes_nothing(queue: Queue) -> None:
    queue.finish_new()
    with refusing("fdatasync"):
        asker = queue.actor.ask(messages.PurgeJobs(ids=[1]))
        queue.actor.work_off()
    assert isinstance(errors.from_wire(*asker.refusal), errors.StorageError)
    assert left(queue) == ["job-1"]
    queue.retry_disk()
    assert ids(purge(queue, 1)) == [1]


def test_a_purged_job_does_not_come_back_with_an_older_segment(queue: Queue) -> None:
    """The disk may forget that a segment was deleted, until a flush has followed."""
    queue.finish_new()
    journal = queue.stage.places.journal
    ledger = queue.actor.component.store.ledger
    [older] = journal.iterdir()
    data = older.read_bytes()
    purge(queue, 1)
    assert ledger.retry()
    assert not older.exists()
    older.write_bytes(data)
    queue.restart()
    assert queue.statuses(archived=True) == {}
    queue.rest()


def test_the_journal_forgets_purged_jobs_when_no_segment_can_have_them(queue: Queue) -> None:
    queue.finish_new()
    purge(queue, 1)
    ledger = queue.actor.component.store.ledger
    purged = ledger.segments._purged
    sizes = []
    for _ in range(4):
        sizes.append(len(purged.ids))
        assert ledger.retry()
    assert sizes == [1, 1, 0, 0]


def test_a_large_file_is_freed_by_a_thread(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "LARGE_BYTES", 50_000)
    queue.finish_new()
    write_output(queue, 1)
    closed: list[int] = []
    monkeypatch.setattr(removal, "close", closed.extend)
    purge(queue, 1)
    assert closed == []
    queue.stage.run_timers()
    [descriptor] = closed
    assert os.fstat(descriptor).st_size == 100_000
    os.close(descriptor)


def test_the_retry_of_a_job_that_is_purged_at_once_goes_on_without_it(queue: Queue) -> None:
    queue.finish_new(JobStatus.ERROR)
    archive(queue, 1)
    queue.actor.say(messages.RetryJob(id=1, key="k"))
    queue.actor.say(messages.PurgeJobs(ids=[1]))
    queue.actor.work_off()
    assert queue.statuses(archived=True) == {2: "queued"}
