"""A start that finds many jobs in the journal leaves their files to the compactor."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actors.queue.leftovers import Leftovers
from tests.refusals import refusing, refusing_flushes

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import recovery
from ganger.storage import settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.cut import Cut
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, StateStored
from ganger.storage.queue_files.compaction import Compaction

QUEUED, _, _, RUNNING, _, SUCCESS, _ = JobStatus


class Start:
    """A queue directory in the making, and a daemon that starts in it again and again."""

    def __init__(self, root: Path) -> None:
        self.disk = Leftovers(root)
        self.given: list[tuple[Compaction, Cut]] = []

    def new_jobs(self, *ids: int) -> None:
        self.disk.journal(JobsStored([(one, 1, self.disk.body(one, 1, QUEUED)) for one in ids]))

    def begin(self) -> Ledger:
        kept = Journal(self.disk.places.journal)
        self.loaded = recovery.load(self.disk.directory, kept, self.disk.own.path)
        assert self.loaded.quarantined == []
        self.ledger = Ledger(self.disk.directory, kept, lambda *given: self.given.append(given))
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

    def compact(self) -> None:
        """The compactor comes to its end."""
        self.steps(sys.maxsize)
        self.given.clear()
        self.ledger.was_compacted()
        self.ledger.commit()

    def steps(self, count: int) -> Compaction:
        """The compactor, after so many steps: the first ones write a file each."""
        compaction, cut = self.given[-1]
        self.running = compaction.steps(cut)
        for _ in itertools.islice(self.running, count):
            pass
        return compaction

    def close(self) -> None:
        self.ledger._journal.close()
        self.disk.directory.close()
        self.disk.close()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 2)
    made = Start(tmp_path)
    yield made
    made.close()


def test_many_new_jobs_are_ready_before_their_files_are_written(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    assert start.statuses() == dict.fromkeys((1, 2, 3), QUEUED)
    assert (start.files(), start.segments(), ledger.is_read_only) == ([], 2, False)
    assert ledger.files.body(2) == start.disk.body(2, 1, QUEUED)
    start.compact()
    assert start.files() == [1, 2, 3]
    assert start.segments() == 1
    assert not start.given
    assert ledger.files.missing_count == 0
    assert start.statuses() == {row.id: row.status for row in start.disk.load().table}


def test_a_file_that_is_ahead_of_the_log_stays_until_a_segment_has_its_state(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process flushed it while the disk refused the log: no other place has that state."""
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 0)
    start.new_jobs(1)
    # Two segments: a flush may have failed before.
    start.new_jobs(2)
    start.disk.write(1, start.disk.body(1, 2, RUNNING, livelock=start.disk.dead))
    before = start.inodes()
    with refusing("fdatasync"):
        ledger = start.begin()
        assert not ledger.retry()
        assert before < start.inodes()
    assert ledger.retry()


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
        found = start.loaded
        assert found.unwritten.keys() | found.written.keys() == {1, 2, 3}
        start.steps(1)
        ledger._journal.close()
    ledger = start.begin()
    assert ledger.files.serial(2) == 4
    start.compact()
    assert start.segments() == 1
    assert start.files() == [1, 2, 3]


