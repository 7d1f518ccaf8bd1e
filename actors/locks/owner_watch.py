"""Which owners of locks live, and which lost their locks for good.

The executor watches the processes of jobs and reports their ends. No component watches programs
with a lock file of their own: while there are any, the lock manager looks at them again and
again.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.alive import lock_files
from . import lock_refusals

if TYPE_CHECKING:
    from ...storage.locks.lock_journal import Fenced
    from ...storage.locks.locks import Owner

FENCED_MAX = 10_000
"""Most owners that are remembered as fenced; the oldest are forgotten first."""


class OwnerWatch:
    """The owners that no executor watches, and the fenced ones."""

    def __init__(self, fenced: Fenced, owners: list[Owner], own: str) -> None:
        """``own`` is the lock file of this process."""
        self._own = own
        self.fenced = fenced
        self.newly_fenced: list[Owner] = []
        """Those since the last turn."""
        self._foreign: dict[str, set[Owner]] = {}
        self._found_alive: set[str] = set()
        """Lock files of foreign owners that a process has held since the last look at all."""
        for owner in owners:
            self._note(owner)

    @property
    def has_foreign(self) -> bool:
        """Whether an owner must be looked at again."""
        return bool(self._foreign)

    def check(self, owner: Owner) -> None:
        """Raise `LockRequestError` if the owner may get no locks."""
        if (moment := self.fenced.get(owner)) is not None:
            raise lock_refusals.fenced(owner, moment)
        if owner.lock_file not in self._found_alive:
            if lock_files.is_dead(owner.lock_file):
                raise errors.LockRequestError(f"the owner's lock file {owner.lock_file} is dead")
            if _is_foreign(owner.lock_file):
                # If it dies before the next look, that one frees what it gets until then.
                self._found_alive.add(owner.lock_file)
        self._note(owner)

    def forget(self, owner: Owner) -> None:
        """The owner has neither locks nor a waiting request."""
        owners = self._foreign.get(owner.lock_file, set())
        owners.discard(owner)
        if not owners:
            self._foreign.pop(owner.lock_file, None)

    def dead(self) -> list[str]:
        """The lock files of foreign owners that no process holds any more."""
        self._found_alive.clear()
        return [path for path in self._foreign if lock_files.is_dead(path)]

    def fence(self, lock_file: str, now: float) -> None:
        """The owners of this lock file lost their locks: they get no others.

        The name of a job's lock file says which process it is, and that one has ended: only
        a foreign owner can come back.
        """
        for owner in self._foreign.pop(lock_file, ()):
            self.fenced[owner] = now
            self.newly_fenced.append(owner)
        for oldest in list(itertools.islice(self.fenced, max(0, len(self.fenced) - FENCED_MAX))):
            del self.fenced[oldest]

    def _note(self, owner: Owner) -> None:
        # The configuration store, which has our own lock file, lives as long as we.
        if owner.lock_file != self._own and _is_foreign(owner.lock_file):
            self._foreign.setdefault(owner.lock_file, set()).add(owner)


@functools.lru_cache(maxsize=4_096)
def _is_foreign(lock_file: str) -> bool:
    """Whether this is no lock file of a job: no executor watches its owners."""
    return lock_files.identity_of(lock_file) is None
