from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ganger.storage.disk.paths import Places
from ganger.storage.nodes import begun_tasks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="places")
def places_of_a_host(tmp_path: Path) -> Places:
    (tmp_path / "run").mkdir()
    return Places(tmp_path / "data", tmp_path / "run")


def test_an_era_lasts_as_long_as_its_file(places: Places) -> None:
    first = begun_tasks.era(places, "d")
    assert (begun_tasks.era(places, "d"), first.last_id) == (first, 0)
    begun_tasks.path_of(places).unlink()
    assert begun_tasks.era(places, "d").word != first.word


def test_another_data_directory_has_another_era(places: Places) -> None:
    first = begun_tasks.era(places, "d")
    begun_tasks.note(places, 5, "")
    second = begun_tasks.era(places, "another")
    assert (second.word != first.word, second.last_id) == (True, 0)


def test_each_task_begins_once(places: Places) -> None:
    word = begun_tasks.era(places, "d").word
    told = [begun_tasks.note(places, one, word) for one in (7, 3, 7, 3, 8, 1)]
    again = "it has begun before: the data directory of the host was put back to a copy"
    assert told == ["", "", again, again, "", ""]
    assert begun_tasks.era(places, "d").last_id == 8


def test_a_task_that_has_waited_for_the_next_era_does_not_begin(places: Places) -> None:
    word = begun_tasks.era(places, "d").word
    begun_tasks.path_of(places).unlink()
    # Without a file nobody knows, and without a word (it came to an earlier version).
    assert begun_tasks.note(places, 7, word) == ""
    begun_tasks.era(places, "d")
    assert begun_tasks.note(places, 7, "") == ""
    told = begun_tasks.note(places, 8, word)
    assert told == "the host was started anew since it came: it is not known whether it began"


def test_without_the_file_nothing_is_noted_and_nothing_held_up(places: Places) -> None:
    assert begun_tasks.note(places, 7, "a") == ""
    assert not begun_tasks.path_of(places).exists()


def test_what_cannot_be_noted_ends_the_era(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begun_tasks.era(places, "d")

    def full(*_: object) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr("os.pwrite", full)
    assert begun_tasks.note(places, 7, "") == ""
    assert begun_tasks.era(places, "d").word != first.word


@pytest.mark.parametrize("text", ["", "x", "x" * 500])
def test_a_damaged_file_is_replaced(places: Places, text: str) -> None:
    begun_tasks.path_of(places).write_text(text)
    found = begun_tasks.era(places, "d")
    assert begun_tasks.era(places, "d") == found


def test_a_run_directory_that_is_copied_too_has_an_era_for_each_daemon(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    inside = Places(tmp_path, tmp_path / "run")
    assert begun_tasks.era(inside, "d").word != begun_tasks.era(inside, "d").word
