"""Which locks the opcodes of a job take, as the predicate ``lock`` sees them. No files, no clock.

What the configuration would resolve is unknown here: such a job may take any lock of the level,
until the owner of the configuration has answered its question (docs/decisions/rules-on-locks.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..opcodes.declarations import UNKNOWN_NAMES, WHOLE_LEVEL
from ..prediction.declared import forecast, question_of_job
from ..prediction.lock_types import LEVELS, LevelForecast, LockForecast, LockType, levels_of
from .lock_predicate import LockClaim, claims_of_lock

_FORECASTS_KNOWN: Final = 4_096
_NAMED_LEVELS: Final = tuple(level.replace("_", "-") for level in LEVELS)


def claims_of(opcodes: Sequence[Mapping[str, Any]]) -> tuple[LockClaim, ...]:
    """Each lock that one of the opcodes takes, once.

    >>> locks = {"node": {"shared": ["n1"]}}
    >>> for claim in claims_of([{"OP_ID": "OP_EXEC", "argv": ["true"], "locks": locks}]):
    ...     print(claim.level, claim.name, claim.mode)
    cluster BGL shared
    node n1 shared
    """
    return tuple(dict.fromkeys(claim for opcode in opcodes for claim in _claims(opcode)))


def _claims(opcode: Mapping[str, Any]) -> Iterator[LockClaim]:
    """The locks, those of a command also under the names that its user has written."""
    found = claims_of_forecast(forecast(opcode))
    uuids = opcode.get("lock_uuids")
    if isinstance(uuids, dict):
        for lock, uuid in uuids.items():
            level, _, name = lock.partition("/")
            for claim in found:
                if claim.level == level and claim.name == uuid:
                    yield claim._replace(name=name)
    yield from found


def question_of(opcodes: Sequence[Mapping[str, Any]]) -> str | None:
    """What to ask the owner of the configuration for the locks of all; None: it knows no more."""
    return question_of_job(opcodes)


@functools.lru_cache(maxsize=_FORECASTS_KNOWN)
def claims_of_forecast(found: LockForecast) -> tuple[LockClaim, ...]:
    """Each lock of a forecast."""
    claims: list[LockClaim] = []
    if found.big_lock != "none":
        claims += claims_of_lock("cluster", "BGL", found.big_lock)
    for level, taken in zip(_NAMED_LEVELS, levels_of(found), strict=True):
        claims += _of_level(level, taken)
    return tuple(claims)


def _of_level(level: str, taken: LevelForecast) -> Iterator[LockClaim]:
    mode = "shared" if taken.type in _SHARING else "exclusive"
    if taken.type in _WHOLE:
        yield LockClaim(level, WHOLE_LEVEL, mode)
    elif taken.type in _UNKNOWN:
        yield LockClaim(level, UNKNOWN_NAMES, mode)
    for name in taken.names:
        yield LockClaim(level, name, mode)
    for name in taken.also_shared:
        yield LockClaim(level, name, "shared")


_SHARING: Final = frozenset({LockType.SHARED, LockType.UNKNOWN_SHARED, LockType.ALL_SHARED})
_WHOLE: Final = frozenset({LockType.ALL_SHARED, LockType.ALL_EXCLUSIVE})
_UNKNOWN: Final = frozenset({LockType.UNKNOWN_SHARED, LockType.UNKNOWN_EXCLUSIVE})
