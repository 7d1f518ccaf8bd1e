"""The campaign of mutated directories judges rightly what it has done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.torture.damage import mutated_directories
from tests.torture.damage.damages import Damage
from tests.torture.damage.healthy import JOBS, KnownJob, make_healthy

from ganger.storage import config_log, settings


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, KnownJob]:
    monkeypatch.setattr(settings, "TEMPORARY_REST_SECONDS", 0.0)
    return make_healthy(tmp_path / "healthy")


def test_the_id_of_a_lost_job_is_given_again_where_the_serial_is_lost_too(
    tmp_path: Path, healthy: dict[int, KnownJob]
) -> None:
    place = tmp_path / "case"
    shutil.copytree(tmp_path / "healthy-cut", place, symlinks=True)
    queue = mutated_directories._places(place).queue
    (queue / f"job-{JOBS}").unlink()
    (queue / "serial").write_bytes(b"many")
    lost = frozenset({JOBS})
    damages = [
        Damage(description="the last job is gone", jobs=lost, gone=lost),
        Damage(description="the serial is gone", serial=0),
    ]
    assert mutated_directories._look(place, healthy, damages, has_journal=False) == ""


def _closed_segment(queue: Path) -> Damage:
    segment = queue / "journal" / "00000098.journal"
    segment.mkdir()
    return Damage(
        description="a segment is a directory",
        is_of_log=True,
        refuses=str(segment),
        mend=segment.rmdir,
    )


def test_a_log_that_cannot_be_read_keeps_the_configuration_store_from_starting_too(
    tmp_path: Path, healthy: dict[int, KnownJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "case"
    shutil.copytree(tmp_path / "healthy", place, symlinks=True)
    places = mutated_directories._places(place)
    places.config.unlink()
    damages = [
        Damage(description="config.data is gone", component="config_store"),
        _closed_segment(places.queue),
    ]
    assert mutated_directories._look(place, healthy, damages, has_journal=True) == ""
    # A store that began without the changes in the log would be found out.
    damages = [_closed_segment(places.queue)]
    monkeypatch.setattr(config_log, "_segments", lambda _: iter(()))
    problem = mutated_directories._look(place, healthy, damages, has_journal=True)
    assert problem.startswith("config_store has started in spite of")
