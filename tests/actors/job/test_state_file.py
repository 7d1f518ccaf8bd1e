"""A job's process writes its own file into its own queue, and into no other."""

from __future__ import annotations

import errno
import itertools
import shutil
from pathlib import Path

import pytest
from tests.refusals import OneRefusal, refusing

from ganger.actors.job.state_file import StateFile
from ganger.storage import errors
from ganger.storage.disk import documents, paths
from ganger.storage.jobs import jobs


def never_wait(_: errors.StorageError) -> None:
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


def test_on_a_full_disk_a_state_gets_the_reserve_of_the_queue(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = queue / paths.RESERVE
    kept.write_bytes(bytes(100))
    replace, waits = documents.replace, list[str]()

    def replace_with_room(path: str, body: bytes, *, flush: bool) -> None:
        if kept.exists():
            raise errors.StorageError("full") from OSError(errno.ENOSPC, "full")
        replace(path, body, flush=flush)

    monkeypatch.setattr(documents, "replace", replace_with_room)
    file = StateFile(f"{queue}/job-1", [], lambda error: waits.append(error.text))
    # The journal has it: nothing is taken from the queue.
    file.write(b"zero", 1, flush=False)
    assert (file.is_stale, kept.exists()) == (True, True)
    file.write(b"one", 2, flush=True)
    assert ((queue / "job-1").read_bytes(), waits) == (b"one", ["full"])


@pytest.mark.parametrize(("visible", "retries"), [(2, 1), (3, 0), (4, 0)])
def test_a_job_given_back_is_written_until_its_state_or_a_later_one_is_visible(
    queue: Path, visible: int, retries: int
) -> None:
    waits: list[str] = []

    def wait(error: errors.StorageError) -> None:
        waits.append(error.text)
        write(3)

    def write(serial: int) -> None:
        job = jobs.Job(id=1, ops=[], extra={jobs.STATE_SERIAL_KEY: serial})
        (queue / "job-1").write_bytes(jobs.encode_job(job))

    file = StateFile(f"{queue}/job-1", [], wait)
    file.is_given_back = True
    write(visible)
    with refusing("fdatasync"):
        file.write(b"three", 3, flush=True)
    assert len(waits) == retries
    # The queue owns the file.
    assert b"three" not in (queue / "job-1").read_bytes()


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


def test_after_each_change_that_the_disk_refuses_once_the_next_state_is_whole(
    tmp_path: Path,
) -> None:
    for place in itertools.count():
        queue = tmp_path / str(place)
        queue.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            refusal = OneRefusal(patch, place)
            waits: list[errors.StorageError] = []
            file = StateFile(
                f"{queue}/job-1",
                [f"{queue}/.spare-1", f"{queue}/.spare-2"],
                waits.append,
            )
            stale = []
            for serial, flush in enumerate([False, True, False, True, False, False]):
                body = f"state {serial}".encode()
                file.lacks_log = True
                with refusal.watching():
                    file.write(body, serial, flush=flush)
                stale.append(file.is_stale)
                # A flush succeeds before the job goes on; without one, the journal has the state.
                assert not (flush and file.is_stale)
                if not file.is_stale:
                    assert (queue / "job-1").read_bytes() == body
                    assert not file.lacks_log
            assert stale.count(True) + len(waits) == (refusal.has_come and place > 0)
            assert file.takes_log(serial) == file.is_stale
            assert refusal.unflushed is None
            # A replaced version is the spare of a later one.
            assert place or file._spares._resting
        if place and not refusal.has_come:
            break
    assert place > 3 * 6
