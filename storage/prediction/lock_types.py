"""Forecasts of locks, and what two of them cost beside each other. Knows no opcode (`declared`).

A forecast says for each of five levels which locks a job will take: by name, some that are not
known yet, or the whole level. Names are those of the lock manager, without their level: instances
by name, all others by UUID.

A job's weight says how likely it is to wait if it starts now: the scheduler starts light jobs
first. The table of costs, the sum over the levels and the ageing are the document's (Ganeti
design: predictive queue; "Ganeti 2.18" below means the development line that had it).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from ..locks import locks


class LockType(enum.StrEnum):
    """What a job takes on one level, weakest first. Only two types have names."""

    NONE = "none"
    SHARED = "shared"
    UNKNOWN_SHARED = "unknown_shared"
    ALL_SHARED = "all_shared"
    EXCLUSIVE = "exclusive"
    UNKNOWN_EXCLUSIVE = "unknown_exclusive"
    ALL_EXCLUSIVE = "all_exclusive"


class LevelForecast(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    cache_hash=True,
    gc=False,
):
    """The locks of one level.

    ``names``: sorted, for the types `SHARED` and `EXCLUSIVE`. ``also_shared``: sorted names that
    are shared beside the exclusive ones. Types with names have some, others have none.
    """

    type: LockType = LockType.NONE
    names: tuple[str, ...] = ()
    also_shared: tuple[str, ...] = ()


NOTHING = LevelForecast()
UNKNOWN_SHARED = LevelForecast(LockType.UNKNOWN_SHARED)
ALL_SHARED = LevelForecast(LockType.ALL_SHARED)
UNKNOWN_EXCLUSIVE = LevelForecast(LockType.UNKNOWN_EXCLUSIVE)
ALL_EXCLUSIVE = LevelForecast(LockType.ALL_EXCLUSIVE)


def shared(names: Iterable[str]) -> LevelForecast:
    """These locks, shared; nothing without names.

    >>> shared(["n2", "n1"]).names
    ('n1', 'n2')
    """
    found = tuple(sorted(set(names)))
    return LevelForecast(LockType.SHARED, found) if found else NOTHING


def exclusive(names: Iterable[str], also_shared: Iterable[str] = ()) -> LevelForecast:
    """These locks exclusively, and others shared; nothing without names."""
    found = tuple(sorted(set(names)))
    if not found:
        return shared(also_shared) if also_shared else NOTHING
    return LevelForecast(LockType.EXCLUSIVE, found, tuple(sorted(set(also_shared) - set(found))))


BigLock = Literal["none", "shared", "exclusive"]


class LockForecast(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    cache_hash=True,
    gc=False,
):
    """The locks of a job, or of one opcode: five levels, and the cluster's big lock."""

    nodegroup: LevelForecast = NOTHING
    instance: LevelForecast = NOTHING
    node: LevelForecast = NOTHING
    node_res: LevelForecast = NOTHING
    network: LevelForecast = NOTHING
    big_lock: BigLock = "none"


class JobForecast(NamedTuple):
    """The locks of a job: those of its first opcode, and those of all its opcodes together."""

    first: LockForecast
    of_all: LockForecast


LEVELS = ("nodegroup", "instance", "node", "node_res", "network")
"""The fields of a `LockForecast` that hold levels, in the document's order."""

_NO_LEVELS = (NOTHING,) * len(LEVELS)

NO_LOCKS = LockForecast()
"""The forecast of every job without locks."""

UNKNOWN = LockForecast(**dict.fromkeys(LEVELS, UNKNOWN_EXCLUSIVE), big_lock="shared")
"""The forecast of an opcode of which nothing is known: it may take any lock."""


def forecast_of(
    *,
    nodegroup: LevelForecast = NOTHING,
    instance: LevelForecast = NOTHING,
    node: LevelForecast = NOTHING,
    node_res: LevelForecast = NOTHING,
    network: LevelForecast = NOTHING,
) -> LockForecast:
    """A forecast of these levels. Every owner of a lock shares the big lock too."""
    levels = (nodegroup, instance, node, node_res, network)
    if levels == _NO_LEVELS or all(level.type is LockType.NONE for level in levels):
        return NO_LOCKS
    return LockForecast(*levels, big_lock="shared")


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document's constants: what a job costs on one level, beside one running job."""

    free: float = 0.0
    """The two do not meet, or share."""

    spare_shared: float = 0.3
    """Nothing is in the way of shared locks. Above `free`, as later jobs may want the level."""

    spare_exclusive: float = 0.5
    """Nothing is in the way of exclusive locks."""

    may_block: float = 1.5
    """The names that would tell are not known."""

    blocks: float = 3.0
    """The job must wait."""


COSTS = Costs()
"""The document's own costs."""

BASE = 1.0
"""The document's base value: the weight of a job that needs no lock."""

TICK_SECONDS = 30.0
"""The document's tick: the unit of a job's age."""

TICKS = 30.0
"""The document's coefficient K: the age in ticks at which a job weighs nothing."""

_OVERLAP = "overlap"

