"""Rows of many jobs that differ: what a start leaves for later is there when it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from tests.actors.queue.queue_stage import DELAY, Queue, spec
from tests.actors.runtime.stage import Asker, Stage

from ganger.actors.store.announcements import Announcements
from ganger.actors.store.job_rows import Row
from ganger.storage import settings
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import JobSpec

SPECS = [
    *(JobSpec(ops=[DELAY | {"duration": float(number)}]) for number in range(4)),
    spec(reason=[("gnt:user", "rate-limit:3:moves", 1)]),
    spec((-1, ["success"])),
    JobSpec(ops=[DELAY | {"on_nodes": ["n1"]}, DELAY], priority=-3),
    JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": ["make", "all"]}]),
]
ALL = [*range(1, len(SPECS) + 1)]


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue with jobs that differ, all with files."""
    made = Queue(stage, monkeypatch)
    made.submitted(*SPECS)
    made.rest()
    return made


@pytest.fixture(autouse=True)
def _nothing_is_decoded_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DECODED_AT_START_MAX", 0)


def rows(queue: Queue) -> list[Row]:
    return list(queue.actor.component.store.table)


def restart(queue: Queue) -> None:
    """Start a successor, which has yet to make its report of all jobs."""
    with mock.patch.object(Announcements, "whole_queue"):
        queue.restart()
    queue.stage.sent.clear()


