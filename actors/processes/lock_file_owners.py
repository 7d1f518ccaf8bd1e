"""Finds the process that holds a job's lock file, and opens a pidfd of it."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...storage.alive import lock_files, process_identity


class Holder(NamedTuple):
    """A process. ``pidfd`` cannot name another one; the caller closes it."""

    pid: int
    pidfd: int


class UnknownHolderError(Exception):
    """The holder of the lock file is unknown now: there are no descriptors to find it with."""


def find(lock_file: str) -> Holder | None:
    """The process that holds ``lock_file``; None if it is dead. Raises `UnknownHolderError`."""
    if lock_files.is_dead(lock_file):
        return None
    pid = lock_files.holder(lock_file)
    if pid is not None:
        try:
            pidfd = process_identity.open_pidfd(pid)
        except ProcessLookupError:
            pass
        except OSError as error:
            raise UnknownHolderError(str(error)) from error
        else:
            if not lock_files.is_dead(lock_file):
                return Holder(pid, pidfd)
            # It ended between the two looks, so the pidfd may be another process's.
            os.close(pidfd)
            return None
    if lock_files.is_dead(lock_file):
        return None
    raise UnknownHolderError(f"{lock_file}: an unknown process holds it")
