"""What the lock manager accepts."""

from __future__ import annotations

from ...storage.locks import Owner
from .base import Done, Notice, Reply, Request
from .values import LockRow


class LocksGranted(Reply, frozen=True):
    """All locks of the request are held."""


class LocksPending(Reply, frozen=True):
    """Not yet: the request is queued behind these owners. `LocksGranted` follows."""

    blockers: list[Owner]


class RequestLocks(Request[LocksGranted | LocksPending], frozen=True):
    """Change the owner's locks, all or nothing: (lock name, shared | exclusive | release).

    Repeated while it waits, with the priority that the owner has by then.
    """

    owner: Owner
    priority: int
    changes: list[tuple[str, str]]


class ReleaseLocks(Request[Done], frozen=True):
    """Drop every lock and pending request of the owner."""

    owner: Owner


class OwnerEnded(Notice, frozen=True):
    """The process with this lock file has ended: everything it held is free."""

    lock_file: str


class RecheckOwners(Notice, frozen=True):
    """From an executor that starts afresh: owners may have died while nobody looked."""


class ExplainOwner(Notice, frozen=True):
    """From the job queue: answer with an `OwnerExplained`."""

    token: int
    lock_file: str


class SimulateLocks(Notice, frozen=True):
    """From the job queue: who would get locks if the owners of these lock files were gone."""

    token: int
    ended: list[str]


class LocksListed(Reply, frozen=True):
    """Every lock that is held or wanted, in natural order."""

    rows: list[LockRow]


class ListLocks(Request[LocksListed], frozen=True):
    """Who holds which lock, and who waits."""
