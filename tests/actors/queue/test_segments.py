"""Segments of the journal: when a new one begins, what it repeats, and what is written anew."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest import mock

import pytest
from tests.actors.queue.books import Books, body
from tests.refusals import refusing, refusing_flushes

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store.loaded import Loaded
from ganger.storage import errors, settings
from ganger.storage.log.cut import Cut
from ganger.storage.log.journal import Journal
from ganger.storage.log.segment_ahead import SegmentAhead
from ganger.storage.queue_files import inodes, replay
from ganger.storage.queue_files.compaction import Compaction


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 1_000)


def books_with_compactor(tmp_path: Path) -> tuple[Books, list[tuple[Compaction, Cut]]]:
    """Books whose compactor works when the test says so, as another thread does it."""
    given: list[tuple[Compaction, Cut]] = []
    books = Books(tmp_path)
    books.ledger = Ledger(books.directory, books.journal, lambda *one: given.append(one))
    books.begin()
    return books, given


def compact(books: Books, given: list[tuple[Compaction, Cut]]) -> None:
    """The compactor comes to its end; the next turn may give it more."""
    compaction, cut = given.pop()
    for _ in compaction.steps(cut):
        pass
    books.ledger.was_compacted()
    books.ledger.commit()


@pytest.mark.usefixtures("small_segments")
def test_so_many_segments_are_sealed_at_most_and_the_newest_grows_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SEALED_SEGMENTS_MAX", 2)
    books, given = books_with_compactor(tmp_path)
    for job_id in range(1, 61):
        books.commit_new(job_id)
    _, second, newest = books.journal.segments()
    assert len(given) == 1
    assert books.ledger.segments.must_wait
    assert books.ledger.segments.fullness > 2
    # Of what only sealed segments have, the newest one does not cover anything.
    assert [books.ledger.segments.is_covered(one) for one in (1, 60)] == [False, True]
    compact(books, given)
    # The newest one has grown full, and is the second of the sealed ones now.
    assert books.journal.segments()[:2] == [second, newest]
    compact(books, given)
    assert not given
    assert len(books.journal.segments()) == 1
    assert books.after_crash() == {n: body(n, 1) for n in range(1, 61)}


@pytest.mark.usefixtures("small_segments")
def test_while_the_compactor_works_the_disk_is_not_tried_again(tmp_path: Path) -> None:
    books, given = books_with_compactor(tmp_path)
    for job_id in range(1, 31):
        books.commit_new(job_id)
    books.ledger.refuse_writes(errors.StorageError("no"))
    assert not books.ledger.retry()
    compact(books, given)
    # It was given up: all segments stay.
    assert len(books.journal.segments()) == 3
    assert not books.ledger.segments.is_doubtful
    assert books.ledger.retry()
    assert len(books.journal.segments()) == 1
    assert books.after_crash() == {n: body(n, 1) for n in range(1, 31)}


@pytest.mark.usefixtures("small_segments")
def test_a_segment_that_is_full_of_what_it_repeats_is_not_followed_by_another_at_once(
    tmp_path: Path,
) -> None:
    books, given = books_with_compactor(tmp_path)

    def commit(serial: int, *ids: int) -> int:
        """Commit new states of these jobs: how many segments begin until nothing is left to do."""
        for job_id in ids:
            books.store_state(job_id, serial)
        books.ledger.commit()
        begun = 0
        while given and begun < 5:
            begun += 1
            compact(books, given)
        return begun

    books.store_new(*range(1, 101))
    assert commit(1) == 1
    for job_id in range(1, 101):
        # Its process is being made: the next segment repeats its state.
        books.ledger.files.claim(job_id)
    assert commit(2, *range(1, 101)) == 1
    assert books.ledger._journal.size > 5 * settings.JOURNAL_SEGMENT_BYTES
    assert commit(3) == 0
    assert commit(3, 1, 2, 3) == 0
    assert commit(3, *range(4, 14)) == 1
    states = {n: body(n, 3 if n < 14 else 2) for n in range(1, 101)}
    assert books.after_crash() == states


@pytest.mark.usefixtures("small_segments")
def test_another_thread_makes_the_next_segment_before_it_is_needed(tmp_path: Path) -> None:
    wanted: list[SegmentAhead] = []
    books = Books(tmp_path)
    books.ledger = Ledger(books.directory, books.journal, make_in_thread=wanted.append)
    books.begin()
    for job_id in range(1, 101):
        before = len(wanted)
        books.commit_new(job_id)
        for ahead in wanted[before:]:
            ahead.carry_out()
        books.ledger.files.write_pending()
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
    books.ledger = Ledger(books.directory, books.journal, make_in_thread=wanted.append)
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
    books.ledger.files.write_state(1)
    books.store_state(1, 2, "running")
    for job_id in range(2, 50):
        books.commit_new(job_id)
    # The process that owns the file had no time to write it before the machine died.
    assert books.directory.read(1) == body(1, 1)
    said = replay.read_journal(Journal(books.places.journal))
    assert said.states[1] == (2, body(1, 2, "running"))


def test_the_journal_makes_up_only_for_files_whose_states_it_still_has(books: Books) -> None:
    books.commit_new(1, 2)
    books.ledger.files.write_state(2)
    assert [books.ledger.segments.is_covered(job_id) for job_id in (1, 2)] == [True, True]
    # The segment that had both is deleted; the new one repeats what a process may change.
    assert books.ledger.retry()
    assert [books.ledger.segments.is_covered(job_id) for job_id in (1, 2)] == [False, True]


@pytest.mark.usefixtures("small_segments")
def test_a_disk_that_takes_no_new_segment_loses_nothing(books: Books) -> None:
    with refusing_flushes():
        for job_id in range(1, 50):
            books.commit_new(job_id)
            books.ledger.files.write_pending()
    assert books.is_read_only()
    stored = [int(said.split()[1]) for said in books.take_effects() if "Error" not in said]
    assert 0 < len(stored) < 49
    assert books.ledger.retry()
    assert sorted(books.after_crash()) == stored


def test_after_a_failed_flush_everything_that_it_covers_is_written_anew(books: Books) -> None:
    """The file is there to be read, and the next flush would do nothing for it."""
    books.commit_new(1, 2, 3)
    books.ledger.files.write_pending()
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


def test_spares_that_cannot_be_deleted_are_no_reason_to_end(books: Books) -> None:
    """Any of them may have a page that the disk has refused: none is written into again."""
    books.commit_new(1)
    books.ledger.files.write_pending()
    spare = books.places.queue / f"{inodes.PREFIX}lent"
    spare.write_bytes(b"")
    with refusing_flushes():
        assert not books.ledger.retry()
    with refusing("unlink"):
        assert not books.ledger.retry()
    assert books.is_read_only()
    assert books.ledger.retry()
    assert not spare.exists()


def test_a_file_system_that_cannot_be_flushed_all_day_gets_no_more_segments(books: Books) -> None:
    books.commit_new(1, 2, 3)
    books.ledger.files.write_pending()
    # Another process writes this file: the journal alone has its state.
    books.ledger.files.lend_spares(3)
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
    books.ledger.files.write_state(1)
    books.ledger.files.lend_spares(1)
    books.commit_state(1, 2, "success")
    path = books.places.queue / "job-1"
    path.write_bytes(body(1, 2, "success"))
    before = path.stat().st_ino

    with refusing_flushes():
        assert not books.ledger.retry()
    assert books.ledger.retry()
    assert path.stat().st_ino == before
    books.ledger.files.take_back_spares(1)
    with refusing("write"):
        for _ in range(2):
            books.ledger.files.forget(1)
            assert books.is_read_only()
            assert not books.ledger.retry()
    # The third attempt is as careful as the first.
    assert books.ledger.retry()
    assert path.stat().st_ino != before
    assert path.read_bytes() == body(1, 2, "success")
    assert books.ledger.files.serial(1) is None


def test_the_file_of_a_living_process_is_left_alone_in_any_doubt(books: Books) -> None:
    books.commit_new(1)
    books.ledger.files.write_state(1)
    books.ledger.files.lend_spares(1)
    with refusing_flushes():
        assert not books.ledger.retry()
    assert books.ledger.retry()
    path = books.places.queue / "job-1"
    before = path.stat().st_ino
    # The process has flushed a newer state by itself.
    path.write_bytes(body(1, 2, "running"))
    books.ledger.files.forget(1)
    assert path.stat().st_ino == before


def test_a_successor_takes_up_the_doubt_of_a_flush_that_failed(books: Books) -> None:
    books.commit_new(1)
    books.ledger.files.write_pending()
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


@pytest.fixture
def three_left(tmp_path: Path) -> None:
    """A queue with three jobs has ended."""
    books = Books(tmp_path).begin()
    books.commit_new(1, 2, 3)
    books.ledger.files.write_pending()
    books.close()


def begin_after_many(tmp_path: Path) -> tuple[Books, list[tuple[Compaction, Cut]]]:
    """A start behind a journal with too many jobs to read their files in a turn."""
    given: list[tuple[Compaction, Cut]] = []
    books = Books(tmp_path)
    books.ledger = Ledger(books.directory, books.journal, lambda *one: given.append(one))
    many = settings.FILES_UNWRITTEN_MAX + 1
    books.ledger.begin(Loaded(last_id=3, journaled=many))
    return books, given


@pytest.mark.usefixtures("three_left")
@pytest.mark.parametrize("found", [b"", bytes(40), body(2, 0)])
def test_the_compactor_reads_files_back_after_a_start_and_segments_stay_until_then(
    tmp_path: Path, found: bytes
) -> None:
    books, given = begin_after_many(tmp_path)
    old, newest = books.journal.segments()
    assert not books.is_read_only()
    (books.places.queue / "job-2").write_bytes(found)
    [(compaction, _)] = given
    compact(books, given)
    assert "the disk does not have what was written: job-2" in str(compaction.error)
    assert books.journal.segments() == [old, newest]
    assert books.is_read_only()
    assert books.ledger.retry()
    assert old not in books.journal.segments()
    assert books.after_crash() == {n: body(n, 1) for n in (1, 2, 3)}
    books.close()


@pytest.mark.usefixtures("three_left")
def test_a_start_on_a_disk_that_refuses_the_flush_is_in_doubt(tmp_path: Path) -> None:
    books, given = begin_after_many(tmp_path)
    with refusing_flushes():
        compact(books, given)
    assert (books.is_read_only(), books.ledger.segments.is_doubtful, given) == (True, True, [])
    assert books.ledger.retry()
    assert len(books.journal.segments()) == 1
    assert books.after_crash() == {n: body(n, 1) for n in (1, 2, 3)}
    books.close()


def test_a_queue_that_runs_reads_files_back_before_segments_go(tmp_path: Path) -> None:
    books, given = books_with_compactor(tmp_path)
    books.commit_new(1, 2)
    books.ledger.files.write_pending()
    # The process of this job writes its file: the new segment answers for that.
    books.ledger.files.lend_spares(2)
    books.commit_new(3)
    books.ledger.seal()
    for job_id in (1, 2):
        (books.places.queue / f"job-{job_id}").write_bytes(bytes(40))
    [(compaction, _)] = given
    compact(books, given)
    assert str(compaction.error).endswith("have what was written: job-1")
    assert len(books.journal.segments()) == 2
    books.close()
