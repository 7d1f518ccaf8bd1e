"""Waits until no job that a hold concerns has the lock, and tells which still have it.

Who has a lock, the lock manager tells with each change: nothing is asked again and again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..storage import errors
from ..storage.filters import filter_evaluation, filters, lock_predicate
from ..storage.natural_order import natural_key
from . import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..transport.client.client import Client
    from ..transport.messages import LockRow


_LOOK_SECONDS = 30.0
"""Longest wait for a change: then the wait begins anew."""


class Draining:
    """The jobs that still run where the rule holds all others.

    ``touching``: the rule's expression on locks. ``rule``: its UUID, if it does not apply to each
    job that touches them; else None. ``until``: when that rule ends, in seconds since the epoch.
    ``is_shown``: tell of each job.
    """

    def __init__(
        self,
        client: Client,
        text: str,
        touching: list[Any],
        *,
        rule: str | None,
        until: float | None,
        is_shown: bool,
    ) -> None:
        self._client = client
        self._text = text
        self._rule = rule
        self._until = until
        self._is_shown = is_shown
        self._touches = filter_evaluation.compile_filter(
            lock_predicate.written_out(filters.parse_filter(touching))
        )

    def await_end(self) -> None:
        """Wait for changes of locks until none of these jobs has one that touches ours.

        `JobStateError` if the rule ends before.
        """
        revision, before = 0, dict[str, str]()
        while True:
            found = self._client.watch_locks(revision, seconds=self._seconds_left())
            revision = found.revision
            owners = self._owners(found.rows)
            if owners != before:
                self._tell(before, owners)
            if not owners:
                return
            before = owners

    def _seconds_left(self) -> float:
        if self._until is None:
            return _LOOK_SECONDS
        left = self._until - time.time()
        if left <= 0:
            text = f"the hold of {self._text} has ended by itself, and jobs still run there"
            raise errors.JobStateError(text)
        return min(left, _LOOK_SECONDS)

    def _owners(self, rows: Sequence[LockRow]) -> dict[str, str]:
        """Who has a lock that touches ours, with the first such lock."""
        found: dict[str, str] = {}
        for row in rows:
            if row.owners and any(map(self._touches, _candidates(row))):
                for owner in row.owners:
                    name = row.name.replace("[lockset]", "*")
                    found.setdefault(owner, f"{name} ({row.mode})")
        found = dict(sorted(found.items(), key=lambda one: natural_key(one[0])))
        return self._without_exceptions(found) if found and self._rule is not None else found

    def _without_exceptions(self, owners: dict[str, str]) -> dict[str, str]:
        """The hold does not apply to jobs with one of the reasons."""
        rows = self._client.test_filters()
        free = {str(row.id) for row in rows if row.now is None or row.now[0] != self._rule}
        return {owner: lock for owner, lock in owners.items() if owner not in free}

    def _tell(self, before: dict[str, str], now: dict[str, str]) -> None:
        if self._is_shown:
            for owner in (one for one in before if one not in now):
                output.echo(f"ganger: {_state(self._client, owner)}", err=True)
            for owner in (one for one in now if one not in before):
                output.echo(f"ganger: {_state(self._client, owner)}; has {now[owner]}", err=True)
        if now and (self._is_shown or not before):
            count = f"{len(now)} {'jobs run' if len(now) > 1 else 'job runs'}"
            text = f"{self._text} is held; {count} there still: {', '.join(now)}"
            output.echo(f"ganger: {text}", err=True)


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
