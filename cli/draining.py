"""Waits until no job that a hold concerns has the lock, and tells which still have it.

Who has a lock, the lock manager tells with each change: nothing is asked again and again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage import errors
from ..storage.filters import filter_evaluation, filters, lock_predicate
from ..storage.locks.locks import typed
from ..storage.natural_order import natural_key
from . import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..transport.client.client import Client
    from ..transport.messages import LockRow
    from .held import Locks


_LOOK_SECONDS = 10.0
"""Longest wait for a change: then it is looked whether the hold is still there."""


class HeldLock(NamedTuple):
    """What the rule that holds a lock says.

    ``touching``: its expression on locks. ``rule``: its UUID. ``has_exceptions``: it does not apply
    to each job that touches them. ``until``: when it ends, in seconds since the epoch.
    """

    text: str
    touching: list[Any]
    rule: str
    has_exceptions: bool
    until: float | None


class Draining:
    """The jobs that still run where rules hold all others. ``is_shown``: tell of each job."""

    def __init__(
        self, client: Client, locks: Locks, held: list[HeldLock], *, is_shown: bool
    ) -> None:
        self._client = client
        self._locks = locks
        self._is_shown = is_shown
        self._held = [(one, _touching(one.touching)) for one in held]

    def await_end(self, seconds: float | None = None) -> list[str]:
        """Wait for changes of locks until none of these jobs has one that touches ours.

        Returns those that still have one after ``seconds``. `JobStateError`: the rule has ended.
        """
        end = None if seconds is None else time.monotonic() + seconds
        revision, before = 0, dict[str, str]()
        while True:
            found = self._client.watch_locks(revision, seconds=self._pause(end))
            revision = found.revision
            owners = self._owners(found.rows)
            self._check_held(is_empty=not owners)
            if self._is_shown:
                self._tell(before, owners)
            if not owners or (end is not None and time.monotonic() >= end):
                return list(owners)
            if not before or (self._is_shown and owners != before):
                text = f"{self._locks.text} {self._locks.be} held; {running(list(owners))}"
                output.echo(f"ganger: {text}", err=True)
            before = owners

    def _pause(self, end: float | None) -> float:
        ends = [_LOOK_SECONDS]
        ends += [] if end is None else [end - time.monotonic()]
        ends += [one.until - time.time() for one, _ in self._held if one.until is not None]
        return max(0.0, min(ends))

    def _check_held(self, *, is_empty: bool) -> None:
        still = "" if is_empty else ", and jobs still run there"
        for one, _ in self._held:
            if one.until is not None and one.until <= time.time():
                raise errors.JobStateError(f"the hold of {one.text} has ended by itself{still}")
            try:
                self._client.filters([one.rule])
            except errors.UnknownFilterError as error:
                text = f"somebody has released {one.text} meanwhile{still}"
                raise errors.JobStateError(text) from error

    def _owners(self, rows: Sequence[LockRow]) -> dict[str, str]:
        """Who has a lock that touches ours, with the first such lock."""
        found: dict[str, str] = {}
        for one, touches in self._held:
            owners: dict[str, str] = {}
            for row in rows:
                if row.owners and any(map(touches, _candidates(row))):
                    for owner in row.owners:
                        owners.setdefault(owner, f"{typed(row.name)} ({row.mode})")
            has_free = bool(owners) and one.has_exceptions
            found = (self._without_exceptions(owners, one.rule) if has_free else owners) | found
        return dict(sorted(found.items(), key=lambda one: natural_key(one[0])))

    def _without_exceptions(self, owners: dict[str, str], rule: str) -> dict[str, str]:
        """The hold does not apply to jobs with one of the reasons."""
        rows = self._client.test_filters()
        free = {str(row.id) for row in rows if row.now is None or row.now[0] != rule}
        return {owner: lock for owner, lock in owners.items() if owner not in free}

    def _tell(self, before: dict[str, str], now: dict[str, str]) -> None:
        for owner in (one for one in before if one not in now):
            output.echo(f"ganger: {_state(self._client, owner)}", err=True)
        for owner in (one for one in now if one not in before):
            output.echo(f"ganger: {_state(self._client, owner)}; has {now[owner]}", err=True)


def _touching(touching: list[Any]) -> filter_evaluation.FilterTest:
    return filter_evaluation.compile_filter(
        lock_predicate.written_out(filters.parse_filter(touching))
    )


def running(owners: Sequence[str]) -> str:
    """What still runs there, in words."""
    count = f"{len(owners)} {'jobs run' if len(owners) > 1 else 'job runs'}"
    return f"{count} there still: {', '.join(owners)}"


def _candidates(row: LockRow) -> Iterator[filter_evaluation.Resolve]:
    level, _, name = row.name.partition("/")
    return lock_predicate.resolvers(lock_predicate.claims_of_lock(level, name, row.mode or ""))


def _state(client: Client, owner: str) -> str:
    """The owner of a lock, and its status if it is a job."""
    if not owner.isdecimal():
        return owner
    try:
        [job] = client.jobs([int(owner)])
    except errors.UnknownJobError:
        return f"job {owner} has ended"
    verb = "has ended with" if job.is_final else "is"
    return f"job {owner} {verb} {job.status}: {job.summary}"
