"""A job's process writes its own file into its own queue, and into no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ganger.actors.job.state_file import StateFile
from ganger.storage import errors


def never_wait() -> None:
    raise AssertionError("it waits for a queue that is gone")


@pytest.fixture(name="queue")
def queue_directory(tmp_path: Path) -> Path:
    queue = tmp_path / "queue"
    queue.mkdir()
    return queue


def test_it_is_written_while_the_queue_is_there(queue: Path) -> None:
    file = StateFile(f"{queue}/job-1", [], never_wait)
    assert file.has_queue
    file.write(b"one", 1, flush=True)
    file.write(b"two", 2, flush=False)
    assert (queue / "job-1").read_bytes() == b"two"


@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_the_file_of_another_queue_is_another_jobs(queue: Path, how: str, *, flush: bool) -> None:
    file = StateFile(f"{queue}/job-1", [], never_wait)
    elsewhere = queue.with_name("elsewhere")
    queue.rename(elsewhere)
    if how == "deleted":
        shutil.rmtree(elsewhere)
    if how == "replaced":
        queue.mkdir()
        (queue / "job-1").write_bytes(b"of somebody else")
    assert not file.has_queue
    if flush:
        with pytest.raises(errors.StorageError, match="deleted or replaced"):
            file.write(b"mine", 1, flush=True)
    else:
        file.write(b"mine", 1, flush=False)
        assert file.is_stale
    if how == "replaced":
        assert (queue / "job-1").read_bytes() == b"of somebody else"
    else:
        assert not queue.exists()
