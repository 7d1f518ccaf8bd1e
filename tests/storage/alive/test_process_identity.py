"""A pidfd of a process that may be going."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest
from tests.refusals import GONE, refuse

from ganger.storage.alive import process_identity


def test_a_pidfd_is_of_the_process_that_has_the_pid() -> None:
    pidfd = process_identity.open_pidfd(os.getpid())
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="utf-8") as file:
        assert f"Pid:\t{os.getpid()}\n" in file.read()
    os.close(pidfd)


@pytest.mark.parametrize("number", GONE)
def test_a_process_is_gone_in_whatever_way_the_kernel_says_it(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, "pidfd_open", number=number)
    with pytest.raises(ProcessLookupError):
        process_identity.open_pidfd(os.getpid())


def test_a_process_that_has_been_reaped_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        process_identity.open_pidfd(process.pid)


def test_without_descriptors_a_process_is_not_said_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse(monkeypatch, "pidfd_open", number=errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files") as caught:
        process_identity.open_pidfd(os.getpid())
    assert not isinstance(caught.value, ProcessLookupError)
