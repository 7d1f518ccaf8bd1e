"""What the disk has of the job files, before segments of the journal go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.disk import paths
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, JobsStored, StateStored
from ganger.storage.queue_files import job_files, read_back
from ganger.storage.queue_files.job_files import QueueDirectory


def body(job_id: int, serial: int, status: str = "success") -> bytes:
    op = {"input": {"OP_ID": "OP_EXEC"}, "status": status, "result": "", "log": []}
    return json.dumps({"id": job_id, "ops": [op], "ganger_serial": serial}).encode()


@pytest.fixture
def segments(places: paths.Places) -> list[Path]:
    """Jobs 1, 2 and 3, the last of which was archived."""
    journal = Journal(places.journal)
    journal.append(JobsStored([(job_id, 1, body(job_id, 1, "queued")) for job_id in (1, 2, 3)]))
    for job_id in (1, 2, 3):
        journal.append(StateStored(job_id, 2, body(job_id, 2)))
    journal.append(JobArchived(3))
    journal.write(3)
    journal.close()
    return journal.segments()


@pytest.fixture
def files(queue: QueueDirectory) -> QueueDirectory:
    for job_id in (1, 2, 3):
        queue.write(job_id, body(job_id, 2), flush=False)
    queue.archive(3)
    return queue


def test_segments_may_go_when_the_files_are_as_new(
    files: QueueDirectory, segments: list[Path]
) -> None:
    read_back.check(files, segments, ())
    files.write(1, body(1, 3), flush=False)
    # The queue may archive a job meanwhile.
    files.archive(2)
    read_back.check(files, segments, ())


ZEROS = bytes(len(body(1, 2)))


@pytest.mark.parametrize(
    "found", [b"", ZEROS, body(1, 2)[:-1], body(1, 1), body(2, 2), b"[]", None]
)
def test_segments_stay_while_a_file_is_damaged_older_another_jobs_or_missing(
    files: QueueDirectory, places: paths.Places, segments: list[Path], found: bytes | None
) -> None:
    path = places.queue / "job-1"
    path.unlink()
    if found is not None:
        path.write_bytes(found)
    with pytest.raises(errors.StorageError, match=r"the disk does not have what .*: job-1$"):
        read_back.check(files, segments, ())
    # A later segment answers for it.
    read_back.check(files, segments, {1})


def test_archived_files_are_read_too_and_may_be_deleted(
    files: QueueDirectory, places: paths.Places, segments: list[Path]
) -> None:
    path = Path(job_files.path(job_files.archive_folder(places.archive, 3), 3))
    path.write_bytes(ZEROS)
    with pytest.raises(errors.StorageError, match="job-3"):
        read_back.check(files, segments, ())
    path.unlink()
    read_back.check(files, segments, ())


def test_an_error_names_some_of_many(
    files: QueueDirectory, places: paths.Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "_AT_ONCE", 2)
    journal = Journal(places.journal)
    journal.append(JobsStored([(job_id, 1, body(job_id, 1)) for job_id in range(11, 20)]))
    journal.write(19)
    journal.close()
    with pytest.raises(errors.StorageError, match="job-11, job-12, job-13, job-14, job-15 and oth"):
        read_back.check(files, journal.segments(), ())


def test_files_are_read_past_the_page_cache(
    files: QueueDirectory, segments: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    advice: dict[str, list[int]] = {}
    read_at: list[str] = []
    read = os.read

    def advise(descriptor: int, offset: int, length: int, kind: int) -> None:
        assert (offset, length) == (0, 0)
        advice.setdefault(os.readlink(f"/proc/self/fd/{descriptor}"), []).append(kind)

    def note_read(descriptor: int, size: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/job-" in path:
            assert advice[path] == [os.POSIX_FADV_DONTNEED, os.POSIX_FADV_WILLNEED]
            read_at.append(os.path.basename(path))
        return read(descriptor, size)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    monkeypatch.setattr(os, "read", note_read)
    read_back.check(files, segments, ())
    assert sorted(read_at) == ["job-1", "job-2", "job-3"]


def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    files: QueueDirectory, segments: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is not to blame if the daemon has no descriptor left."""

    def refuse(_: int) -> bytes:
        raise errors.StorageError("job-1: Too many open files")

    monkeypatch.setattr(files, "read", refuse)
    with pytest.raises(errors.StorageError) as caught:
        read_back.check(files, segments, ())
    assert caught.value.text == "job-1: Too many open files"
