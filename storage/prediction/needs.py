"""What an opcode declares that it needs, as a forecast. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from ..opcodes import LevelNeeds, LockNeeds
from ..opcodes.declarations import UNKNOWN_NAMES
from .declared_needs import NAMES_MAX
from .lock_types import (
    LEVELS,
    UNKNOWN_EXCLUSIVE,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    forecast_of_locks,
)

_ANY_NAMES: Final = LevelNeeds(exclusive=(UNKNOWN_NAMES,))


def forecast_of_needs(needs: LockNeeds) -> LockForecast:
    """The forecast of these locks.

    A level with more than `asked.NAMES_MAX` names is unknown: so what a forecast costs is bounded.

    >>> forecast_of_needs(LockNeeds.of({"node": {"shared": ["?"]}})).node.names
    ('?',)
    """
    return _forecast(needs, {level: own for level, own in _levels(needs).items() if _is_large(own)})


def forecast_with_unknowns(needs: LockNeeds) -> LockForecast:
    """Likewise, but `UNKNOWN_NAMES` stands for names not known yet.

    >>> forecast_with_unknowns(LockNeeds.of({"node": {"shared": ["?"]}})).node.type.value
    'unknown_shared'
    """
    return _forecast(
        needs,
        {
            level: own
            for level, own in _levels(needs).items()
            if _is_large(own) or UNKNOWN_NAMES in own.shared or UNKNOWN_NAMES in own.exclusive
        },
    )


def _levels(needs: LockNeeds) -> dict[str, LevelNeeds]:
    return {level: getattr(needs, level) for level in LEVELS}


def _is_large(own: LevelNeeds) -> bool:
    return len(own.shared) + len(own.exclusive) > NAMES_MAX


def _forecast(needs: LockNeeds, unsure: dict[str, LevelNeeds]) -> LockForecast:
    if not unsure:
        return forecast_of_locks(needs.to_changes())
    # The names do not matter, but that there are some: it says whether the big lock is shared.
    fewer = msgspec.structs.replace(needs, **dict.fromkeys(unsure, _ANY_NAMES))
    found: dict[str, LevelForecast] = {
        level: UNKNOWN_EXCLUSIVE if own.exclusive else UNKNOWN_SHARED
        for level, own in unsure.items()
    }
    return msgspec.structs.replace(forecast_of_locks(fewer.to_changes()), **found)