# Row: the pending job; column: the running job, in the order of `LockType`. A cell is a field of
# `Costs`; `overlap` is `blocks` if the two name a lock in common, else the row's first cell.
_ROWS: dict[LockType, tuple[str, ...]] = {
    LockType.NONE: ("free",) * 7,
    LockType.SHARED: (
        *("spare_shared", "free", "free", "free"),
        *(_OVERLAP, "may_block", "blocks"),
    ),
    LockType.UNKNOWN_SHARED: (
        *("spare_shared", "spare_shared", "spare_shared", "spare_shared"),
        *("may_block", "may_block", "blocks"),
    ),
    LockType.ALL_SHARED: (
        *("spare_shared", "spare_shared", "spare_shared", "spare_shared"),
        *("blocks", "blocks", "blocks"),
    ),
    LockType.EXCLUSIVE: (
        *("spare_exclusive", _OVERLAP, "may_block", "blocks"),
        *(_OVERLAP, "may_block", "blocks"),
    ),
    LockType.UNKNOWN_EXCLUSIVE: (
        *("spare_exclusive", "may_block", "may_block", "blocks"),
        *("may_block", "may_block", "blocks"),
    ),
    LockType.ALL_EXCLUSIVE: (
        *("spare_exclusive", "blocks", "blocks", "blocks"),
        *("blocks", "blocks", "blocks"),
    ),
}
_TABLE = {
    (pending, running): (cell, row[0])
    for pending, row in _ROWS.items()
    for running, cell in zip(LockType, row, strict=True)
}


def cost(pending: LevelForecast, running: LevelForecast, costs: Costs = COSTS) -> float:
    """What the pending job costs on a level where the other one runs: the document's table.

    >>> cost(exclusive(["n1"]), shared(["n1"])), cost(exclusive(["n1"]), shared(["n2"]))
    (3.0, 0.5)
    """
    if not pending.also_shared and not running.also_shared:
        return _cell(pending, running, costs)
    return max(_cell(one, other, costs) for one in _parts(pending) for other in _parts(running))


def _cell(pending: LevelForecast, running: LevelForecast, costs: Costs) -> float:
    cell, spare = _TABLE[pending.type, running.type]
    if cell is _OVERLAP:
        cell = "blocks" if _overlap(pending.names, running.names) else spare
    found: float = getattr(costs, cell)
    return found


def _overlap(names: tuple[str, ...], others: tuple[str, ...]) -> bool:
    if len(names) == 1:
        return names[0] in others
    return not set(names).isdisjoint(others)


def _parts(level: LevelForecast) -> Iterator[LevelForecast]:
    # Each part is in one cell of the table; the document knows no level with both modes.
    if level.also_shared:
        yield LevelForecast(level.type, level.names)
        yield LevelForecast(LockType.SHARED, level.also_shared)
    else:
        yield level


def static_weight(
    pending: LockForecast,
    running: Iterable[LockForecast],
    *,
    base: float = BASE,
    costs: Costs = COSTS,
) -> float:
    """How much the pending job weighs beside the running ones, before it ages.

    The base value, and on each level the highest cost beside a running job. 0 if nothing runs; a
    job that needs the big lock exclusively costs `Costs.blocks` on every level: 16 with the
    document's constants. While a running job has the big lock exclusively, it counts as the owner
    of all locks (Ganeti 2.18 counts it as a job without locks).

    >>> static_weight(forecast_of(node=exclusive(["n1"])), [NO_LOCKS])
    1.5
    """
    others = [_levels_taken(other) for other in running]
    if not others:
        return 0.0
    if pending.big_lock == "exclusive":
        return base + len(LEVELS) * costs.blocks
    weight = base
    for index, level in enumerate(levels_of(pending)):
        if level.type is not LockType.NONE:
            weight += max(cost(level, taken[index], costs) for taken in others)
        else:
            weight += costs.free
    return weight


_Levels = tuple[LevelForecast, LevelForecast, LevelForecast, LevelForecast, LevelForecast]
_ALL_LEVELS: _Levels = (ALL_EXCLUSIVE,) * 5


def levels_of(forecast: LockForecast) -> _Levels:
    """Its levels, in the order of `LEVELS`."""
    return (
        forecast.nodegroup,
        forecast.instance,
        forecast.node,
        forecast.node_res,
        forecast.network,
    )


def _levels_taken(forecast: LockForecast) -> _Levels:
    return _ALL_LEVELS if forecast.big_lock == "exclusive" else levels_of(forecast)


def adjusted_weight(
    weight: float, age_seconds: float, tick_seconds: float = TICK_SECONDS, ticks: float = TICKS
) -> float:
    """What is left of a job's weight at its age: it falls evenly to 0 within ``ticks`` ticks.

    A job that was received in the future (the clock was set back) has age 0. An unknown time of
    reception is an infinite age: weight 0, as in Ganeti 2.18.

    >>> adjusted_weight(2.0, 450), adjusted_weight(2.0, 900)
    (1.0, 0.0)
    """
    return weight * max(0.0, 1.0 - max(0.0, age_seconds) / tick_seconds / ticks)


