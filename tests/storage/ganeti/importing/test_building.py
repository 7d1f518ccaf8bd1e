"""The new data directory: all of it or nothing, and nothing of it in the source."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from tests.storage.ganeti.importing import ganeti

from ganger.storage import errors
from ganger.storage.disk import documents, paths
from ganger.storage.fsck import checking, survey
from ganger.storage.ganeti.importing import building, source
from ganger.storage.ganeti.importing.source import Source
from ganger.storage.jobs import jobs
from ganger.storage.log import cut
from ganger.storage.queue_files import job_files

NOW = (1_800_000_000, 0)


def quiet(_done: int, _total: int) -> None:
    pass


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    states = ("job-153.running-holding-lock", "job-156.paused-two-ops")
    path = ganeti.state_directory(tmp_path, *states)
    ganeti.archive(path, 5_000)
    ganeti.archive(path, 20_000, ganeti.job(20_000, ganeti.opcode(status="running")))
    (path / "rapi").mkdir()
    (path / "rapi" / "users").write_text("jack abc123 write\n")
    (path / "watcher.pause").write_text("1800000000\n")
    (path / "queue" / "drain").touch()
    return path


@pytest.fixture
def places(tmp_path: Path) -> paths.Places:
    return paths.Places(tmp_path / "new" / "data", tmp_path / "run")


def found_in(directory: Path) -> Source:
    return source.survey(source.find(str(directory)), quiet)


def build(directory: Path, places: paths.Places) -> Source:
    found = found_in(directory)
    building.require_free(places, found.path)
    building.require_room(places, found)
    building.build(found, places, quiet, NOW)
    return found


def test_the_result_holds_everything_and_the_source_is_as_before(
    directory: Path, places: paths.Places
) -> None:
    with ganeti.unchanged(directory):
        build(directory, places)
    new, old = ganeti.content(places.data), ganeti.content(directory)
    moved = {name.replace(str(directory), str(places.data)): data for name, data in old.items()}
    rewritten = {name for name in moved if new[name] != moved[name]}
    assert moved.keys() == new.keys()
    ended = {path.name for path in map(Path, rewritten)}
    live = (directory / "queue").glob("job-*")
    with_livelock = {path.name for path in live if b"/livelocks/job" in path.read_bytes()}
    assert ended == {"serial", "job-153", "job-20000"} | with_livelock
    assert new[f"{places.queue}/serial"] == b"20000\n"
    for name in rewritten - {f"{places.queue}/serial"}:
        job = job_files.read_job(Path(name).read_bytes(), int(name.rpartition("-")[2]))
        assert job.livelock is None
        assert job.status.is_final


def test_nothing_is_wrong_with_the_result(directory: Path, places: paths.Places) -> None:
    build(directory, places)
    facts = survey.survey(places)
    assert len(facts.jobs) == 17
    assert len(facts.archived) == 2
    assert checking.check(facts) == []


def test_modes_are_those_of_a_data_directory(directory: Path, places: paths.Places) -> None:
    former = os.umask(0o022)
    try:
        build(directory, places)
    finally:
        os.umask(former)
    folders = (places.data, places.queue, places.archive, places.archive / "0")
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o750}
    files = (places.config, places.queue / "job-1", places.queue / "serial")
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    assert places.rapi_users.stat().st_mode & 0o777 == 0o600
    assert places.rapi_users.parent.stat().st_mode & 0o777 == 0o700


def test_an_archived_job_lies_in_its_own_folder_afterwards(
    directory: Path, places: paths.Places
) -> None:
    wrong = directory / "queue" / "archive" / "7"
    wrong.mkdir()
    (directory / "queue" / "archive" / "0" / "job-5000").rename(wrong / "job-5000")
    build(directory, places)
    assert (places.archive / "0" / "job-5000").is_file()
    assert not (places.archive / "7").exists()


def test_without_users_and_pause_none_are_made(directory: Path, places: paths.Places) -> None:
    (directory / "rapi" / "users").unlink()
    (directory / "watcher.pause").unlink()
    (directory / "queue" / "drain").unlink()
    build(directory, places)
    assert sorted(os.listdir(places.data)) == ["config.data", "queue"]
    assert not (places.queue / "drain").exists()


def test_a_queue_without_an_archive_is_taken_over(directory: Path, places: paths.Places) -> None:
    shutil.rmtree(directory / "queue" / "archive")
    build(directory, places)
    assert len(list(places.queue.glob("job-*"))) == 17


def test_all_of_it_is_on_disk_before_it_has_its_name(directory: Path, places: paths.Places) -> None:
    steps: list[str] = []
    rename = os.rename

    def flush(path: Path) -> None:
        steps.append(f"flush {path.name} with {len(list(path.rglob('job-*')))} jobs")

    def moved(old: Path, new: Path) -> None:
        steps.append(f"rename {old.name} to {new.name}")
        rename(old, new)

    with (
        mock.patch.object(cut, "flush_file_system", flush),
        mock.patch.object(os, "rename", moved),
        mock.patch.object(documents, "flush_directory", flush),
    ):
        build(directory, places)
    assert steps == [
        "flush .data.importing with 19 jobs",
        "rename .data.importing to data",
        "flush new with 19 jobs",
    ]


def test_an_empty_directory_is_used_with_its_mode(directory: Path, places: paths.Places) -> None:
    places.data.mkdir(parents=True)
    places.data.chmod(0o711)
    build(directory, places)
    assert places.data.stat().st_mode & 0o777 == 0o711


# Places that are refused.


def test_a_directory_that_is_used_or_lies_in_the_source_is_refused(
    directory: Path, places: paths.Places, tmp_path: Path
) -> None:
    places.data.mkdir(parents=True)
    (places.data / "x").touch()
    with pytest.raises(errors.DataDirectoryError, match="is not empty"):
        build(directory, places)
    shutil.rmtree(places.data)
    places.data.touch()
    with pytest.raises(errors.DataDirectoryError, match="not a directory"):
        build(directory, places)
    for inside in (directory, directory / "new"):
        with pytest.raises(errors.DataDirectoryError, match="where nothing is changed"):
            build(directory, paths.Places(inside, tmp_path / "run"))


def test_a_name_that_no_daemon_could_tell_is_refused(directory: Path, tmp_path: Path) -> None:
    data = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(errors.DataDirectoryError, match="must be UTF-8"):
        build(directory, paths.Places(data, tmp_path / "run"))


def test_a_directory_that_all_may_write_is_refused(directory: Path, places: paths.Places) -> None:
    places.data.mkdir(parents=True)
    places.data.chmod(0o777)
    with pytest.raises(errors.NotOwnerError, match="every user may write into it"):
        build(directory, places)


def test_a_place_that_another_takes_meanwhile_stays_its_own(
    directory: Path, places: paths.Places
) -> None:
    found = found_in(directory)
    places.data.mkdir(parents=True)
    (places.data / "x").touch()
    with pytest.raises(errors.DataDirectoryError, match="another program has used it meanwhile"):
        building.build(found, places, quiet, NOW)
    assert os.listdir(places.data) == ["x"]
    assert os.listdir(places.data.parent) == ["data"]


def test_a_mount_point_is_refused_before_anything_is_written(
    directory: Path, places: paths.Places
) -> None:
    places.data.mkdir(parents=True)
    with (
        mock.patch.object(os.path, "ismount", return_value=True),
        pytest.raises(errors.DataDirectoryError, match="name a directory inside it"),
    ):
        build(directory, places)
    with (
        mock.patch.object(os, "rename", side_effect=OSError(errno.EBUSY, "busy")),
        pytest.raises(errors.DataDirectoryError, match="name a directory inside it"),
    ):
        build(directory, places)
    assert os.listdir(places.data.parent) == ["data"]


def test_a_place_where_this_user_may_not_write_is_refused_with_its_owner(
    directory: Path, places: paths.Places
) -> None:
    with (
        mock.patch.object(os, "access", return_value=False) as asked,
        pytest.raises(errors.StorageError) as refused,
    ):
        build(directory, places)
    place = places.data.parent.parent
    assert asked.call_args.args[0] == place
    assert refused.value.text.startswith(f"{place}: Permission denied")
    assert refused.value.text.endswith("; the new directory grows there, beside its place")


# What fails in the middle.


def test_a_full_disk_leaves_nothing(directory: Path, places: paths.Places) -> None:
    written = 0
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        nonlocal written
        written += 1
        if written > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    with (
        ganeti.unchanged(directory),
        mock.patch.object(os, "write", write),
        pytest.raises(errors.StorageError, match="No space left on device"),
    ):
        build(directory, places)
    assert os.listdir(places.data.parent) == []


@pytest.mark.parametrize("what", [KeyboardInterrupt, errors.StorageError])
@pytest.mark.parametrize("after", [0, 5, 19])
def test_an_interruption_leaves_nothing(
    directory: Path, places: paths.Places, what: type[BaseException], after: int
) -> None:
    def stop(done: int, _total: int) -> None:
        if done == after:
            raise what

    with pytest.raises(what):
        building.build(found_in(directory), places, stop, NOW)
    assert os.listdir(places.data.parent) == []


def test_a_change_of_the_source_in_the_middle_leaves_nothing(
    directory: Path, places: paths.Places
) -> None:
    def change(done: int, _total: int) -> None:
        if done == 3:
            (directory / "queue" / "job-157").touch()

    with pytest.raises(errors.OperatorError, match="changed while it was read"):
        building.build(found_in(directory), places, change, NOW)
    assert os.listdir(places.data.parent) == []


def test_too_little_room_is_known_before_anything_is_written(
    directory: Path, places: paths.Places
) -> None:
    found = found_in(directory)
    real = os.statvfs(directory)
    for given, words in ((0, "MiB are needed there, and 0 MiB are free"), (1, "are possible")):
        status = mock.Mock(f_bavail=real.f_bavail * given, f_frsize=real.f_frsize)
        status.configure_mock(f_files=10, f_favail=3)
        with (
            mock.patch.object(os, "statvfs", return_value=status),
            pytest.raises(errors.StorageError, match=words),
        ):
            building.require_room(places, found)
    building.require_room(places, found)


KILLED = """
import os, signal, sys
from pathlib import Path
from ganger.storage.disk import paths
from ganger.storage import settings
from ganger.storage.ganeti.importing import building, source

