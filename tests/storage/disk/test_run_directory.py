"""Another run directory, where a socket's path would be too long in the usual ones."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.disk import paths, run_directory


@pytest.fixture(name="data")
def a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with a long path; the usual name of its run directory is taken."""
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(paths, "MEMORY", str(tmp_path / "memory"))
    data = tmp_path / ("long" * 30)
    data.mkdir()
    usual(data).touch()
    return data


def usual(data: Path) -> Path:
    found = paths.memory_run(data)
    assert found is not None
    return found


def test_a_new_directory_is_made_and_found_by_all(data: Path) -> None:
    made = run_directory.with_room(paths.places(data))
    assert made.run.parent == usual(data).parent
    assert made.run.name.startswith("ganger-")
    assert stat.S_IMODE(made.run.stat().st_mode) == 0o700
    assert paths.places(data) == made
    assert run_directory.with_room(made) == made
    # Also by the next daemon, when the usual name is free again.
    usual(data).unlink()
    assert paths.places(data) == made


@pytest.mark.parametrize("kind", ["a lost directory", "an empty directory of our own"])
def test_what_an_earlier_start_left_is_replaced(data: Path, kind: str) -> None:
    if kind == "a lost directory":
        run_directory.with_room(paths.places(data)).run.rmdir()
    else:
        (data / "run").mkdir()
    made = run_directory.with_room(paths.places(data))
    assert paths.places(data) == made
    assert made.run.is_dir()


def test_a_directory_with_something_in_it_stays(data: Path) -> None:
    (data / "run").mkdir()
    (data / "run" / "mine").touch()
    with pytest.raises(errors.StorageError, match="run"):
        run_directory.with_room(paths.places(data))
    assert (data / "run" / "mine").exists()


def test_the_link_goes_with_the_directory(data: Path) -> None:
    made = run_directory.with_room(paths.places(data))
    run_directory.forget(made)
    assert (data / "run").is_symlink()
    made.run.rmdir()
    run_directory.forget(made)
    assert not os.path.lexists(data / "run")
    run_directory.forget(made)


def test_places_with_room_stay(data: Path, tmp_path: Path) -> None:
    short = tmp_path / "d"
    if len(os.fsencode(short)) < 80:
        short.mkdir()
        usual(short).touch()
        assert run_directory.with_room(paths.places(short)).run == short / "run"
    usual(data).unlink()
    assert run_directory.with_room(paths.places(data)).run == usual(data)


def test_without_a_memory_file_system_there_is_no_other_place(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert run_directory.with_room(paths.places(data)).run == data / "run"
