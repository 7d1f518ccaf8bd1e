"""Words a refused lock request: the rule it breaks, and who holds what since when. Pure.

The first sentence is Ganeti's. Behind it, in parentheses, stands what its users miss there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.locks.locks import LockLevel, LockMode, Owner, Pending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .locking import LockState

_LOCKS_SHOWN_MAX = 5

RULES = {
    errors.LockOrderError: f"locks are acquired in the order {', '.join(LockLevel)}, and by name",
    errors.LockWaitError: "an owner has one waiting request at a time",
    errors.LockRingError: "two owners that share a lock cannot both make it exclusive",
    errors.LockContradictionError: "a request names each lock once",
}


def explained(
    error: errors.LockRequestError,
    owner: Owner,
    state: LockState,
    since: Mapping[Owner, Mapping[str, float]],
) -> errors.LockRequestError:
    """The same error with its rule, and with the locks of those that the request concerns."""
    rule = RULES.get(type(error))
    if rule is None:
        return error
    concerned = error.concerns if isinstance(error.concerns, Owner) else owner
    parts = [rule, _held(concerned, state, since.get(concerned, {}))]
    pending = state.pending_of(concerned)
    if pending is not None:
        parts.append(_wanted(concerned, pending))
    return type(error)(f"{error.text} ({'; '.join(filter(None, parts))})", error.concerns)


def holders(
    lock: str, state: LockState, since: Mapping[Owner, Mapping[str, float]]
) -> tuple[list[Owner], str]:
    """The owners that hold the lock, and words for each: in which mode, and since when."""
    owners = state.owners_of(lock)
    shown = [_one_held(owner, lock, mode, since.get(owner, {})) for owner, mode in owners]
    return [owner for owner, _ in owners], "; ".join(shown)


def _one_held(owner: Owner, lock: str, mode: LockMode, times: Mapping[str, float]) -> str:
    moment = f", since {_shown(times[lock])}" if lock in times else ""
    return f"{name(owner)} holds {lock} ({mode}{moment})"


def fenced(owner: Owner, moment: float) -> errors.FencedOwnerError:
    """The error for an owner that goes on after its locks were taken away."""
    return errors.FencedOwnerError(
        f"{name(owner)} lost its locks at {_shown(moment)}, because no process held its lock file"
        f" {owner.lock_file}; an owner that lost its locks gets no others"
    )


def name(owner: Owner) -> str:
    """The owner as sentences name it.

    >>> name(Owner(5, "/l", 7)), name(Owner("luxid-1", "/l", 7))
    ('job 5', "'luxid-1' (pid 7)")
    """
    if isinstance(owner.identifier, int):
        return f"job {owner.identifier}"
    return f"{owner.identifier!r} (pid {owner.pid})"


def _held(owner: Owner, state: LockState, times: Mapping[str, float]) -> str:
    locks = state.list_locks(owner)
    if not locks:
        return ""
    shown = [
        f"{lock} ({mode}{f', since {_shown(times[lock])}' if lock in times else ''})"
        for lock, mode in locks[-_LOCKS_SHOWN_MAX:]
    ]
    more = len(locks) - len(shown)
    return f"{name(owner)} holds {', '.join(shown)}" + (f" and {more} more" if more else "")


def _wanted(owner: Owner, pending: Pending) -> str:
    changes = [f"{lock} ({change})" for lock, change in pending.changes[:_LOCKS_SHOWN_MAX]]
    return f"{name(owner)} waits for {', '.join(changes)}"


def _shown(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
