"""Spare files that a queue makes while it has nothing else to do."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

import pytest

from ganger.storage import settings
from ganger.storage.queue_files import inodes


def test_a_spare_made_ahead_is_an_empty_file_that_is_given_once(tmp_path: Path) -> None:
    pool = inodes.InodePool(os.fspath(tmp_path))
    made = 0
    while pool.is_short:
        pool.make_ahead()
        made += 1
    assert made == settings.SPARES_AHEAD
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {0}
    given = [pool.take() for _ in range(settings.SPARES_AHEAD + 1)]
    assert len(set(given)) == len(given)
    assert [os.path.exists(path) for path in given] == [True] * settings.SPARES_AHEAD + [False]
    assert pool.is_short


def test_a_rested_spare_is_given_before_one_made_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    pool = inodes.InodePool(os.fspath(tmp_path))
    pool.make_ahead()
    pool.give_back("rested")
    assert pool.take() == "rested"


def test_a_disk_that_refuses_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = inodes.InodePool(os.fspath(tmp_path / "gone"))
    shortages = []
    for seconds in (settings.SPARES_REFUSED_SECONDS, 0.0):
        monkeypatch.setattr(settings, "SPARES_REFUSED_SECONDS", seconds)
        pool.make_ahead()
        shortages.append(pool.is_short)
    assert shortages == [False, True]
    assert not os.path.exists(pool.take())


def test_a_pool_that_is_closed_leaves_no_file(tmp_path: Path) -> None:
    pool = inodes.InodePool(os.fspath(tmp_path))
    pool.make_ahead()
    pool.close()
    assert list(tmp_path.iterdir()) == []


# A spare that nobody reads rests less.


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1_000.0]
    monkeypatch.setattr("ganger.storage.queue_files.inodes.time.monotonic", lambda: found[0])
    return found


def test_a_spare_that_nobody_has_open_rests_less(tmp_path: Path, now: list[float]) -> None:
    path = tmp_path / "spare"
    path.touch()
    for spares in (inodes.BorrowedInodes([]), inodes.InodePool(os.fspath(tmp_path))):
        spares.give_back(os.fspath(path))
        now[0] += settings.UNREAD_REST_SECONDS - 0.01
        assert spares.take() != os.fspath(path)
        now[0] += 0.02
        assert spares.take() == os.fspath(path)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_a_spare_that_somebody_has_open_rests_as_long_as_ever(
    tmp_path: Path, now: list[float], flags: int
) -> None:
    path = tmp_path / "spare"
    path.touch()
    spares = inodes.BorrowedInodes([])
    spares.give_back(os.fspath(path))
    reader = os.open(path, flags)
    now[0] += settings.TEMPORARY_REST_SECONDS - 0.01
    assert spares.take() is None
    os.close(reader)
    assert spares.take() == os.fspath(path)


def test_a_mapped_spare_rests_as_long_as_ever(tmp_path: Path, now: list[float]) -> None:
    path = tmp_path / "spare"
    path.write_bytes(b"text")
    spares = inodes.BorrowedInodes([])
    spares.give_back(os.fspath(path))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    now[0] += settings.TEMPORARY_REST_SECONDS - 0.01
    assert spares.take() is None
    mapped.close()
    assert spares.take() == os.fspath(path)


def test_where_the_kernel_says_nothing_a_spare_rests_as_long_as_ever(
    tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "no leases")

    path = tmp_path / "spare"
    spares = inodes.BorrowedInodes([])
    for is_there in (False, True):
        if is_there:
            path.touch()
            monkeypatch.setattr("fcntl.fcntl", refuse)
        spares.give_back(os.fspath(path))
        now[0] += settings.TEMPORARY_REST_SECONDS - 0.01
        assert spares.take() is None
        now[0] += 0.02
        assert spares.take() == os.fspath(path)


def test_who_opens_a_spare_while_it_is_looked_at_ends_nobody(tmp_path: Path) -> None:
    path = tmp_path / "spare"
    path.touch()
    begun = threading.Event()

    def read() -> None:
        begun.set()
        while not is_over.is_set():
            path.read_bytes()

    is_over = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(20)
    found = {inodes._is_unread(os.fspath(path)) for _ in range(2_000)}
    is_over.set()
    reader.join()
    assert found <= {True, False}
    assert inodes._is_unread(os.fspath(path))
