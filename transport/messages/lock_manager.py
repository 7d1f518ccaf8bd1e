"""Messages to the lock manager."""

from __future__ import annotations

import msgspec

from ...storage.locks import Owner
from .base import Done, Notice, Reply, Request
from .values import LockRow, Remedy, WaitingJob


class LocksGranted(Reply, frozen=True):
    """The owner holds all locks of the request."""


class LocksPending(Reply, frozen=True):
    """The request waits for these owners. `LocksGranted` follows."""

    blockers: list[Owner]


class RequestLocks(Request[LocksGranted | LocksPending], frozen=True):
    """Change the owner's locks, all or nothing: (lock name, shared | exclusive | release).

    The owner repeats a waiting request when its priority changes.
    """

    owner: Owner
    priority: int
    changes: list[tuple[str, str]]


class ReleaseLocks(Request[Done], frozen=True):
    """Release all locks of the owner, and drop its waiting requests."""

    owner: Owner


class OwnerEnded(Notice, frozen=True):
    """The process with this lock file has ended: release all its locks."""

    lock_file: str


class RecheckOwners(Notice, frozen=True):
    """From an executor that starts: check whether the owners of locks live.

    The executor before it may have missed the end of a process.
    """


class WantedLock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that a job waits for.

    ``holders``: (job, mode, since when). ``ahead``: jobs that wait for it before this one.
    """

    name: str
    mode: str
    holders: list[tuple[int, str, float | None]] = []
    ahead: list[int] = []


class OwnerExplained(Reply, frozen=True):
    """The locks that the owner of a lock file waits for, in lock order."""

    locks: list[WantedLock]
    remedy: Remedy = Remedy()


class ExplainOwner(Request[OwnerExplained], frozen=True):
    """From the job queue: say what the owner of this lock file waits for."""

    lock_file: str


class LocksSimulated(Reply, frozen=True):
    """The jobs that would get their locks.

    ``count``: how many would still wait; ``waiting``: the first of them, in order.
    """

    granted: list[int]
    waiting: list[WaitingJob]
    count: int


class SimulateLocks(Request[LocksSimulated], frozen=True):
    """From the job queue: say who would get locks if the owners of these lock files had ended."""

    ended: list[str]


class LocksListed(Reply, frozen=True):
    """All locks that an owner holds or waits for, in natural order."""

    rows: list[LockRow]


class ListLocks(Request[LocksListed], frozen=True):
    """List the locks with their owners and those who wait for them."""
