"""The space that is kept on the disk: how much, when it is given up, and when it is there again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.refusals import refusing

from ganger.storage import errors
from ganger.storage.disk import documents, reserve

MIB = 1024 * 1024


class Disk:
    """What the system says of the file system."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.free, self.total = 100 * MIB, 1_000 * MIB
        patch.setattr(os, "statvfs", self._say)

    def _say(self, _: object) -> SimpleNamespace:
        size = 1024
        return SimpleNamespace(
            f_frsize=size, f_bavail=self.free // size, f_blocks=self.total // size, f_files=0
        )


@pytest.fixture(name="disk")
def disk_with_room(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture(name="path")
def path_of_the_reserve(tmp_path: Path) -> str:
    return str(tmp_path / "reserve")


def test_the_real_disk_has_some_space(tmp_path: Path) -> None:
    free, total = reserve.space_at(tmp_path)
    assert 0 < free <= total
    with pytest.raises(errors.StorageError, match="No such file"):
        reserve.space_at(tmp_path / "nowhere")


@pytest.mark.usefixtures("disk")
def test_it_is_allocated_and_given_up_and_made_again(path: str) -> None:
    kept = reserve.Reserve(path)
    assert kept.is_missing
    assert kept.make()
    assert os.stat(path).st_blocks * 512 >= kept.size == 8 * MIB
    kept.give_up()
    assert (kept.is_missing, kept.size, os.path.exists(path)) == (True, 0, False)
    assert kept.make()
    assert not kept.is_missing


@pytest.mark.usefixtures("disk")
def test_the_queue_sees_that_it_was_given_to_a_job(path: str) -> None:
    kept = reserve.Reserve(path)
    assert kept.make()
    kept.look()
    assert not kept.is_missing
    reserve.give_to_job(os.path.dirname(path))
    reserve.give_to_job(os.path.dirname(path))
    kept.look()
    assert (kept.is_missing, kept.size) == (True, 0)


def test_it_is_smaller_on_a_small_disk_and_there_must_be_room_beside_it(
    disk: Disk, path: str
) -> None:
    disk.total = 6 * MIB
    disk.free = 500 * 1024
    kept = reserve.Reserve(path)
    assert not kept.make()
    assert kept.is_missing
    disk.free = 512 * 1024
    assert kept.make()
    assert os.stat(path).st_size == kept.size == 256 * 1024


@pytest.mark.usefixtures("disk")
def test_that_of_a_predecessor_is_taken_over(disk: Disk, path: str) -> None:
    assert reserve.Reserve(path).make()
    disk.free = 0
    assert reserve.Reserve(path).make()


@pytest.mark.usefixtures("disk")
def test_a_queue_that_keeps_none_misses_none(path: str) -> None:
    kept = reserve.Reserve(path, is_kept=False)
    assert kept.make()
    kept.give_up()
    assert (kept.is_missing, os.path.exists(path)) == (False, False)


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize(
    ("number", "is_missing"), [(errno.EOPNOTSUPP, False), (errno.ENOSPC, True)]
)
def test_a_disk_that_cannot_allocate_has_none_and_a_full_one_is_tried_again(
    path: str, number: int, *, is_missing: bool
) -> None:
    kept = reserve.Reserve(path)
    with refusing("posix_fallocate", number=number):
        assert kept.make() is not is_missing
    assert (kept.is_missing, os.path.exists(path)) == (is_missing, False)


def test_output_leaves_free_what_the_queue_needs(disk: Disk, path: str) -> None:
    kept = 32 * MIB
    disk.free = kept + 1000 * 1024
    reserve.check_room(path, 1000 * 1024)
    with pytest.raises(errors.DiskFullError) as caught:
        reserve.check_room(path, 1000 * 1024 + 1)
    assert caught.value.text == (
        f"{path}: the disk is nearly full: the 33768 KiB that are free are kept for the queue"
    )


@pytest.mark.parametrize(
    ("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_a_full_disk_is_told_from_a_broken_one_through_all_causes(
    number: int, *, is_full: bool
) -> None:
    with pytest.raises(errors.StorageError) as caught, documents.storage_errors("/x"):
        raise OSError(number, os.strerror(number))
    outer = errors.OutcomeUnknownError.of(caught.value)
    outer.__cause__ = caught.value
    assert reserve.is_full(caught.value) is reserve.is_full(outer) is is_full
    assert not reserve.is_full(None)


def test_a_start_on_a_full_disk_gets_the_space_that_was_kept_for_it(disk: Disk, path: str) -> None:
    reserve.keep_for_start(path)
    assert os.stat(path).st_blocks * 512 >= reserve.START_BYTES
    reserve.give_to_start(path)
    assert os.path.exists(path), "the disk is not full"
    disk.free = 3 * 4096
    reserve.give_to_start(path)
    assert not os.path.exists(path)
    reserve.give_to_start(path)
    reserve.keep_for_start(path)
    assert os.stat(path).st_size == 3 * 4096, "what is left"
    os.unlink(path)
    disk.free = 0
    reserve.keep_for_start(path)
    assert not os.path.exists(path)
