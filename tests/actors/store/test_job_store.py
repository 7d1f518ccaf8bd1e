"""The store of a queue on a stage: job files, ends without a process, a disk that refuses."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from typing import Any
from unittest import mock

import msgspec
import pytest
from tests.actors.queue.queue_rules import REJECTION, take_rules
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Timer
from tests.refusals import refusing, refusing_flushes

from ganger.storage import errors, settings
from ganger.storage.disk import free_memory
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files import inodes
from ganger.transport import messages
from ganger.transport.messages import SubmitJobs

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


def retries(queue: Queue) -> list[Timer]:
    """The alarms of a queue whose disk refuses; another one writes the ages of jobs."""
    return [one for one in queue.stage.timers if one.seconds != settings.AGES_WRITE_SECONDS]


def file_numbers(queue: Queue) -> list[int]:
    return sorted(int(path.name.removeprefix("job-")) for path in queue.files())


def test_the_files_of_pending_jobs_follow_some_at_a_time_when_nothing_else_comes(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the disk is: the number of files is the limit here, not the time.
    monkeypatch.setattr(settings, "FILES_SLICE_SECONDS", math.inf)
    once = settings.FILES_AT_ONCE
    last = 2 * once + 1
    queue.submitted(*[spec()] * last)
    runtime = queue.actor.component.runtime
    # The newest go first: the oldest may start soon, and are written then.
    for written in (0, once, 2 * once):
        assert file_numbers(queue) == list(range(last - written + 1, last + 1))
        assert runtime.patience_seconds == settings.FILES_REST_SECONDS
        queue.actor.be_quiet()
    assert file_numbers(queue) == list(range(1, last + 1))
    assert runtime.patience_seconds is None
    assert queue.file_of("serial") == f"{last}\n"


def test_the_memory_of_many_texts_goes_back_to_the_system_once_all_have_files(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back = mock.Mock()
    monkeypatch.setattr(free_memory, "give_back", given_back)
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 3)
    for count, times in ((3, 0), (4, 1), (3, 1), (5, 2)):
        queue.submitted(*[spec()] * count)
        queue.rest()
        assert given_back.call_count == times


def test_the_memory_of_a_large_question_goes_back_to_the_system_when_nothing_else_comes(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back = mock.Mock()
    monkeypatch.setattr(free_memory, "give_back", given_back)
    monkeypatch.setattr(settings, "TRIED_JOBS", 2)
    monkeypatch.setattr(settings, "REPORT_JOBS", 2)
    queue.submitted(spec())
    for count in (0, 1):
        queue.submitted(spec())
        for question in (messages.Simulate(), messages.TestFilters(), messages.ReportAllJobs()):
            queue.rest()
            queue.actor.ask(question)
            runtime = queue.actor.component.runtime
            assert runtime.patience_seconds == (settings.MEMORY_REST_SECONDS if count else None)
            queue.rest()
            assert given_back.call_count == count
            given_back.reset_mock()


def test_a_job_that_is_handed_over_has_its_file_at_once_and_the_others_wait(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.choose(1)
    assert file_numbers(queue) == []
    lock_file = queue.greet(1)
    assert file_numbers(queue) == [1]
    queue.rest()
    assert file_numbers(queue) == [1, 2]
    assert queue.file(1)["livelock"] == lock_file


def test_a_file_that_is_written_while_the_process_is_made_harms_nothing(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.rest()
    assert queue.file(1)["livelock"] is None
    assert queue.file(1)["livelock"] != queue.greet(1) == queue.file(1)["livelock"]


def test_a_quiet_queue_makes_spare_files_until_a_message_comes(queue: Queue) -> None:
    def spares() -> int:
        names = os.listdir(queue.stage.places.queue)
        return sum(name.startswith(inodes.PREFIX) for name in names)

    queue.submitted(spec())
    before = spares()
    queue.stage.dispatcher.has_work = True
    queue.actor.component.quiet()
    assert spares() == before
    assert queue.actor.component.runtime.patience_seconds == settings.FILES_REST_SECONDS
    queue.stage.dispatcher.has_work = False
    queue.rest()
    assert spares() == before + settings.SPARES_AHEAD
    # They are there for the job's file, and for the two that its process may write.
    queue.choose(1)
    queue.greet(1)
    spared = queue.channels[1].answer_as(messages.JobGo).spares
    assert all(os.path.exists(path) for path in spared)


def test_files_wait_for_the_disk_and_not_for_ever(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    full = errors.StorageError("job-2: no space left")
    with mock.patch.object(
        queue.actor.component.store.ledger.directory, "write", mock.Mock(side_effect=full)
    ):
        queue.actor.be_quiet()
        assert queue.actor.component.runtime.patience_seconds is None
        assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.retry_disk()
    assert file_numbers(queue) == [1, 2]
    assert queue.submitted(spec()) == [3]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_refused_flush_refuses_and_the_queue_lives_on(queue: Queue, number: int) -> None:
    queue.submitted(spec(), spec())
    queue.start(2)
    with refusing("fdatasync", number=number):
        refused = [
            queue.actor.say(SubmitJobs(jobs=[spec()])),
            queue.actor.say(SubmitJobs(jobs=[spec()], key="k")),
            queue.actor.say(SubmitJobs(jobs=[spec()], key="k")),
            queue.actor.say(messages.CancelJob(id=1)),
            queue.record(2, 10, RUNNING),
        ]
        queue.actor.end_turn()
        for asker in refused:
            assert asker.refusal[0] == "OutcomeUnknownError"
            assert os.strerror(number) in asker.refusal[1]
        assert "the same key" not in refused[0].refusal[1]
        assert refused[1].refusal == refused[2].refusal
        assert refused[1].refusal[1].endswith("; the same key makes a repetition safe")
        # A repetition is not stored either, but what it repeats may be.
        assert queue.submit(spec(), key="k").refusal == refused[1].refusal
        assert queue.submit(spec(), key="other").refusal[0] == "ReadOnlyError"
        # Now without trying; what only reads goes on.
        assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
        assert queue.actor.ask(messages.ChangeJobPriority(id=1, priority=1)).refusal[0] == (
            "ReadOnlyError"
        )
        assert queue.statuses() == {1: "queued", 2: "queued"}
        [timer] = retries(queue)
        timer.run_out()
        [retried] = queue.stage.take(messages.DiskRetried)
        queue.actor.notify(retried)
        assert len(retries(queue)) == 2
    queue.stage.sent.clear()
    queue.retry_disk()
    assert len(retries(queue)) == 2
    assert queue.stage.take_one(messages.JobsArrived).is_all
    ids = queue.submitted(spec(), key="k")
    queue.crash_machine()
    assert set(queue.statuses()) == {1, 2, *ids}


def test_new_jobs_are_announced_before_the_flush_and_withdrawn_if_it_fails(queue: Queue) -> None:
    queue.stage.sent.clear()
    with refusing("fdatasync"):
        assert queue.submit(spec(), spec()).refusal[0] == "OutcomeUnknownError"
    sent = [type(message) for to, message in queue.stage.sent if to == "filter_evaluator"]
    assert sent == [messages.JobsArrived, messages.JobsFinished]
    arrived = [one.job.id for one in queue.stage.take_one(messages.JobsArrived).jobs]
    finished = [job_id for job_id, _ in queue.stage.take_one(messages.JobsFinished).jobs]
    assert arrived == finished
    # What the scheduler has chosen meanwhile gives its run slots back.
    queue.choose(*arrived)
    reported = queue.stage.take_one(messages.StatusesReported)
    assert reported.jobs == [(job_id, None) for job_id in arrived]


def test_new_jobs_are_announced_before_they_are_withdrawn_in_the_middle_of_a_turn(
    queue: Queue,
) -> None:
    submission = queue.actor.say(messages.SubmitJobs(jobs=[spec()]))
    queue.stage.sent.clear()
    with refusing("fdatasync"):
        queue.actor.notify(messages.DiskRetried())
    assert submission.refusal[0] == "OutcomeUnknownError"
    sent = [type(message) for to, message in queue.stage.sent if to == "filter_evaluator"]
    assert sent[:2] == [messages.JobsArrived, messages.JobsFinished]


def test_a_flush_of_a_replaced_queue_that_failed_makes_this_one_read_only(queue: Queue) -> None:
    incarnation = queue.actor.component.runtime.incarnation - 1
    queue.actor.notify(messages.Compacted(incarnation=incarnation))
    assert not queue.actor.component.store.ledger.is_read_only
    queue.actor.notify(messages.Compacted(incarnation=incarnation, error="Input/output error"))
    assert queue.submit(spec()).refusal[0] == "ReadOnlyError"


@pytest.mark.parametrize("problem", [None, "the disk refuses", "no thread"])
def test_a_thread_makes_the_next_segment_of_the_journal(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, problem: str | None
) -> None:
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 2_000)
    folder = queue.actor.component.places.journal
    first = sorted(folder.iterdir())
    no_thread = mock.Mock(side_effect=RuntimeError("can't start new thread"))
    with monkeypatch.context() as patch:
        if problem == "no thread":
            patch.setattr(queue.stage.dispatcher, "in_thread", no_thread)
        queue.submitted(*[spec()] * 3)
    with refusing("fsync") if problem == "the disk refuses" else contextlib.nullcontext():
        queue.stage.run_timers()
    for said in queue.stage.take(messages.SegmentMade):
        queue.actor.notify(said)
    assert len(list(folder.iterdir())) == len(first) + (problem is None)
    is_logged = "no segment of the journal is made ahead" in queue.stage.log_stream.getvalue()
    assert is_logged == (problem is not None)
    # In any case the queue goes on, in a segment that it makes itself if need be.
    for _ in range(5):
        queue.submitted(*[spec()] * 3)
        queue.rest()
    assert max(folder.iterdir()) > first[-1]
    assert not queue.actor.component.store.ledger.is_read_only


def leave(queue: Queue, job_id: int, serial: int) -> None:
    """The job's process leaves its final state to the journal, writes it, and is gone."""
    body = queue.body_of_process(job_id, serial, SUCCESS)
    queue.actor.notify(queue.state(job_id, serial, SUCCESS, body=body))
    queue.write_as_process(job_id, body)
    queue.end_process(job_id, has_left=True)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_end_that_was_left_to_the_journal_is_announced_when_the_disk_has_it(
    queue: Queue, *, is_restarted: bool
) -> None:
    queue.submitted(spec())
    queue.submitted(spec((1, ["success"])))
    queue.start_running(1)
    with refusing("fdatasync"):
        leave(queue, 1, 11)
        queue.actor.end_turn()
        if is_restarted:
            queue.restart()
            queue.actor.end_turn()
        assert queue.statuses() == {1: "running", 2: "waiting"}
        assert queue.job(1).status is RUNNING
        # Its process is known to be gone: the queue does not look for what it left running.
        queue.stage.sent.clear()
        queue.actor.notify(messages.ReportRunning())
        assert queue.stage.take_one(messages.AdoptJobs).jobs == []
        assert (1, SUCCESS) not in [
            ended for sent in queue.stage.take(messages.JobsFinished) for ended in sent.jobs
        ]
    queue.retry_disk()
    assert queue.statuses()[1] == "success"
    assert queue.job(1).status is SUCCESS
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]
    queue.crash_machine()
    assert queue.statuses()[1] == "success"


