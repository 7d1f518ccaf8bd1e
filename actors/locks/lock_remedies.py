"""The smallest change that would give a job the locks it waits for: tried out on a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.settings import PRIORITY_MIN
from ...transport.messages import Remedy
from .locking import LockState

if TYPE_CHECKING:
    from collections.abc import Collection


def for_owner(state: LockState, lock_file: str) -> Remedy:
    """The change that gives the owner of ``lock_file`` the locks that it waits for.

    The holders must end. If others come before the owner, it also needs a better priority, or
    those others must end too.
    """
    wants = state.wants_of(lock_file)
    ends = {owner.lock_file for want in wants for owner, _ in want.holders}
    ahead = map(state.pending_of, {owner for want in wants for owner in want.ahead})
    best = min((pending.priority for pending in ahead if pending), default=None)
    priority = None
    if not _is_granted(state, lock_file, ends, None):
        if best is not None and best > PRIORITY_MIN:
            priority = best - 1
        if priority is None or not _is_granted(state, lock_file, ends, priority):
            priority, ends = None, _all_before(state, lock_file)
    jobs = {owner.identifier for owner in state.owners() if owner.lock_file in ends}
    return Remedy(locks=sorted(job for job in jobs if isinstance(job, int)), priority=priority)


def _all_before(state: LockState, lock_file: str) -> set[str]:
    """The lock files whose owners stop this one, now or when those that stop it now have ended."""
    found: set[str] = set()
    after = state
    while more := _stopping(after, lock_file) - found:
        found |= more
        after, _ = granted_after(state, found)
    return found


def _stopping(state: LockState, lock_file: str) -> set[str]:
    """The lock files whose owners hold what this one wants, or come before it."""
    wants = state.wants_of(lock_file)
    return {owner.lock_file for want in wants for owner in (*dict(want.holders), *want.ahead)}


def granted_after(state: LockState, ended: Collection[str]) -> tuple[LockState, list[str]]:
    """The locks after the end of these lock files' owners, and the lock files granted by it."""
    copy, _ = LockState.restore(state.snapshot())
    woken = [owner.lock_file for path in sorted(ended) for owner in copy.release_lock_file(path)]
    return copy, [path for path in woken if path not in ended]


def _is_granted(
    state: LockState, lock_file: str, ended: Collection[str], priority: int | None
) -> bool:
    if priority is not None:
        state, _ = LockState.restore(state.snapshot())
        for owner in state.owners():
            if owner.lock_file == lock_file and owner in state.set_priority(owner, priority):
                return True
    return lock_file in granted_after(state, ended)[1]
