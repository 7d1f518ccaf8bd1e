"""The files of many new jobs, which a thread creates, and what the queue does meanwhile."""

from __future__ import annotations

import errno
import os
from unittest import mock

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import StagedSteps
from tests.refusals import refusing

from ganger.storage import settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

COUNT = 6


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread gets every file that the queue has time for."""
    monkeypatch.setattr(settings, "BACKGROUND_FILES_MIN", 0)
    monkeypatch.setattr(settings, "FILES_AT_ONCE", 0)


def file_numbers(queue: Queue) -> list[int]:
    return sorted(int(path.name.removeprefix("job-")) for path in queue.files())


def thread_of(queue: Queue) -> StagedSteps:
    return queue.stage.beside[-1]


def begin(queue: Queue, *, steps: int = 0) -> StagedSteps:
    """Jobs 1 to 6 are stored, and a thread has created the files of the newest ones."""
    assert queue.submitted(*[spec()] * COUNT) == list(range(1, COUNT + 1))
    queue.actor.be_quiet()
    thread = thread_of(queue)
    thread.take(steps)
    assert file_numbers(queue) == list(range(COUNT - steps + 1, COUNT + 1))
    return thread


def test_a_thread_creates_the_files_and_then_nothing_is_left_to_do(queue: Queue) -> None:
    begin(queue, steps=2)
    runtime = queue.actor.component.runtime
    # The queue sleeps meanwhile.
    assert runtime.patience_seconds is None
    queue.rest()
    queue.let_threads_work()
    assert file_numbers(queue) == list(range(1, COUNT + 1))
    queue.rest()
    assert not queue.actor.component.store.ledger.has_unwritten
    assert queue.file_of("serial") == f"{COUNT}\n"
    assert {queue.file(job_id)["id"] for job_id in range(1, COUNT + 1)} == set(range(1, COUNT + 1))


def test_few_files_are_written_in_the_turn_unless_there_were_many_a_moment_ago(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BACKGROUND_FILES_MIN", 2)
    monkeypatch.setattr(settings, "FILES_AT_ONCE", 10)
    queue.submitted(spec(), spec())
    queue.actor.be_quiet()
    assert (file_numbers(queue), queue.stage.beside) == ([1, 2], [])
    queue.submitted(spec(), spec(), spec())
    queue.actor.be_quiet()
    queue.let_threads_work()
    assert len(file_numbers(queue)) == 5
    queue.submitted(spec())
    queue.actor.be_quiet()
    assert len(file_numbers(queue)) == 5
    queue.let_threads_work()
    assert len(file_numbers(queue)) == 6
    queue.stage.now += settings.BACKGROUND_FILES_SECONDS
    queue.submitted(spec())
    queue.actor.be_quiet()
    assert len(file_numbers(queue)) == 7


def test_the_queue_writes_files_itself_if_there_is_no_thread(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_thread = mock.Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(queue.stage.dispatcher, "when_idle", no_thread)
    monkeypatch.setattr(settings, "FILES_AT_ONCE", 10)
    queue.submitted(spec(), spec())
    queue.rest()
    assert file_numbers(queue) == [1, 2]


def test_a_job_that_starts_gets_its_file_from_the_queue(queue: Queue) -> None:
    thread = begin(queue, steps=1)
    # One whose file is there, one that the thread has not come to.
    lock_files = {job_id: queue.start(job_id) for job_id in (COUNT, 2)}
    thread.run()
    queue.let_threads_work()
    queue.rest()
    assert {job_id: queue.file(job_id)["livelock"] for job_id in lock_files} == lock_files
    queue.recorded(2, 10, RUNNING)
    queue.restart()
    assert queue.statuses()[2] == "running"


@pytest.mark.parametrize("job_id", [COUNT, 2])
def test_what_is_changed_meanwhile_is_in_the_file(queue: Queue, job_id: int) -> None:
    thread = begin(queue, steps=1)
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=-7))
    thread.run()
    queue.let_threads_work()
    queue.rest()
    assert queue.file(job_id)["ops"][0]["priority"] == -7
    assert file_numbers(queue) == list(range(1, COUNT + 1))


@pytest.mark.parametrize("job_id", [COUNT, 2])
def test_a_job_that_is_canceled_and_archived_meanwhile_does_not_come_back(
    queue: Queue, job_id: int
) -> None:
    thread = begin(queue, steps=1)
    queue.actor.ask(messages.CancelJob(id=job_id))
    assert queue.file(job_id)["ops"][0]["status"] == "canceled"
    queue.actor.ask(messages.ArchiveJob(id=job_id))
    thread.run()
    queue.let_threads_work()
    queue.rest()
    live = [path for path in queue.files() if path.parent == queue.stage.places.queue]
    assert f"job-{job_id}" not in {path.name for path in live}
    assert len(live) == COUNT - 1
    queue.restart()
    assert job_id not in queue.statuses()


def test_what_is_on_its_way_is_read_from_memory(queue: Queue) -> None:
    begin(queue, steps=1)
    for job_id in (COUNT, 1):
        assert queue.job(job_id).id == job_id


def test_no_segment_goes_before_the_thread_is_through(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = begin(queue, steps=2)
    folder = queue.stage.places.journal
    before = sorted(folder.iterdir())
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 1)
    queue.actor.ask(messages.ChangeJobPriority(id=1, priority=1))
    thread.run()
    # The files are there, and the queue does not know it yet.
    queue.actor.ask(messages.ChangeJobPriority(id=2, priority=1))
    assert sorted(folder.iterdir()) == before
    queue.let_threads_work()
    queue.stage.run_timers()
    assert min(folder.iterdir()) > before[0]
    queue.crash_machine()
    assert list(queue.statuses()) == list(range(1, COUNT + 1))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_thread_that_the_disk_refuses_makes_the_queue_refuse_and_try_again(
    queue: Queue, number: int
) -> None:
    thread = begin(queue, steps=2)
    with refusing("open", number=number):
        thread.run()
        queue.let_threads_work()
        assert queue.actor.component.store.ledger.is_read_only
        code, text = queue.submit(spec()).refusal
        assert (code, os.strerror(number) in text) == ("ReadOnlyError", True)
    log = queue.stage.log_stream.getvalue()
    assert log.count("the disk refuses writes") == 1
    assert file_numbers(queue) == [COUNT - 1, COUNT]
    queue.retry_disk()
    assert file_numbers(queue) == list(range(1, COUNT + 1))
    assert queue.submitted(spec()) == [COUNT + 1]


def test_a_queue_whose_disk_refuses_stops_the_thread(queue: Queue) -> None:
    thread = begin(queue, steps=2)
    with refusing("fdatasync"):
        assert queue.submit(spec()).refusal[0] == "OutcomeUnknownError"
    thread.run()
    assert file_numbers(queue) == [COUNT - 1, COUNT]
    # What it had created counts, and what it had not is written by the queue.
    queue.retry_disk()
    assert file_numbers(queue) == list(range(1, COUNT + 1))
    queue.let_threads_work()
    queue.submitted(spec())
    queue.rest()
    # The refused job had a number, too.
    assert file_numbers(queue) == [*range(1, COUNT + 1), COUNT + 2]


def test_an_orderly_end_writes_everything_and_the_thread_writes_nothing_more(
    queue: Queue,
) -> None:
    thread = begin(queue, steps=2)
    queue.actor.close()
    assert file_numbers(queue) == list(range(1, COUNT + 1))
    for path in queue.files():
        path.unlink()
    thread.run()
    assert file_numbers(queue) == []


def test_a_thread_of_a_queue_that_was_replaced_disturbs_its_successor_by_nothing(
    queue: Queue,
) -> None:
    thread = begin(queue, steps=2)
    with mock.patch.object(
        queue.actor.component.store.announcements.ages, "store", side_effect=OSError("no room")
    ):
        queue.actor.close()
    queue.actor = queue.stage.start(type(queue.actor.component), 2)
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.ask(messages.ArchiveJob(id=1))
    thread.run()
    queue.let_threads_work()
    live = [path for path in queue.files() if path.parent == queue.stage.places.queue]
    assert "job-1" not in {path.name for path in live}
    assert not queue.actor.component.store.ledger.is_read_only
    # A batch of its own goes on, whatever the other one's thread says.
    queue.submitted(spec())
    queue.actor.be_quiet()
    assert queue.actor.component.runtime.patience_seconds is None
    queue.actor.turn(messages.FilesWritten(incarnation=1, batch=1))
    assert queue.actor.component.runtime.patience_seconds is None


def test_files_that_exist_are_replaced_by_the_queue(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    old = queue.stage.places.queue / "job-1"
    old.write_bytes(b"left by an older version")
    queue.actor.be_quiet()
    queue.let_threads_work()
    assert old.read_bytes() == b"left by an older version"
    assert queue.actor.component.store.ledger.has_unwritten
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "FILES_AT_ONCE", 10)
        queue.rest()
    assert queue.file(1)["id"] == 1
    assert not queue.actor.component.store.ledger.has_unwritten


def test_a_queue_that_is_never_quiet_lets_the_thread_create_as_many_as_are_due(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 5)
    queue.submitted(*[spec()] * 20)
    size = queue.actor.component.store.ledger._journal.size
    monkeypatch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 1)
    for used, expected in ((0.4, range(1)), (0.9, range(1, 10))):
        monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", size / used)
        with mock.patch.object(StagedSteps, "hurry"):
            queue.submitted(spec())
            queue.submitted(spec())
        assert len(file_numbers(queue)) in expected


def test_near_the_limit_of_the_journal_a_turn_waits_for_the_thread(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(*[spec()] * 20)
    size = queue.actor.component.store.ledger._journal.size
    monkeypatch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 1)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", size / 0.9)
    with mock.patch.object(StagedSteps, "hurry", autospec=True) as hurry:
        queue.submitted(spec())
    (wait,) = (one.args[1] for one in hurry.call_args_list)
    assert 0 < wait < settings.FILES_SLICE_SECONDS


def test_a_journal_that_grows_on_and_on_makes_the_queue_wait_for_the_thread(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(*[spec()] * 20)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 1_000)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 2)
    queue.actor.end_turn()
    assert file_numbers(queue) == list(range(1, 21))


def test_a_cancellation_whose_file_the_disk_refuses_is_not_taken_for_what_the_thread_wrote(
    queue: Queue,
) -> None:
    thread = begin(queue, steps=1)
    files = queue.actor.component.store.ledger.files
    with refusing("write"):
        # The journal takes it, the file that the thread has created does not.
        queue.actor.ask(messages.CancelJob(id=COUNT))
    assert queue.actor.component.store.ledger.is_read_only
    assert queue.file(COUNT)["ops"][0]["status"] == "queued"
    thread.run()
    queue.let_threads_work()
    # The thread reports the file with the state before; the newer one has still to be written.
    assert not files.has_thread
    assert files.serial(COUNT) == 2
    queue.retry_disk()
    assert queue.file(COUNT)["ops"][0]["status"] == "canceled"
    queue.restart()
    assert queue.statuses()[COUNT] == "canceled"
