"""The durable side of the queue: no answer before the flush, nothing answered is lost."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.refusals import refusing, refusing_flushes

from ganger.actors.queue import recovery
from ganger.actors.queue.job_table import JobTable
from ganger.actors.queue.ledger import Ledger
from ganger.actors.queue.recovery import Loaded
from ganger.storage import errors, paths, settings
from ganger.storage.queue_files import inodes, journal, replay
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.storage.queue_files.journal import Journal
from ganger.storage.queue_files.segment_ahead import SegmentAhead


def body(job_id: int, serial: int, status: str = "queued") -> bytes:
    text = '{"id":%d,"ops":[{"input":{},"status":"%s"}],"ganger_serial":%d}'
    return (text % (job_id, status, serial)).encode()


class Books:
    """A ledger in a directory, what was said about each of its entries, and a flaky disk."""

    def __init__(self, root: Path) -> None:
        self.places = paths.Places(root, root / "run")
        self.places.queue.mkdir(exist_ok=True)
        self.directory = QueueDirectory(self.places)
        self.directory.prepare()
        self.journal = Journal(self.places.journal)
        self.ledger = Ledger(self.directory, self.journal)
        self.said: list[str] = []

    def begin(self) -> Books:
        self.ledger.begin(Loaded(JobTable(), {}, [], [], {}, [], 0))
        return self

    def done(self, name: str) -> None:
        self.said.append(name)

    def failed(self, name: str, error: errors.GangerError) -> None:
        self.said.append(f"{name}: {error.name}")

    def store_new(self, *ids: int) -> None:
        name = f"new {ids[0]}"
        self.ledger.last_id = max(ids)
        self.ledger.store_new(
            [(job_id, 1, body(job_id, 1)) for job_id in ids],
            lambda: self.done(name),
            lambda error: self.failed(name, error),
        )

    def store_state(self, job_id: int, serial: int, status: str = "queued") -> None:
        name = f"state {job_id}.{serial}"
        self.ledger.store_state(
            (job_id, serial, body(job_id, serial, status)),
            lambda: self.done(name),
            lambda error: self.failed(name, error),
        )

    def store_archived(self, job_id: int) -> None:
        name = f"archived {job_id}"
        self.ledger.store_archived(
            job_id, lambda: self.done(name), lambda error: self.failed(name, error)
        )

    def commit_new(self, *ids: int) -> None:
        self.store_new(*ids)
        self.ledger.commit()

    def commit_state(self, job_id: int, serial: int, status: str = "queued") -> None:
        self.store_state(job_id, serial, status)
        self.ledger.commit()

    def commit_archived(self, job_id: int) -> None:
        self.store_archived(job_id)
        self.ledger.commit()

    def take_effects(self) -> list[str]:
        said, self.said = self.said, []
        return said

    def after_crash(self, *, lost: tuple[int, ...] = ()) -> dict[int, bytes | None]:
        """What a successor finds if the daemon dies now; ``lost`` files go with the machine."""
        for job_id in lost:
            (self.places.queue / f"job-{job_id}").write_bytes(b"")
        directory = QueueDirectory(self.places)
        loaded = recovery.load(directory, Journal(self.places.journal), "none")
        assert loaded.quarantined == []
        return {row.id: directory.read(row.id) for row in loaded.table}

    def is_read_only(self) -> bool:
        return self.ledger.is_read_only

    def close(self) -> None:
        self.ledger.close()


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    made = Books(tmp_path).begin()
    yield made
    made.close()


def test_a_new_job_takes_no_memory_beside_its_text(books: Books) -> None:
    books.commit_new(7)
    text = books.ledger.in_memory(7)
    assert text == body(7, 1)
    assert books.ledger.serial(7) == 1
    assert [one for one in gc.get_referrers(text) if isinstance(one, tuple)] == []
    books.commit_state(7, 2, "canceled")
    assert (books.ledger.serial(7), books.ledger.in_memory(7)) == (2, body(7, 2, "canceled"))


# What is promised.


def test_nothing_is_answered_before_the_flush(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: order.append("flush"))
    books.said = order
    books.store_new(1, 2)
    books.store_state(2, 2)
    assert order == []
    books.ledger.commit()
    assert order == ["flush", "new 1", "state 2.2"]


def test_a_turn_without_anything_makes_no_flush(books: Books) -> None:
    before = books.ledger.flushes
    books.ledger.commit()
    books.ledger.after_commit(lambda: books.done("later"))
    books.ledger.commit()
    assert books.ledger.flushes == before
    assert books.take_effects() == ["later"]


def test_what_was_promised_is_found_after_a_crash_though_no_file_was_written(
    books: Books,
) -> None:
    books.commit_new(1, 2)
    assert books.directory.live_ids() == []
    assert books.ledger.body(1) == body(1, 1)
    assert books.after_crash() == {1: body(1, 1), 2: body(2, 1)}


def test_what_was_not_committed_is_not_found_after_a_crash(books: Books) -> None:
    books.commit_new(1)
    books.store_new(2)
    books.store_state(1, 2)
    assert books.after_crash() == {1: body(1, 1)}


def test_what_follows_from_an_entry_is_committed_with_it(books: Books) -> None:
    books.commit_new(1)
    books.ledger.after_commit(lambda: books.store_state(1, 2))
    books.ledger.commit()
    assert books.take_effects() == ["new 1", "state 1.2"]
    assert books.after_crash() == {1: body(1, 2)}


def test_the_next_state_starts_from_the_one_that_waits_for_its_flush(books: Books) -> None:
    books.commit_new(1)
    books.store_state(1, 2)
    assert books.ledger.newest(1) == body(1, 2)
    assert books.ledger.body(1) == body(1, 1)
    books.ledger.commit()
    assert books.ledger.newest(1) == books.ledger.body(1) == body(1, 2)


def test_a_flush_does_not_go_back_behind_what_was_noted_meanwhile(books: Books) -> None:
    books.commit_new(1)
    books.store_state(1, 2)
    books.ledger.note(1, 3, body(1, 3))
    books.ledger.commit()
    assert books.ledger.body(1) == body(1, 3)


# Files.


def test_new_jobs_and_the_last_id_get_their_files_when_asked(books: Books) -> None:
    books.commit_new(1, 2, 3)
    assert books.ledger.has_unwritten
    books.ledger.write_newest(2)
    assert books.directory.live_ids() == [2, 3]
    assert (books.places.queue / "serial").read_bytes() == b"3\n"
    assert books.ledger.has_unwritten
    books.ledger.write_newest(2)
    assert books.directory.live_ids() == [1, 2, 3]
    assert books.ledger.serial(1) is None
    assert not books.ledger.has_unwritten


def test_closing_writes_what_has_no_file_yet(tmp_path: Path) -> None:
    books = Books(tmp_path).begin()
    books.commit_new(1, 2)
    books.close()
    assert books.directory.read(2) == body(2, 1)
    assert (books.places.queue / "serial").read_bytes() == b"2\n"


def test_the_state_of_a_job_that_a_process_has_stays_known(books: Books) -> None:
    books.commit_new(1)
    assert books.ledger.write_state(1)
    assert books.directory.read(1) == body(1, 1)
    assert books.ledger.serial(1) == 1
    books.ledger.forget(1)
    assert books.ledger.serial(1) is None


def test_spares_are_lent_once_and_come_back(books: Books) -> None:
    lent = books.ledger.lend_spares(1)
    assert len(lent) == settings.SPARES_PER_JOB
    assert books.ledger.lend_spares(1) == lent
    assert not set(books.ledger.lend_spares(2)).intersection(lent)
    books.ledger.take_back_spares(1)
    books.ledger.take_back_spares(1)
    assert not set(books.ledger.lend_spares(1)).intersection(lent)


def test_archived_jobs_are_moved_once_that_is_durable(books: Books) -> None:
    books.store_new(1)
    books.commit_state(1, 2, "success")
    books.store_archived(1)
    assert books.directory.read_archived(1) is None
    books.ledger.commit()
    assert books.directory.read_archived(1) == body(1, 2, "success")
    assert books.directory.read(1) is None
    assert books.take_effects() == ["new 1", "state 1.2", "archived 1"]
    assert books.after_crash() == {}


# Segments.


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 1_000)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 1)


def test_files_may_be_behind_up_to_their_bounds(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    books.commit_new(1, 2)
    ledger = books.ledger
    for more, is_over in ((0, False), (-1, True)):
        monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 2 + more)
        monkeypatch.setattr(settings, "FILES_AT_ONCE", 2 + more)
        assert (ledger.is_behind, ledger._is_behind_at_renewal) == (is_over, is_over)
    monkeypatch.setattr(settings, "FILES_UNWRITTEN_MAX", 2)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENTS_FACTOR_MAX", 1)
    # (a full segment, one that must not grow any more)
    for more, is_full, must_not in ((1, False, False), (0, False, True), (-1, True, True)):
        monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", ledger._journal.size + more)
        assert (ledger.is_behind, ledger.is_far_behind) == (is_full, must_not)
    ledger.write_newest(2)
    assert not ledger.is_behind
    assert not ledger.is_far_behind


@pytest.mark.usefixtures("small_segments")
def test_a_segment_grows_while_files_of_new_jobs_are_missing(books: Books) -> None:
    names = set()

    def note() -> None:
        names.add(tuple(path.name for path in Journal(books.places.journal).segments()))

    for job_id in range(1, 101):
        books.commit_new(job_id)
        note()
    assert len(names) == 1
    # All but a few written: the next commit begins a new one.
    assert books.ledger.is_behind
    books.ledger.write_newest(95)
    books.commit_new(101)
    note()
    assert len(names) == 2
    assert not books.ledger.is_far_behind
    # However many are missing, there is an end to it.
    for job_id in range(102, 202):
        books.commit_new(job_id)
        note()
    assert len(names) == 2
    assert books.ledger.is_far_behind


@pytest.mark.usefixtures("small_segments")
def test_while_another_thread_cuts_the_journal_the_old_segments_are_not_relied_on(
    tmp_path: Path,
) -> None:
    cuts: list[journal.Cut] = []
    books = Books(tmp_path)
    books.ledger = Ledger(books.directory, books.journal, cuts.append)
    books.begin()
    for job_id in range(1, 41):
        books.commit_new(job_id)
        books.ledger.write_pending()
    [cut] = cuts
    old, *_, newest = books.journal.segments()
    # One at a time: the newest grows meanwhile.
    assert [old, newest] == books.journal.segments()
    assert not books.ledger.is_covered(1)
    assert books.ledger.is_covered(40)
    assert books.ledger.retry()
    cut.carry_out()
    assert books.journal.segments() == [newest]
    books.ledger.was_cut(None)
    books.commit_new(41)
    assert len(cuts) == 2
    books.ledger.was_cut(errors.StorageError("no"))
    assert books.is_read_only()
    # The kernel may have lost what that flush was to cover, and reports no error again.
    (books.places.queue / "job-41").write_bytes(b"")
    assert books.ledger.retry()
    assert sorted(books.after_crash()) == list(range(1, 42))
    cuts[1].carry_out()
    books.close()


@pytest.mark.usefixtures("small_segments")
def test_another_thread_makes_the_next_segment_before_it_is_needed(tmp_path: Path) -> None:
    wanted: list[SegmentAhead] = []
    books = Books(tmp_path)
    books.ledger = Ledger(books.directory, books.journal, make_aside=wanted.append)
    books.begin()
    for job_id in range(1, 101):
        before = len(wanted)
        books.commit_new(job_id)
        for ahead in wanted[before:]:
            ahead.carry_out()
        books.ledger.write_pending()
    assert len(wanted) > 1
    assert {path.name for path in books.journal.segments()} <= {
        Path(books.journal._newest).name,
        f"{wanted[-1].number:08d}.journal",
    }
    assert books.after_crash() == {n: body(n, 1) for n in range(1, 101)}
    books.close()
    assert len(books.journal.segments()) == 1


@pytest.mark.usefixtures("small_segments")
def test_a_disk_that_refuses_gets_back_the_room_of_the_segment_made_ahead(tmp_path: Path) -> None:
    wanted: list[SegmentAhead] = []
    books = Books(tmp_path)
    books.ledger = Ledger(books.directory, books.journal, make_aside=wanted.append)
    books.begin()
    with refusing("listdir"):
        # Nothing says which number is free: the jobs are stored all the same.
        while books.journal.size <= settings.JOURNAL_SEGMENT_BYTES // 2:
            books.commit_new(books.ledger.last_id + 1)
    assert not wanted
    assert not books.is_read_only()
    books.commit_new(books.ledger.last_id + 1)
    wanted[0].carry_out()
    count = len(books.journal.segments())
    with refusing("fdatasync"):
        books.commit_new(50)
    assert books.is_read_only()
    assert len(books.journal.segments()) == count - 1
    assert books.ledger.retry()
    books.commit_new(51)
    assert 50 not in books.after_crash()
    assert 51 in books.after_crash()
    books.close()


@pytest.mark.usefixtures("small_segments")
def test_old_segments_go_and_nothing_with_them(books: Books) -> None:
    for job_id in range(1, 101):
        books.commit_new(job_id)
    assert len(list(books.places.journal.iterdir())) == 1
    assert books.after_crash() == {n: body(n, 1) for n in range(1, 101)}


@pytest.mark.usefixtures("small_segments")
def test_the_states_of_running_jobs_are_repeated_in_the_next_segment(books: Books) -> None:
    books.commit_new(1)
    books.ledger.write_state(1)
    books.store_state(1, 2, "running")
    for job_id in range(2, 50):
        books.commit_new(job_id)
    # The process that owns the file had no time to write it before the machine died.
    assert books.directory.read(1) == body(1, 1)
    said = replay.read_journal(Journal(books.places.journal))
    assert said.states[1] == (2, body(1, 2, "running"))


def test_the_journal_makes_up_only_for_files_whose_states_it_still_has(books: Books) -> None:
    books.commit_new(1, 2)
    books.ledger.write_state(2)
    assert [books.ledger.is_covered(job_id) for job_id in (1, 2)] == [True, True]
    # The segment that had both is deleted; the new one repeats what a process may change.
    assert books.ledger.retry()
    assert [books.ledger.is_covered(job_id) for job_id in (1, 2)] == [False, True]


@pytest.mark.usefixtures("small_segments")
def test_a_disk_that_takes_no_new_segment_loses_nothing(books: Books) -> None:
    with refusing_flushes():
        for job_id in range(1, 50):
            books.commit_new(job_id)
            books.ledger.write_pending()
    assert books.is_read_only()
    stored = [int(said.split()[1]) for said in books.take_effects() if "Error" not in said]
    assert 0 < len(stored) < 49
    assert books.ledger.retry()
    assert sorted(books.after_crash()) == stored


def test_after_a_failed_flush_everything_that_it_covers_is_written_anew(books: Books) -> None:
    """The file is there to be read, and the next flush would do nothing for it."""
    books.commit_new(1, 2, 3)
    books.ledger.write_pending()
    books.commit_archived(2)
    files = [books.places.queue / "job-1", books.places.archive / "0" / "job-2"]
    before = [path.stat().st_ino for path in files]

    with refusing_flushes():
        assert not books.ledger.retry()
    assert [path.stat().st_ino for path in files] == before
    assert books.ledger.retry()
    after = [path.stat().st_ino for path in files]
    assert not set(before) & set(after)
    # Once is enough.
    assert books.ledger.retry()
    assert [path.stat().st_ino for path in files] == after


def test_a_file_system_that_cannot_be_flushed_all_day_gets_no_more_segments(books: Books) -> None:
    books.commit_new(1, 2, 3)
    books.ledger.write_pending()
    # Another process writes this file: the journal alone has its state.
    books.ledger.lend_spares(3)
    books.commit_state(3, 2)

    with refusing_flushes():
        for _ in range(10):
            assert not books.ledger.retry()
        assert len(books.journal.segments()) == 2
        written = (books.places.queue / "job-1").stat().st_ino
        # A disk that does not take the journal either is not written on in vain.
        with refusing("fdatasync", number=errno.EIO):
            assert not books.ledger.retry()
        assert (books.places.queue / "job-1").stat().st_ino == written
    assert books.ledger.retry()
    assert len(books.journal.segments()) == 1
    books.commit_state(2, 2)
    found = books.after_crash(lost=(2, 3))
    assert found == {1: body(1, 1), 2: body(2, 2), 3: body(3, 2)}


def test_the_file_of_a_living_process_is_written_anew_when_that_has_left(books: Books) -> None:
    books.commit_new(1)
    books.ledger.write_state(1)
    books.ledger.lend_spares(1)
    books.commit_state(1, 2, "success")
    path = books.places.queue / "job-1"
    path.write_bytes(body(1, 2, "success"))
    before = path.stat().st_ino

    with refusing_flushes():
        assert not books.ledger.retry()
    assert books.ledger.retry()
    assert path.stat().st_ino == before
    books.ledger.take_back_spares(1)
    with refusing("write"):
        for _ in range(2):
            books.ledger.forget(1)
            assert books.is_read_only()
            assert not books.ledger.retry()
    # The third attempt is as careful as the first.
    assert books.ledger.retry()
    assert path.stat().st_ino != before
    assert path.read_bytes() == body(1, 2, "success")
    assert books.ledger.serial(1) is None


def test_the_file_of_a_living_process_is_left_alone_in_any_doubt(books: Books) -> None:
    books.commit_new(1)
    books.ledger.write_state(1)
    books.ledger.lend_spares(1)
    with refusing_flushes():
        assert not books.ledger.retry()
    assert books.ledger.retry()
    path = books.places.queue / "job-1"
    before = path.stat().st_ino
    # The process has flushed a newer state by itself.
    path.write_bytes(body(1, 2, "running"))
    books.ledger.forget(1)
    assert path.stat().st_ino == before


def test_a_successor_takes_up_the_doubt_of_a_flush_that_failed(books: Books) -> None:
    books.commit_new(1)
    books.ledger.write_pending()
    before = (books.places.queue / "job-1").stat().st_ino

    with refusing_flushes():
        assert not books.ledger.retry()
    successor = Books(books.places.data).begin()
    assert (books.places.queue / "job-1").stat().st_ino != before
    assert [*Journal(books.places.journal).segments()] == [successor.journal.segments()[-1]]
    successor.close()


@pytest.mark.parametrize(("serial", "is_flushed"), [(1, False), (2, True)])
def test_a_file_ahead_of_the_journal_is_flushed_when_it_is_written_anew(
    books: Books, monkeypatch: pytest.MonkeyPatch, serial: int, *, is_flushed: bool
) -> None:
    (books.places.queue / "job-1").write_bytes(body(1, serial))
    write = mock.Mock()
    monkeypatch.setattr(books.directory, "write", write)
    replay.write_file_anew(books.directory, 1, (1, body(1, 1)))
    write.assert_called_once_with(1, body(1, serial), flush=is_flushed)


# A disk that refuses.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_refused_flush_is_a_refused_promise(books: Books, call: str, number: int) -> None:
    books.commit_new(1)
    books.take_effects()
    books.store_new(2)
    books.store_state(1, 2)
    with refusing(call, number=number):
        books.ledger.commit()
        assert books.take_effects() == ["new 2: ReadOnlyError", "state 1.2: ReadOnlyError"]
        assert books.is_read_only()
        books.store_new(3)
        assert books.take_effects() == ["new 3: ReadOnlyError"]
        assert not books.ledger.retry()
    assert books.ledger.newest(1) == books.ledger.body(1) == body(1, 1)
    assert books.ledger.retry()
    assert not books.is_read_only()
    books.commit_new(4)
    assert books.take_effects() == ["new 4"]
    assert books.after_crash() == {1: body(1, 1), 4: body(4, 1)}


def test_the_refusal_names_the_cause(books: Books) -> None:
    texts: list[str] = []
    books.ledger.store_state((1, 1, b"{}"), lambda: None, lambda error: texts.append(error.text))
    with refusing("fdatasync"):
        books.ledger.commit()
    segment = books.places.journal / "00000001.journal"
    assert texts == [f"the queue takes no changes now: {segment}: No space left on device"]


def test_what_does_not_need_the_disk_goes_on_while_it_refuses(books: Books) -> None:
    with refusing("fdatasync"):
        books.commit_new(1)
        books.ledger.after_commit(lambda: books.done("later"))
        books.ledger.commit()
    assert books.take_effects() == ["new 1: ReadOnlyError", "later"]


def test_a_retry_does_not_make_promises_of_what_it_drops(books: Books) -> None:
    books.store_new(1)
    with refusing("fdatasync"):
        assert not books.ledger.retry()
        books.ledger.commit()
    assert books.take_effects() == ["new 1: ReadOnlyError"]
    assert books.after_crash() == {}


def test_a_job_file_that_cannot_be_written_is_in_the_journal(books: Books) -> None:
    books.commit_new(1)
    with refusing("ftruncate"):
        books.ledger.write_file(1)
        assert books.is_read_only()
        assert books.ledger.body(1) == body(1, 1)
        # The journal works, but the queue is not asked for more while job files cannot follow.
        assert not books.ledger.retry()
    assert books.after_crash() == {1: body(1, 1)}
    assert books.ledger.retry()
    assert books.directory.read(1) == body(1, 1)


def test_a_job_that_cannot_be_moved_into_the_archive_is_moved_later(books: Books) -> None:
    books.store_new(1)
    books.store_state(1, 2, "success")
    books.commit_new(2)
    books.ledger.write_pending()
    books.take_effects()
    books.store_archived(1)
    books.store_state(2, 2)
    with refusing("mkdir"):
        books.ledger.commit()
        assert books.take_effects() == ["state 2.2"]
        assert books.is_read_only()
        assert not books.ledger.retry()
    # It was durable before it was tried.
    assert sorted(books.after_crash()) == [2]
    assert books.ledger.retry()
    assert books.take_effects() == ["archived 1"]
    assert books.directory.read_archived(1) == body(1, 2, "success")


def test_a_serial_file_that_cannot_be_written_holds_nothing_up(books: Books) -> None:
    books.commit_new(1)
    with refusing("pwrite"):
        books.ledger.write_newest(1)
    assert books.take_effects() == ["new 1"]
    assert not books.is_read_only()
    assert books.directory.live_ids() == [1]
    # It is not tried again and again, but whenever there is another reason to write.
    assert not books.ledger.has_unwritten
    assert books.directory.read_serial() == 0
    books.ledger.write_newest(1)
    assert books.directory.read_serial() == 1


def test_a_ledger_may_begin_read_only(tmp_path: Path) -> None:
    books = Books(tmp_path)
    with refusing("fsync"):
        books.begin()
    assert books.is_read_only()
    assert books.ledger.retry()
    books.commit_new(1)
    assert books.take_effects() == ["new 1"]
    books.close()


def test_a_disk_that_refuses_all_day_keeps_no_more_files_than_before(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    books.commit_new(1)
    with refusing("ftruncate"):
        for _ in range(5):
            books.ledger.retry()
    names = [name for name in os.listdir(books.places.queue) if name.startswith(inodes.PREFIX)]
    assert len(names) <= 1
    assert len(list(books.places.journal.iterdir())) == 1
