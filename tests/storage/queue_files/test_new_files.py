"""Files of new jobs that another thread creates: which of them, and who else may touch them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage.disk import documents, paths
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.storage.queue_files.new_files import NewFiles

DEADLINE = 10.0


@pytest.fixture
def directory(tmp_path: Path) -> QueueDirectory:
    places = paths.Places(tmp_path, tmp_path / "run")
    places.queue.mkdir()
    return QueueDirectory(places)


def batch(directory: QueueDirectory, *ids: int) -> NewFiles:
    return NewFiles(directory, {job_id: (1, b"new %d" % job_id) for job_id in ids})


def files(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "queue").iterdir()}


def all_steps(new_files: NewFiles) -> None:
    for _ in new_files.steps():
        pass


def test_the_files_are_created_in_order_one_at_a_step(
    directory: QueueDirectory, tmp_path: Path
) -> None:
    new_files = batch(directory, 3, 2, 1)
    steps = new_files.steps()
    next(steps)
    assert files(tmp_path) == {"job-3": b"new 3"}
    next(steps)
    assert files(tmp_path) == {"job-3": b"new 3", "job-2": b"new 2"}
    assert new_files.written == [(3, 1), (2, 1)]
    assert list(steps) == []
    assert new_files.written == [(3, 1), (2, 1), (1, 1)]


def test_a_job_that_was_withdrawn_is_left_to_the_queue(
    directory: QueueDirectory, tmp_path: Path
) -> None:
    new_files = batch(directory, 3, 2, 1)
    steps = new_files.steps()
    next(steps)
    for job_id in (3, 2, 7):
        new_files.withdraw(job_id)
    assert list(steps) == []
    assert sorted(files(tmp_path)) == ["job-1", "job-3"]
    assert new_files.written == [(3, 1), (1, 1)]


def test_a_file_that_exists_stays_as_it_is(directory: QueueDirectory, tmp_path: Path) -> None:
    directory.write(2, b"newer", flush=False)
    (tmp_path / "queue/job-1").mkdir()
    new_files = batch(directory, 3, 2, 1)
    all_steps(new_files)
    assert (new_files.written, new_files.existing) == ([(3, 1)], [2, 1])
    (tmp_path / "queue/job-1").rmdir()
    assert files(tmp_path) == {"job-3": b"new 3", "job-2": b"newer"}


@pytest.mark.parametrize("call", ["open", "write"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_disk_that_refuses_ends_the_batch(
    directory: QueueDirectory, tmp_path: Path, call: str, number: int
) -> None:
    new_files = batch(directory, 3, 2, 1)
    steps = new_files.steps()
    next(steps)
    with refusing(call, number=number) as made:
        assert list(steps) == []
    assert len(made) == 1
    assert new_files.error is not None
    assert os.strerror(number) in new_files.error.text
    assert new_files.written == [(3, 1)]
    assert list(files(tmp_path)) == ["job-3"]


class Slow:
    """A thread that takes the steps of a batch, and that rests within the first file.

    It goes on when another thread waits for it, or when the test says so.
    """

    def __init__(self, new_files: NewFiles, patch: pytest.MonkeyPatch) -> None:
        self.new_files = new_files
        self._begun, self._goes_on = threading.Event(), threading.Event()
        self._create, self._lock = documents.create, threading.Lock()
        patch.setattr(documents, "create", self._rest)
        patch.setattr(new_files, "_at_work", self)
        self._thread = threading.Thread(target=all_steps, args=(new_files,))
        self._thread.start()
        assert self._begun.wait(DEADLINE)

    def __enter__(self) -> None:
        if self._lock.locked():
            self._goes_on.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _rest(self, path: str, data: bytes) -> bool:
        self._begun.set()
        assert self._goes_on.wait(DEADLINE)
        return self._create(path, data)

    def end(self) -> None:
        self._goes_on.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


@pytest.fixture
def slow(directory: QueueDirectory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(batch(directory, 3, 2, 1), monkeypatch)
    yield made
    made.end()


def test_the_queue_waits_for_the_one_file_that_is_just_being_created(
    slow: Slow, tmp_path: Path
) -> None:
    # For no other one.
    slow.new_files.withdraw(2)
    slow.new_files.withdraw(7)
    assert files(tmp_path) == {}
    slow.new_files.withdraw(3)
    assert "job-3" in files(tmp_path)
    slow.end()
    assert slow.new_files.written == [(3, 1), (1, 1)]


def test_a_batch_that_was_given_up_creates_no_file_any_more(slow: Slow, tmp_path: Path) -> None:
    slow.new_files.give_up()
    assert list(files(tmp_path)) == ["job-3"]
    slow.end()
    assert list(files(tmp_path)) == ["job-3"]


def test_a_batch_is_stopped_without_waiting(slow: Slow, tmp_path: Path) -> None:
    slow.new_files.stop()
    assert files(tmp_path) == {}
    slow.end()
    assert list(files(tmp_path)) == ["job-3"]
