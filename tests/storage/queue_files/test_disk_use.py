"""How much of the disk the parts of a queue take, measured again and again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn
from unittest import mock

import pytest

from ganger.storage import errors
from ganger.storage.disk.disk_parts import DiskUse
from ganger.storage.disk.paths import Places
from ganger.storage.queue_files import disk_use
from ganger.storage.queue_files.disk_use import DiskMeter

BLOCK = 4096


@pytest.fixture(name="places")
def queue_with_files(tmp_path: Path) -> Places:
    places = Places(tmp_path, tmp_path / "run")
    for name in (
        "spool/job-1-output",
        "archive/0/job-2",
        "archive/0/spool/job-2-output",
        "archive/3/job-30001",
        "journal/00000001.journal",
        "job-5",
        ".spare-1-2-3",
        "reserve",
        "reserve.start",
        "../daemon.log",
        "../daemon.log.1",
        "../daemon.out",
        "../config.data",
        "../archive.index/0",
    ):
        write(places, name)
    return places


def write(places: Places, name: str, blocks: int = 1) -> None:
    path = places.queue / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * BLOCK * blocks)


def measured(meter: DiskMeter) -> DiskUse:
    steps = meter.measuring()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: DiskUse = end.value
            return found


def sizes(found: DiskUse) -> tuple[int, int, int]:
    return found.output // BLOCK, found.archive // BLOCK, found.journal // BLOCK


def test_each_part_counts_its_files(places: Places) -> None:
    found = measured(DiskMeter(places))
    assert sizes(found) == (1, 3, 1)
    taken = {name: size // BLOCK for name, size in found.parts().items()}
    # The queue says what its reserve takes.
    assert taken == {
        "jobs": 2,
        "output": 1,
        "archive": 3,
        "journal": 1,
        "log": 3,
        "other": 2,
        "reserve": 0,
    }
    assert 0 < found.free <= found.total


def test_a_folder_of_the_archive_is_read_again_only_when_it_has_changed(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("0", "0/spool", "3"):
        os.utime(places.archive / folder, (1, 1))
    meter = DiskMeter(places)
    assert sizes(measured(meter)) == (1, 3, 1)
    scan = mock.Mock(side_effect=os.scandir)
    monkeypatch.setattr(os, "scandir", scan)
    write(places, "archive/3/job-30002", blocks=4)
    assert sizes(measured(meter)) == (1, 7, 1)
    read = [str(call.args[0]) for call in scan.call_args_list]
    assert not [path for path in read if path.startswith(f"{places.archive}/0")]


def test_a_folder_that_has_just_changed_is_read_again(places: Places) -> None:
    meter = DiskMeter(places)
    measured(meter)
    now = (places.archive / "3").stat().st_mtime_ns
    write(places, "archive/3/job-30002")
    os.utime(places.archive / "3", ns=(now, now))
    assert sizes(measured(meter)) == (1, 4, 1)


def test_many_files_are_measured_in_slices(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_use, "_FILES_AT_ONCE", 1)
    assert len([*DiskMeter(places).measuring()]) == 12


def test_what_is_not_there_takes_nothing_and_no_queue_is_an_error(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "run")
    with pytest.raises(errors.StorageError):
        measured(DiskMeter(places))
    places.queue.mkdir()
    assert sizes(measured(DiskMeter(places))) == (0, 0, 0)


def test_a_folder_that_cannot_be_listed_is_an_error_of_the_disk(places: Places) -> None:
    def refuse(folder: str) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), folder)

    with (
        mock.patch.object(os, "scandir", refuse),
        pytest.raises(errors.StorageError, match="Too many open files"),
    ):
        measured(DiskMeter(places))
