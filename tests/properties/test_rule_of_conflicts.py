"""Three forms of the rule by which locks conflict say the same of every two jobs.

`LockIndex` grants real locks, `is_certain_to_block` compares two forecasts, and `ClaimedLocks`
counts the claims of a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ganger.actors.locks.allocating import LockIndex
from ganger.storage.locks.locks import BGL, LockLevel, LockMode, Owner
from ganger.storage.prediction.lock_types import (
    ALL_EXCLUSIVE,
    ALL_SHARED,
    NOTHING,
    UNKNOWN_EXCLUSIVE,
    UNKNOWN_SHARED,
    LevelForecast,
    LockForecast,
    LockType,
    exclusive,
    forecast_of,
    is_certain_to_block,
    shared,
)
from ganger.storage.prediction.planned_locks import ClaimedLocks, claims_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = {"node": LockLevel.NODE, "instance": LockLevel.INSTANCE, "node_res": LockLevel.NODE_RES}
MODES = {"shared": LockMode.SHARED, "exclusive": LockMode.EXCLUSIVE}

names = st.lists(st.sampled_from("abc"), max_size=2)
levels = st.one_of(
    st.sampled_from([NOTHING, ALL_SHARED, ALL_EXCLUSIVE, UNKNOWN_SHARED, UNKNOWN_EXCLUSIVE]),
    names.map(shared),
    st.builds(exclusive, names, names),
)
forecasts = st.one_of(
    st.builds(forecast_of, node=levels, instance=levels, node_res=levels),
    st.just(LockForecast(big_lock="exclusive")),
)


def locks_of(forecast: LockForecast) -> Iterator[tuple[str, LockMode]]:
    """The locks that a job with this forecast is certain to ask the lock manager for."""
    if forecast.big_lock != "none":
        yield BGL, MODES[forecast.big_lock]
    for field, level in LEVELS.items():
        one: LevelForecast = getattr(forecast, field)
        mode = LockMode.EXCLUSIVE if "exclusive" in one.type else LockMode.SHARED
        if one.type in {LockType.ALL_SHARED, LockType.ALL_EXCLUSIVE}:
            yield f"{level}/[lockset]", mode
        yield from ((f"{level}/{name}", mode) for name in one.names)
        yield from ((f"{level}/{name}", LockMode.SHARED) for name in one.also_shared)


@settings(max_examples=300)
@given(forecasts, forecasts)
@example(forecast_of(node=exclusive("a", "b")), forecast_of(node=shared("b")))
@example(forecast_of(node=exclusive("a", "b")), forecast_of(node=ALL_SHARED))
@example(forecast_of(node=UNKNOWN_EXCLUSIVE), forecast_of(node=ALL_EXCLUSIVE))
def test_all_forms_of_the_rule_agree(pending: LockForecast, held: LockForecast) -> None:
    granted = LockIndex()
    for lock, mode in locks_of(held):
        granted.add(Owner(1, "/l/held", 7), lock, mode)
    must_wait = any(granted.against(lock, mode) for lock, mode in locks_of(pending))
    assert is_certain_to_block(pending, held) is must_wait

    planned = ClaimedLocks()
    planned.take(claims_of(held))
    assert (planned.taken(claims_of(pending)) is not None) is must_wait
    planned.release(claims_of(held))
    assert planned.taken(claims_of(pending)) is None
