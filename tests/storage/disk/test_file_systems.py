"""A data directory must lie where a lock proves that its owner lives."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

import pytest
from tests.refusals import refusing

from ganger.storage import errors
from ganger.storage.disk import file_systems

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / /srv rw,relatime shared:1 - nfs4 server:/export rw,vers=4.2
31 30 0:31 / /srv/local\\040disk rw - xfs /dev/vdb rw
32 22 0:32 / /mnt rw - ext4 /dev/vdc rw
33 32 0:33 / /mnt rw - cifs //server/share rw
nonsense
34 22 0:34 / - nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home", "ext4"),
        ("/srv/ganger", "nfs4"),
        ("/srv", "nfs4"),
        ("/srvother", "ext4"),
        ("/srv/local disk/data", "xfs"),
        ("/mnt/data", "cifs"),
    ],
)
def test_the_kind_is_that_of_the_innermost_mount(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_systems.kind_of(path, str(mounts)) == kind


def test_the_kind_of_a_file_system_may_be_unknown(tmp_path: Path) -> None:
    assert file_systems.kind_of(tmp_path, str(tmp_path / "missing")) is None


def test_a_file_system_of_this_machine_is_fit_and_nothing_is_left(tmp_path: Path) -> None:
    file_systems.require_locks(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "kind_of", lambda _: "nfs4")
    with pytest.raises(errors.DataDirectoryError) as caught:
        file_systems.require_locks(tmp_path)
    assert caught.value.text.startswith(f"{tmp_path}: lies on a network file system (nfs4);")


@pytest.mark.parametrize("how", ["refused", "ignored"])
def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def lock(*_: object) -> None:
        if how == "refused":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", lock)
    with pytest.raises(errors.DataDirectoryError, match=r"\(\w+\) has no file locks"):
        file_systems.require_locks(tmp_path)
    assert os.listdir(tmp_path) == []


def test_other_errors_of_the_disk_keep_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "lockf", fail)
    with pytest.raises(errors.StorageError, match="Input/output error"):
        file_systems.require_locks(tmp_path)


def test_a_full_disk_is_not_the_matter_here(tmp_path: Path) -> None:
    with refusing("open"):
        file_systems.require_locks(tmp_path)


@pytest.mark.parametrize(("kind", "flags"), [("btrfs", 0x00800010), ("ext4", 0x10)])
def test_only_btrfs_is_told_to_write_in_place_beside_the_flags_that_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, flags: int
) -> None:
    now = 0x10

    def ioctl(_: int, request: int, given: bytes) -> bytes:
        nonlocal now
        if request == 0x40086602:
            now = int.from_bytes(given, "little")
        return now.to_bytes(8, "little")

    monkeypatch.setattr(file_systems, "kind_of", lambda _: kind)
    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    file_systems.write_in_place(tmp_path)
    assert now == flags


def test_a_file_system_that_does_not_write_in_place_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(file_systems, "kind_of", lambda _: "btrfs")
    monkeypatch.setattr(fcntl, "ioctl", refuse)
    file_systems.write_in_place(tmp_path)
