"""A state directory of Ganeti as a whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.storage.ganeti.importing import ganeti

from ganger.storage import errors
from ganger.storage.ganeti.importing import source
from ganger.storage.ganeti.importing.source import Source


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return ganeti.state_directory(tmp_path)


def survey(directory: Path) -> Source:
    return source.survey(source.find(str(directory)), lambda _done, _total: None)


def refusal(directory: Path) -> str:
    with pytest.raises(errors.GangerError) as refused:
        survey(directory)
    return refused.value.text


def test_everything_that_is_taken_over_is_found(directory: Path) -> None:
    (directory / "rapi").mkdir()
    (directory / "rapi" / "users").write_text("jack abc123\nbad\n")
    (directory / "watcher.pause").write_text("1800000000")
    (directory / "queue" / "drain").touch()
    for name in ("hmac.key", "locks.data", "ssconf_node_list"):
        (directory / name).touch()
    with ganeti.unchanged(directory):
        found = survey(directory)
        found.require_unchanged()
    assert found.config.cluster == "cluster.example.com"
    assert found.users is not None
    assert found.users.count == 1
    assert found.pause == b"1800000000"
    assert found.queue.is_drained
    assert found.others == ["hmac.key", "locks.data"]
    assert [one.path for one in found.damage] == [f"{directory}/rapi/users"]


def test_the_layout_of_debian_is_found_below_a_root_directory(
    directory: Path, tmp_path: Path
) -> None:
    below = tmp_path / "root" / "var" / "lib" / "ganeti"
    below.parent.mkdir(parents=True)
    directory.rename(below)
    assert survey(tmp_path / "root").path == str(below)
    (tmp_path / "link").symlink_to(tmp_path / "root")
    assert survey(tmp_path / "link").path == str(below)


def test_a_queue_and_a_configuration_behind_links_are_found(
    directory: Path, tmp_path: Path
) -> None:
    for name in ("queue", "config.data"):
        (directory / name).rename(tmp_path / name)
        (directory / name).symlink_to(tmp_path / name)
    assert len(survey(directory).queue.jobs) == 17


def test_what_is_no_state_directory_is_refused_with_a_hint(directory: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path / "x") == f"{tmp_path}/x: there is no such directory"
    assert refusal(directory / "config.data") == f"{directory}/config.data: not a directory"
    hint = f"{directory}/queue: a queue directory; name the one that holds it"
    assert refusal(directory / "queue") == hint
    (directory / "config.data").unlink()
    hint = f"{directory}: not a state directory of Ganeti: it has no config.data"
    assert refusal(directory) == hint
    shutil.copy(ganeti.DATA / "config.data", directory)
    shutil.rmtree(directory / "queue")
    assert refusal(directory) == f"{directory}: not a state directory of Ganeti: it has no queue"


@pytest.mark.parametrize("name", ["queue/journal", "config.journal", "daemon.json"])
def test_a_data_directory_of_ganger_is_refused(directory: Path, name: str) -> None:
    (directory / name).touch()
    assert refusal(directory) == f"{directory}: a data directory of Ganger, not of Ganeti"


def test_a_pause_that_is_no_time_is_damage(directory: Path) -> None:
    (directory / "watcher.pause").write_text("soon")
    found = survey(directory)
    assert found.pause is None
    assert [one.text for one in found.damage] == ["not a time; it is left out"]


def test_a_users_file_that_all_may_write_gives_no_users(directory: Path) -> None:
    (directory / "rapi").mkdir()
    (directory / "rapi" / "users").write_text("jack abc123\n")
    (directory / "rapi" / "users").chmod(0o666)
    found = survey(directory)
    assert found.users is not None
    assert found.users.count == 0
    assert len(found.damage) == 1


# Who still works there.


def test_living_processes_are_named(directory: Path, tmp_path: Path) -> None:
    ganeti.add_job(directory, 160, livelock=str(tmp_path / "job_1"))
    with ganeti.held(directory / "queue" / "lock") as luxid, ganeti.held(tmp_path / "job_1") as job:
        text = refusal(directory)
    assert text == (
        f"Ganeti still works: LuxiD (pid {luxid}), job 160 (pid {job}); stop it, and wait until "
        "its jobs have ended"
    )
    assert len(survey(directory).queue.ended) == 1


def test_an_owner_of_locks_that_lives_is_found(directory: Path, tmp_path: Path) -> None:
    # Also one whose job file is damaged.
    (tmp_path / "livelocks").mkdir()
    files = [tmp_path / "livelocks" / name for name in ("job_1", "pid7__1", "luxi-daemon_1")]
    owners = [[[[9, str(file), 7], []] for file in files], [[0, ["x", "/livelocks/none", 1], []]]]
    (directory / "locks.data").write_bytes(msgspec.json.encode(owners))
    (directory / "queue" / "job-8").write_bytes(b"{")
    with ganeti.held(files[0]), ganeti.held(files[1]) as pid:
        assert f"a process that owns locks (pid {pid})" in refusal(directory)
    assert survey(directory).damage
    (directory / "locks.data").write_bytes(b"[[")
    survey(directory)


def test_a_copy_of_a_running_ganeti_is_refused_if_jobs_would_run_twice(directory: Path) -> None:
    (directory / "queue" / "lock").touch()
    source.require_stopped(survey(directory))
    ganeti.add_job(directory, 160)
    with pytest.raises(
        errors.OperatorError, match="1 pending job would run here and perhaps there"
    ):
        source.require_stopped(survey(directory))
    (directory / "queue" / "lock").unlink()
    source.require_stopped(survey(directory))


@pytest.mark.parametrize(
    "changed", ["config.data", "queue", "queue/archive", "queue/archive/0", "rapi/users"]
)
def test_a_change_after_the_survey_is_noticed(directory: Path, changed: str) -> None:
    ganeti.archive(directory, 5000)
    found = survey(directory)
    found.require_unchanged()
    place = directory / changed
    if place.is_dir():
        (place / "job-999").touch()
    else:
        place.parent.mkdir(exist_ok=True)
        place.write_text("{}")
    with pytest.raises(errors.OperatorError, match=f"{place}: changed while it was read"):
        found.require_unchanged()


def test_a_luxid_that_begins_after_the_survey_is_noticed(directory: Path) -> None:
    # It finds its lock file there: no name in the directory changes.
    (directory / "queue" / "lock").touch()
    found = survey(directory)
    with (
        ganeti.held(directory / "queue" / "lock"),
        pytest.raises(errors.OperatorError, match="Ganeti still works: LuxiD"),
    ):
        found.require_unchanged()


@pytest.mark.parametrize("name", [".", "queue", "config.data"])
def test_what_may_not_be_read_is_named_with_its_owner(directory: Path, name: str) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    place = directory / name
    mode = place.stat().st_mode
    place.chmod(0)
    try:
        assert refusal(directory).startswith(f"{place}: Permission denied")
    finally:
        place.chmod(mode)
