"""The file that remembers what other files said: what counts of it, and what does not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganger.storage import errors
from ganger.storage.log.checked_records import packed
from ganger.storage.queue_files import remembered
from ganger.storage.queue_files.remembered import Heads, Page, RememberedFiles, Template

TEMPLATE = Template(3, b'{"id":1}')
PAGE = Page(3, [1, 2], [11, 12], [21, 22], [None, 1.5], [None, "k"], ["d", None])
HEADS = Heads([4], [14], [24], [(5, 6)], ["k"], [None], [1], [-3], [True])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "remembered.data"


def filled(path: Path, boot: str = "b1") -> RememberedFiles:
    files = RememberedFiles(path, boot)
    files.begin()
    files.append([TEMPLATE, PAGE])
    return files


def test_jobs_unlike_others_are_noted_with_what_their_files_say(path: Path) -> None:
    files = filled(path)
    short = Heads([4, 5], [14], [24], [None], [None], [None], [1], [0], [False])
    files.append([HEADS, short, HEADS])
    assert list(RememberedFiles(path, "b1").read()) == [TEMPLATE, PAGE, HEADS, HEADS]


@pytest.mark.parametrize("version", [1, remembered.FORMAT_VERSION + 1])
def test_what_another_version_wrote_does_not_count(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as then:
        then.setattr(remembered, "FORMAT_VERSION", version)
        filled(path)
    assert list(RememberedFiles(path, "b1").read()) == []


def test_a_file_of_another_user_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert list(RememberedFiles(path, "b1").read()) == []


def pages(files: RememberedFiles) -> list[Page]:
    return [record for record in files.read() if isinstance(record, Page)]


def test_what_was_noted_is_read(path: Path) -> None:
    filled(path)
    files = RememberedFiles(path, "b1")
    assert not files.has_begun
    assert list(files.read()) == [TEMPLATE, PAGE]
    assert files.has_begun


def test_a_record_is_decoded_when_it_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    decoded: list[bytes] = []
    decode = remembered._decode

    def counting(payload: bytes) -> Any:
        decoded.append(payload)
        return decode(payload)

    monkeypatch.setattr(remembered, "_decode", counting)
    records = RememberedFiles(path, "b1").read()
    assert (next(records), len(decoded)) == (TEMPLATE, 2), "the beginning, and this one"
    assert (next(records), len(decoded)) == (PAGE, 3)


def test_nothing_is_remembered_of_another_boot_or_of_no_file(path: Path) -> None:
    assert pages(RememberedFiles(path, "b1")) == []
    filled(path)
    other = RememberedFiles(path, "b2")
    assert pages(other) == []
    assert not other.has_begun


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_end_counts_as_missing_and_is_written_over(path: Path, cut: int) -> None:
    filled(path)
    path.write_bytes(path.read_bytes()[:-cut])
    files = RememberedFiles(path, "b1")
    assert pages(files) == []
    more = Page(3, [7], [1], [2], [None], [None], [None])
    files.append([more])
    assert pages(RememberedFiles(path, "b1")) == [more]


def test_what_is_damaged_ends_what_counts(path: Path) -> None:
    files = filled(path)
    data = bytearray(path.read_bytes())
    files.append([PAGE])
    whole = path.read_bytes()
    data[-3] ^= 1
    path.write_bytes(data + whole[len(data) :])
    assert pages(RememberedFiles(path, "b1")) == []


def test_records_of_another_kind_or_with_lists_of_other_lengths_do_not_count(path: Path) -> None:
    filled(path)
    short = Page(3, [7], [1], [], [None], [None], [None])
    files = RememberedFiles(path, "b1")
    pages(files)
    files.append([short, PAGE])
    assert pages(RememberedFiles(path, "b1")) == [PAGE, PAGE]
    path.write_bytes(path.read_bytes() + packed(b"\x92\xa5other\x01"))
    assert pages(RememberedFiles(path, "b1")) == [PAGE, PAGE]


def test_a_file_that_cannot_be_read_or_written_is_named(path: Path) -> None:
    files = filled(path)
    path.unlink()
    path.mkdir()
    assert pages(files) == []
    for work in (files.begin, lambda: files.append([PAGE])):
        with pytest.raises(errors.StorageError, match=r"remembered\.data"):
            work()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def as_one_of_two_names(path: Path) -> None:
    path.with_name("other").hardlink_to(path)


def as_file_of_everybody(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("change", [as_pipe, as_link, as_one_of_two_names, as_file_of_everybody])
def test_what_is_no_file_of_ours_alone_is_neither_believed_nor_written(
    path: Path, change: Callable[[Path], None]
) -> None:
    filled(path)
    before = path.read_bytes()
    change(path)
    files = RememberedFiles(path, "b1")
    assert [*files.read()] == []
    assert not files.has_begun
    files.begin()
    files.append([PAGE])
    assert stat.S_ISREG(path.lstat().st_mode)
    assert pages(RememberedFiles(path, "b1")) == [PAGE]
    other = path.with_name("other")
    assert not other.exists() or other.read_bytes() == before


def test_a_link_that_comes_meanwhile_is_not_written(path: Path) -> None:
    files = filled(path)
    as_link(path)
    before = path.read_bytes()
    with pytest.raises(errors.StorageError, match=r"remembered\.data"):
        files.append([PAGE])
    assert path.read_bytes() == before


def test_the_clock_of_files_goes_on(path: Path) -> None:
    files = filled(path)
    assert files.now() <= files.now()
    path.unlink()
    with pytest.raises(errors.StorageError, match=r"remembered\.data"):
        files.now()
