"""The index of the archive: right after whatever befell it, and cheap while nothing did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.disk import paths
from ganger.storage.jobs.job_filters import JobFilter
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.listing import JobSummary
from ganger.storage.jobs.outcomes import Outcome
from ganger.storage.queue_files import archive_index, archived_hints
from ganger.storage.queue_files.archive_index import ArchiveIndex
from ganger.storage.queue_files.job_files import ARCHIVE_FOLDER_JOBS, QueueDirectory

LONG_AGO = 1_000_000_000 * 10**9


def summary(job_id: int) -> JobSummary:
    name = f"n{job_id % 3}"
    return JobSummary(
        id=job_id, status=JobStatus.SUCCESS, summary="X", priority=0, archived=True, name=name
    )


class Archive:
    """An archive whose jobs' files are empty; notes which of them are read."""

    def __init__(self, data: Path) -> None:
        self.places = paths.places(data)
        self.directory = QueueDirectory(self.places)
        self.places.archive.mkdir(parents=True)
        self.read: list[int] = []
        self.clock = LONG_AGO
        self.damaged: set[int] = set()
        self.gone: set[int] = set()
        self.names: dict[int, str] = {}
        self.fields: Callable[[int], dict[str, Any]] = lambda _: {}
        self.begun = 0
        self.index = ArchiveIndex(self.directory, self._read, self._begin)

    def _read(self, job_id: int) -> JobSummary:
        self.read.append(job_id)
        if job_id in self.damaged:
            raise errors.StorageError("damaged")
        if job_id in self.gone:
            raise errors.UnknownJobError("gone")
        found = summary(job_id)
        fields = {"name": self.names.get(job_id, found.name), **self.fields(job_id)}
        return msgspec.structs.replace(found, **fields)

    def _begin(self) -> None:
        self.begun += 1

    def put(self, *ids: int) -> None:
        for job_id in ids:
            folder = self.places.archive / str(job_id // ARCHIVE_FOLDER_JOBS)
            folder.mkdir(exist_ok=True)
            (folder / f"job-{job_id}").touch()
        self.rest()

    def rest(self) -> None:
        """The folders were changed, and not lately."""
        for folder in self.places.archive.iterdir():
            self.clock += 1
            os.utime(folder, ns=(self.clock, self.clock))

    def found(self, name: str = "", after: int = 0, before: int | None = None) -> list[int]:
        """The jobs between these bounds; ``name``: those that have it."""
        needles = JobFilter(name=name or None).needles()
        found = self.index.found(after=after, before=before, newest_first=False, needles=needles)
        return [job_id for job_id, job in found if job is not None and name in ("", job.name)]

    def matching(self, wanted: JobFilter) -> list[int]:
        """The jobs that meet these conditions."""
        found = self.index.found(newest_first=False, needles=wanted.needles())
        is_met = wanted.test()
        return [job_id for job_id, job in found if job is not None and is_met(job)]

    def anew(self) -> None:
        """The daemon starts again."""
        self.read.clear()
        self.index = ArchiveIndex(self.directory, self._read, self._begin)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def file_of(archive: Archive, folder: int = 0) -> Path:
    return archive.places.archive_index / str(folder)


def test_each_job_is_read_once_and_then_found_without_its_file(archive: Archive) -> None:
    archive.put(1, 2, 3, 10_001)
    assert archive.found() == [1, 2, 3, 10_001] == archive.read
    archive.anew()
    assert archive.found() == [1, 2, 3, 10_001]
    assert archive.found("n2") == [2, 10_001]
    assert archive.read == []


def test_bounds_and_order(archive: Archive) -> None:
    archive.put(1, 2, 3, 10_001, 20_001)
    assert archive.found(after=2) == [3, 10_001, 20_001]
    assert archive.found(after=1, before=20_001) == [2, 3, 10_001]
    newest = archive.index.found(newest_first=True, before=10_001, after=1)
    assert [job_id for job_id, job in newest if job is not None] == [3, 2]


def test_jobs_that_the_queue_archives_are_not_read(archive: Archive) -> None:
    archive.put(1)
    assert archive.found() == [1]
    archive.put(2)
    archive.index.add(summary(2))
    archive.index.write()
    assert archive.found() == [1, 2]
    assert archive.read == [1]


def test_files_that_come_and_go_by_themselves_are_noticed(archive: Archive) -> None:
    archive.put(1, 2)
    assert archive.found() == [1, 2]
    (archive.places.archive / "0" / "job-1").unlink()
    archive.put(5)
    assert archive.found() == [2, 5]
    assert archive.found("n1") == []
    shutil.rmtree(archive.places.archive / "0")
    assert archive.found() == []


def remove(path: Path) -> None:
    path.unlink()


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-60])


def scribble(path: Path) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + b"\0" * 50 + data[middle + 50 :])


