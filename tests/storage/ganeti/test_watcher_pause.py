"""The end of the pause of Ganeti's watcher, in its file."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.ganeti import watcher_pause


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "watcher.pause"


def test_the_file_is_as_ganeti_writes_it(path: Path) -> None:
    watcher_pause.write(path, 1_795_226_369.75)
    assert path.read_bytes() == b"1795226369\n"
    assert watcher_pause.read(path, 1_795_226_369.0) == 1_795_226_369
    watcher_pause.write(path, None)
    watcher_pause.write(path, None)
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("1795226369\n", 1_795_226_369),
        ("1795226369.5", 1_795_226_369.5),
        ("1795226368\n", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
    ],
)
def test_what_is_over_or_no_number_is_no_pause(path: Path, text: str, until: float | None) -> None:
    path.write_text(text)
    assert watcher_pause.read(path, 1_795_226_368.5) == until


def test_without_a_readable_file_there_is_no_pause(path: Path) -> None:
    assert watcher_pause.read(path, 0.0) is None
    path.mkdir()
    assert watcher_pause.read(path, 0.0) is None


@pytest.mark.parametrize("until", [-1.0, math.nan, math.inf, 1e18])
def test_a_time_that_no_calendar_has_is_refused(path: Path, until: float) -> None:
    with pytest.raises(errors.BadRequestError, match="until: expected seconds since the epoch"):
        watcher_pause.write(path, until)
    assert not path.exists()


@pytest.mark.parametrize("until", [None, 7.0])
def test_a_disk_that_refuses_is_named(path: Path, until: float | None) -> None:
    path.mkdir()
    with pytest.raises(errors.StorageError, match=r"watcher\.pause"):
        watcher_pause.write(path, until)


@pytest.mark.parametrize("until", [None, 7.0])
def test_the_change_is_flushed_before_it_counts(
    path: Path, until: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("5\n")
    flushed: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", note)
    watcher_pause.write(path, until)
    assert flushed[-1] == str(path.parent)
