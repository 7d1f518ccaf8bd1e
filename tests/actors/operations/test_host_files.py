"""Files that are put on a host: whole, with mode and owner, where its settings allow it."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ganger.actors.operations import host_files
from ganger.actors.operations.host_files import Kept
from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors
from ganger.storage.opcodes import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ganger.storage.nodes.named_calls import FileStored


@pytest.fixture(params=["unnamed", "named"], autouse=True)
def kind_of_file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with files without a name, and one that has none."""
    if request.param == "named":
        real = os.open

        def refusing(path: str, flags: int, *rest: int) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(95, "Operation not supported")
            return real(path, flags, *rest)

        monkeypatch.setattr(os, "open", refusing)


def put(target: Path, pages: list[bytes], data: Path, **kept: object) -> FileStored:
    return host_files.put(pages, str(target), Kept(**kept), data)  # type: ignore[arg-type]


def test_a_file_is_there_whole_with_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "file"
    stored = put(target, [b"one ", b"two"], tmp_path)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"one two", 0o644)
    assert stored.sha256 == hashlib.sha256(b"one two").hexdigest()
    put(target, [b"new"], tmp_path, mode=0o600)
    put(target, [b"newer"], tmp_path)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"newer", 0o600)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_breaks_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("before")

    def breaking() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "")

    with pytest.raises(OperationError) as caught:
        host_files.put(breaking(), str(target), Kept(), tmp_path)
    assert str(caught.value) == f"{target}: No space left on device"
    with pytest.raises(OperationError, match="checksum of what has come"):
        put(target, [b"other"], tmp_path, sha256="0" * 64)
    assert target.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    cases = [
        (tmp_path, {}, f"{tmp_path}: Is a directory"),
        (tmp_path / "no" / "file", {}, f"{tmp_path}/no/file: No such file or directory"),
        (tmp_path / "file", {"owner": "no-such-user"}, "this host has no user 'no-such-user'"),
        (tmp_path / "file", {"group": "no-such-group"}, "this host has no group 'no-such-group'"),
        (tmp_path / "file", {"group": "4294967295"}, "this host has no group '4294967295'"),
        (tmp_path / "file", {"group": "9" * 30}, f"this host has no group '{'9' * 30}'"),
        (tmp_path / ("n" * 300), {}, f"{tmp_path}/{'n' * 300}: File name too long"),
    ]
    for target, kept, told in cases:
        with pytest.raises(OperationError) as caught:
            put(target, [b"x"], tmp_path, **kept)
        assert str(caught.value) == told
    assert [*tmp_path.iterdir()] == []


def test_what_is_no_file_is_left_to_those_who_use_it(tmp_path: Path) -> None:
    """As a device: renamed over /dev/null, a file took it from the whole host."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for target in (pipe, tmp_path / "socket"):
            before = target.lstat()
            with pytest.raises(OperationError) as caught:
                put(target, [b"x"], tmp_path)
            assert str(caught.value) == f"{target}: is no regular file"
            assert target.lstat() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["pipe", "socket"]


def test_a_copy_to_a_name_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    path = f"{tmp_path}/{'n' * 300}"
    with pytest.raises(OperationError) as caught:
        LocalContext().run({"OP_ID": "OP_NODE_COPY", "content": "x", "path": path})
    assert str(caught.value) == f"{path}: File name too long"


def test_links_do_not_lead_around_the_settings(tmp_path: Path) -> None:
    allowed, other = tmp_path / "srv", tmp_path / "etc"
    allowed.mkdir()
    other.mkdir()
    (allowed / "link").symlink_to(other)
    (tmp_path / "node.toml").write_text(f'[tasks]\npaths = ["{allowed}/*"]\n')
    put(allowed / "file", [b"x"], tmp_path)
    for target in (allowed / "link" / "file", allowed / ".." / "etc" / "file"):
        with pytest.raises(errors.NotAllowedError, match=f"{other}/file may not be written"):
            put(target, [b"x"], tmp_path)
    # A link in the place of the file is replaced, and not followed.
    (allowed / "file").unlink()
    (allowed / "file").symlink_to(other / "file")
    put(allowed / "file", [b"x"], tmp_path)
    assert (allowed / "file").is_symlink() is False
    assert [*other.iterdir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_owners_are_those_who_may_have_commands(tmp_path: Path) -> None:
    with pytest.raises(errors.NotAllowedError, match="no file may belong to user 'nobody'"):
        put(tmp_path / "file", [b"x"], tmp_path, owner="nobody")
    (tmp_path / "node.toml").write_text('[tasks]\nusers = ["nobody"]\n')
    put(tmp_path / "file", [b"x"], tmp_path, owner="nobody")
    assert (tmp_path / "file").owner() == "nobody"
    put(tmp_path / "file", [b"y"], tmp_path)
    assert (tmp_path / "file").owner() == "nobody"
