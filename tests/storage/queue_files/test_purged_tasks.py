"""The keys of a host's purged tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ganger.storage import errors
from ganger.storage.queue_files import purged_tasks
from ganger.storage.queue_files.purged_tasks import PurgedTasks

if TYPE_CHECKING:
    from pathlib import Path


def test_keys_are_there_for_the_next_daemon_and_a_torn_line_spoils_none(tmp_path: Path) -> None:
    path = tmp_path / "purged.tasks"
    assert "a" not in PurgedTasks(path)
    PurgedTasks(path).add([])
    assert not path.exists()
    PurgedTasks(path).add(["a", "b"])
    with path.open("ab") as file:
        file.write(b"c-was-cut")
    found = PurgedTasks(path)
    found.add(["d"])
    for keys in (found, PurgedTasks(path)):
        assert [key in keys for key in ("a", "b", "c", "d", "e")] == [
            True,
            True,
            False,
            True,
            False,
        ]


def test_the_last_ones_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purged_tasks, "KEYS_KEPT", 10)
    path = tmp_path / "purged.tasks"
    found = PurgedTasks(path)
    for number in range(50):
        found.add([f"task-{number}"])
        assert len(path.read_text().split()) <= 20
    for keys in (found, PurgedTasks(path)):
        assert all(f"task-{number}" in keys for number in range(40, 50))
        assert "task-20" not in keys


def test_a_disk_that_refuses_is_an_error_and_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "no" / "purged.tasks"
    found = PurgedTasks(path)
    with pytest.raises(errors.StorageError):
        found.add(["a"])
    assert "a" not in found