def test_files_that_may_be_lost_are_written_anew(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    start.begin()
    # The flush is not carried out. The files are there to be read.
    start.steps(3)
    before = start.inodes()
    assert start.files() == [1, 2, 3]
    start.ledger._journal.close()
    with contextlib.ExitStack() as kept:
        for one in start.files():
            # So that nobody gets the number of its inode.
            kept.enter_context(open(start.disk.places.queue / f"job-{one}", "rb"))
        start.begin()
        start.compact()
    assert not before & start.inodes()


def test_a_state_that_only_sealed_segments_have_does_not_cover_a_start(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    assert not ledger.segments.is_covered(1)
    ledger.store_state((1, 2, start.disk.body(1, 2, QUEUED)), lambda: None)
    ledger.commit()
    assert ledger.segments.is_covered(1)
    start.compact()
    assert ledger.segments.is_covered(1)


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
        kept.write(4)
        kept.close()
    disk.write(4, ended)
    start.begin()
    assert start.statuses()[4] is SUCCESS
    start.ledger._journal.close()
    # The machine is lost, and with it what the file had.
    (disk.places.queue / "job-4").write_bytes(b"")
    start.begin()
    assert start.statuses()[4] is SUCCESS
    start.compact()
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
        assert start.ledger.segments.is_covered(4)
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
    assert not start.given


def test_a_file_system_that_cannot_be_flushed_is_written_anew(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    start.begin()
    with refusing_flushes():
        start.compact()
    before = start.inodes()
    assert (start.ledger.is_read_only, start.ledger.segments.is_doubtful) == (True, True)
    assert start.ledger.retry()
    assert not before & start.inodes()
    assert start.segments() == 1


def test_inputs_without_a_job_go_with_the_older_segments(start: Start) -> None:
    disk = start.disk
    disk.directory.spool.write_inputs([("job-9-input-0", b"x")])
    start.new_jobs(1, 2, 3)
    start.begin()
    assert disk.directory.spool.names() == ["job-9-input-0"]
    assert start.loaded.last_id == 9
    start.compact()
    assert disk.directory.spool.names() == []


def test_what_was_noted_since_is_in_the_journal_before_the_older_segments_go(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    ledger = start.begin()
    starting = start.disk.body(2, 2, QUEUED)
    ledger.files.claim(2)
    ledger.store_state((2, 2, starting), lambda: None)
    ledger.commit()
    handed_over = start.disk.body(2, 3, QUEUED, livelock=start.disk.own.path)
    ledger.note(2, 3, handed_over)
    ledger.files.write_state(2)
    ledger.files.lend_spares(2)
    start.compact()
    assert start.disk.directory.read(2) == handed_over
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
        ledger.seal()
        ledger.commit()
    assert said == ["failed"]


def test_when_all_files_are_written_their_memory_is_free(start: Start) -> None:
    start.begin()
    ledger = start.ledger
    states = [(one, 1, start.disk.body(one, 1, QUEUED)) for one in range(1, 201)]
    ledger.store_new(states, lambda: None, lambda _: None)
    ledger.commit()
    large = sys.getsizeof(ledger.files._states), sys.getsizeof(ledger.files._unwritten)
    ledger.seal()
    start.compact()
    assert not ledger.has_unwritten
    assert ledger.files.has_left_memory
    assert sys.getsizeof(ledger.files._states) < large[0] / 10
    assert sys.getsizeof(ledger.files._unwritten) < large[1] / 10


# The compactor and the queue at the same file.


def ended_beside_others(start: Start) -> Ledger:
    """A start behind a journal with four jobs; the last one has ended, and none has a file."""
    start.new_jobs(1, 2, 3)
    start.disk.journal(StateStored(4, 2, start.disk.body(4, 2, SUCCESS)))
    # Two segments would mean that a flush has failed.
    ledger = start.begin()
    assert start.files() == []
    return ledger


def test_a_job_that_only_sealed_segments_have_is_archived_and_they_stay(start: Start) -> None:
    ledger = ended_beside_others(start)
    ledger.store_archived(4, lambda: None)
    ledger.commit()
    # Nobody has flushed the file in the archive: the segments that answer for it must stay.
    before = start.segments()
    start.steps(sys.maxsize)
    assert start.segments() == before
    start.compact()
    assert start.given
    start.compact()
    assert (start.segments(), start.files()) == (1, [1, 2, 3])
    assert start.disk.directory.read_archived(4) == start.disk.body(4, 2, SUCCESS)


def test_a_file_that_the_compactor_has_flushed_is_not_written_once_more(start: Start) -> None:
    ledger = ended_beside_others(start)
    # Four files, then the flush; the queue has not heard of them yet.
    start.steps(5)
    before = (start.disk.places.queue / "job-4").stat().st_ino
    ledger.store_archived(4, lambda: None)
    ledger.commit()
    archived = start.disk.places.archive / "0" / "job-4"
    assert archived.stat().st_ino == before
    for _ in start.running:
        pass
    ledger.was_compacted()
    assert start.segments() == 1
    assert ledger.files.missing_count == 0


def test_states_whose_segments_a_predecessor_has_deleted_are_stored_again(start: Start) -> None:
    start.new_jobs(1, 2, 3)
    start.begin()
    start.steps(4)
    late = start.running
    start.ledger._journal.close()
    # The queue was replaced within this process; the flush of the first one ends now.
    ledger = start.begin()
    for _ in late:
        pass
    start.compact()
    assert [ledger.segments.is_covered(one) for one in (1, 2, 3)] == [True, True, True]
    # So the files may be written in turns again.
    ledger.write_newest(3)
    for one in (1, 2, 3):
        (start.disk.places.queue / f"job-{one}").write_bytes(b"")
    ledger._journal.close()
    start.begin()
    assert start.statuses() == dict.fromkeys((1, 2, 3), QUEUED)
