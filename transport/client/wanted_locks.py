"""Which pending jobs want which locks, from what the scheduler knows: in rows of locks. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from ...storage.natural_order import natural_key
from ...storage.prediction.planned_locks import BIG_LOCK, claims_of
from ..messages import LockRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...storage.prediction.lock_types import LockForecast
    from ..messages import PlanRead

WANTING_JOBS_MAX = 1_000
"""So many pending jobs count, the first in the scheduler's order."""

SECONDS = 2.0
"""A list of locks waits no longer for the scheduler, which may be the one that hangs."""


def with_wanted(rows: Sequence[LockRow], plan: PlanRead) -> list[LockRow]:
    """The rows, and those of further locks, with the jobs that will take them when they start.

    These have no process yet, so they stand in no line.
    """
    names = [list(_locks(forecast)) for forecast in plan.locks]
    wanted: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for job_id, _, _, _ in plan.pending:
        index = plan.lock_sets.get(job_id)
        for name, mode in names[index] if index is not None else ():
            wanted[name][mode].append(str(job_id))
    found = {row.name: row for row in rows}
    for name, modes in wanted.items():
        row = found.get(name) or LockRow(name=name, mode=None, owners=[], pending=[])
        found[name] = msgspec.structs.replace(row, wanted=sorted(modes.items()))
    return sorted(found.values(), key=lambda row: natural_key(row.name))


def _locks(forecast: LockForecast) -> Iterator[tuple[str, str]]:
    """The locks of a forecast, each with its mode, as lists of locks name them.

    The big lock is left out if it is shared: every job with locks takes it.
    """
    for key, mode in claims_of(forecast):
        level, name = key
        if mode in ("shared", "exclusive") and (key, mode) != (BIG_LOCK, "shared"):
            yield f"{level.replace('_', '-')}/{name or '[lockset]'}", mode
