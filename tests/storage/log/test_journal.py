"""The journal: a replay finds committed records, and never others."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import msgspec
import pytest
from tests.refusals import filling, full_disk, refuse, refusing, refusing_flushes

from ganger.storage import errors, settings
from ganger.storage.log import checked_records, cut, records
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, SegmentBegun, StateStored

FIRST = JobsStored([(1, 1, b"one"), (2, 1, b"two")])
SECOND = StateStored(1, 2, b"one again")
THIRD = JobArchived(2)
RECORDS: list[records.Record] = [FIRST, SECOND, THIRD]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def replayed(directory: Path) -> list[records.Record]:
    """What a successor finds, without the marks at the head of segments."""
    found = list(Journal(directory).replay())
    return [record for record in found if not isinstance(record, SegmentBegun)]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def store(kept: Journal, *records: records.Record, last_id: int = 2) -> None:
    for record in records:
        kept.append(record)
    kept.write(last_id)


def test_committed_records_are_replayed_in_order(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST, SECOND)
    store(kept, THIRD)
    assert list(Journal(directory).replay()) == [
        SegmentBegun(records.FORMAT_VERSION, 2, 1),
        *RECORDS,
    ]
    kept.close()


def test_records_that_were_not_committed_are_not_there(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.append(SECOND)
    assert kept._buffer
    assert replayed(directory) == [FIRST]
    kept.close()
    assert replayed(directory) == [FIRST]


def test_many_records_share_one_flush(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Journal(directory)
    kept.begin(0)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    before = kept.flushes
    for record in RECORDS * 100:
        kept.append(record)
    kept.write(2)
    assert (len(flushed), kept.flushes - before) == (1, 1)
    kept.write(2)
    assert len(flushed) == 1
    kept.close()


def test_the_flush_comes_after_the_write(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Journal(directory)
    kept.begin(0)
    sizes: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda d: sizes.append(os.fstat(d).st_size))
    store(kept, FIRST, last_id=0)
    [path] = segments(directory)
    assert sizes == [path.stat().st_size]
    kept.close()


def test_work_beside_a_commit_is_done_between_the_write_and_the_flush(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal(directory)
    kept.begin(0)
    before, order = kept.size, list[str]()

    def meanwhile() -> None:
        [path] = segments(directory)
        is_written = path.read_bytes().rstrip(b"\0")[before:]
        order.append("written" if is_written else "not written")

    monkeypatch.setattr(os, "fdatasync", lambda _: order.append("flush"))
    kept.append(FIRST)
    kept.write(0, meanwhile)
    assert order == ["written", "flush"]
    # Without records there is nothing to wait for.
    kept.write(0, meanwhile)
    assert order == ["written", "flush"]
    kept.append(SECOND)
    with refusing("pwrite"), pytest.raises(errors.StorageError):
        kept.write(0, meanwhile)
    # The one that follows is of the truncated segment.
    assert order == ["written", "flush", "flush"]
    kept.close()


def test_a_record_that_fits_into_the_reserve_does_not_extend_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = len(records.RECORDS.packed(SECOND))
    monkeypatch.setattr(settings, "JOURNAL_RESERVE_BYTES", reserve)
    monkeypatch.setattr(settings, "JOURNAL_LAST_BYTES", 0)
    kept = Journal(directory)
    found = []
    for record in RECORDS:
        store(kept, record)
        [path] = segments(directory)
        found.append(path.stat().st_size - kept.size)
    assert found == [reserve, 0, reserve]
    kept.close()


def test_a_torn_tail_is_cut_at_every_byte(directory: Path) -> None:
    kept = Journal(directory)
    sizes = []
    for record in RECORDS:
        store(kept, record)
        [path] = segments(directory)
        sizes.append(kept._size)
    kept.close()
    data = path.read_bytes()
    for length in range(sizes[-1] + 2):
        path.write_bytes(data[:length])
        whole = sum(size <= length for size in sizes)
        assert replayed(directory) == RECORDS[:whole], length


def test_a_damaged_record_ends_its_segment(directory: Path) -> None:
    kept = Journal(directory)
    for record in RECORDS:
        store(kept, record)
    kept.close()
    [path] = segments(directory)
    data = bytearray(path.read_bytes())
    place = data.index(b"one again")
    for flipped in (place, place - 8):
        damaged = data.copy()
        damaged[flipped] ^= 1
        path.write_bytes(damaged)
        assert replayed(directory) == [FIRST]


def test_zeros_at_the_end_are_no_records(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.close()
    [path] = segments(directory)
    with path.open("ab") as file:
        file.write(b"\0" * 4096)
    assert replayed(directory) == [FIRST]


def test_after_a_torn_tail_the_next_segment_counts(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.close()
    [path] = segments(directory)
    path.write_bytes(path.read_bytes().rstrip(b"\0")[:-1])
    successor = Journal(directory)
    store(successor, SECOND)
    successor.close()
    assert len(segments(directory)) == 2
    assert replayed(directory) == [SECOND]


def test_a_successor_never_appends_to_a_segment_of_its_predecessor(directory: Path) -> None:
    for record in RECORDS:
        kept = Journal(directory)
        store(kept, record)
        kept.close()
    names = [f"{number:08d}.journal" for number in (1, 2, 3)]
    assert [path.name for path in segments(directory)] == names
    assert replayed(directory) == RECORDS


def test_other_files_in_the_directory_are_left_alone(directory: Path) -> None:
    kept = Journal(directory)
    for name in ("notes", "x.journal", "00000007.journal~"):
        (directory / name).write_bytes(b"mine")
    store(kept, FIRST)
    kept.begin(2)
    store(kept, SECOND)
    kept.cut()
    kept.close()
    assert {path.name for path in segments(directory)} == {
        *("notes", "x.journal", "00000007.journal~"),
        "00000002.journal",
    }


def test_cutting_deletes_all_segments_but_the_newest(directory: Path) -> None:
    kept = Journal(directory)
    for record in RECORDS:
        kept.begin(2)
        assert kept.has_older == (record is not FIRST)
        store(kept, record)
    kept.cut()
    assert not kept.has_older
    kept.close()
    assert [path.name for path in segments(directory)] == ["00000003.journal"]
    assert replayed(directory) == [THIRD]


def test_cutting_makes_the_job_files_durable_first(directory: Path) -> None:
    kept = Journal(directory)
    kept.begin(0)
    kept.begin(0)
    with refusing_flushes(), pytest.raises(errors.StorageError):
        kept.cut()
    assert len(segments(directory)) == 2
    kept.close()


def test_a_file_system_can_be_flushed(directory: Path) -> None:
    directory.mkdir()
    cut.flush_file_system(directory)
    with pytest.raises(errors.StorageError, match="missing: No such file"):
        cut.flush_file_system(directory / "missing")


def test_a_segment_reports_that_it_is_full(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", kept.size)
    said = [kept.is_full]
    store(kept, SECOND)
    said.append(kept.is_full)
    kept.begin(2)
    said.append(kept.is_full)
    assert said == [False, True, False]
    kept.close()


def test_a_journal_of_a_later_format_is_refused(directory: Path) -> None:
    directory.mkdir()
    path = directory / "00000001.journal"
    path.write_bytes(records.RECORDS.packed(SegmentBegun(records.FORMAT_VERSION + 1, 5)))
    with pytest.raises(errors.DataDirectoryError) as caught:
        replayed(directory)
    assert caught.value.text == f"{path}: journal format 4, supported is 3"


@pytest.mark.parametrize(
    "payload", [["renamed", 5], ["begun", "two", 5], {"version": 2}, ["state", 7, 2], 5]
)
def test_a_whole_record_of_an_unknown_kind_is_refused_and_not_cut(
    directory: Path, payload: object
) -> None:
    directory.mkdir()
    path = directory / "00000001.journal"
    unknown = msgspec.msgpack.encode(payload)
    head = checked_records.HEAD.pack(len(unknown), zlib.crc32(unknown))
    path.write_bytes(records.RECORDS.packed(FIRST) + head + unknown)
    with pytest.raises(errors.DataDirectoryError) as caught:
        replayed(directory)
    assert caught.value.text == f"{path}: a record of an unknown kind; supported is format 3"


# What a replay leaves out.


def tail(directory: Path, data: bytes) -> checked_records.Tail | None:
    return records.RECORDS.content(data, directory / "00000001.journal").tail


def test_a_segment_that_was_closed_in_order_has_no_tail(directory: Path) -> None:
    kept = Journal(directory)
    for record in RECORDS:
        store(kept, record)
    kept.close()
    [path] = Journal(directory).segments()
    data = path.read_bytes()
    assert data.endswith(b"\0" * 1_000)
    assert tail(directory, data) is None
    assert tail(directory, b"") is None


def test_a_torn_record_is_a_tail(directory: Path) -> None:
    whole, torn = records.RECORDS.packed(FIRST), records.RECORDS.packed(SECOND)
    for length in range(1, len(torn)):
        assert tail(directory, whole + torn[:length] + b"\0" * 64) == checked_records.Tail(
            len(whole), has_records=False
        ), length
    # A page of zeros over its head makes it no empty record.
    assert tail(directory, whole + b"\0" * 8 + torn[8:]) == checked_records.Tail(
        len(whole), has_records=False
    )


@pytest.mark.parametrize("behind", RECORDS)
def test_whole_records_behind_a_damaged_one_are_seen(
    directory: Path, behind: records.Record
) -> None:
    first, damaged = records.RECORDS.packed(FIRST), bytearray(records.RECORDS.packed(SECOND))
    damaged[-1] ^= 1
    data = first + damaged + records.RECORDS.packed(behind) + b"\0" * 64
    assert tail(directory, data) == checked_records.Tail(len(first), has_records=True)


# A disk that refuses.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("calls", [("pwrite",), ("fdatasync",), ("fdatasync", "ftruncate")])
def test_after_a_refused_commit_the_next_one_counts(
    directory: Path, calls: tuple[str, ...], number: int
) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.append(SECOND)
    with refusing(*calls, number=number) as made, pytest.raises(errors.StorageError) as caught:
        kept.write(2)
    cause = f"{segments(directory)[0]}: {os.strerror(number)}"
    unknown = "" if "fdatasync" not in calls else "; whether this change took effect is unknown"
    assert caught.value.text == cause + unknown
    assert set(made) == set(calls)
    assert not kept._buffer
    store(kept, THIRD)
    kept.close()
    if "ftruncate" not in calls:
        assert replayed(directory) == [FIRST, THIRD]


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_refused_record_does_not_come_back(directory: Path, call: str) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.append(SECOND)
    with refusing(call), pytest.raises(errors.StorageError):
        kept.write(2)
    assert replayed(directory) == [FIRST]


def test_a_record_written_in_part_does_not_come_back(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    # The first of the two records fits on the disk, the second does not.
    room = len(records.RECORDS.packed(SECOND)) + 3
    kept.append(SECOND)
    kept.append(THIRD)
    with filling(room), pytest.raises(errors.StorageError):
        kept.write(2)
    assert replayed(directory) == [FIRST]


def fill_up(kept: Journal) -> int:
    """Write records over the zeros until a full disk takes no more; how many it took."""
    for count in range(10_000):
        kept.append(records.StateStored(1, count + 2, bytes(10_000)))
        try:
            kept.write(2)
        except errors.StorageError:
            return count
    raise AssertionError("the disk is never full")


def test_on_a_full_disk_only_what_gives_space_back_has_the_last_room(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    with full_disk():
        assert fill_up(kept) == (settings.JOURNAL_RESERVE_BYTES - settings.JOURNAL_LAST_BYTES) // (
            10_030
        )
        kept.use_last_room()
        store(kept, purged := records.JobsPurged([*range(70_000, 80_000)]))
        with pytest.raises(errors.StorageError):
            store(kept, SECOND)
    assert replayed(directory)[-1] == purged
    store(kept, THIRD)
    assert replayed(directory)[-2:] == [purged, THIRD]
    [path] = segments(directory)
    assert path.stat().st_size >= kept.size + settings.JOURNAL_LAST_BYTES, "it is there again"
    kept.close()


def test_a_full_disk_has_no_room_for_another_segment_so_the_last_one_is_used(
    directory: Path,
) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    descriptors = len(os.listdir("/proc/self/fd"))
    with full_disk():
        with pytest.raises(errors.StorageError):
            kept.begin(2)
        assert kept.is_open
        store(kept, SECOND)
    kept.begin(2)
    with filling(0), pytest.raises(errors.StorageError):
        kept.write(2)
    store(kept, THIRD)
    assert replayed(directory) == RECORDS
    assert len(segments(directory)) == 1
    assert len(os.listdir("/proc/self/fd")) == descriptors
    kept.close()


def test_a_start_on_a_full_disk_goes_on_in_the_segment_of_its_predecessor(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST, SECOND)
    end = kept.size
    kept.close()
    [path] = segments(directory)
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"torn")
    successor = Journal(directory)
    with full_disk():
        successor.adopt()
        successor.go_on_from(2)
        store(successor, THIRD)
    assert (replayed(directory), successor.durable) == (RECORDS, 3)
    assert tail(directory, path.read_bytes()) is None
    successor.close()


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_record_refused_with_its_segment_does_not_come_back(directory: Path, call: str) -> None:
    kept = Journal(directory)
    kept.append(FIRST)
    with refusing(call), pytest.raises(errors.StorageError):
        kept.write(2)
    store(kept, SECOND)
    kept.close()
    assert replayed(directory) == [SECOND]


def test_a_segment_that_was_begun_in_vain_does_not_shift_the_next_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal(directory)
    store(kept, StateStored(1, 1, b"x" * 1_000), last_id=1)
    with refusing("fsync"), pytest.raises(errors.StorageError):
        kept.begin(1)
    kept.append(FIRST)
    with monkeypatch.context() as patch:
        # Cut off again at the size of this segment, not at that of the last one.
        refuse(patch, "fdatasync")
        with pytest.raises(errors.StorageError):
            kept.write(2)
    store(kept, SECOND)
    kept.close()
    assert [record for record in replayed(directory) if record in RECORDS] == [SECOND]


def test_a_start_that_fails_again_and_again_leaves_no_file(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept._close()
    for calls in (("pwrite",), ("fsync",), ("fdatasync", "ftruncate"), ("pwrite", "unlink")):
        with refusing(*calls):
            for _ in range(5):
                kept.append(SECOND)
                with pytest.raises(errors.StorageError):
                    kept.write(2)
        assert len(segments(directory)) == 1 + ("unlink" in calls)
    store(kept, SECOND)
    assert [path.name for path in segments(directory)] == ["00000001.journal", "00000002.journal"]
    assert replayed(directory) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("calls", "may_come_back"),
    [
        (("pwrite",), False),
        (("pwrite", "ftruncate"), True),
        (("fdatasync",), True),
    ],
)
def test_a_commit_says_whether_its_records_may_come_back(
    directory: Path, calls: tuple[str, ...], *, may_come_back: bool
) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.append(SECOND)
    with refusing(*calls), pytest.raises(errors.StorageError) as caught:
        kept.write(2)
    assert isinstance(caught.value, errors.OutcomeUnknownError) == may_come_back


@pytest.mark.parametrize(
    ("calls", "may_come_back"), [(("pwrite",), False), (("pwrite", "fsync"), True)]
)
def test_a_segment_without_good_records_is_deleted_durably(
    directory: Path, calls: tuple[str, ...], *, may_come_back: bool
) -> None:
    kept = Journal(directory)
    kept.begin(1)
    kept.append(FIRST)
    with refusing(*calls), pytest.raises(errors.StorageError) as caught:
        kept.write(2)
    assert segments(directory) == []
    assert isinstance(caught.value, errors.OutcomeUnknownError) == may_come_back
    store(kept, SECOND)
    assert [record for record in replayed(directory) if record in RECORDS] == [SECOND]


def test_a_failed_truncation_is_repeated_before_anything_new_is_stored(directory: Path) -> None:
    kept = Journal(directory)
    store(kept, FIRST)
    kept.append(SECOND)
    with refusing("fdatasync", "ftruncate"), pytest.raises(errors.StorageError):
        kept.write(2)
    kept.append(THIRD)
    with refusing("ftruncate"), pytest.raises(errors.StorageError):
        kept.write(2)
    assert len(segments(directory)) == 1
    store(kept, THIRD)
    assert replayed(directory) == [FIRST, THIRD]


def test_the_file_system_is_flushed_by_a_descriptor_that_was_there_before(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal(directory)
    kept.begin(0)
    flushed: list[int] = []

    class Library:
        @staticmethod
        def syncfs(descriptor: int) -> int:
            flushed.append(os.fstat(descriptor).st_ino)
            return 0

    monkeypatch.setattr(cut, "_libc", Library)
    with refusing("open"):
        kept.cut()
    assert flushed == [directory.stat().st_ino]
    kept.close()


def test_the_directory_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.StorageError, match="File exists"):
        Journal(tmp_path / "file")


def test_the_bytes_of_a_record_do_not_change() -> None:
    # Journals of earlier versions must stay readable.
    packed: dict[records.Record, str] = {
        SegmentBegun(1, 300): "0c000000565ff48094a5626567756e01cd012c00",
        StateStored(7, 2, b"{}"): "0d00000055770a6694a573746174650702c4027b7d",
        JobArchived(7): "0b000000aeb378a092a8617263686976656407",
    }
    for record, golden in packed.items():
        assert records.RECORDS.packed(record).hex() == golden
    stored = JobsStored([(7, 1, b"{}")])
    golden = "1000000095e1481692a673746f72656491930701c4027b7d"
    assert records.RECORDS.packed(stored).hex() == golden


@pytest.mark.parametrize("count", [1, 15, 16, 300, 65_535])
def test_a_record_made_of_parts_has_the_same_bytes(count: int) -> None:
    new = [(job_id, 1, b"body" * (job_id % 3)) for job_id in range(1, count + 1)]
    record = records.StoredRecord(count)
    record.add(new[:7])
    record.add(new[7:])
    assert b"".join(record.packed()) == records.RECORDS.packed(records.JobsStored(new))
