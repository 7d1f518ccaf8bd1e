from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.refusals import filling, refusing

from ganger.storage import errors
from ganger.storage.disk import documents, paths
from ganger.storage.queue_files import output_blocks, output_files, spool
from ganger.storage.queue_files.output_blocks import STDERR, STDOUT, Segment
from ganger.storage.queue_files.output_files import OutputFile


def contents(path: Path) -> list[tuple[int, int, bytes]]:
    found = output_blocks.find_blocks(path.read_bytes(), 0)
    assert found.end == path.stat().st_size
    return [
        (block.op_index, segment.kind, segment.data)
        for block in found.blocks
        for segment in block.segments()
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool" / "job-1-output"


def test_without_output_there_is_no_file(path: Path) -> None:
    file = OutputFile(os.fspath(path))
    file.flush()
    file.close()
    assert not path.parent.exists()


def test_output_is_appended_by_one_process_after_the_other(path: Path) -> None:
    for index in range(2):
        file = OutputFile(os.fspath(path))
        file.append(index, [Segment(STDOUT, b"out"), Segment(STDERR, b"err")])
        file.append(index, [Segment(STDOUT, b"more")])
        file.flush()
        assert file.end == path.stat().st_size
        file.close()
    one = [(STDOUT, b"out"), (STDERR, b"err"), (STDOUT, b"more")]
    assert contents(path) == [(index, *part) for index in range(2) for part in one]


def test_a_torn_end_is_written_over(path: Path) -> None:
    file = OutputFile(os.fspath(path))
    file.append(0, [Segment(STDOUT, b"first" * 20)])
    file.append(0, [Segment(STDOUT, b"second" * 20)])
    file.close()
    os.truncate(path, path.stat().st_size - 3)
    again = OutputFile(os.fspath(path))
    again.append(1, [Segment(STDOUT, b"3")])
    again.close()
    assert contents(path) == [(0, STDOUT, b"first" * 20), (1, STDOUT, b"3")]


def test_a_write_that_is_refused_in_the_middle_leaves_no_trace(path: Path) -> None:
    file = OutputFile(os.fspath(path))
    file.append(0, [Segment(STDOUT, b"first")])
    with filling(10), pytest.raises(errors.StorageError, match="No space left"):
        file.append(0, [Segment(STDOUT, b"second")])
    assert contents(path) == [(0, STDOUT, b"first")]
    # What came before it still waits for its flush.
    assert file.has_unflushed
    file.append(0, [Segment(STDOUT, b"third")])
    file.close()
    assert contents(path) == [(0, STDOUT, b"first"), (0, STDOUT, b"third")]


def test_flushing_covers_the_name_of_a_new_file_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    flushed: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: flushed.append("file"))
    monkeypatch.setattr(documents, "flush_directory", lambda _: flushed.append("name"))
    file = OutputFile(os.fspath(path))
    for _ in range(2):
        file.append(0, [Segment(STDOUT, b"x")])
        file.flush()
        file.flush()
    assert flushed == ["file", "name", "file"]


def test_pages_are_read_of_live_and_archived_jobs(tmp_path: Path) -> None:
    places = paths.places(tmp_path)
    assert output_files.read_page(places, 12_345, 0, 10) == (b"", 0)
    path = Path(spool.output_path(places.queue, 12_345))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"0123456789")
    assert output_files.read_page(places, 12_345, 2, 5) == (b"23456", 10)
    assert output_files.read_page(places, 12_345, 10, 5) == (b"", 10)
    assert output_files.read_page(places, 12_345, 2**62, 5) == (b"", 10)
    target = places.archive / "1" / "spool"
    target.mkdir(parents=True)
    path.rename(target / path.name)
    assert output_files.read_page(places, 12_345, 2, 5) == (b"23456", 10)


def test_an_output_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    places = paths.places(tmp_path)
    Path(spool.output_path(places.queue, 1)).mkdir(parents=True)
    with pytest.raises(errors.StorageError):
        output_files.read_page(places, 1, 0, 10)


def test_damage_is_named_by_its_places(path: Path) -> None:
    file = OutputFile(os.fspath(path))
    ends = [0]
    for text in (b"a", b"b", b"c", b"d"):
        file.append(0, [Segment(STDOUT, text * 30)])
        ends.append(file.end)
    file.close()
    assert output_files.damage(os.fspath(path)) == []
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    data[ends[2] + 30] ^= 1
    path.write_bytes(bytes(data[:-1]))
    assert output_files.damage(os.fspath(path)) == [
        (0, ends[1]),
        (ends[2], ends[4] - 1),
    ]
    path.write_bytes(bytes(data))
    assert output_files.damage(os.fspath(path)) == [(0, ends[1]), (ends[2], ends[3])]


def test_a_large_file_is_looked_through_in_parts(path: Path) -> None:
    file = OutputFile(os.fspath(path))
    for _ in range(12):
        file.append(0, [Segment(STDOUT, os.urandom(output_blocks.BLOCK_BYTES))])
    end = file.end
    file.close()
    assert output_files.damage(os.fspath(path)) == []
    with path.open("ab") as stream:
        stream.write(os.urandom(3_000_000))
    assert output_files.damage(os.fspath(path)) == [(end, end + 3_000_000)]
    again = OutputFile(os.fspath(path))
    again.append(1, [Segment(STDOUT, b"x")])
    again.close()
    assert contents(path)[-1] == (1, STDOUT, b"x")
    assert len(contents(path)) == 13


def test_a_flush_writes_again_what_a_failed_one_covered(path: Path) -> None:
    file = OutputFile(os.fspath(path))
    file.append(0, [Segment(STDOUT, b"durable")])
    file.flush()
    for _ in range(20):
        file.append(0, [Segment(STDOUT, os.urandom(output_blocks.BLOCK_BYTES))])
    with refusing("fdatasync", number=errno.EIO), pytest.raises(errors.StorageError):
        file.flush()
    file.append(1, [Segment(STDOUT, b"more")])
    before, inode = path.read_bytes(), path.stat().st_ino
    for call in ("pwrite", "fdatasync", "rename"):
        with refusing(call, number=errno.EIO), pytest.raises(errors.StorageError):
            file.flush()
        assert (path.read_bytes(), path.stat().st_ino) == (before, inode)
        assert os.listdir(path.parent) == [path.name]
    file.flush()
    # The second write into a page that the disk has refused does not bring it there on ext4.
    assert path.stat().st_ino != inode
    assert path.read_bytes() == before
    inode = path.stat().st_ino
    file.append(1, [Segment(STDOUT, b"as ever")])
    file.flush()
    assert path.stat().st_ino == inode
    assert path.stat().st_size == file.end
    assert path.read_bytes().startswith(before)