def scribble_at_the_start(path: Path) -> None:
    path.write_bytes(b"\0" * 50 + path.read_bytes()[50:])


def take_out_a_line(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(lines[:5] + lines[6:]))


def age(path: Path) -> None:
    """Of a version whose jobs have other fields."""
    path.write_bytes(b'{"fields":["id"]}\n{"id":1}\n')


def empty(path: Path) -> None:
    path.write_bytes(b"")


def block(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [remove, tear, scribble, scribble_at_the_start, take_out_a_line, age, empty, block]
)
def test_a_lost_or_damaged_index_comes_back(
    archive: Archive, damage: Callable[[Path], None]
) -> None:
    ids = list(range(1, 30))
    archive.put(*ids)
    assert archive.found() == ids
    damage(file_of(archive))
    archive.anew()
    assert archive.found("n1") == [job_id for job_id in ids if job_id % 3 == 1]
    assert archive.found() == ids
    assert archive.found("n1") == [job_id for job_id in ids if job_id % 3 == 1]


def test_a_listing_that_stops_keeps_what_it_has_read(archive: Archive) -> None:
    archive.put(1, 2, 3)
    found = archive.index.found(newest_first=False)
    assert next(found)[0] == 1
    assert next(found)[0] == 2
    found.close()  # type: ignore[attr-defined]  # a generator
    archive.anew()
    assert archive.found() == [1, 2, 3]
    assert archive.read == [3]


def test_a_damaged_job_hides_no_other_and_is_looked_at_again(archive: Archive) -> None:
    archive.put(1, 2, 3)
    archive.damaged = {2}
    assert archive.found() == [1, 3]
    archive.anew()
    archive.damaged = set()
    assert archive.found() == [1, 2, 3]
    assert archive.read == [2]


def test_a_folder_that_was_changed_just_now_is_compared_again(archive: Archive) -> None:
    archive.put(1)
    os.utime(archive.places.archive / "0")
    assert archive.found() == [1]
    # Another file, and the clock of the file system has not moved.
    before = (archive.places.archive / "0").stat().st_mtime_ns
    (archive.places.archive / "0" / "job-2").touch()
    os.utime(archive.places.archive / "0", ns=(before, before))
    assert archive.found() == [1, 2]


def test_a_line_is_a_summary_as_json(archive: Archive) -> None:
    archive.put(4)
    archive.found()
    head, line, mark, _ = file_of(archive).read_bytes().split(b"\n")
    assert msgspec.json.decode(head)["fields"] == list(JobSummary.__struct_fields__)
    assert msgspec.json.decode(line, type=JobSummary) == summary(4)
    assert b"changed" in mark


def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The folders whose lines are read from now on."""
    found: list[int] = []
    read = ArchiveIndex._data

    def noted(index: ArchiveIndex, folder: int) -> bytes:
        found.append(folder)
        return read(index, folder)

    monkeypatch.setattr(ArchiveIndex, "_data", noted)
    return found


def test_only_folders_with_the_name_are_read(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.names = {1: "a", 10_001: "b", 20_001: "a", 30_001: "d"}
    archive.put(*archive.names)
    assert archive.found() == list(archive.names)
    archive.anew()
    read = lines_read(monkeypatch)
    assert archive.found("a") == [1, 20_001]
    assert read == [0, 2]
    assert archive.found("c") == []
    assert archive.found("b") == [10_001]
    assert read == [0, 2, 1]


def at_eight(job_id: int) -> dict[str, Any]:
    """What jobs of the first folder have, and the others lack."""
    return {"reason": "Ticket 8", "received": 8.0, "outcome": Outcome.LOST} if job_id == 1 else {}


@pytest.mark.parametrize(
    "conditions",
    [
        {"reason": "ICKET 8"},
        {"text": "ticket 8 n1"},
        {"name": "n1*", "reason": "ticket"},
        {"since": 8.0},
        {"until": 8.5},
        {"outcomes": [Outcome.LOST, Outcome.FAILED]},
    ],
)
def test_only_folders_that_may_have_such_a_job_are_read(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, conditions: dict[str, Any]
) -> None:
    archive.fields = at_eight
    archive.put(1, 10_001, 20_001)
    assert archive.found() == [1, 10_001, 20_001]
    archive.anew()
    read = lines_read(monkeypatch)
    assert archive.matching(JobFilter(**conditions)) == [1]
    assert read == [0]


def test_a_folder_with_very_many_words_may_have_any(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archived_hints, "_TEXT_CHARACTERS_MAX", 20)
    archive.fields = lambda job_id: {"reason": f"the reason of job {job_id}"}
    archive.put(1, 2, 10_001)
    archive.found()
    archive.anew()
    read = lines_read(monkeypatch)
    assert archive.matching(JobFilter(reason="job 2")) == [2]
    assert archive.matching(JobFilter(reason="no such")) == []
    assert 0 in read


_WORDS = st.text(st.sampled_from('abKä\u212aΣς" {1'), max_size=4)
_SUMMARIES = st.builds(
    JobSummary,
    id=st.integers(1, 300),
    status=st.sampled_from([JobStatus.SUCCESS, JobStatus.ERROR]),
    summary=_WORDS,
    priority=st.just(0),
    received=st.floats(1, 3),
    reason=_WORDS,
    name=_WORDS,
    user=_WORDS,
    outcome=st.sampled_from(Outcome),
)
_FILTERS = st.builds(
    JobFilter,
    name=st.none() | _WORDS,
    user=st.none() | _WORDS,
    reason=st.none() | _WORDS,
    text=st.none() | _WORDS,
    outcomes=st.none() | st.lists(st.sampled_from(Outcome), min_size=1),
)


@given(st.lists(_SUMMARIES, max_size=5), _FILTERS)
def test_the_lines_of_all_jobs_that_pass_are_found(
    jobs: list[JobSummary], wanted: JobFilter
) -> None:
    data = b"\n".join([archive_index._HEAD, *map(msgspec.json.encode, jobs), b""])
    data += archive_index._mark(data, 1) + b"\n"
    found = archive_index._with_needles(data, wanted.needles([JobStatus.ERROR]))
    assert found is not None
    is_met = wanted.test()
    assert [job for job in found if is_met(job)] == [
        job for job in jobs if is_met(job) and job.status is JobStatus.ERROR
    ]


def hints_of(archive: Archive) -> Path:
    return archive.places.archive_index / "0.hints"


def of_another_time(path: Path) -> None:
    """As after a crash before the folder's last change was noted."""
    lines = archived_hints.ArchivedHints(os.fspath(path.parent))
    lines.note(int(path.stem), 1, [])


