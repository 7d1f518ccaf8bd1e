"""Files beside jobs: their names, their durability, and how they move with their jobs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from ganger.storage import errors
from ganger.storage.disk import documents, paths
from ganger.storage.queue_files import spool
from ganger.storage.queue_files.job_files import QueueDirectory


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_names_hold_the_job_and_the_opcode() -> None:
    assert spool.parse_name(spool.input_name(7, 12)) == spool.Spooled(7, 12)
    assert spool.parse_name(spool.output_name(7)) == spool.Spooled(7, None)


@pytest.mark.parametrize(
    "name", ["job-7", "job-7-input-", "job-07-output", "job-7-input-01", "job-7-output.2", "x"]
)
def test_other_names_belong_to_no_job(name: str) -> None:
    assert spool.parse_name(name) is None


def test_inputs_are_written_as_they_are(queue: QueueDirectory, places: paths.Places) -> None:
    queue.spool.write_inputs([("job-3-input-0", b"\0\xff"), ("job-3-input-2", b"")])
    assert content(places.spool) == {"job-3-input-0": b"\0\xff", "job-3-input-2": b""}


def test_of_inputs_that_cannot_all_be_written_none_is_left(
    queue: QueueDirectory, places: paths.Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = documents.replace

    def refuse_the_second(path: str, data: bytes, *, flush: bool) -> None:
        if path.endswith("-1"):
            raise errors.StorageError("full")
        replace(path, data, flush=flush)

    monkeypatch.setattr(documents, "replace", refuse_the_second)
    with pytest.raises(errors.StorageError):
        queue.spool.write_inputs([("job-3-input-0", b"a"), ("job-3-input-1", b"b")])
    assert content(places.spool) == {}


def test_files_go_to_the_archive_with_their_job(
    queue: QueueDirectory, places: paths.Places
) -> None:
    queue.spool.write_inputs([("job-10003-input-1", b"in"), ("job-4-input-0", b"other")])
    (places.spool / "job-10003-output").write_bytes(b"out")
    (places.queue / "job-10003").write_bytes(b"{}")
    queue.archive(10_003)
    queue.archive(10_003)
    assert content(places.archive / "1/spool") == {
        "job-10003-input-1": b"in",
        "job-10003-output": b"out",
    }
    assert content(places.spool) == {"job-4-input-0": b"other"}


def test_a_later_daemon_moves_files_that_it_did_not_write(
    queue: QueueDirectory, places: paths.Places
) -> None:
    queue.spool.write_inputs([("job-3-input-1", b"in")])
    (places.queue / "job-3").write_bytes(b"{}")
    QueueDirectory(places).archive(3)
    assert content(places.archive / "0/spool") == {"job-3-input-1": b"in"}


def test_archiving_a_job_without_files_makes_no_folder(
    queue: QueueDirectory, places: paths.Places
) -> None:
    (places.queue / "job-3").write_bytes(b"{}")
    queue.archive(3)
    assert os.listdir(places.archive / "0") == ["job-3"]


def test_a_start_cleans_up_after_a_crash(queue: QueueDirectory, places: paths.Places) -> None:
    names = [
        "job-1-input-0",  # of a live job
        "job-2-output",  # of a job that was archived
        "job-3-input-0",  # of a submission that was refused
        "job-4-input-0",  # of a job that was put aside
        "job-5-output",  # of a job that does not exist: a user may want it
        ".tmp-job-6-input-0.7.1",
        "job-7-input-0",  # of an archived job, of which an older version was put aside
    ]
    for name in names:
        (places.spool / name).write_bytes(b"x")
    (places.archive / "0").mkdir()
    (places.archive / "0/job-2").write_bytes(b"{}")
    (places.archive / "0/job-7").write_bytes(b"{}")
    places.quarantine.mkdir()
    (places.quarantine / "job-4.2").write_bytes(b"{")
    (places.quarantine / "job-7").write_bytes(b"{")
    left = {"job-1-input-0", "job-3-input-0", "job-4-input-0", "job-5-output"}
    for _ in range(2):
        assert queue.settle_spool({1}) == ["job-3-input-0"]
        assert set(content(places.spool)) == left
    assert set(content(places.archive / "0/spool")) == {"job-2-output", "job-7-input-0"}


def test_a_folder_of_the_archive_that_was_not_made_durable_is_flushed_before_a_file_moves(
    tmp_path: Path,
) -> None:
    spool_directory = spool.SpoolDirectory(str(tmp_path))
    spool_directory.prepare()
    spool_directory.write_inputs([("job-1-input-0", b"a")])
    target = tmp_path / "archive" / "0"
    # As a daemon leaves it that was killed between the two steps.
    (target / "spool").mkdir(parents=True)
    flushed: list[tuple[str, bool]] = []

    def flush(path: str) -> None:
        flushed.append((str(path), (target / "spool" / "job-1-input-0").exists()))

    refuse = mock.Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    with (
        mock.patch("ganger.storage.disk.documents.flush_directory", refuse),
        pytest.raises(errors.StorageError),
    ):
        spool_directory.archive(1, str(target))
    with mock.patch("ganger.storage.disk.documents.flush_directory", flush):
        spool_directory.archive(1, str(target))
    assert flushed == [(str(target), False)]
    assert (target / "spool" / "job-1-input-0").read_bytes() == b"a"
