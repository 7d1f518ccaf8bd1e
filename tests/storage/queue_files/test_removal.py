"""The files of a job, their removal, and what a crash leaves of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors
from ganger.storage.disk.paths import Places
from ganger.storage.queue_files import output_files, removal


@pytest.fixture(name="places")
def queue_with_jobs(tmp_path: Path) -> Places:
    """Job 1 is live, 2 and 10,001 are archived; 1 and 2 have output and input."""
    places = Places(tmp_path, tmp_path / "run")
    for folder, job_id in (
        (places.queue, 1),
        (places.archive / "0", 2),
        (places.archive / "1", 10_001),
    ):
        (folder / "spool").mkdir(parents=True)
        (folder / f"job-{job_id}").write_bytes(b"x" * 100)
        for name in ("output", "input-0") if job_id < 3 else ():
            (folder / f"spool/job-{job_id}-{name}").write_bytes(b"x" * 10_000)
    return places


def files_of(places: Places) -> removal.JobFiles:
    return removal.JobFiles(places, lambda job_id: [f"job-{job_id}-input-0"])


def names(places: Places) -> list[str]:
    return sorted(path.name for path in places.queue.rglob("job-*"))


@pytest.mark.parametrize("job_id", [1, 2])
def test_the_files_of_a_job_are_found_live_and_archived(places: Places, job_id: int) -> None:
    found = files_of(places).of(job_id)
    assert [Path(path).name for path in found] == [
        f"job-{job_id}",
        f"job-{job_id}-output",
        f"job-{job_id}-input-0",
    ]
    assert 20_000 <= sum(found.values()) < 100_000


def test_one_after_the_other_each_folder_counts(places: Places) -> None:
    files = files_of(places)
    counts = [len(files.of(job_id)) for job_id in (1, 2, 3, 10_001)]
    assert counts == [3, 3, 0, 1]


def test_what_is_removed_is_gone_and_what_is_gone_is_no_error(places: Places) -> None:
    files = [*files_of(places).of(1)]
    assert removal.remove([*files, "/nowhere/job-1"]) == []
    assert not any(map(os.path.lexists, files))
    assert removal.remove(files) == []


def test_a_directory_in_the_place_of_a_file_stays(places: Places) -> None:
    folder = places.queue / "job-5"
    folder.mkdir()
    removal.remove([os.fspath(folder)])
    assert folder.is_dir()


def test_a_large_file_is_gone_and_keeps_its_space_until_it_is_closed(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "LARGE_BYTES", 5_000)
    files = [*files_of(places).of(1)]
    large = removal.remove(files)
    assert [os.fstat(one).st_size for one in large] == [10_000, 10_000]
    assert not any(map(os.path.lexists, files))
    removal.close(large)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(large[0])


def test_a_disk_that_refuses_is_told(places: Places) -> None:
    files = [*files_of(places).of(1)]
    with refusing("unlink"), pytest.raises(errors.StorageError, match="job-1"):
        removal.remove(files)
    assert all(map(os.path.lexists, files))


def test_what_a_crash_has_left_is_found_by_the_names_of_the_purged_jobs(places: Places) -> None:
    left = removal.left_of(places, {1, 2}, os.listdir(places.queue))
    found = sorted((job_id, Path(path).name) for job_id, path in left)
    assert found == [
        (job_id, f"job-{job_id}{end}") for job_id in (1, 2) for end in ("", "-input-0", "-output")
    ]
    assert [*removal.left_of(places, set(), ["job-1"])] == []


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        (b'{"id": 1, "ops": [], "end_timestamp": [1700000000, 500000]}', 1_700_000_000.5),
        (b'{"id": 1, "end_timestamp": null}', None),
        (b'{"id": 1}', None),
        (b'{"id": 1, "end_timestamp": ["x"]}', None),
        (b"\0\0", None),
    ],
)
def test_the_text_of_a_job_says_when_it_ended(text: bytes, ended: float | None) -> None:
    assert removal.ended_at(text) == ended


@pytest.mark.parametrize(("folder", "job_id"), [("", 1), ("archive/0", 2)])
def test_room_is_made_of_output_but_for_a_mark_and_of_input(
    places: Places, folder: str, job_id: int
) -> None:
    spooled = places.queue / folder / "spool"
    files = files_of(places)
    before = sum(files.of(job_id).values())
    removal.make_room(files.paths(job_id))
    assert [path.name for path in spooled.iterdir()] == [f"job-{job_id}-output"]
    assert sum(files.of(job_id).values()) <= before - 16_000
    assert output_files.is_removed(places, job_id)
    other = 3 - job_id
    assert not output_files.is_removed(places, other)


def test_what_takes_one_block_stays_and_output_that_cannot_be_marked_goes(places: Places) -> None:
    output, small = (places.queue / f"spool/job-1-{name}" for name in ("output", "input-0"))
    small.write_bytes(b"x" * 4096)
    with refusing("pwrite"):
        removal.make_room(files_of(places).paths(1))
    assert (output.exists(), small.exists()) == (False, True)