@pytest.mark.parametrize("damage", [remove, tear, scribble, empty, block, of_another_time])
def test_lost_or_damaged_hints_hide_no_job_and_come_back(
    archive: Archive, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.put(*range(1, 30))
    archive.found()
    archive.anew()
    damage(hints_of(archive))
    assert archive.found("n2") == list(range(2, 30, 3))
    archive.anew()
    read = lines_read(monkeypatch)
    assert archive.found("other") == []
    assert (read == []) == (damage is not block)


def test_a_name_that_came_later_is_found(archive: Archive) -> None:
    archive.put(1)
    assert archive.found("new") == []
    archive.names[2] = "new"
    archive.put(2)
    assert archive.found("new") == [2]


@pytest.fixture(name="large")
def archive_of_many(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Three folders without an index, each with more jobs than a listing reads."""
    monkeypatch.setattr(archive_index, "READ_BY_LISTING_MAX", 10)
    archive.put(*(first + place for first in (0, 10_000, 20_000) for place in range(1, 31)))
    return archive


def test_a_listing_leaves_many_jobs_to_what_is_built_meanwhile(large: Archive) -> None:
    assert (large.found(), large.index.progress, large.begun) == ([], 0.0, 1)
    building = large.index.building()
    seen: list[float] = []
    found: list[int] = []
    for _ in building:
        assert large.index.progress is not None
        seen.append(large.index.progress)
        found.append(len(large.found()))
        large.index._last = None
    assert seen == sorted(seen)
    assert len(set(seen)) > 5
    assert found == sorted(found)
    assert {0, 30, 60} < set(found)
    assert (large.begun, large.index.progress) == (1, None)
    large.read.clear()
    assert len(large.found()) == 90
    assert large.read == []


def test_what_few_jobs_are_missing_is_read_by_the_listing(large: Archive) -> None:
    for _ in large.index.building():
        pass
    large.put(*range(40, 50))
    large.read.clear()
    assert len(large.found()) == 100
    assert large.read == list(range(40, 50))
    assert large.begun == 0


def test_an_index_that_is_built_goes_on_after_a_restart(large: Archive) -> None:
    building = large.index.building()
    for _ in range(5):
        next(building)
    building.close()
    assert large.index.progress is None
    done = len(large.read)
    assert done
    large.anew()
    for _ in large.index.building():
        pass
    assert len(large.read) == 90 - done
    assert len(large.found()) == 90


def test_jobs_that_cannot_be_read_do_not_have_it_built_again_and_again(large: Archive) -> None:
    large.damaged = set(range(1, 25))
    large.gone = {30}
    large.found()
    for _ in large.index.building():
        pass
    assert len(large.found()) == 90 - 25
    assert large.begun == 1


def test_a_folder_that_changes_while_it_is_built_is_right_afterwards(large: Archive) -> None:
    for place, _ in enumerate(large.index.building()):
        if place == 2:
            (large.places.archive / "2" / "job-20001").unlink()
            large.put(20_040)
            large.index.add(summary(20_040))
    assert 20_001 not in large.found()
    assert 20_040 in large.found()
    assert large.found("n0") == [one for one in large.found() if one % 3 == 0]
