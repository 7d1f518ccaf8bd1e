"""Files of Ganeti are read without a trace, whoever owns them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.storage.ganeti.importing import ganeti

from ganger.storage import errors
from ganger.storage.ganeti.importing import read_only_source


@pytest.fixture
def not_ours() -> Iterator[None]:
    """Only the owner of a file, and root, may read it without a new time of access."""
    real = os.open

    def refused(path: str, flags: int, *args: int, **given: int) -> int:
        if flags & os.O_NOATIME:
            raise PermissionError(1, "Operation not permitted")
        return real(path, flags, *args, **given)

    with mock.patch.object(os, "open", refused):
        yield


@pytest.mark.usefixtures("not_ours")
def test_a_file_of_another_user_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with read_only_source.Folder(str(tmp_path)) as folder:
        assert folder.names() == ["a"]
        assert folder.read("a") == b"x"
    found = read_only_source.read(str(tmp_path / "a"))
    assert found is not None
    assert (found.data, found.stamp) == (b"x", read_only_source.stamp_of(str(tmp_path / "a")))


def test_no_file_is_none_and_a_dangling_link_is_an_error(tmp_path: Path) -> None:
    assert read_only_source.read(str(tmp_path / "a")) is None
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(errors.StorageError, match="No such file"):
        read_only_source.read(str(tmp_path / "a"))


def test_a_file_that_changes_while_it_is_read_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    close = os.close

    def change(descriptor: int) -> None:
        monkeypatch.setattr(os, "close", close)
        close(descriptor)
        path.write_text("a new text")

    monkeypatch.setattr(os, "close", change)
    found = read_only_source.read(str(path))
    assert found is not None
    assert found.data == b"old"
    assert found.stamp != read_only_source.stamp_of(str(path))


def test_the_holder_of_a_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert read_only_source.holder(path) is None
    with ganeti.held(tmp_path / "lock") as pid:
        assert read_only_source.holder(path) == pid
        # Ganeti writes nothing into it, and it may be for nobody else.
        (tmp_path / "lock").chmod(0o400)
        assert read_only_source.holder(path) == pid
    assert read_only_source.holder(path) is None


def test_a_lock_file_that_may_not_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (
        mock.patch.object(os, "open", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(errors.StorageError, match="lock: Permission denied"),
    ):
        read_only_source.holder(str(tmp_path / "lock"))
