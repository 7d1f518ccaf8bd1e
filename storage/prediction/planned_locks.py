"""Which jobs have which locks while a plan is made: forecasts only, no lock manager. Pure.

A forecast is a list of claims. As in a hierarchy of locks, a job that takes some names of a level
claims the level too, with the intention to share or to change something in it: so one look tells
whether it meets a job that takes the whole level. Names that are not known yet claim nothing.

The scheduler and the lock manager have the same rule in other forms
(docs/decisions/the-rule-of-conflicts-has-three-forms.md).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Final, Literal

from .lock_types import LEVELS, LevelForecast, LockForecast, LockType

Mode = Literal["some_shared", "some_exclusive", "shared", "exclusive"]
"""How a lock is claimed; the first two are claims of a level for some of its names."""

Key = tuple[str, str]
"""A level and a name; a level and nothing stands for the whole level."""

Claims = tuple[tuple[Key, Mode], ...]

BIG_LOCK: Final[Key] = ("cluster", "BGL")

_CONFLICTS: Final[dict[Mode, frozenset[Mode]]] = {
    "some_shared": frozenset({"exclusive"}),
    "some_exclusive": frozenset({"shared", "exclusive"}),
    "shared": frozenset({"some_exclusive", "exclusive"}),
    "exclusive": frozenset({"some_shared", "some_exclusive", "shared", "exclusive"}),
}
_FORECASTS_KNOWN: Final = 4_096


@functools.lru_cache(maxsize=_FORECASTS_KNOWN)
def claims_of(forecast: LockForecast) -> Claims:
    """What a job with this forecast is certain to claim.

    >>> from ganger.storage.prediction.lock_types import exclusive, forecast_of
    >>> for key, mode in claims_of(forecast_of(node=exclusive(["n1"]))): print(key, mode)
    ('cluster', 'BGL') shared
    ('node', '') some_exclusive
    ('node', 'n1') exclusive
    """
    found: list[tuple[Key, Mode]] = []
    if forecast.big_lock != "none":
        found.append((BIG_LOCK, forecast.big_lock))
    for level in LEVELS:
        found += _of_level(level, getattr(forecast, level))
    return tuple(found)


def _of_level(level: str, one: LevelForecast) -> list[tuple[Key, Mode]]:
    whole = (level, "")
    match one.type:
        case LockType.ALL_SHARED:
            return [(whole, "shared")]
        case LockType.ALL_EXCLUSIVE:
            return [(whole, "exclusive")]
        case LockType.SHARED:
            return [(whole, "some_shared"), *(((level, name), "shared") for name in one.names)]
        case LockType.EXCLUSIVE:
            return [
                (whole, "some_exclusive"),
                *(((level, name), "exclusive") for name in one.names),
                *(((level, name), "shared") for name in one.also_shared),
            ]
        case _:
            return []


class ClaimedLocks:
    """How many jobs claim each lock now, in each mode."""

    def __init__(self) -> None:
        self._counts: defaultdict[Key, dict[Mode, int]] = defaultdict(dict)

    def taken(self, claims: Claims) -> Key | None:
        """The first lock for which a job with these claims would wait; None: it would not."""
        for key, mode in claims:
            counts = self._counts.get(key)
            if counts and not _CONFLICTS[mode].isdisjoint(counts):
                return key
        return None

    def take(self, claims: Claims) -> None:
        """A job has these locks from now on."""
        for key, mode in claims:
            counts = self._counts[key]
            counts[mode] = counts.get(mode, 0) + 1

    def release(self, claims: Claims) -> None:
        """A job has these locks no longer."""
        for key, mode in claims:
            counts = self._counts[key]
            counts[mode] -= 1
            if not counts[mode]:
                del counts[mode]
            if not counts:
                del self._counts[key]
