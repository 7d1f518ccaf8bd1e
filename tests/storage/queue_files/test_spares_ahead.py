"""Spare files that a queue makes while it has nothing else to do."""

from __future__ import annotations

import os
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
