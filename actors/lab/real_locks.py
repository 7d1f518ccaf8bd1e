"""What traced opcodes ask the lock state for, and what the scheduler learns of them: pure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...storage.lab.traces import LEVELS
from ...storage.locks.locks import BGL, LockLevel
from ...storage.prediction.lock_types import (
    LevelForecast,
    LockForecast,
    LockType,
    forecast_of_locks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.lab.traces import Trace, TracedLevel, TracedLocks, TracedOpcode

Changes = tuple[tuple[str, str], ...]
"""A request to the lock state: each lock with the mode."""

_NUMBERED_MAX = 65_536
_LEVELS = {name: LockLevel(name.replace("_", "-")) for name in LEVELS}
_NUMBERS = range(1, 101)


class RealLocks:
    """What the opcodes of a trace take: their ``locks`` or, if they have none, their forecast.

    Where a forecast says only that some lock of a level is needed, an opcode takes one of those
    that the trace names there (of 100, if it names none): the id of its job chooses which. So a
    recorded trace, which does not have the real locks, can be played, too.
    """

    def __init__(self, trace: Trace) -> None:
        named: dict[str, set[int]] = {level: set() for level in LEVELS}
        seen: set[TracedLocks] = set()
        for job in trace.jobs:
            for op in job.ops:
                locks = op.locks or op.forecast
                if locks not in seen:
                    seen.add(locks)
                    for name, level in locks.levels():
                        named[name].update(level.names, level.also_shared)
        self._named: dict[str, Sequence[int]] = {
            name: sorted(found) or _NUMBERS for name, found in named.items()
        }
        self._known: dict[TracedLocks, Changes] = {}

    def of(self, op: TracedOpcode, job_id: int) -> Changes:
        """The request of this opcode of the job; empty: it needs no locks."""
        locks = op.locks or op.forecast
        if (found := self._known.get(locks)) is not None:
            return found
        changes: list[tuple[str, str]] = []
        if locks.big_lock != "none":
            changes.append((BGL, locks.big_lock))
        is_unknown = False
        for name, level in locks.levels():
            is_unknown |= level.type.startswith("unknown_")
            mode = level.type.rpartition("_")[2]
            changes += [(lock, mode) for lock in self._names(name, level, job_id)]
            changes += [(f"{_LEVELS[name]}/{number}", "shared") for number in level.also_shared]
        if not is_unknown:
            self._known[locks] = tuple(changes)
        return tuple(changes)

    def _names(self, name: str, level: TracedLevel, job_id: int) -> list[str]:
        prefix = _LEVELS[name]
        if level.type.startswith("all_"):
            return [f"{prefix}/[lockset]"]
        if level.type.startswith("unknown_"):
            named = self._named[name]
            return [f"{prefix}/{named[job_id % len(named)]}"]
        return [f"{prefix}/{number}" for number in level.names]


@functools.lru_cache(maxsize=_NUMBERED_MAX)
def forecast_of(locks: TracedLocks) -> LockForecast:
    """The forecast as the scheduler gets it."""
    levels = {
        name: LevelForecast(
            LockType(level.type), _names(level.names), also_shared=_names(level.also_shared)
        )
        for name, level in locks.levels()
    }
    return LockForecast(**levels, big_lock=locks.big_lock)


def _names(numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(sorted(map(str, numbers)))


@functools.lru_cache(maxsize=_NUMBERED_MAX)
def forecast_of_held(changes: Changes) -> LockForecast:
    """The forecast that is these locks, as the lock manager reports them to the scheduler."""
    return forecast_of_locks(changes)
