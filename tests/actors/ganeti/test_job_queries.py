"""Queries for jobs: from memory, from files and from the archive, a page at a time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Stage

from ganger.actors.ganeti import job_queries
from ganger.storage import settings
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

LEAN = ["id", "status", "summary", "priority", "received_ts", "start_ts", "end_ts"]


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()


def asked(queue: Queue, fields: list[str], raw_filter: Any = None) -> list[list[Any]]:
    """The values of the whole answer."""
    request = messages.QueryJobs(fields, raw_filter)
    found = []
    while True:
        answer = queue.actor.ask(request).answer_as(messages.QueryAnswered)
        found += json.loads(answer.rows)
        if answer.next_after is None:
            return [[value for _, value in row] for row in found]
        request = messages.QueryJobs(fields, raw_filter, answer.next_after)


def test_rows_in_memory_say_what_the_files_say(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec(ops=2), spec())
    queue.finish(1)
    queue.start(2)
    queue.recorded(2, 10, JobStatus.RUNNING, JobStatus.QUEUED)
    queue.rest()
    lean = asked(queue, LEAN)
    assert [row[:3] for row in lean] == [
        [1, "success", ["TEST_DELAY(1500000000 ns)"]],
        [2, "running", ["TEST_DELAY(1500000000 ns)"] * 2],
        [3, "queued", ["TEST_DELAY(1500000000 ns)"]],
    ]
    monkeypatch.setattr("ganger.actors.ganeti.job_queries._RowValues", lambda _row: {})
    assert asked(queue, LEAN) == lean


def test_no_file_is_read_for_what_is_in_memory(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec())
    monkeypatch.setattr(queue.actor.component.store.reader, "present", None)
    assert [row[0] for row in asked(queue, LEAN, [">", "id", 1])] == [2]


def test_a_summary_with_a_comma_is_that_of_one_opcode_or_of_several(queue: Queue) -> None:
    command = {"OP_ID": "OP_EXEC", "argv": ["echo", "a, b"]}
    queue.submitted(messages.JobSpec(ops=[command]), messages.JobSpec(ops=[command, command]))
    assert asked(queue, ["summary"]) == [[["EXEC(echo a, b)"]], [["EXEC(echo a, b)"] * 2]]


@pytest.mark.parametrize("microseconds", [0, 1, 499_999, 999_999])
def test_times_in_memory_keep_microseconds(queue: Queue, microseconds: int) -> None:
    queue.submitted(spec())
    stamp = (1_795_226_303, microseconds)
    [row] = queue.actor.component.store.table
    row.received = jobs.seconds(stamp)
    assert asked(queue, ["received_ts"]) == [[list(stamp)]]


def test_whole_jobs_are_shown_as_they_are_now(queue: Queue) -> None:
    [job_id] = queue.submitted(spec())
    queue.start_running(job_id)
    entry = (1, (5, 6), "message", "half done")
    queue.actor.turn(messages.JobLogAppended(job_id=job_id, op_index=0, entries=[entry]))
    assert asked(queue, ["opstatus", "oplog"]) == [
        [["running"], [[[1, [5, 6], "message", "half done"]]]]
    ]


def archived_and_live(queue: Queue) -> None:
    """Jobs 1 and 3 are archived."""
    queue.submitted(spec(), spec(), spec(), spec())
    for job_id in (1, 3):
        queue.finish(job_id)
        queue.actor.ask(messages.ArchiveJob(id=job_id))


def test_the_archive_is_listed_if_the_query_has_that_field(queue: Queue) -> None:
    archived_and_live(queue)
    # As recorded from Ganeti: the time of the end alone does not bring it.
    assert asked(queue, ["id", "end_ts"]) == [[2, None], [4, None]]
    assert asked(queue, ["id", "archived"]) == [[1, True], [2, False], [3, True], [4, False]]
    assert asked(queue, ["id"], ["?", "archived"]) == [[1], [3]]


def test_named_jobs_are_found_in_the_archive_too(queue: Queue) -> None:
    archived_and_live(queue)
    wanted = ["|", ["=", "id", 3], ["=", "id", "4"], ["=", "id", 99], ["=", "id", 3]]
    assert asked(queue, ["id", "status", "archived"], wanted) == [
        [3, "success", True],
        [4, "queued", False],
        [99, None, None],
    ]


def test_named_jobs_of_earlier_pages_are_not_read_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived_and_live(queue)
    monkeypatch.setattr(settings, "QUERY_PAGE_BYTES_MAX", 1)
    read: list[int] = []
    archived = queue.actor.component.store.reader.archived

    def noted(job_id: int) -> jobs.Job:
        read.append(job_id)
        return archived(job_id)

    monkeypatch.setattr(queue.actor.component.store.reader, "archived", noted)
    wanted = ["|", *(["=", "id", name] for name in (3, "1", 2, "3", 4, 1))]
    assert [row[0] for row in asked(queue, ["id"], wanted)] == [3, 1, 2, 4]
    # The first item of each page was looked at when the page before ended.
    assert read == [3, 1, 1]


def test_classic_rows_have_bare_values(queue: Queue) -> None:
    archived_and_live(queue)
    wanted = ["|", ["=", "id", 4], ["=", "id", 99], ["=", "id", 3], ["=", "id", 4]]
    request = messages.QueryJobs(["id", "status", "archived"], wanted, is_classic=True)
    answer = queue.actor.ask(request).answer_as(messages.QueryAnswered)
    assert json.loads(answer.rows) == [[4, "queued", False], [99, None, None], [3, "success", True]]
    unknown = messages.QueryJobs(["id", "a", "b"], is_classic=True)
    assert queue.actor.ask(unknown).refusal == (
        "BadRequestError",
        "Unknown output fields selected: a, b",
    )


def test_what_the_index_of_the_archive_has_is_read_from_no_file(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived_and_live(queue)
    both = [{"OP_ID": "OP_TEST_DELAY", "duration": 1.0}] * 2
    [several] = queue.submitted(messages.JobSpec(ops=both))
    queue.actor.ask(messages.CancelJob(id=several))
    queue.actor.ask(messages.ArchiveJob(id=several))
    store = queue.actor.component.store
    named = [["=", "id", job_id] for job_id in (1, 3, several)]
    read: list[int] = []
    archived = store.reader.archived

    def noted(job_id: int) -> jobs.Job:
        read.append(job_id)
        return archived(job_id)

    monkeypatch.setattr(store.reader, "archived", noted)
    fields = sorted(job_queries._FROM_SUMMARIES)
    assert {"status", "name", "outcome", "received_ts", "user"} < set(fields)
    in_file = asked(queue, ["id", *fields], ["|", *named])
    assert read == [1, 3, several]
    read.clear()
    assert asked(queue, ["id", *fields], ["?", "archived"]) == in_file
    assert read == [several], "the summary of the index is that of no single opcode"
    read.clear()
    assert asked(queue, ["id", "opstatus"], ["?", "archived"])[0] == [1, ["success"]]
    assert read


def damage(queue: Queue, job_id: int) -> None:
    """The journal does not have the job any more, so nothing makes up for its file."""
    assert queue.actor.component.store.ledger.retry()
    places = queue.stage.places
    for folder in (places.queue, places.archive / "0"):
        if (path := folder / f"job-{job_id}").exists():
            path.write_bytes(b"{")


def test_a_damaged_archived_job_is_left_out_of_listings_and_named_otherwise(queue: Queue) -> None:
    archived_and_live(queue)
    damage(queue, 1)
    assert [row[0] for row in asked(queue, ["id", "archived", "opstatus"])] == [2, 3, 4]
    name, text = queue.actor.ask(messages.QueryJobs(["status"], ["=", "id", 1])).refusal
    assert name == "StorageError"
    assert text.startswith("job-1 in the archive: ")


def test_a_damaged_live_job_is_named(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.finish(2)
    damage(queue, 2)
    name, text = queue.actor.ask(messages.QueryJobs(["ops"], ["=", "id", 2])).refusal
    assert (name, text.partition(" ")[0]) == ("StorageError", "job-2:")


def test_a_page_ends_when_its_time_is_up(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    archived_and_live(queue)
    ticks = itertools.count(0, settings.QUERY_SLICE_SECONDS)
    monkeypatch.setattr(queue.actor.component.runtime, "clock", lambda: next(ticks))
    first = queue.actor.ask(messages.QueryJobs(["id", "archived"]))
    assert first.answer_as(messages.QueryAnswered).next_after == "2"
    assert [row[0] for row in asked(queue, ["id", "archived"])] == [1, 2, 3, 4]
    assert asked(queue, ["id"], ["=", "id", 4]) == [[4]]


def test_a_wrong_query_is_refused_and_says_why(queue: Queue) -> None:
    queue.submitted(spec())
    for query, refusal in (
        (
            messages.QueryJobs(["id"], ["==", "nosuch", 1]),
            ("ParameterError", "Can't find field named 'nosuch'"),
        ),
        (
            messages.QueryJobs(["id"], ["=", "id", "x"]),
            ("BadRequestError", "Invalid job ID 'x'"),
        ),
        (
            messages.QueryJobs(["id"], None, "x"),
            ("BadRequestError", "after: expected what an earlier page ended with"),
        ),
    ):
        assert queue.actor.ask(query).refusal == refusal


def test_unknown_fields_have_no_values(queue: Queue) -> None:
    queue.submitted(spec())
    answer = queue.actor.ask(messages.QueryJobs(["id", "bogus"]))
    assert json.loads(answer.answer_as(messages.QueryAnswered).rows) == [[[0, 1], [1, None]]]


def test_a_job_that_waits_for_others_is_waiting_as_in_every_listing(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, [JobStatus.SUCCESS])))
    assert asked(queue, ["status"]) == [["queued"], ["waiting"]]
    assert asked(queue, ["opstatus"]) == [[["queued"]], [["waiting"]]]


def test_a_job_that_ended_without_a_process_has_no_priority_any_more(queue: Queue) -> None:
    """As its file says, which a later start reads."""
    queue.submitted(spec(priority=-5))
    queue.actor.ask(messages.CancelJob(id=1))
    assert asked(queue, ["status", "priority"]) == [["canceled", 0]]
    queue.restart(2)
    assert asked(queue, ["status", "priority"]) == [["canceled", 0]]