def step(done, total):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

found = source.survey(source.find(sys.argv[1]), lambda done, total: None)
places = paths.Places(Path(sys.argv[2]), Path(sys.argv[2]) / "run")
building.build(found, places, step, (1, 0))
"""


def test_after_a_kill_there_is_no_data_directory_and_the_next_attempt_cleans_up(
    directory: Path, places: paths.Places
) -> None:
    command = [sys.executable, "-c", KILLED, str(directory), str(places.data)]
    for step in ("0", "12", "19"):
        assert subprocess.run([*command, step], check=False).returncode == -9
        assert os.listdir(places.data.parent) == [".data.importing"]
    build(directory, places)
    assert os.listdir(places.data.parent) == ["data"]
    assert checking.check(survey.survey(places)) == []


def test_what_is_not_ours_is_not_deleted(directory: Path, places: paths.Places) -> None:
    work = places.data.parent / ".data.importing"
    work.mkdir(parents=True)
    (work / "thesis").touch()
    with pytest.raises(errors.DataDirectoryError, match="is in the way; move it away"):
        build(directory, places)
    assert (work / "thesis").exists()


def test_two_at_a_time_do_not_work_at_the_same(directory: Path, places: paths.Places) -> None:
    found = found_in(directory)
    refused: list[bool] = []

    def meanwhile(done: int, _total: int) -> None:
        if done == 0 and not refused:
            with pytest.raises(errors.OperatorError, match="another import works there"):
                building.build(found, places, quiet, NOW)
            refused.append(True)

    building.build(found, places, meanwhile, NOW)
    assert refused
    assert jobs.decode_job((places.queue / "job-1").read_bytes()).id == 1
