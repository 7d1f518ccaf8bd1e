"""A full disk: the reserve goes, ends and removals are taken, and new work waits for space."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker, Stage
from tests.refusals import full_disk, refusing

from ganger.storage import settings
from ganger.storage.disk import reserve
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files import output_blocks, spool
from ganger.transport import messages

REMEDY = (
    "; remove jobs that have ended (if none has, cancel some first), or free space elsewhere on "
    "this disk"
)
FULL = (
    "the queue takes no new jobs: the disk is full, and what is left is kept for removing jobs"
    + REMEDY
)


class Disk:
    """How much the system says is free."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.free, self.free_files = 2**30, 1_000
        self.looks = 0
        self.taken: Callable[[], int] = lambda: 0
        patch.setattr(os, "statvfs", self._say)

    def _say(self, _: object) -> SimpleNamespace:
        self.looks += 1
        files = {"f_files": 1_000, "f_favail": self.free_files}
        return SimpleNamespace(
            f_frsize=1, f_bavail=self.free - self.taken(), f_blocks=2**30, **files
        )


@pytest.fixture(name="disk")
def disk_with_room(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture(name="kept")
def queue_with_a_reserve(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Queue]:
    del disk
    monkeypatch.setattr(reserve, "BYTES_MAX", reserve.BYTES_MIN)
    stage.host = msgspec.structs.replace(stage.host, keeps_reserve=True)
    queue = Queue(stage, monkeypatch)
    yield queue
    queue.kill_all()
    queue.actor.close()


def path_of(queue: Queue) -> Path:
    return queue.stage.places.reserve


def report(queue: Queue) -> messages.QueueReport:
    return queue.actor.ask(messages.ReadQueueState()).answer_as(messages.QueueReport)


def fill(queue: Queue, disk: Disk, number: int = errno.ENOSPC) -> None:
    """The disk refuses one submission, and has no room for a reserve from then on."""
    with refusing("fdatasync", "pwrite", number=number):
        queue.submit(spec())
        disk.free = 0
        queue.actor.end_turn()


def document(queue: Queue, job_id: int) -> messages.JobDocument:
    return queue.actor.ask(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)


def purge(queue: Queue, *ids: int) -> Asker:
    asker = queue.actor.ask(messages.PurgeJobs(ids=list(ids)))
    queue.actor.work_off()
    return asker


def retry(queue: Queue) -> None:
    queue.actor.turn(messages.DiskRetried())


def state(queue: Queue) -> tuple[bool, bool, bool]:
    """Read-only, full, and whether the reserve is there."""
    told = report(queue)
    assert bool(told.reserve_bytes) is path_of(queue).exists()
    return told.is_read_only, told.is_disk_full, bool(told.reserve_bytes)


def test_a_queue_begins_with_its_reserve(kept: Queue) -> None:
    assert state(kept) == (False, False, True)


def test_a_turn_looks_at_the_disk_once_before_its_submissions_or_after_its_flush(
    kept: Queue, disk: Disk
) -> None:
    def looks(*said: messages.Message) -> int:
        before = disk.looks
        kept.actor.turn(*said)
        return disk.looks - before

    submission = messages.SubmitJobs(jobs=[spec()])
    assert [looks(), looks(submission), looks(*[submission] * 3)] == [0, 1, 1]
    assert looks(messages.ChangeJobPriority(id=1, priority=5)) == 1
    assert looks(submission) == 1


def test_a_full_disk_takes_the_reserve_and_a_broken_one_does_not(kept: Queue, disk: Disk) -> None:
    fill(kept, disk, errno.EIO)
    assert state(kept) == (True, False, True)
    disk.free = 2**30
    retry(kept)
    assert state(kept) == (False, False, True)
    fill(kept, disk)
    assert state(kept) == (True, True, False)


def test_without_its_reserve_a_queue_takes_ends_and_removals_and_no_new_work(
    kept: Queue, disk: Disk
) -> None:
    kept.finish_new()
    kept.run_new()
    kept.submitted(spec())
    fill(kept, disk)
    retry(kept)
    assert state(kept) == (False, True, False)
    assert kept.submit(spec()).refusal == ("DiskFullError", FULL)
    kept.choose(3)
    assert kept.stage.take(messages.StartJobs) == []
    kept.recorded(2, 20, JobStatus.SUCCESS).answer_as(messages.StateRecorded)
    kept.write_as_process(2, kept.body_of_process(2, 20, JobStatus.SUCCESS))
    kept.lose_process(2, has_left=True)
    archived = kept.actor.ask(messages.ArchiveJob(id=1)).answer_as(messages.ArchiveOutcome)
    assert archived.archived == [1]
    purged = purge(kept, 1, 2).answer_as(messages.PurgeOutcome)
    assert [job_id for job_id, _ in purged.jobs] == [1, 2]
    assert state(kept) == (False, True, False)


@pytest.mark.parametrize("how", ["after a pause", "after a purge"])
def test_with_space_the_queue_goes_on_by_itself(kept: Queue, disk: Disk, how: str) -> None:
    kept.finish_new()
    fill(kept, disk)
    retry(kept)
    disk.free = 2**20
    if how == "after a pause":
        retry(kept)
    else:
        purge(kept, 1)
    assert state(kept) == (False, False, True)
    assert kept.stage.take(messages.JobsArrived), "the scheduler hears of all jobs again"
    [job_id] = kept.submitted(spec())
    kept.start(job_id)


def test_a_reserve_that_a_job_has_taken_is_made_again(kept: Queue, disk: Disk) -> None:
    kept.run_new()
    disk.free = reserve.BYTES_MIN
    reserve.give_to_job(os.fspath(kept.stage.places.queue))
    kept.recorded(1, 20, JobStatus.RUNNING).answer_as(messages.StateRecorded)
    assert state(kept) == (False, True, False)
    disk.free = 2**30
    retry(kept)
    assert state(kept) == (False, False, True)


def test_it_is_tried_again_every_second_until_there_is_space(kept: Queue, disk: Disk) -> None:
    fill(kept, disk)
    for seconds in (0.0, 1.0, 1.0):
        due = next(timer for timer in kept.stage.timers if timer.seconds == seconds)
        kept.stage.timers.remove(due)
        retry(kept)
        kept.actor.end_turn()
        assert state(kept) == (False, True, False)
    journal = kept.stage.places.journal
    assert len([*journal.iterdir()]) == 1, "no new segment for each attempt"


def test_a_pending_job_says_that_the_disk_is_full(kept: Queue, disk: Disk) -> None:
    kept.submitted(spec())
    fill(kept, disk)
    retry(kept)
    asker = kept.actor.ask(messages.ExplainJob(id=1))
    [(_, asked)] = [one for one in kept.stage.requests if _is_question(one)]
    asked.reply(messages.PendingExplained(position=None))
    kept.actor.handle_mail()
    explained = asker.answer_as(messages.JobExplained)
    assert explained.text == (
        "job 1 is queued: the disk is full, and nothing starts until there is space again"
    )
    assert explained.obstacles[0].kind == "disk"
    many = kept.actor.ask(messages.ReadPlan(limit=0, causes_of=[1, 7]))
    [order] = kept.stage.take_requests(messages.ReportOrder)
    assert isinstance(order.message, messages.ReportOrder)
    assert order.message.causes_of == [1, 7]
    causes = {1: ("slots", "")}
    order.reply(messages.OrderReported(pending=[], count=1, running=[], slots=1, causes=causes))
    kept.actor.handle_mail()
    assert many.answer_as(messages.PlanRead).causes == {1: ("disk", "")}


def _is_question(entry: tuple[str, Any]) -> bool:
    return isinstance(entry[1].message, messages.ExplainPending)


def test_a_log_that_takes_nothing_has_room_again_after_the_output_has_gone(
    kept: Queue, disk: Disk
) -> None:
    kept.finish_new()
    output = Path(spool.output_path(kept.stage.places.queue, 1))
    output.write_bytes(bytes(10_000))
    assert not document(kept, 1).output_removed
    with full_disk(), refusing("fdatasync"):
        kept.submit(spec())
        disk.free = 0
        kept.actor.end_turn()
        refused = purge(kept, 1).refusal
    assert refused[0] == "ReadOnlyError"
    assert "; large output and input of these jobs are removed already; purge them" in refused[1]
    assert kept.statuses() == {1: "success"}, "it is not purged yet"
    kept.restart()
    assert document(kept, 1).output_removed, "a successor says so, too"
    [block] = output_blocks.find_blocks(output.read_bytes(), 0).blocks
    [mark] = block.segments()
    assert (mark.kind, mark.missing) == (output_blocks.REMOVED, 10_000)
    fill(kept, disk)
    output.write_bytes(bytes(10_000))
    purged = purge(kept, 1).answer_as(messages.PurgeOutcome)
    assert [job_id for job_id, _ in purged.jobs] == [1]
    assert kept.statuses() == {}


@pytest.mark.parametrize("is_killed", [False, True])
def test_on_a_disk_full_to_the_last_byte_a_purge_needs_no_space(
    kept: Queue, disk: Disk, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", settings.JOURNAL_LAST_BYTES)
    for _ in range(3):
        kept.finish_new()
    kept.restart()
    with full_disk():
        disk.free = 0
        kept.actor.notify(messages.DiskSeenFull())
        assert kept.actor.ask(messages.ArchiveJob(id=3)).refusal[0] == "ReadOnlyError"
        assert state(kept) == (True, True, False)
        if is_killed:
            kept.restart()
            assert state(kept) == (False, True, False)
        purged = purge(kept, 1, 2).answer_as(messages.PurgeOutcome)
        assert [job_id for job_id, _ in purged.jobs] == [1, 2]
        assert kept.statuses() == {3: "success"}
    disk.free = 2**30
    retry(kept)
    assert state(kept) == (False, False, True)
    kept.restart()
    assert kept.statuses() == {3: "success"}
    kept.submitted(spec())


def test_on_a_disk_full_to_the_last_byte_jobs_that_wait_can_be_canceled_and_purged(
    kept: Queue, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", settings.JOURNAL_LAST_BYTES)
    waiting = [job_id for _ in range(200) for job_id in kept.submitted(spec())]
    kept.restart()
    with full_disk():
        disk.free = 0
        asked = [kept.actor.say(messages.CancelJob(id=job_id)) for job_id in waiting]
        kept.actor.end_turn()
        gone = [
            job_id
            for job_id, asker in zip(waiting, asked, strict=True)
            if isinstance(asker.answer, messages.CancelOutcome)
        ]
        assert 10 < len(gone) < 150, "they have half of the last room"
        together = [one.refusal for one in asked if isinstance(one.answer, messages.Failure)]
        assert together, "no other record is refused because of them"
        for name, text in together:
            assert name == "DiskFullError"
            assert re.match(r"job \d+ is not canceled: the disk is full, and what is left", text)
        refusal = kept.actor.ask(messages.CancelJob(id=waiting[-1])).refusal
        assert refusal[0] == "ReadOnlyError"
        purged = purge(kept, *gone).answer_as(messages.PurgeOutcome)
        assert [job_id for job_id, _ in purged.jobs] == gone
        assert state(kept)[1], "it is full"
    disk.free = 2**30
    retry(kept)
    assert state(kept) == (False, False, True)
    kept.restart()
    assert list(kept.statuses()) == waiting[len(gone) :]
    assert set(kept.statuses().values()) == {"queued"}


def wait_for_locks(queue: Queue) -> int:
    """A job whose process waits for locks."""
    [job_id] = queue.submitted(spec())
    queue.start(job_id)
    body = queue.body_of_process(job_id, 10, JobStatus.WAITING)
    queue.write_as_process(job_id, body)
    queue.actor.notify(messages.JobWaits(job_id=job_id, serial=10, body=body))
    queue.stage.sent.clear()
    return job_id


@contextlib.contextmanager
def full_to_the_last_byte(queue: Queue, disk: Disk) -> Iterator[None]:
    """Meanwhile the queue is read-only, and its log has its last room."""
    [job_id] = queue.submitted(spec())
    with full_disk():
        disk.free = 0
        priorities = itertools.cycle((1, 2))
        while not state(queue)[0]:
            queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=next(priorities)))
        queue.stage.sent.clear()
        yield
    disk.free = 2**30


def test_a_job_that_waits_for_locks_with_a_process_is_canceled_on_a_full_disk(
    kept: Queue, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", settings.JOURNAL_LAST_BYTES)
    job_id = wait_for_locks(kept)
    with full_to_the_last_byte(kept, disk):
        asker = kept.actor.say(messages.CancelJob(id=job_id))
        kept.actor.end_turn()
        [sent] = kept.stage.take(messages.DeliverToJob)
        assert isinstance(sent.message, messages.CancelRequested)
        kept.recorded(job_id, 11, JobStatus.CANCELING).answer_as(messages.StateRecorded)
        token = sent.message.token
        said = messages.CancelAnswered(job_id=job_id, token=token, accepted=True, text="yes")
        kept.actor.turn(said)
        assert asker.answer_as(messages.CancelOutcome).accepted
        kept.recorded(job_id, 12, JobStatus.CANCELED).answer_as(messages.StateRecorded)
        # The disk has no room for its file: the process ends, and leaves that to the queue.
        kept.lose_process(job_id)
        assert kept.statuses()[job_id] == "canceled"
        assert kept.job(job_id).status is JobStatus.CANCELED
        purged = purge(kept, job_id).answer_as(messages.PurgeOutcome)
        assert [one for one, _ in purged.jobs] == [job_id]
    retry(kept)
    kept.restart()
    assert job_id not in kept.statuses()


def test_on_a_broken_disk_a_job_with_a_process_is_not_canceled(kept: Queue, disk: Disk) -> None:
    job_id = wait_for_locks(kept)
    fill(kept, disk, errno.EIO)
    refusal = kept.actor.ask(messages.CancelJob(id=job_id)).refusal
    assert (refusal[0], "the queue takes no changes now" in refusal[1]) == ("ReadOnlyError", True)
    assert kept.stage.take(messages.DeliverToJob) == []


def test_a_cancelation_for_which_the_log_has_no_room_is_refused_before_the_process_hears_of_it(
    kept: Queue, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", settings.JOURNAL_LAST_BYTES)
    others = [job_id for _ in range(200) for job_id in kept.submitted(spec())]
    job_id = wait_for_locks(kept)
    with full_to_the_last_byte(kept, disk):
        for other in others:
            kept.actor.ask(messages.CancelJob(id=other))
        refusal = kept.actor.ask(messages.CancelJob(id=job_id)).refusal
        assert refusal[0] == "ReadOnlyError"
        assert kept.stage.take(messages.DeliverToJob) == []
        assert kept.statuses()[job_id] == "waiting"


def test_the_end_of_a_dead_process_that_the_log_alone_has_is_written_when_there_is_room(
    kept: Queue, disk: Disk
) -> None:
    kept.run_new()
    fill(kept, disk)
    retry(kept)
    assert state(kept) == (False, True, False)
    kept.recorded(1, 20, JobStatus.SUCCESS).answer_as(messages.StateRecorded)
    kept.lose_process(1)
    assert kept.job(1).status is JobStatus.SUCCESS
    assert kept.file(1)["ops"][0]["status"] == "queued"
    disk.free = 2**30
    retry(kept)
    assert kept.file(1)["ops"][0]["status"] == "success"


def test_a_job_that_cannot_store_its_end_says_so_until_it_is_stored(
    kept: Queue, disk: Disk
) -> None:
    kept.run_new()
    fill(kept, disk)
    held_up = messages.StateHeldUp(job_id=1, is_end=True, text="the disk is full")
    kept.actor.notify(held_up)
    told = kept.actor.ask(messages.ExplainJob(id=1)).answer_as(messages.JobExplained)
    assert told.text == "job 1 is running: its end cannot be stored: the disk is full"
    assert [(one.kind, one.held) for one in told.obstacles] == [("disk", 1)]
    assert kept.recorded(1, 20, JobStatus.SUCCESS).refusal[0] == "ReadOnlyError"
    kept.lose_process(1)
    told = kept.actor.ask(messages.ExplainJob(id=1)).answer_as(messages.JobExplained)
    gone = "its process has gone, and its end cannot be stored until the disk takes writes"
    assert told.text == f"job 1 is running: {gone}"
    disk.free = 2**30
    retry(kept)
    kept.actor.notify(held_up)
    told = kept.actor.ask(messages.ExplainJob(id=1)).answer_as(messages.JobExplained)
    assert told.obstacles == []


def test_a_running_job_says_why_its_output_is_dropped_until_it_is_stored_or_ends(
    kept: Queue,
) -> None:
    kept.run_new()

    def told() -> dict[int, str]:
        return report(kept).output_dropped

    kept.actor.notify(messages.OutputDropped(job_id=1, text="why"))
    asker = kept.actor.ask(messages.ExplainJob(id=1))
    [(_, asked)] = [
        one for one in kept.stage.requests if isinstance(one[1].message, messages.ReadOpcodeWait)
    ]
    asked.reply(messages.OpcodeWait(is_waiting=False))
    kept.actor.handle_mail()
    assert asker.answer_as(messages.JobExplained).text == "job 1 is running: why"
    assert told() == {1: "why"}
    kept.actor.notify(messages.OutputDropped(job_id=1, text=""))
    assert told() == {}
    kept.actor.notify(messages.OutputDropped(job_id=1, text="why"))
    kept.recorded(1, 20, JobStatus.SUCCESS)
    kept.lose_process(1, has_left=True)
    kept.actor.notify(messages.OutputDropped(job_id=1, text="late"))
    assert told() == {}


def test_what_a_job_waits_for_on_a_node_is_forgotten_with_its_process(kept: Queue) -> None:
    kept.run_new()
    lifecycle = kept.actor.component.lifecycle
    silent = messages.NodeAwaited(job_id=1, text="node web1 is silent")
    kept.actor.notify(silent)
    assert lifecycle.awaited_node(1) == "node web1 is silent"
    kept.lose_process(1)
    assert lifecycle.awaited_node(1) == ""
    kept.actor.notify(silent)
    assert lifecycle.awaited_node(1) == ""


def test_a_start_without_room_for_the_reserve_is_short_at_once(kept: Queue, disk: Disk) -> None:
    path_of(kept).unlink()
    disk.free = 1_000
    kept.restart()
    assert state(kept) == (False, True, False)


def test_a_disk_that_is_seen_to_be_full_takes_no_new_work_before_a_write_fails(
    kept: Queue, disk: Disk
) -> None:
    disk.free = reserve.BYTES_MIN // 4 - 1
    kept.actor.notify(messages.DiskSeenFull())
    assert state(kept) == (False, True, True)
    assert kept.submit(spec()).refusal == ("DiskFullError", FULL)
    assert "DISK FULL: the queue takes no new jobs" in kept.stage.log_stream.getvalue()
    retry(kept)
    assert state(kept) == (False, True, True)
    disk.free = reserve.BYTES_MIN // 4
    retry(kept)
    assert state(kept) == (False, False, True)
    assert report(kept).lacks_room
    assert kept.submit(spec()).refusal == (
        "DiskFullError",
        f"the disk has no room for 1 more job: about 8.0 KiB are needed{REMEDY}",
    )
    disk.free += settings.NEW_JOB_BYTES
    assert not report(kept).lacks_room, "the report looks anew"
    kept.submitted(spec())
    # What was seen is over when the queue hears of it.
    kept.actor.notify(messages.DiskSeenFull())
    assert state(kept) == (False, False, True)


def fill_spares(queue: Queue, disk: Disk) -> Callable[[], int]:
    """Five spares take a block each; how much all take."""
    pool = queue.actor.component.store.ledger.directory.spares
    for name in [pool.take() for _ in range(5)]:
        Path(name).write_bytes(bytes(4096))
        pool.give_back(name)
    spares = queue.stage.places.queue.glob

    def taken() -> int:
        return sum(path.stat().st_size for path in spares(".spare-*"))

    disk.taken = taken
    return taken


@pytest.mark.parametrize("is_asked", [True, False])
def test_spares_go_before_a_job_has_no_room(kept: Queue, disk: Disk, *, is_asked: bool) -> None:
    taken = fill_spares(kept, disk)
    assert taken() == 5 * 4096
    disk.free = reserve.BYTES_MIN // 4 + settings.NEW_JOB_BYTES + 15_000
    if is_asked:
        assert not report(kept).lacks_room
    else:
        kept.submitted(spec())
    assert taken() == 0


def test_spares_go_when_the_disk_is_full(kept: Queue, disk: Disk) -> None:
    taken = fill_spares(kept, disk)
    disk.free = 0
    kept.actor.notify(messages.DiskSeenFull())
    assert taken() == 0


@pytest.mark.parametrize(("free", "zeros"), [(2**22, 512), (2**20, 128), (2**18, 64)])
def test_zeros_are_written_ahead_as_far_as_there_is_room(
    kept: Queue, disk: Disk, free: int, zeros: int
) -> None:
    path_of(kept).unlink()
    disk.free = 2**30
    kept.restart()
    disk.free = free
    kept.restart()
    [segment] = kept.stage.places.journal.iterdir()
    assert zeros * 1024 <= segment.stat().st_size < (zeros + 4) * 1024


def test_the_queue_looks_whether_anything_is_free_whenever_it_writes(
    kept: Queue, disk: Disk
) -> None:
    kept.run_new()
    disk.free = 0
    kept.recorded(1, 20, JobStatus.RUNNING).answer_as(messages.StateRecorded)
    assert state(kept) == (False, True, True)


def test_a_disk_that_has_no_room_for_further_files_is_full_too(kept: Queue, disk: Disk) -> None:
    kept.finish_new()
    kept.submitted(spec())
    disk.free_files = reserve.FILES_MIN - 1
    assert kept.submit(spec()).refusal == ("DiskFullError", FULL)
    assert kept.actor.ask(messages.CancelJob(id=2)).answer_as(messages.CancelOutcome).accepted
    assert [job_id for job_id, _ in purge(kept, 1, 2).answer_as(messages.PurgeOutcome).jobs] == [
        1,
        2,
    ]
    disk.free_files = 1_000
    retry(kept)
    assert state(kept) == (False, False, True)
