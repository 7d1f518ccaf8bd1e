"""Deleted files of the daemon come back, or the daemon ends."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from ganger.actors.supervision.directory_keeper import DirectoryKeeper
from ganger.storage import errors
from ganger.storage.alive import directory_locks, lock_files
from ganger.storage.disk import paths


@pytest.fixture(name="places")
def places_with_a_queue(tmp_path: Path) -> paths.Places:
    places = paths.places(tmp_path / "data")
    places.queue.mkdir(parents=True)
    return places


@pytest.fixture(name="keeper")
def keeper_of_this_process(places: paths.Places) -> Iterator[DirectoryKeeper]:
    lock = directory_locks.DirectoryLock(places.queue / "lock")
    yield DirectoryKeeper(places, lock, structlog.get_logger())
    lock.release()


def test_a_deleted_endpoint_file_is_written_again(
    keeper: DirectoryKeeper, places: paths.Places
) -> None:
    keeper.announce(["ipc:///somewhere"])
    word = places.endpoint_file.read_bytes()
    assert json.loads(word)["pid"] == os.getpid()
    with capture_logs() as lines:
        keeper.keep()
        assert lines == []
        places.endpoint_file.unlink()
        keeper.keep()
        keeper.keep()
    assert [line["event"] for line in lines] == ["daemon.json was deleted; it is back"]
    assert places.endpoint_file.read_bytes() == word


def test_no_endpoint_file_is_written_before_the_daemon_is_ready(
    keeper: DirectoryKeeper, places: paths.Places
) -> None:
    keeper.keep()
    assert not places.endpoint_file.exists()


def test_a_disk_that_refuses_is_asked_again(
    keeper: DirectoryKeeper, places: paths.Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.announce([])
    places.endpoint_file.unlink()
    with monkeypatch.context() as patch:
        refuse = errors.StorageError("No space left on device")

        def replace(*_given: object, **_options: object) -> None:
            raise refuse

        patch.setattr("ganger.storage.disk.documents.replace", replace)
        keeper.keep()
    assert not places.endpoint_file.exists()
    keeper.keep()
    assert places.endpoint_file.exists()


def test_the_lock_file_is_put_back(keeper: DirectoryKeeper, places: paths.Places) -> None:
    (places.queue / "lock").unlink()
    with capture_logs() as lines:
        keeper.keep()
        keeper.keep()
    expected = "the lock file of the queue was deleted; it is back"
    assert [line["event"] for line in lines] == [expected]
    assert lock_files.holder(places.queue / "lock") == os.getpid()


def test_without_its_directory_nothing_is_put_back(
    keeper: DirectoryKeeper, places: paths.Places
) -> None:
    keeper.announce([])
    shutil.rmtree(places.data)
    with pytest.raises(errors.DirectoryLostError):
        keeper.keep()
    assert not places.data.exists()


def test_a_daemon_that_ends_deletes_its_endpoint_file(
    keeper: DirectoryKeeper, places: paths.Places
) -> None:
    keeper.announce([])
    keeper.withdraw()
    keeper.withdraw()
    assert not places.endpoint_file.exists()