def test_an_end_that_a_start_may_not_announce_yet_stays_in_the_file(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start writes the files of many jobs later, and anew, as a flush may have failed."""
    queue.run_new()
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", -1)
    with refusing("fdatasync"):
        leave(queue, 1, 11)
        queue.actor.end_turn()
    queue.actor.component.store.ledger._journal.leave_doubt()
    with refusing("fdatasync"):
        queue.restart()
        queue.actor.end_turn()
        assert queue.statuses() == {1: "running"}
    queue.retry_disk()
    assert queue.statuses() == {1: "success"}
    assert queue.file(1)["ops"][0]["status"] == "success"
    queue.crash_machine()
    assert queue.statuses() == {1: "success"}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("end", ["left to the journal", "killed"])
def test_a_job_whose_end_cannot_be_written_holds_its_run_slot_until_the_disk_works(
    queue: Queue, end: str, *, is_restarted: bool
) -> None:
    queue.run_new()
    with refusing("fdatasync"):
        if end == "killed":
            queue.submit(spec())
            queue.end_process(1, has_left=False)
        else:
            leave(queue, 1, 11)
        queue.actor.end_turn()
        if is_restarted:
            queue.restart()
            queue.actor.end_turn()
        queue.stage.sent.clear()
        queue.actor.notify(messages.ReportAllJobs())
        everything = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
        assert (everything.is_all, everything.jobs) == (True, [])
        assert [one.job.id for one in everything.running] == [1]
    queue.stage.sent.clear()
    queue.retry_disk()
    # Its slot is free once the scheduler knows the end, which comes after the last report.
    sent = [type(message) for to, message in queue.stage.sent if to == "filter_evaluator"]
    assert sent[-2:] == [messages.JobsArrived, messages.JobsFinished]
    [(job_id, _)] = queue.stage.take_one(messages.JobsFinished).jobs
    assert job_id == 1


def test_an_end_that_its_process_has_flushed_is_announced_though_the_disk_refuses(
    queue: Queue,
) -> None:
    queue.run_new()
    job = jobs.decode_job(queue.body_of_process(1, 11, SUCCESS))
    job.ops[0].result = "x" * settings.JOURNALED_STATE_BYTES_MAX
    queue.write_as_process(1, jobs.encode_job(job))
    queue.kill_all()
    with refusing("fdatasync"):
        queue.restart()
        queue.actor.end_turn()
        assert queue.statuses() == {1: "success"}


def test_a_job_whose_end_could_not_be_written_is_done_with_when_it_can(queue: Queue) -> None:
    queue.start_new()
    queue.recorded(1, 10, SUCCESS)
    with refusing("ftruncate", "rename"):
        queue.lose_process(1)
    asker = queue.actor.ask(messages.ArchiveJob(id=1))
    queue.retry_disk()
    assert asker.answer_as(messages.ArchiveOutcome).archived == [1]


@pytest.mark.parametrize("is_alive", [False, True])
def test_an_end_found_at_the_start_is_journaled_before_it_is_announced(
    queue: Queue, *, is_alive: bool
) -> None:
    queue.run_new()
    queue.write_as_process(1, queue.body_of_process(1, 11, SUCCESS))
    if not is_alive:
        queue.kill_all()
    with refusing_flushes():
        queue.restart()
        queue.actor.end_turn()
        assert queue.statuses() == {1: "running"}
    queue.retry_disk()
    assert queue.statuses() == {1: "running" if is_alive else "success"}
    if is_alive:
        queue.lose_process(1)
    assert queue.statuses() == {1: "success"}
    queue.crash_machine()
    assert queue.statuses() == {1: "success"}


def test_the_queue_reports_that_it_is_read_only(queue: Queue) -> None:
    with refusing("fdatasync"):
        queue.submit(spec())
        asker = queue.actor.say(messages.ReadQueueState())
    assert asker.answer_as(messages.QueueReport).is_read_only


def test_a_job_file_that_cannot_be_written_makes_the_queue_try_again(queue: Queue) -> None:
    queue.submitted(spec())
    with refusing("ftruncate"):
        queue.choose(1)
        queue.hand_over(1)
        # Its lock file's name could not be written: the child may not go on.
        assert queue.channels[1].answers == []
        assert len(queue.stage.take(messages.RefuseHandOver)) == 1
        assert len(retries(queue)) == 1
    queue.end_process(1, has_left=False)
    queue.retry_disk()
    everything = queue.stage.take(messages.JobsArrived)[-1]
    assert [one.job.id for one in everything.jobs] == [1]
    queue.start(1)


def test_jobs_chosen_while_the_disk_refuses_start_when_it_works(queue: Queue) -> None:
    queue.submitted(spec())
    with refusing("fdatasync"):
        queue.submit(spec())
        queue.choose(1)
        assert queue.stage.take(messages.StartJobs) == []
    queue.stage.sent.clear()
    queue.actor.notify(messages.DiskRetried())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert ([one.job.id for one in everything.jobs], everything.running) == ([1], [])


def test_a_job_that_died_while_the_disk_refused_is_never_started_again(queue: Queue) -> None:
    queue.run_new()
    with refusing("fdatasync"):
        queue.submit(spec())
        queue.lose_process(1)
        assert queue.statuses() == {1: "running"}
    queue.stage.sent.clear()
    queue.retry_disk()
    assert queue.statuses() == {1: "error"}
    for arrived in queue.stage.take(messages.JobsArrived):
        assert arrived.jobs == []
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, ERROR)]


def test_a_queue_that_boots_on_a_full_disk_ends_the_dead_later(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    queue.kill_all()
    with refusing("fdatasync", "ftruncate"):
        queue.restart()
        assert queue.statuses() == {1: "running", 2: "queued"}
        assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.retry_disk()
    assert queue.statuses() == {1: "error", 2: "queued"}


def test_a_file_system_that_cannot_be_flushed_is_tried_less_and_less_often(queue: Queue) -> None:
    with refusing_flushes():
        queue.actor.component.store.ledger.retry()
        queue.actor.end_turn()
        for _ in range(5):
            queue.actor.notify(messages.DiskRetried())
    waits = [timer.seconds / settings.DISK_RETRY_SECONDS for timer in retries(queue)]
    assert waits == [1, 2, 4, 8, 8, 8]
    queue.retry_disk()
    with refusing("fdatasync"):
        queue.submit(spec())
    assert [timer.seconds for timer in retries(queue)[6:]] == [settings.DISK_RETRY_SECONDS]


def test_an_id_that_was_refused_is_not_given_to_another_job_by_a_crash(queue: Queue) -> None:
    with refusing("fdatasync"):
        queue.submit(spec())
    queue.actor.notify(messages.DiskRetried())
    [job_id] = queue.submitted(spec())
    queue.crash_machine()
    assert list(queue.statuses()) == [job_id]


@pytest.mark.parametrize("unsatisfiable", [False, True])
def test_a_pending_job_that_cannot_be_read_for_a_moment_waits_for_the_disk(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, *, unsatisfiable: bool
) -> None:
    queue.submitted(spec())
    queue.rest()
    choice: dict[str, Any] = {"unsatisfiable": [(1, "failed", "no")]} if unsatisfiable else {}

    def choose() -> None:
        queue.choose(*(() if unsatisfiable else (1,)), **choice)

    with monkeypatch.context() as patch:
        full = errors.StorageError("job-1: Too many open files")
        patch.setattr(
            queue.actor.component.store.ledger.directory, "read", mock.Mock(side_effect=full)
        )
        choose()
    assert queue.statuses() == {1: "queued"}
    assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.stage.sent.clear()
    queue.retry_disk()
    # The scheduler hears of the whole queue again, and chooses it again.
    assert [one.job.id for one in queue.stage.take_one(messages.JobsArrived).jobs] == [1]
    choose()
    if unsatisfiable:
        assert queue.statuses() == {1: "error"}
    else:
        assert queue.stage.take_one(messages.StartJobs).jobs == [(1, False)]


def test_a_pending_job_that_cannot_be_read_again_either_is_damaged(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    queue.rest()
    # Otherwise the journal makes up for it.
    assert queue.actor.component.store.ledger.retry()
    gone = errors.StorageError("job-1: Input/output error")
    monkeypatch.setattr(
        queue.actor.component.store.ledger.directory, "read", mock.Mock(side_effect=gone)
    )
    queue.choose(1)
    queue.retry_disk()
    # The component fails; its successor puts the file aside, as at any start.
    with pytest.raises(AssertionError, match="job-1: Input/output error"):
        queue.choose(1)


def test_statuses_are_reported_live_archived_or_missing(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec())
    queue.finish(1, ERROR)
    queue.finish(2)
    queue.actor.ask(messages.ArchiveJob(id=2))
    queue.stage.sent.clear()
    queue.actor.notify(messages.ReportStatuses(ids=[1, 2, 3, 9]))
    reported = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert reported.jobs == [(1, ERROR), (2, SUCCESS), (3, QUEUED), (9, None)]


def test_a_start_names_the_damaged_files_for_which_the_journal_makes_up(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.actor.be_quiet()
    (queue.stage.places.queue / "job-2").write_bytes(bytes(500))
    queue.restart()
    assert queue.file(2)["id"] == 2
    [line] = [one for one in queue.stage.log_stream.getvalue().splitlines() if "anew" in one]
    assert msgspec.json.decode(line)["jobs"] == [2]


def test_a_torn_file_in_the_archive_does_not_stop_the_queue(queue: Queue) -> None:
    (queue.stage.places.archive / "0").mkdir()
    (queue.stage.places.archive / "0" / "job-1").write_bytes(b"torn")
    queue.actor.notify(messages.ReportStatuses(ids=[1]))
    assert queue.stage.take_one(messages.StatusesReported).jobs == [(1, None)]
    assert "archived job cannot be read" in queue.stage.log_stream.getvalue()


def test_pending_jobs_that_a_rule_rejects_are_canceled_and_no_others(queue: Queue) -> None:
    take_rules(queue)
    queue.submitted(spec(), spec(), spec())
    queue.start(2)
    queue.record(2, 10, RUNNING)
    rejected = [(1, REJECTION), (2, REJECTION), (99, REJECTION)]
    queue.actor.notify(messages.JobsRejected(jobs=rejected))
    assert queue.stage.take(messages.JobsFinished) == []
    queue.actor.end_turn()
    assert queue.statuses() == {1: "canceled", 2: "running", 3: "queued"}
    finished = queue.stage.take_one(messages.JobsFinished, to="filter_evaluator")
    assert finished.jobs == [(1, JobStatus.CANCELED)]
    assert REJECTION in queue.stage.log_stream.getvalue()
    queue.crash_machine()
    assert queue.statuses()[1] == "canceled"
    # The text says why, once.
    assert queue.job(1).ops[0].input["reason"][-1][:2] == ["ganger:filter", REJECTION]
    again = queue.actor.ask(messages.RetryJob(id=1)).answer_as(messages.JobsSubmitted)
    sources = [source for source, *_ in queue.job(again.ids[0]).ops[0].input["reason"]]
    assert "ganger:retry" in sources
    assert "ganger:filter" not in sources
