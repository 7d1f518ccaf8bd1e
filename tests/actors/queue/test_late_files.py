"""A start that finds many jobs without files writes none; the older segments stay until then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.queue.leftovers import Leftovers
from tests.refusals import refusing

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import recovery
from ganger.storage import errors, settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log import journal
from ganger.storage.log.journal import JobArchived, JobsStored, Journal, StateStored

QUEUED, _, _, RUNNING, _, SUCCESS, _ = JobStatus


class Start:
    """A queue directory in the making, and a daemon that starts in it again and again."""

    def __init__(self, root: Path) -> None:
        self.disk = Leftovers(root)
        self.cuts: list[journal.Cut] = []

    def new_jobs(self, *ids: int) -> None:
        self.disk.journal(JobsStored([(one, 1, self.disk.body(one, 1, QUEUED)) for one in ids]))

    def begin(self) -> Ledger:
        kept = Journal(self.disk.places.journal)
        self.loaded = recovery.load(self.disk.directory, kept, self.disk.own.path)
        assert self.loaded.quarantined == []
        self.ledger = Ledger(self.disk.directory, kept, self.cuts.append)
        self.ledger.begin(self.loaded)
        self.ledger.commit()
        return self.ledger

    def statuses(self) -> dict[int, JobStatus]:
        return {row.id: row.status for row in self.loaded.table}

    def files(self) -> list[int]:
        return self.disk.directory.live_ids()

    def inodes(self) -> set[int]:
        return {(self.disk.places.queue / f"job-{one}").stat().st_ino for one in self.files()}

    def segments(self) -> int:
        return len(Journal(self.disk.places.journal).segments())

    def write_all(self) -> None:
        self.ledger.write_newest(100)
        self.ledger.renew_if_due()

    def cut(self) -> None:
        self.cuts.pop().carry_out()
        self.ledger.was_cut(None)

    def close(self) -> None:
        self.ledger._journal.close()
        self.disk.directory.close()
        self.disk.close()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 2)
    monkeypatch.setattr(settings, "FILES_AT_ONCE", 0)
    made = Start(tmp_path)
    yield made
    made.close()


def test_many_new_jobs_are_ready_before_their_files_are_written(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    assert start.statuses() == dict.fromkeys((1, 2, 3), QUEUED)
    assert (start.files(), start.segments(), ledger.is_read_only) == ([], 2, False)
    assert ledger.files.body(2) == start.disk.body(2, 1, QUEUED)
    start.write_all()
    assert start.files() == [1, 2, 3]
    assert start.segments() == 2
    start.cut()
    assert start.segments() == 1
    start.write_all()
    assert not start.cuts
    assert start.statuses() == {row.id: row.status for row in start.disk.load().table}


def test_a_few_are_written_before(start: Start) -> None:
    start.new_jobs(1, 2)
    start.begin()
    assert (start.files(), start.segments()) == ([1, 2], 1)


def test_what_is_killed_before_its_files_are_written_starts_again_with_them(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    for number in range(2, 5):
        ledger = start.begin()
        ledger.store_state((2, number, start.disk.body(2, number, QUEUED)), lambda: None)
        ledger.commit()
        assert start.segments() == number
        # In doubt, the file is written again: a flush of it may have failed.
        assert start.loaded.unwritten.keys() == {1, 2, 3}
        ledger.write_newest(1)
        ledger._journal.close()
    ledger = start.begin()
    assert ledger.files.serial(2) == 4
    start.write_all()
    start.cut()
    assert start.segments() == 1


def test_files_that_may_be_lost_are_written_anew(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    start.begin()
    start.write_all()
    before = start.inodes()
    # The flush is not carried out. The files are there to be read.
    start.cuts.clear()
    start.ledger._journal.close()
    start.begin()
    assert start.files() == [1, 2, 3]
    start.write_all()
    assert not before & start.inodes()


def test_jobs_whose_segments_a_predecessor_may_still_delete_count_as_not_covered(
    start: Start,
) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    assert ledger.is_covered(1)
    ledger._journal.close()
    ledger = start.begin()
    assert not ledger.is_covered(1)
    ledger.write_newest(100)
    ledger.renew_if_due()
    assert not ledger.is_covered(1)


def test_what_is_covered_by_the_older_segments_is_not_when_they_may_go(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    assert ledger.is_covered(3)
    start.write_all()
    assert not ledger.is_covered(3)


@pytest.mark.parametrize("is_doubtful", [False, True])
def test_an_end_that_was_not_flushed_is_in_the_new_segment(
    start: Start, *, is_doubtful: bool
) -> None:
    disk = start.disk
    ended = disk.body(4, 3, SUCCESS, livelock=disk.dead)
    start.new_jobs(1, 2, 3)
    disk.journal(StateStored(4, 2, disk.body(4, 2, RUNNING, livelock=disk.dead)))
    if is_doubtful:
        kept = Journal(disk.places.journal)
        kept.begin(4)
        kept.commit(4)
        kept.close()
    disk.write(4, ended)
    start.begin()
    assert start.statuses()[4] is SUCCESS
    start.ledger._journal.close()
    # The machine is lost, and with it what the file had.
    (disk.places.queue / "job-4").write_bytes(b"")
    start.begin()
    assert start.statuses()[4] is SUCCESS
    start.write_all()
    assert disk.directory.read(4) == ended


def test_a_process_that_lives_keeps_its_file(start: Start) -> None:
    disk = start.disk
    running = disk.body(4, 2, RUNNING, livelock=disk.living.path)
    start.new_jobs(1, 2, 3)
    disk.journal(StateStored(4, 2, running))
    disk.write(4, running)
    for _ in range(2):
        start.begin()
        assert start.loaded.unwritten.keys() == {1, 2, 3}
        assert start.ledger.is_covered(4)
        start.ledger._journal.close()


def test_archived_jobs_stay_whole(start: Start) -> None:
    disk = start.disk
    ended = disk.body(4, 2, SUCCESS)
    start.new_jobs(1, 2, 3)
    disk.journal(StateStored(4, 2, ended), JobArchived(4))
    for _ in range(2):
        start.begin()
        assert start.statuses().keys() == {1, 2, 3}
        assert disk.directory.read_archived(4) == ended
        start.ledger._journal.close()
        disk.directory.write_archived(4, b"", flush=False)


def test_jobs_that_were_archived_before_the_journal_began_do_not_come_back(start: Start) -> None:
    disk = start.disk
    disk.write(2, disk.body(2, 3, SUCCESS))
    disk.directory.archive(2)
    start.new_jobs(1, 2, 3, 4)
    start.begin()
    assert start.statuses().keys() == {1, 3, 4}


def test_a_disk_that_refuses_the_new_segment_loses_nothing(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    with refusing("fdatasync"):
        assert start.begin().is_read_only
    assert start.ledger.retry()
    assert (start.files(), start.segments()) == ([1, 2, 3], 1)
    assert not start.cuts


def test_a_file_system_that_cannot_be_flushed_is_written_anew(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    start.begin()
    start.write_all()
    before = start.inodes()
    start.cuts.pop().give_up()
    start.ledger.was_cut(errors.StorageError("no"))
    assert start.ledger.is_read_only
    assert start.ledger.retry()
    assert not before & start.inodes()
    assert start.segments() == 1


def test_inputs_without_a_job_go_with_the_older_segments(start: Start) -> None:
    disk = start.disk
    disk.directory.spool.write_inputs([("job-9-input-0", b"x")])
    start.new_jobs(1, 2, 3)
    start.begin()
    start.write_all()
    assert disk.directory.spool.names() == ["job-9-input-0"]
    assert start.loaded.last_id == 9
    start.cut()
    assert disk.directory.spool.names() == []


def test_older_segments_count_when_the_journal_must_not_grow(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 100)
        patch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 2)
        start.begin()
        assert start.ledger.is_far_behind


def test_what_was_noted_since_is_in_the_journal_before_the_older_segments_go(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    handed_over = start.disk.body(2, 2, QUEUED, livelock=start.disk.own.path)
    ledger.files.lend_spares(2)
    ledger.note(2, 2, handed_over)
    ledger.files.write_state(2)
    start.write_all()
    start.cut()
    ledger._journal.close()
    # The process writes the file without a flush, and the machine is lost.
    (start.disk.places.queue / "job-2").write_bytes(b"")
    start.begin()
    assert start.statuses()[2] is QUEUED


def test_what_waits_for_its_flush_does_not_go_with_a_segment_that_fails(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    said: list[str] = []
    ledger.last_id = 4
    body = start.disk.body(4, 1, QUEUED)
    ledger.store_new([(4, 1, body)], lambda: said.append("done"), lambda _: said.append("failed"))
    with refusing("fdatasync"):
        start.write_all()
        ledger.commit()
    assert said == ["failed"]


def test_when_all_files_are_written_their_memory_is_free(start: Start) -> None:
    start.begin()
    ledger = start.ledger
    states = [(one, 1, start.disk.body(one, 1, QUEUED)) for one in range(1, 201)]
    ledger.store_new(states, lambda: None, lambda _: None)
    ledger.commit()
    large = sys.getsizeof(ledger.files._states), sys.getsizeof(ledger.files._unwritten)
    ledger.write_newest(200)
    assert not ledger.has_unwritten
    assert sys.getsizeof(ledger.files._states) < large[0] / 10
    assert sys.getsizeof(ledger.files._unwritten) < large[1] / 10
