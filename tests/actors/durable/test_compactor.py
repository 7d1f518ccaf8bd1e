"""What the queue does while the compactor works in another thread."""

from __future__ import annotations

import errno
import os
from unittest import mock

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import StagedSteps
from tests.refusals import refusing

from ganger.storage import errors, settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

COUNT = 6


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compactor gets every file when the queue rests."""
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 0)


def file_numbers(queue: Queue) -> list[int]:
    return sorted(int(path.name.removeprefix("job-")) for path in queue.files())


def thread_of(queue: Queue) -> StagedSteps:
    return queue.stage.beside[-1]


def begin(queue: Queue, *, steps: int = 0) -> StagedSteps:
    """Jobs 1 to 6 are stored, and the compactor has written the files of the oldest ones."""
    assert queue.submitted(*[spec()] * COUNT) == list(range(1, COUNT + 1))
    queue.actor.be_quiet()
    thread = thread_of(queue)
    thread.take(steps)
    assert file_numbers(queue) == list(range(1, steps + 1))
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


def test_few_files_are_written_in_the_turn(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 2)
    queue.submitted(spec(), spec())
    queue.actor.be_quiet()
    assert (file_numbers(queue), queue.stage.beside) == ([1, 2], [])
    queue.submitted(spec(), spec(), spec())
    queue.actor.be_quiet()
    assert file_numbers(queue) == [1, 2]
    queue.let_threads_work()
    assert file_numbers(queue) == [1, 2, 3, 4, 5]


def test_the_queue_writes_files_itself_if_there_is_no_thread(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_thread = mock.Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(queue.stage.dispatcher, "when_idle", no_thread)
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


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_job_whose_process_is_being_made_when_a_segment_is_sealed_is_not_lost(
    queue: Queue, *, is_sealed: bool
) -> None:
    queue.submitted(spec(), spec())
    if is_sealed:
        queue.actor.be_quiet()
        queue.let_threads_work()
    queue.choose(1)
    queue.submitted(spec())
    queue.actor.be_quiet()
    queue.let_threads_work()
    assert len(list(queue.stage.places.journal.iterdir())) == 1
    # Its file is written without a flush now, and torn when the machine is lost.
    queue.hand_over(1)
    assert queue.file(1)["livelock"] is not None
    queue.kill_all()
    (queue.stage.places.queue / "job-1").write_bytes(b"")
    queue.restart()
    assert list(queue.statuses().items()) == [(1, "queued"), (2, "queued"), (3, "queued")]


def test_a_process_that_asks_for_a_job_after_the_disk_was_tried_again_is_refused(
    queue: Queue,
) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.actor.component.store.ledger.refuse_writes(errors.StorageError("no"))
    queue.retry_disk()
    queue.stage.sent.clear()
    queue.hand_over(1)
    assert queue.stage.take_one(messages.RefuseHandOver).job_id == 1
    [arrived] = queue.stage.take(messages.JobsArrived)
    assert [one.job.id for one in arrived.jobs] == [1]
    lock_file = queue.start(1)
    assert queue.file(1)["livelock"] == lock_file


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


def test_no_segment_goes_before_the_files_are_read_back(queue: Queue) -> None:
    thread = begin(queue)
    folder = queue.stage.places.journal
    before = sorted(folder.iterdir())
    assert len(before) == 2
    # All files are written, then flushed.
    thread.take(COUNT + 1)
    assert sorted(folder.iterdir()) == before
    (queue.stage.places.queue / "job-3").write_bytes(bytes(40))
    thread.run()
    assert sorted(folder.iterdir()) == before
    queue.let_threads_work()
    assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.retry_disk()
    assert queue.file(3)["id"] == 3
    assert queue.submitted(spec()) == [COUNT + 1]
    queue.crash_machine()
    assert list(queue.statuses()) == list(range(1, COUNT + 2))


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
    assert file_numbers(queue) == [1, 2]
    queue.retry_disk()
    assert file_numbers(queue) == list(range(1, COUNT + 1))
    assert queue.submitted(spec()) == [COUNT + 1]


def test_a_queue_whose_disk_refuses_stops_the_thread(queue: Queue) -> None:
    thread = begin(queue, steps=2)
    with refusing("fdatasync"):
        assert queue.submit(spec()).refusal[0] == "OutcomeUnknownError"
    thread.run()
    assert file_numbers(queue) == [1, 2]
    # Until it has come to its end, nothing is tried: of two flushes the wrong one might fail.
    queue.retry_disk()
    assert file_numbers(queue) == [1, 2]
    queue.let_threads_work()
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
    # A compaction of its own goes on, whatever the other one's thread says.
    queue.submitted(spec())
    queue.actor.be_quiet()
    ledger = queue.actor.component.store.ledger
    assert ledger.segments.is_compacting
    queue.actor.turn(messages.Compacted(incarnation=1))
    assert ledger.segments.is_compacting


def test_a_damaged_file_is_replaced_and_anything_else_put_aside(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    folder = queue.stage.places.queue
    (folder / "job-1").write_bytes(b"torn")
    (folder / "job-2").mkdir()
    queue.actor.be_quiet()
    queue.let_threads_work()
    assert queue.file(1)["id"] == 1
    assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.retry_disk()
    assert queue.file(2)["id"] == 2
    assert [path.name for path in queue.stage.places.quarantine.iterdir()] == ["job-2"]


def test_no_more_segments_are_sealed_than_may_be_before_the_first_has_gone(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SEALED_SEGMENTS_MAX", 2)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 100)
    folder = queue.stage.places.journal
    monkeypatch.setattr(settings, "FILES_AT_ONCE", 0)
    with mock.patch.object(StagedSteps, "hurry", autospec=True) as hurry:
        for count in (2, 3):
            queue.submitted(*[spec()] * 3)
            assert (len(list(folder.iterdir())), hurry.called) == (count, False)
        queue.submitted(*[spec()] * 3)
        queue.submitted(*[spec()] * 3)
        waits = [call.args[1] for call in hurry.call_args_list]
    assert len(list(folder.iterdir())) == 3
    # The longer the newest segment, the longer a turn waits.
    assert 0 < waits[0] < waits[1]
    while queue.actor.component.store.ledger.segments.is_compacting:
        queue.let_threads_work()
    assert file_numbers(queue) == list(range(1, 13))
    queue.crash_machine()
    assert list(queue.statuses()) == list(range(1, 13))


def test_a_turn_lets_the_compactor_work_while_the_disk_does(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(queue)
    with mock.patch.object(StagedSteps, "allow", autospec=True) as allow:
        queue.submitted(spec())
        assert not allow.called
        size = queue.actor.component.store.ledger._journal.size
        monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", size)
        queue.submitted(spec())
    assert [call.args[1] for call in allow.call_args_list] == [settings.FILES_AT_ONCE]


def test_a_cancellation_whose_file_the_disk_refuses_is_not_taken_for_what_the_thread_wrote(
    queue: Queue,
) -> None:
    thread = begin(queue, steps=1)
    ledger = queue.actor.component.store.ledger
    with refusing("write"):
        # The journal takes it, the file that the compactor has written does not.
        queue.actor.ask(messages.CancelJob(id=1))
    assert ledger.is_read_only
    assert queue.file(1)["ops"][0]["status"] == "queued"
    thread.run()
    queue.let_threads_work()
    # The thread reports the file with the state before; the newer one has still to be written.
    assert not ledger.segments.is_compacting
    assert ledger.files.serial(1) == 2
    queue.retry_disk()
    assert queue.file(1)["ops"][0]["status"] == "canceled"
    queue.restart()
    assert queue.statuses()[1] == "canceled"
