"""A segment made ahead: it is taken if it is whole, and harms nothing if it is not."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors, settings
from ganger.storage.log import records, segment_ahead
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import Record, SegmentBegun, StateStored
from ganger.storage.log.segment_ahead import SegmentAhead

RECORDS: list[Record] = [StateStored(1, serial, b"x" * 30) for serial in range(1, 6)]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 80)
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", 200)
    monkeypatch.setattr(segment_ahead, "_PIECE_BYTES", 100)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def numbers(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.iterdir())


def replayed(directory: Path) -> list[Record]:
    records = list(Journal(directory).replay())
    return [record for record in records if not isinstance(record, SegmentBegun)]


def store(kept: Journal, record: Record) -> None:
    kept.append(record)
    kept.write(1)


def begun(directory: Path) -> tuple[Journal, SegmentAhead]:
    """A journal with one record, and the segment that it wants made."""
    kept = Journal(directory)
    store(kept, RECORDS[0])
    ahead = kept.make_ahead()
    assert ahead is not None
    return kept, ahead


def test_the_next_segment_is_begun_without_opening_and_without_flushing_the_directory(
    directory: Path,
) -> None:
    kept, ahead = begun(directory)
    ahead.carry_out()
    size = (directory / "00000002.journal").stat().st_size
    assert size == settings.JOURNAL_SEGMENT_BYTES + settings.JOURNAL_RESERVE_BYTES
    with refusing("open", "fsync"):
        kept.begin(1)
        store(kept, RECORDS[1])
    # Its room is used: nothing is written ahead of the record.
    assert (directory / "00000002.journal").stat().st_size == size
    assert replayed(directory) == RECORDS[:2]
    kept.cut()
    assert numbers(directory) == [2]
    assert replayed(directory) == RECORDS[1:2]
    kept.close()


def test_a_segment_made_ahead_grows_as_every_other_one(directory: Path) -> None:
    kept, ahead = begun(directory)
    ahead.carry_out()
    kept.begin(1)
    store(kept, StateStored(2, 1, b"y" * 1_000))
    store(kept, RECORDS[1])
    assert replayed(directory) == [RECORDS[0], StateStored(2, 1, b"y" * 1_000), RECORDS[1]]
    kept.close()


def test_it_is_wanted_once_for_each_segment_and_not_too_early(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal(directory)
    assert kept.make_ahead() is None
    store(kept, RECORDS[0])
    with monkeypatch.context() as patch:
        patch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 2 * kept.size)
        assert kept.make_ahead() is None
        patch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 2 * kept.size - 1)
        ahead = kept.make_ahead()
    assert ahead is not None
    assert kept.make_ahead() is None
    ahead.carry_out()
    kept.begin(1)
    store(kept, RECORDS[1])
    assert kept.make_ahead() is not None
    kept.close()


@pytest.mark.parametrize("call", ["open", "pwrite", "fdatasync", "fsync"])
def test_one_that_cannot_be_made_leaves_no_file_and_the_journal_makes_its_own(
    directory: Path, call: str
) -> None:
    kept, ahead = begun(directory)
    with refusing(call), pytest.raises(errors.StorageError, match=r"00000002\.journal|journal: "):
        ahead.carry_out()
    assert numbers(directory) == [1]
    assert kept.make_ahead() is None
    kept.begin(1)
    store(kept, RECORDS[1])
    assert replayed(directory) == RECORDS[:2]
    kept.close()


def test_one_that_can_neither_be_made_nor_deleted_goes_with_the_next_cut(directory: Path) -> None:
    kept, ahead = begun(directory)
    with refusing("fsync", "unlink"), pytest.raises(errors.StorageError):
        ahead.carry_out()
    assert numbers(directory) == [1, 2]
    kept.begin(1)
    store(kept, RECORDS[1])
    assert numbers(directory) == [1, 2, 3]
    assert replayed(directory) == RECORDS[:2]
    kept.cut()
    assert numbers(directory) == [3]
    kept.close()


@pytest.mark.parametrize("when", ["before", "in the middle", "at its end"])
def test_one_that_comes_too_late_is_not_used(
    directory: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, ahead = begun(directory)
    flush, flushed = os.fdatasync, 0

    def need_it() -> None:
        kept.begin(1)
        store(kept, RECORDS[1])

    def flush_and_need_it(descriptor: int) -> None:
        nonlocal flushed
        flush(descriptor)
        flushed += 1
        if flushed == (2 if when == "in the middle" else 3):
            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", flush)
                need_it()

    if when == "before":
        need_it()
    else:
        monkeypatch.setattr(os, "fdatasync", flush_and_need_it)
    ahead.carry_out()
    assert numbers(directory) == [1, 3]
    store(kept, RECORDS[2])
    assert replayed(directory) == RECORDS[:3]
    kept.close()


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_crash_leaves_counts_for_nothing(directory: Path, *, is_whole: bool) -> None:
    _, ahead = begun(directory)
    ahead.carry_out()
    if not is_whole:
        os.truncate(directory / "00000002.journal", 3)
    # The daemon dies; the next one finds both.
    assert replayed(directory) == RECORDS[:1]
    successor = Journal(directory)
    assert not successor.has_older
    said = [records.RECORDS.content(path.read_bytes(), path) for path in successor.segments()]
    assert [content.left_out for content in said] == [[], []]
    store(successor, RECORDS[1])
    assert numbers(directory) == [1, 2, 3]
    found = [kept.has_older for kept in (successor, Journal(directory))]
    assert found == [True, True]
    assert replayed(directory) == RECORDS[:2]
    successor.cut()
    assert numbers(directory) == [3]
    assert not Journal(directory).has_older
    successor.close()


def test_one_that_holds_records_is_an_older_segment_for_a_successor(directory: Path) -> None:
    kept, ahead = begun(directory)
    ahead.carry_out()
    kept.begin(1)
    store(kept, RECORDS[1])
    assert Journal(directory).has_older
    kept.close()


def test_a_replaced_queue_and_its_successor_never_share_a_segment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ahead = begun(directory)
    successor = Journal(directory)
    listed = successor._segments

    def list_and_be_late() -> list[int]:
        found = listed()
        monkeypatch.undo()
        monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 80)
        ahead.carry_out()
        return found

    monkeypatch.setattr(successor, "_segments", list_and_be_late)
    store(successor, RECORDS[1])
    assert numbers(directory) == [1, 2, 3]
    assert replayed(directory) == RECORDS[:2]
    successor.close()


def test_a_file_that_is_there_already_is_neither_used_nor_deleted(directory: Path) -> None:
    kept, ahead = begun(directory)
    (directory / "00000002.journal").write_bytes(b"mine")
    with pytest.raises(errors.StorageError, match="File exists"):
        ahead.carry_out()
    kept.begin(1)
    store(kept, RECORDS[1])
    assert (directory / "00000002.journal").read_bytes() == b"mine"
    assert numbers(directory) == [1, 2, 3]
    kept.close()


@pytest.mark.parametrize("is_made", [True, False])
def test_one_that_is_given_up_frees_its_room_and_its_descriptor(
    directory: Path, *, is_made: bool
) -> None:
    # What other tests have left would close its own meanwhile.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    kept, ahead = begun(directory)
    if is_made:
        ahead.carry_out()
    kept.give_up_ahead()
    ahead.carry_out()
    assert numbers(directory) == [1]
    store(kept, RECORDS[1])
    kept.begin(1)
    store(kept, RECORDS[2])
    assert replayed(directory) == RECORDS[:3]
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_closed_journal_leaves_no_segment_behind(directory: Path) -> None:
    kept, ahead = begun(directory)
    ahead.carry_out()
    kept.close()
    assert numbers(directory) == [1]
    assert replayed(directory) == RECORDS[:1]


def test_threads_make_segments_while_the_journal_goes_on(directory: Path) -> None:
    kept = Journal(directory)
    stored: list[Record] = []
    threads: list[threading.Thread] = []
    for serial in range(1, 200):
        record = StateStored(1, serial, b"z" * 20)
        store(kept, record)
        stored.append(record)
        if (ahead := kept.make_ahead()) is not None:
            threads.append(threading.Thread(target=ahead.carry_out))
            threads[-1].start()
        if serial % 7 == 0:
            if serial % 2:
                threads[-1].join()
            kept.begin(1)
            kept.write(1)
    for thread in threads:
        thread.join()
    assert replayed(directory) == stored
    kept.close()
