"""Whole files: replaced entirely or not at all, also when the disk refuses."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors
from ganger.storage.disk import documents, line_files


def count(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The descriptors on which ``os.<name>`` is called from now on."""
    real, seen = getattr(os, name), list[int]()

    def note(descriptor: int) -> None:
        seen.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, name, note)
    return seen


@pytest.mark.parametrize("flush", [True, False])
def test_a_file_is_replaced(tmp_path: Path, flush: bool) -> None:  # noqa: FBT001
    path = tmp_path / "file"
    for data in (b"one", b"", b"three" * 100_000):
        documents.replace(path, data, flush=flush)
        assert documents.read(path) == data
    assert os.listdir(tmp_path) == ["file"]


def test_a_flushed_replacement_flushes_the_data_and_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_data, of_directory = count(monkeypatch, "fdatasync"), count(monkeypatch, "fsync")
    documents.replace(tmp_path / "file", b"x", flush=False)
    assert (len(of_data), len(of_directory)) == (0, 0)
    documents.replace(tmp_path / "file", b"x", flush=True)
    assert (len(of_data), len(of_directory)) == (1, 1)


def test_a_relative_path_is_replaced_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documents.replace("file", b"x", flush=True)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_the_mode_is_that_of_the_new_version(tmp_path: Path) -> None:
    path = tmp_path / "file"
    documents.replace(path, b"x", flush=False)
    assert stat.S_IMODE(path.stat().st_mode) == documents.FILE_MODE & ~_umask()
    documents.replace(path, b"x", flush=False, mode=documents.SECRET_MODE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("call", ["open", "write", "fdatasync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_refused_replacement_leaves_the_old_version_and_nothing_else(
    tmp_path: Path, call: str, number: int
) -> None:
    path = tmp_path / "file"
    documents.replace(path, b"old", flush=True)
    with refusing(call, number=number), pytest.raises(errors.StorageError) as caught:
        documents.replace(path, b"new", flush=True)
    assert caught.value.text == f"{path}: {os.strerror(number)}"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_left_by_a_killed_process_of_the_same_pid_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "file"
    names = documents._numbers
    left = [
        tmp_path / f"{documents.TEMPORARY_PREFIX}file.{os.getpid()}.{number}"
        for number in range(next(names) + 1, next(names) + 3)
    ]
    for one in left:
        one.write_bytes(b"half")
    for data in (b"one", b"two"):
        documents.replace(path, data, flush=False)
        assert path.read_bytes() == data
    assert sorted(tmp_path.iterdir()) == sorted([path, *left])


def test_all_data_is_written_in_many_small_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def write_little(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:3])

    monkeypatch.setattr(os, "write", write_little)
    documents.replace(tmp_path / "file", b"0123456789", flush=False)
    assert documents.read(tmp_path / "file") == b"0123456789"


def test_a_missing_file_is_none_and_an_unreadable_one_an_error(tmp_path: Path) -> None:
    assert documents.read(tmp_path / "file") is None
    with pytest.raises(errors.StorageError, match="Is a directory"):
        documents.read(tmp_path)


# Exchange with a spare.


def test_an_exchange_keeps_the_old_version_in_the_spare(tmp_path: Path) -> None:
    path, spare = tmp_path / "file", tmp_path / "spare"
    path.write_bytes(b"old")
    spare.write_bytes(b"something longer than the new version")
    assert documents.exchange(str(path), b"new", str(spare))
    assert (path.read_bytes(), spare.read_bytes()) == (b"new", b"old")


def test_without_an_old_version_the_spare_becomes_the_file(tmp_path: Path) -> None:
    path, spare = tmp_path / "file", tmp_path / "spare"
    assert not documents.exchange(str(path), b"new", str(spare))
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"new"


def test_a_file_is_exchanged_also_where_the_file_system_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, spare = tmp_path / "file", tmp_path / "spare"
    path.write_bytes(b"old")

    def unable(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(documents, "_renameat2", unable)
    assert not documents.exchange(str(path), b"new", str(spare))
    assert path.read_bytes() == b"new"


def test_a_spare_that_a_successor_deletes_meanwhile_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, spare = tmp_path / "file", tmp_path / "spare"
    path.write_bytes(b"old")
    swap = documents._swap

    def delete_and_swap(one: str, other: str) -> bool:
        os.unlink(one)
        return swap(one, other)

    monkeypatch.setattr(documents, "_swap", delete_and_swap)
    assert not documents.exchange(str(path), b"new", str(spare))
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("knows_the_call", [True, False])
def test_a_file_is_created_only_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, knows_the_call: bool
) -> None:
    def unable(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    if not knows_the_call:
        monkeypatch.setattr(documents, "_renameat2", unable)
    path = tmp_path / "file"
    assert documents.create(str(path), b"new")
    assert not documents.create(str(path), b"newer")
    assert path.read_bytes() == b"new"
    assert path.stat().st_nlink == 1
    assert path.stat().st_mode & 0o7777 == documents.FILE_MODE & ~_umask()
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()
    path.symlink_to(tmp_path / "nothing")
    assert not documents.create(str(path), b"new")
    assert path.is_symlink()


@pytest.mark.parametrize("call", ["open", "write", "rename"])
def test_a_file_that_cannot_be_created_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    if call == "rename":
        monkeypatch.setattr(documents, "_renameat2", full)
    calls = [] if call == "rename" else [call]
    with refusing(*calls), pytest.raises(errors.StorageError, match="No space left"):
        documents.create(str(tmp_path / "file"), b"new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["open", "write"])
def test_a_refused_exchange_leaves_the_old_version(tmp_path: Path, call: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with refusing(call), pytest.raises(errors.StorageError, match="file: No space left"):
        documents.exchange(str(path), b"new", str(tmp_path / "spare"))
    assert path.read_bytes() == b"old"


# Directories.


def test_directories_are_made_with_their_parents_and_left_as_they_are(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        documents.make_directory(tmp_path / "a" / "b")
        os.close(documents.open_to_append(tmp_path / "log"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == documents.FILE_MODE
    documents.make_directory(tmp_path / "a" / "b", 0o700)
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == documents.DIRECTORY_MODE
    (tmp_path / "file").touch()
    with pytest.raises(errors.StorageError, match="File exists"):
        documents.make_directory(tmp_path / "file")


@pytest.mark.parametrize("path", ["/proc/nope", "/proc/nope/deeper"])
def test_a_directory_where_none_can_be_made_is_an_error(path: str) -> None:
    with pytest.raises(errors.StorageError, match=f"{path}: No such file or directory"):
        documents.make_directory(Path(path))


def test_a_data_directory_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    for sign in ("\ud800", "\udcff", "\udfff"):
        with pytest.raises(errors.DataDirectoryError, match="must be UTF-8"):
            documents.make_data_directory(tmp_path / f"data-{sign}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_private_directory_is_closed_to_others(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "private"
    path.mkdir(mode=mode)
    documents.make_private_directory(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_private_directory_must_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.DataDirectoryError, match=r"is a link of .*, and no directory"):
        documents.make_private_directory(tmp_path / "link")


@pytest.mark.parametrize("is_own", [True, False])
def test_a_file_in_place_of_a_private_directory_is_called_a_file(
    tmp_path: Path,
    is_own: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    if not is_own:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(errors.NotOwnerError) as caught:
        documents.make_private_directory(tmp_path / "file")
    assert re.fullmatch(
        r"\S+/file: is a file of .+, and no directory; remove it", caught.value.text
    )


def test_a_private_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(errors.DataDirectoryError, match="belongs to "):
        documents.make_private_directory(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 100])
def test_parts_are_written_one_behind_the_other(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_PIECE_BYTES", 10)
    parts = [bytes((number % 251,)) * (number % 4) for number in range(size)]
    with (tmp_path / "file").open("wb") as file:
        end = documents.write_parts_at(file.fileno(), parts, 3)
    assert (tmp_path / "file").read_bytes()[3:] == b"".join(parts)
    assert end == 3 + sum(map(len, parts))


def test_a_device_without_an_end_and_a_file_beyond_all_bounds_are_not_read(tmp_path: Path) -> None:
    endless, huge = tmp_path / "endless", tmp_path / "huge"
    endless.symlink_to("/dev/zero")
    with pytest.raises(errors.StorageError, match="endless: not a plain file"):
        documents.read(endless)
    huge.touch()
    os.truncate(huge, documents._READ_BYTES_MAX + 1)
    with pytest.raises(errors.StorageError, match="huge: File too large"):
        documents.read(huge)


def test_a_pipe_has_no_lines_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [*line_files.last_lines(tmp_path / "pipe")] == []


def test_a_log_that_is_a_pipe_is_opened_without_a_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "daemon.log")
    descriptor = documents.open_to_append(tmp_path / "daemon.log")
    assert os.write(descriptor, b"a line") == len(b"a line")
    os.close(descriptor)