def is_certain_to_block(pending: LockForecast, held: LockForecast) -> bool:
    """Whether a job must wait for locks if another one holds ``held`` until then.

    Only what both name, or the whole level, is certain; locks that are not known yet never are.
    ``pending`` is the forecast of one opcode: what `merged` gives may be needed later.

    >>> is_certain_to_block(forecast_of(node=ALL_SHARED), forecast_of(node=exclusive(["n1"])))
    True
    """
    big_locks = {pending.big_lock, held.big_lock}
    if "exclusive" in big_locks and "none" not in big_locks:
        return True
    return any(
        _must_wait(one, other)
        for level, taken in zip(levels_of(pending), levels_of(held), strict=True)
        for one in _parts(level)
        for other in _parts(taken)
    )


_NAMED = (LockType.SHARED, LockType.EXCLUSIVE)
_SHARING = (LockType.SHARED, LockType.ALL_SHARED)
_CERTAIN = (LockType.SHARED, LockType.ALL_SHARED, LockType.EXCLUSIVE, LockType.ALL_EXCLUSIVE)


def _must_wait(pending: LevelForecast, held: LevelForecast) -> bool:
    if pending.type not in _CERTAIN or held.type not in _CERTAIN:
        return False
    if pending.type in _SHARING and held.type in _SHARING:
        return False
    if pending.type in _NAMED and held.type in _NAMED:
        return _overlap(pending.names, held.names)
    return True


def merged(forecasts: Iterable[LockForecast]) -> LockForecast:
    """What several opcodes of a job take altogether; at least what each of them takes.

    Where exclusive names meet shared ones that have no names, the result is `UNKNOWN_EXCLUSIVE`.
    """
    found = list(dict.fromkeys(forecasts))
    if len(found) == 1:
        return found[0]
    big_locks = {forecast.big_lock for forecast in found}
    big_lock: BigLock = next(
        (lock for lock in ("exclusive", "shared") if lock in big_locks), "none"
    )
    columns = [levels_of(forecast) for forecast in found]
    levels = {
        field: _joined([column[index] for column in columns]) for index, field in enumerate(LEVELS)
    }
    return LockForecast(**levels, big_lock=big_lock)


_STRENGTH = {kind: rank for rank, kind in enumerate(LockType)}


def _joined(levels: list[LevelForecast]) -> LevelForecast:
    some = [level for level in levels if level is not NOTHING]
    if len(some) <= 1:
        # Most opcodes take locks of one level or two.
        return some[0] if some else NOTHING
    parts = [part for level in levels for part in _parts(level)]
    strongest = max((part.type for part in parts), key=_STRENGTH.__getitem__, default=LockType.NONE)
    sharing = [part for part in parts if _STRENGTH[part.type] < _STRENGTH[LockType.EXCLUSIVE]]
    names_shared = {name for part in sharing for name in part.names}
    if strongest is LockType.SHARED:
        return shared(names_shared)
    if strongest is not LockType.EXCLUSIVE:
        return LevelForecast(strongest)
    if any(part.type in {LockType.UNKNOWN_SHARED, LockType.ALL_SHARED} for part in sharing):
        return UNKNOWN_EXCLUSIVE
    names = {name for part in parts if part.type is LockType.EXCLUSIVE for name in part.names}
    return exclusive(names, names_shared)


_FIELDS = {
    locks.LockLevel.NODEGROUP: "nodegroup",
    locks.LockLevel.INSTANCE: "instance",
    locks.LockLevel.NODE: "node",
    locks.LockLevel.NODE_RES: "node_res",
    locks.LockLevel.NETWORK: "network",
}


def forecast_of_locks(taken: Iterable[tuple[str, str]]) -> LockForecast:
    """The forecast that is nothing but these locks: names of the lock manager, with their modes.

    The configuration's own lock and mere releases count for nothing. Raises `LockRequestError` if
    a name has not the form of a lock's name.

    >>> forecast_of_locks([("node/n1", "shared")]).node.names
    ('n1',)
    """
    big_lock: BigLock = "none"
    found: dict[str, tuple[set[str], set[str]]] = {}
    for name, mode in taken:
        level = locks.level_of(name)
        if mode not in {"shared", "exclusive"} or level is locks.LockLevel.CONFIG:
            continue
        if level is locks.LockLevel.CLUSTER:
            big_lock = "exclusive" if "exclusive" in {mode, big_lock} else "shared"
            continue
        both = found.setdefault(_FIELDS[level], (set(), set()))
        both[mode == "exclusive"].add(name.partition("/")[2])
    levels = {field: _level_of(*both) for field, both in found.items()}
    return LockForecast(**levels, big_lock=big_lock)


_LOCK_SET = "[lockset]"


def _level_of(sharing: set[str], alone: set[str]) -> LevelForecast:
    if _LOCK_SET in alone:
        return ALL_EXCLUSIVE
    if _LOCK_SET in sharing:
        return UNKNOWN_EXCLUSIVE if alone else ALL_SHARED
    return exclusive(alone, sharing)
