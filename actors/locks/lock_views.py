"""What the lock manager tells of its state: lists, why an owner waits, what-if. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...storage.locks.lock_rows import LockView
from ...storage.locks.locks import Owner, group_of
from ...transport import messages
from . import lock_remedies
from .locking import LockState

_WAITING_SHOWN_MAX = 200

Times = Mapping[Owner, Mapping[str, float]]
"""Since when each owner has held each lock."""


def table(state: LockState, _: Times) -> messages.LockTable:
    """Which owner holds what, and which requests wait."""
    return messages.LockTable(*state.list_waiting_status())


def listed(state: LockState, _: Times, *, revision: int) -> messages.LocksListed:
    """Every lock that is held or wanted."""
    return messages.LocksListed(rows=[_row(view) for view in state.rows()], revision=revision)


def waits(state: LockState, _: Times) -> messages.LockWaits:
    """Who waits for whom."""
    return messages.LockWaits(
        [
            messages.LockWait(
                owner=_shown(owner),
                name=view.name,
                mode=view.mode,
                holders=[(_shown(holder), mode) for holder, mode in view.holders],
                ahead=[_shown(other) for other in view.ahead],
            )
            for owner in state.waiting()
            for view in state.wants_of(owner.lock_file)
        ]
    )


def explained(state: LockState, since: Times, lock_file: str) -> messages.OwnerExplained:
    """What the owner of this lock file waits for, and what would help it."""
    wanted = [
        messages.WantedLock(
            name=view.name,
            mode=str(view.mode),
            holders=[
                (_job(owner), str(mode), _held_since(state, since, owner, view.name))
                for owner, mode in view.holders
            ],
            ahead=[_job(owner) for owner in view.ahead],
        )
        for view in state.wants_of(lock_file)
    ]
    return messages.OwnerExplained(wanted, lock_remedies.for_owner(state, lock_file))


def simulated(state: LockState, _: Times, *, ended: Sequence[str]) -> messages.LocksSimulated:
    """Who would get locks if the owners of these lock files had ended."""
    after, granted = lock_remedies.granted_after(state, ended)
    waiting = [
        messages.WaitingJob(id=_job(owner), kind="lock", text=_first_wait(after, owner))
        for owner in after.waiting()[:_WAITING_SHOWN_MAX]
    ]
    jobs = {owner.lock_file: _job(owner) for owner in state.owners()}
    return messages.LocksSimulated(
        granted=[jobs[lock_file] for lock_file in granted],
        waiting=waiting,
        count=len(after.waiting()),
    )


def _held_since(state: LockState, since: Times, owner: Owner, lock: str) -> float | None:
    """Since when the owner holds the lock, its lock set or, if it is one, a member of it."""
    times, group = since.get(owner, {}), group_of(lock)
    if lock in times or group in times:
        return times.get(lock, times.get(group or ""))
    members = (held for held, _ in state.list_locks(owner) if group_of(held) == lock)
    return min((times[held] for held in members if held in times), default=None)


def _first_wait(state: LockState, owner: Owner) -> str:
    """The first lock that the owner waits for, and the owners that it waits for."""
    for want in state.wants_of(owner.lock_file):
        how = "held" if want.holders else "wanted earlier"
        others = [holder for holder, _ in want.holders] or want.ahead
        return f"waits for {want.name} ({want.mode}), {how} by {', '.join(map(_shown, others))}"
    return "waits for locks"


def _row(view: LockView) -> messages.LockRow:
    return messages.LockRow(
        name=view.name,
        mode=None if view.mode is None else str(view.mode),
        owners=[_shown(owner) for owner in view.owners],
        pending=[(str(change), [_shown(owner)]) for change, owner in view.pending],
    )


def _job(owner: Owner) -> int:
    return owner.identifier if isinstance(owner.identifier, int) else 0


def _shown(owner: Owner) -> str:
    return str(owner.identifier)
