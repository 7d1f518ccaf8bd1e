"""The process that holds a job's lock file, found and held fast by a pidfd."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...storage import lock_files


class Holder(NamedTuple):
    """A process. ``pidfd`` cannot name another one, and belongs to whoever asked."""

    pid: int
    pidfd: int


class UnknownHolderError(Exception):
    """Nobody can tell now who holds the lock file: there are no descriptors to ask with."""


def find(lock_file: str) -> Holder | None:
    """Who holds ``lock_file``; None if its owner is dead. Raises `UnknownHolderError`."""
    if lock_files.is_dead(lock_file):
        return None
    pid = lock_files.holder(lock_file)
    if pid is not None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            pass
        except OSError as error:
            raise UnknownHolderError(str(error)) from error
        else:
            if not lock_files.is_dead(lock_file):
                return Holder(pid, pidfd)
            # It ended between the questions, and the pidfd may be a stranger's.
            os.close(pidfd)
            return None
    if lock_files.is_dead(lock_file):
        return None
    raise UnknownHolderError(f"{lock_file}: it is held, and nobody can be found who does")