def send_rest(queue: Queue, after: int = 0) -> messages.JobsArrived:
    """The next page of the report of all jobs."""
    report = queue.actor.component.store.announcements.report
    queue.actor.notify(messages.ReportRest(report=report, after=after))
    return queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts that are decoded as a whole."""
    found: list[bytes] = []
    decode = jobs.decode_job

    def noted(body: bytes) -> jobs.Job:
        found.append(body)
        return decode(body)

    monkeypatch.setattr(jobs, "decode_job", noted)
    return found


def test_a_row_that_is_read_later_is_as_one_of_a_start_that_reads_all(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, decoded: list[bytes]
) -> None:
    decoded.clear()
    restart(queue)
    assert decoded == []
    later = rows(queue)
    assert [row.is_whole for row in later] == [False] * len(ALL)
    first = [(row.status, row.priority, row.serial, row.received, row.key) for row in later]
    for row in later:
        row.complete()
    assert len(decoded) == len(ALL)
    monkeypatch.setattr(settings, "DECODED_AT_START_MAX", 100)
    restart(queue)
    whole = rows(queue)
    assert [row.is_whole for row in whole] == [True] * len(ALL)
    for row in (*later, *whole):
        row.inputs = None
    assert later == whole
    assert first == [(row.status, row.priority, row.serial, row.received, row.key) for row in whole]


def test_what_the_journal_alone_has_is_read_from_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(stage, monkeypatch)
    queue.submitted(*SPECS)
    before = [row.as_pending() for row in rows(queue)]
    for limit in ("FILES_UNWRITTEN_MAX", "FILES_AT_ONCE"):
        monkeypatch.setattr(settings, limit, 1)
    restart(queue)
    assert len([*stage.places.queue.glob("job-*")]) < len(ALL)
    assert [row.is_whole for row in rows(queue)] == [False] * len(ALL)
    found = [row.as_pending() for row in rows(queue)]
    for one, other in zip(before, found, strict=True):
        assert (one.depends, one.limits, one.forecast) == (
            other.depends,
            other.limits,
            other.forecast,
        )


def test_a_change_of_a_job_that_was_not_read_yet_is_seen(queue: Queue) -> None:
    restart(queue)
    queue.actor.ask(messages.ChangeJobPriority(id=2, priority=-7))
    queue.actor.ask(messages.CancelJob(id=3))
    [second, third] = [row.as_summary() for row in rows(queue)[1:3]]
    assert (second.priority, second.summary) == (-7, "TEST_DELAY(1000000000 ns)")
    assert (third.status, third.summary) == (JobStatus.CANCELED, "TEST_DELAY(2000000000 ns)")
    sent = send_rest(queue)
    assert [one.job.id for one in sent.jobs] == [1, 2, *range(4, len(ALL) + 1)]
    assert sent.jobs[1].job.priority == -7


def test_a_listing_reads_what_it_shows_and_no_more(queue: Queue, decoded: list[bytes]) -> None:
    restart(queue)
    decoded.clear()
    found = queue.actor.ask(messages.ListJobs(ids=[2])).answer_as(messages.JobRows)
    assert [row.summary for row in found.rows] == ["TEST_DELAY(1000000000 ns)"]
    assert len(decoded) == 1
    assert [row.is_whole for row in rows(queue)] == [row.id == 2 for row in rows(queue)]


def test_a_page_of_the_report_ends_when_reading_has_taken_its_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart(queue)
    monkeypatch.setattr(settings, "REPORT_READING_SECONDS", 0.0)
    sent = send_rest(queue)
    ids = [[one.job.id for one in sent.jobs]]
    while sent.next_after is not None:
        sent = send_rest(queue, sent.next_after)
        ids.append([one.job.id for one in sent.jobs])
    # What was read before costs no time.
    assert ids == [[one] for one in ALL]
    assert [one.job.id for one in send_rest(queue).jobs] == ALL


@pytest.fixture
def damaged(queue: Queue) -> Iterator[Queue]:
    """The file of one job was damaged after the start."""
    restart(queue)
    path = queue.stage.places.queue / "job-6"
    body = path.read_bytes()
    path.write_bytes(body[:50])
    yield queue
    path.write_bytes(body)


def test_a_job_whose_text_cannot_be_read_is_named_and_does_not_start(damaged: Queue) -> None:
    queue = damaged
    for _ in range(2):
        sent = send_rest(queue)
        assert [one.job.id for one in sent.jobs] == [one for one in ALL if one != 6]
        assert sent.next_after is None
    state = queue.actor.ask(messages.ReadQueueState()).answer_as(messages.QueueReport)
    assert [name.partition(":")[0] for name in state.quarantined] == ["job-6"]
    assert queue.stage.log_stream.getvalue().count("job file is quarantined") == 1
    row = rows(queue)[5]
    assert (row.status, row.summary) == (JobStatus.WAITING, "")
    row.take_priority(4)
    assert not row.is_whole


def test_what_can_be_read_again_is_reported_again(damaged: Queue) -> None:
    queue = damaged
    send_rest(queue)
    path = queue.stage.places.queue / "job-6"
    path.write_bytes(jobs.encode_job(jobs.Job(id=6, ops=[jobs.OpcodeEntry(input=DELAY)])))
    queue.actor.notify(messages.ReportAllJobs())
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in sent.jobs] == ALL
    state = queue.actor.ask(messages.ReadQueueState()).answer_as(messages.QueueReport)
    assert state.quarantined == []


def test_a_queue_that_has_ended_reads_nothing_more(queue: Queue) -> None:
    restart(queue)
    [row, *_] = rows(queue)
    queue.actor.close()
    row.complete()
    assert not row.is_whole


# What is asked of all jobs waits until all were read.

ASKED: list[Any] = [messages.WatchJobs(), messages.ListDependencies()]


def answers(asker: Asker) -> int:
    return len(asker.answers)


@pytest.mark.parametrize("asked", ASKED)
def test_what_looks_at_all_jobs_waits_for_the_report(queue: Queue, asked: Any) -> None:
    restart(queue)
    asker = queue.actor.ask(asked)
    assert answers(asker) == 0
    send_rest(queue)
    queue.actor.end_turn()
    assert answers(asker) > 0
    assert answers(queue.actor.ask(asked)) > 0


@pytest.mark.parametrize("call", ["stop", "gone"])
def test_who_gives_up_meanwhile_watches_nothing(queue: Queue, call: str) -> None:
    restart(queue)
    other = queue.actor.say(messages.WatchJobs(), number=3, peer=b"p")
    asker = queue.actor.say(messages.WatchJobs(), number=4, peer=b"q")
    if call == "stop":
        queue.actor.say(messages.StopWatch(request_id=4), peer=b"q")
        queue.actor.say(messages.StopWatch(request_id=4), peer=b"p")
    else:
        queue.actor.notify(messages.PeerGone(peer=b"q"))
    send_rest(queue)
    queue.actor.end_turn()
    assert answers(asker) == 0
    assert answers(other) > 0
