"""The holder of a lock file: found, dead, or unknown."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.actors.processes.lock_owner import LockOwner
from tests.refusals import GONE, refuse

from ganger.actors.processes import lock_file_owners


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[LockOwner]:
    owner = LockOwner(tmp_path)
    yield owner
    owner.end()


def test_the_owner_is_held_by_a_descriptor_of_its_own(owner: LockOwner) -> None:
    found = lock_file_owners.find(owner.lock_file)
    assert found is not None
    assert found.pid == owner.pid
    with open(f"/proc/self/fdinfo/{found.pidfd}", encoding="utf-8") as file:
        assert f"Pid:\t{owner.pid}\n" in file.read()
    os.close(found.pidfd)


def test_a_dead_owner_is_not_found(owner: LockOwner) -> None:
    owner.end()
    assert lock_file_owners.find(owner.lock_file) is None
    os.unlink(owner.lock_file)
    assert lock_file_owners.find(owner.lock_file) is None


@pytest.mark.parametrize("number", GONE)
def test_an_owner_that_goes_before_its_descriptor_is_opened_is_dead(
    owner: LockOwner, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def end_and_refuse(_: int) -> NoReturn:
        owner.end()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", end_and_refuse)
    assert lock_file_owners.find(owner.lock_file) is None


@pytest.mark.parametrize("call", ["open", "pidfd_open"])
def test_without_descriptors_no_owner_is_declared_dead(
    owner: LockOwner, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    refuse(monkeypatch, call, number=errno.EMFILE)
    with pytest.raises(lock_file_owners.UnknownHolderError):
        lock_file_owners.find(owner.lock_file)


def test_an_owner_that_ends_between_the_looks_is_not_found(
    owner: LockOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.listdir("/proc/self/fd")

    def end_then_open(_: int) -> int:
        owner.end()
        return os.open("/dev/null", os.O_RDONLY)

    monkeypatch.setattr(os, "pidfd_open", end_then_open)
    assert lock_file_owners.find(owner.lock_file) is None
    # The descriptor of a stranger is not kept.
    assert len(os.listdir("/proc/self/fd")) <= len(before)
