"""Messages to the lock manager."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...storage.locks.locks import LockLevel, LockMode, Owner, Pending
from .base import Done, InterimReply, Notice, Reply, Request
from .several import QueryAnswered
from .values import LockRow, Remedy, WaitingJob

LOCKS_AWAITED_SECONDS_MAX = 60.0
"""Longest wait of one request for a change of locks."""


class LocksGranted(Reply, frozen=True):
    """The owner holds all locks of the request."""


class LocksPending(InterimReply, frozen=True):
    """The request waits for these owners. `LocksGranted` follows."""

    blockers: list[Owner]


class RequestLocks(Request[LocksGranted | LocksPending], frozen=True):
    """Change the owner's locks, all or nothing: (lock name, shared | exclusive | release).

    The owner repeats a waiting request when its priority changes.
    """

    owner: Owner
    priority: int
    changes: list[tuple[str, str]]


class LocksTried(Reply, frozen=True):
    """The owners that hold up the request; without any, it is granted."""

    blockers: list[Owner]


class TryLocks(Request[LocksTried], frozen=True):
    """Change the owner's locks now or never, all or nothing, as `RequestLocks` does."""

    owner: Owner
    changes: list[tuple[str, str]]


class LocksTaken(Reply, frozen=True):
    """The locks that the owner has got, in reverse lock order."""

    locks: list[str]


class TakeFreeLocks(Request[LocksTaken], frozen=True):
    """Take those of the wanted locks that are free, or none if fewer than ``at_least`` are.

    A lock that the owner holds in at least that mode is no new one.
    """

    owner: Owner
    wanted: list[tuple[str, LockMode]]
    at_least: Annotated[int, msgspec.Meta(ge=0)] = 0


class ReleaseLocks(Request[Done], frozen=True):
    """Drop the owner's waiting request, and release its locks of this level; None: all of them."""

    owner: Owner
    level: LockLevel | None = None


class DowngradeLocks(Request[Done], frozen=True):
    """Drop the owner's waiting request, and make its locks of this level shared."""

    owner: Owner
    level: LockLevel


class KeepLocks(Request[Done], frozen=True):
    """Drop the owner's waiting request, and release its locks that are not among these."""

    owner: Owner
    locks: list[str]


class OwnerRead(Reply, frozen=True):
    """The owner's locks, in lock order, and whether a request of it waits."""

    locks: list[tuple[str, LockMode]]
    is_waiting: bool


class ReadOwner(Request[OwnerRead], frozen=True):
    """Read the locks of one owner."""

    owner: Owner


class LockHolders(Reply, frozen=True):
    """The owners whose locks conflict with an exclusive one, and words for who holds what."""

    owners: list[Owner]
    text: str


class ReadHolders(Request[LockHolders], frozen=True):
    """From the configuration store: say who holds this lock, in which mode and since when."""

    lock: str


class LockTable(Reply, frozen=True):
    """Every held lock with the owners that hold it itself, in lock order; the line.

    A lock set of which an owner holds a member is there too, perhaps without owners.
    """

    held: list[tuple[str, list[tuple[Owner, LockMode]]]]
    pending: list[Pending]


class ReadLockTable(Request[LockTable], frozen=True):
    """Read which owner holds what, and which requests wait."""


class OwnerEnded(Notice, frozen=True):
    """The process with this lock file has ended: release all its locks."""

    lock_file: str


class RecheckOwners(Notice, frozen=True):
    """From an executor that starts: check whether the owners of locks live.

    The executor before it may have missed the end of a process.
    """


class TakeLocksOfTasks(Request[Done], frozen=True):
    """From the queue: take back the locks of tasks on nodes that it has marked as it started."""


class FreeDeadOwners(Request[Done], frozen=True):
    """Free the locks of all owners whose lock files no process holds."""


class ReportOwners(Notice, frozen=True):
    """From the scheduler: send what all owners hold, and each change; or no more of that.

    A lock manager that starts reports until it is told not to.
    """

    is_wanted: bool = True


class SweepOwners(Notice, frozen=True):
    """From the lock manager to itself: look whether owners that no executor watches live."""


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


class QueryLocks(Request[QueryAnswered], frozen=True):
    """Answer a query for locks, as `QueryJobs`; jobs that others depend on are rows as well."""

    fields: list[str]
    filter: Any = None
    after: str | None = None


class LocksListed(Reply, frozen=True):
    """All locks that an owner holds or waits for, in natural order."""

    rows: list[LockRow]
    revision: int = 0
    """Rises with every change, also over restarts of the lock manager."""


class ListLocks(Request[LocksListed], frozen=True):
    """List the locks with their owners and those who wait for them."""


class AwaitLocks(Request[LocksListed], frozen=True):
    """As `ListLocks`, when the state is another one than ``revision``, or after so long."""

    revision: int
    seconds: Annotated[float, msgspec.Meta(ge=0, le=LOCKS_AWAITED_SECONDS_MAX)]


class LockWait(msgspec.Struct, frozen=True):
    """An owner that waits for a lock, in this mode.

    ``holders``: (owner, mode) of those whose locks conflict. ``ahead``: the owners before it in
    line that want what conflicts.
    """

    owner: str
    name: str
    mode: LockMode
    holders: list[tuple[str, LockMode]]
    ahead: list[str]


class LockWaits(Reply, frozen=True):
    """Who waits for whom, in line."""

    waits: list[LockWait]


class ReadLockWaits(Request[LockWaits], frozen=True):
    """Read which owner waits for which others."""


class QuestionsAnswered(Notice, frozen=True):
    """From the lock manager to itself: a thread has answered questions about all locks.

    Or it has failed with this error.
    """

    error: str | None = None


class LocksAwaitedTooLong(Notice, frozen=True):
    """From the lock manager to itself: a caller of `AwaitLocks` gets its reply now."""

    number: int
