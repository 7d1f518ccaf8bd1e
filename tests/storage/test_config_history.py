"""The lines of the configuration's history are on the disk before the journal forgets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors
from ganger.storage.config_history import ConfigHistory
from ganger.storage.disk import documents


def written(path: Path, *lines: bytes) -> ConfigHistory:
    history = ConfigHistory(path)
    for line in lines:
        history.add(line)
    history.write()
    return history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.history"
    written(path, b"old").settle()
    return path


def losing(monkeypatch: pytest.MonkeyPatch, path: Path, kept: int) -> None:
    """The disk has so many bytes of the file; behind them it has refused what was written."""
    content = path.read_bytes()
    real = documents.drop_pages

    def drop(of: Path) -> None:
        if path.read_bytes() == content:
            path.write_bytes(content[:kept] + bytes(len(content) - kept))
        real(of)

    monkeypatch.setattr(documents, "drop_pages", drop)


@pytest.mark.parametrize("kept", [4, 6, 8])
def test_lines_that_the_disk_does_not_have_are_written_anew(
    path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, inode = written(path, b"one", b"two"), path.stat().st_ino
    losing(monkeypatch, path, kept)
    history.settle()
    assert path.read_bytes() == b"old\none\ntwo\n"
    # Not into the file of which the disk has refused a page.
    assert path.stat().st_ino != inode


def test_after_a_failed_flush_the_next_one_proves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = written(path, b"one")
    with refusing("fsync", "fdatasync"), pytest.raises(errors.StorageError):
        history.settle()
    losing(monkeypatch, path, 4)
    history.add(b"two")
    history.settle()
    assert path.read_bytes() == b"old\none\ntwo\n"


def test_what_the_disk_has_stays_where_it_is(path: Path) -> None:
    history, inode = written(path, b"one", b"two"), path.stat().st_ino
    history.settle()
    history.add(b"three")
    history.settle()
    assert (path.read_bytes(), path.stat().st_ino) == (b"old\none\ntwo\nthree\n", inode)


def test_lines_that_come_while_another_thread_settles_are_seen_and_written_by_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = written(path, b"one")
    seen: list[bytes] = []
    real = documents.flush_file

    def flush(of: Path) -> None:
        history.add(b"two")
        history.write()
        seen.extend(history.lines())
        real(of)

    monkeypatch.setattr(documents, "flush_file", flush)
    history.settle()
    assert seen == [b"two", b"one", b"old"]
    assert path.read_bytes() == b"old\none\ntwo\n"
