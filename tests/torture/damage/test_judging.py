"""The campaign of mutated directories judges rightly what it has done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.torture.damage import mutated_directories
from tests.torture.damage.damages import Damage
from tests.torture.damage.healthy import JOBS, KnownJob, make_healthy

from ganger.storage import settings


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
