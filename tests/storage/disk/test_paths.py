"""The paths of a data directory."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.disk import paths


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGER_DATA", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


def test_the_given_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGER_DATA", "/elsewhere")
    assert paths.data_directory(tmp_path) == tmp_path
    assert paths.data_directory(os.fspath(tmp_path)) == tmp_path
    assert paths.data_directory() == Path("/elsewhere")
    assert paths.data_directory("") == Path("/elsewhere")


def test_a_relative_directory_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.data_directory("here") == tmp_path / "here"
    monkeypatch.setenv("GANGER_DATA", "there")
    assert paths.data_directory() == tmp_path / "there"


def test_a_relative_directory_needs_a_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(errors.DataDirectoryError, match="data: a relative path"):
        paths.data_directory("data")
    assert paths.data_directory(tmp_path) == tmp_path


def test_the_default_depends_on_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert paths.data_directory() == Path("/var/lib/ganger")
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert paths.data_directory() == Path("/home/somebody/.local/share/ganger")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert paths.data_directory() == Path("/data/ganger")


def test_a_user_without_a_home_has_to_name_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = max(entry.pw_uid for entry in pwd.getpwall()) + 1
    monkeypatch.setattr(os, "geteuid", lambda: nobody)
    monkeypatch.setattr(os, "getuid", lambda: nobody)
    monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(errors.DataDirectoryError) as caught:
        paths.data_directory()
    assert caught.value.text == (
        f"uid {nobody} has no home directory: name a data directory, as GANGER_DATA"
    )
    monkeypatch.setenv("GANGER_DATA", "/data")
    assert paths.data_directory() == Path("/data")


def test_the_run_directory_follows_from_the_data_directory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = paths.places(tmp_path / "data")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/5")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert paths.places(tmp_path / "data") == first
    assert paths.places(tmp_path / "other").run != first.run


def test_a_link_to_the_data_directory_leads_to_the_same_places(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert paths.places(tmp_path / "link") == paths.places(tmp_path / "data")


def test_without_a_memory_file_system_everything_lies_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert paths.places(tmp_path) == paths.Places(tmp_path, tmp_path / "run")


@pytest.fixture(name="memory")
def a_memory_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(paths, "MEMORY", str(folder))
    (tmp_path / "data").mkdir()
    return folder


def take(name: Path, kind: str) -> None:
    """Another user, or a mistake, has made this name."""
    match kind:
        case "file":
            name.touch()
        case "link":
            name.symlink_to(name.parent)
        case "dangling link":
            name.symlink_to("nowhere")
        case "directory of another user":
            name.mkdir()
            os.chown(name, 1, 1)


KINDS = ["file", "link", "dangling link"]
if os.geteuid() == 0:
    KINDS.append("directory of another user")


@pytest.mark.parametrize("kind", KINDS)
def test_who_takes_the_name_of_the_run_directory_only_moves_it(
    tmp_path: Path, memory: Path, kind: str
) -> None:
    data = tmp_path / "data"
    usual = paths.places(data).run
    assert usual.parent == memory
    take(usual, kind)
    assert paths.places(data).run == data / "run"
    # While a daemon uses that one, the name becoming free misleads nobody.
    (data / "run").mkdir()
    usual.rmdir() if usual.is_dir() and not usual.is_symlink() else usual.unlink()
    assert paths.places(data).run == data / "run"
    (data / "run").rmdir()
    assert paths.places(data).run == usual


def test_a_run_directory_that_is_there_stays_in_use(tmp_path: Path, memory: Path) -> None:
    data = tmp_path / "data"
    usual = paths.places(data).run
    usual.mkdir()
    (data / "run").mkdir()
    assert paths.places(data).run == usual
    assert memory in usual.parents


def test_a_link_to_the_run_directory_is_followed_if_a_daemon_has_made_it(
    tmp_path: Path, memory: Path
) -> None:
    data, made = tmp_path / "data", memory / "ganger-x"
    usual = paths.places(data).run
    (data / "run").symlink_to(made)
    # It leads nowhere, as after a start of the machine.
    assert paths.places(data).run == usual
    made.mkdir()
    assert paths.places(data).run == made
    take(usual, "file")
    assert paths.places(data).run == made
    made.rmdir()
    made.touch()
    assert paths.places(data).run == data / "run"
    (data / "run").unlink()
    (data / "run").symlink_to(tmp_path)
    assert paths.places(data).run == data / "run"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_root_finds_the_run_directory_of_the_owner(tmp_path: Path, memory: Path) -> None:
    data = tmp_path / "data"
    usual = paths.places(data).run
    os.chown(data, 1, 1)
    usual.mkdir()
    assert (memory / usual.name, paths.places(data).run) == (usual, data / "run")
    os.chown(usual, 1, 1)
    assert paths.places(data).run == usual


def test_the_queue_lies_as_in_ganeti(tmp_path: Path) -> None:
    places = paths.Places(tmp_path, tmp_path / "run")
    assert places.queue == tmp_path / "queue"
    assert places.archive == tmp_path / "queue" / "archive"
    assert places.config == tmp_path / "config.data"
    assert places.locks == tmp_path / "locks.data"
    assert places.lock_files == tmp_path / "livelocks"
    assert places.former_lock_files == tmp_path / "run" / "livelocks"


def test_no_two_things_lie_in_the_same_place(tmp_path: Path) -> None:
    places = paths.Places(tmp_path, tmp_path / "run")
    names = [name for name in dir(places) if isinstance(getattr(type(places), name), property)]
    found = [getattr(places, name) for name in names]
    assert len(names) >= 10
    assert len(set(found)) == len(found)


def test_the_socket_path_is_short_enough_for_the_kernel() -> None:
    deep = paths.places("/srv/" + "very-long-name/" * 20)
    if deep.run.is_relative_to("/dev/shm"):
        assert len(os.fsencode(deep.socket)) < 108


def test_a_loop_of_links_is_no_failure_of_ours(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert paths.places(loop).data == loop
