"""Whether a forecast covers the locks that an opcode really requests, level by level."""

from __future__ import annotations

from ganger.storage.prediction.lock_types import LEVELS, LevelForecast, LockForecast, LockType

NAMELESS = {
    LockType.UNKNOWN_SHARED,
    LockType.ALL_SHARED,
    LockType.UNKNOWN_EXCLUSIVE,
    LockType.ALL_EXCLUSIVE,
}


def mode(level: LevelForecast) -> int:
    if level.type is LockType.NONE:
        return 0
    return 2 if "exclusive" in level.type else 1


def covers(wide: LevelForecast, narrow: LevelForecast) -> bool:
    """Whether a level names what another one takes, or may take any lock in at least that mode."""
    if wide.type in NAMELESS:
        return mode(wide) >= mode(narrow)
    if narrow.type in NAMELESS:
        return False
    alone = set(wide.names) if wide.type is LockType.EXCLUSIVE else set()
    wanted = set(narrow.names) if narrow.type is LockType.EXCLUSIVE else set()
    everything = {*wide.names, *wide.also_shared}
    return wanted <= alone and {*narrow.names, *narrow.also_shared} <= everything


def uncovered(wide: LockForecast, narrow: LockForecast) -> list[str]:
    """The levels on which a forecast says less than what is requested."""
    found = [level for level in LEVELS if not covers(getattr(wide, level), getattr(narrow, level))]
    modes = ("none", "shared", "exclusive")
    if modes.index(wide.big_lock) < modes.index(narrow.big_lock):
        found.append("big_lock")
    return found
