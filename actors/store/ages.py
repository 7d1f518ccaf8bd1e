"""When jobs came: the queue keeps it for schedulers and daemons to come.

A scheduler that is replaced gets the times with all jobs. For the next daemon they lie in a small
file. They are on the machine's monotonic clock, so the file counts only in the boot that it names,
and a time of day that is set changes no age. Losing the file makes jobs younger, nothing else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...storage import errors, settings
from ...storage.alive import process_identity
from ...storage.disk import documents
from ...storage.plain_values import INTEGER_MAX
from ...transport import messages
from ..scheduling.ageing import STEPS_MAX, STEPS_PER_TICK, Arrivals

if TYPE_CHECKING:
    from ..runtime.component import Runtime
    from .job_table import JobTable


class _Stored(msgspec.Struct):
    """``last``: later jobs came after this was written."""

    boot: str
    last: Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
    steps: Annotated[list[tuple[int, float]], msgspec.Meta(min_length=1)]


class Ages:
    """The times at which jobs came, in this boot of the machine."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._path = runtime.host.places.ages
        self._arrivals = Arrivals(settings.AGE_STEP_SECONDS * STEPS_PER_TICK, math.inf)
        self._last = 0
        self._is_write_due = False
        try:
            self._boot = process_identity.boot()
        except OSError:
            self._boot = ""
        self._load()

    def note(self, first: int, last: int) -> None:
        """Jobs with ids from ``first`` to ``last`` come now, or again."""
        if last <= self._last:
            return
        self._arrivals.note(max(first, self._last + 1), self._runtime.clock())
        self._last = last
        if not self._is_write_due:
            self._is_write_due = True
            self._runtime.later(settings.AGES_WRITE_SECONDS, messages.StoreAges())

    def steps(self, table: JobTable) -> list[tuple[int, float]]:
        """The times of all pending jobs."""
        unknown, _ = table.pending_after(self._last, 1)
        if unknown:
            # The file was written before they came, or is lost.
            self.note(unknown[0].id, table.last_id)
        return self._arrivals.steps()

    def store(self) -> None:
        """Write the times, unless none is new."""
        if not self._is_write_due:
            return
        self._is_write_due = False
        if not self._boot:
            return
        stored = _Stored(self._boot, self._last, self._arrivals.steps())
        try:
            documents.replace(self._path, msgspec.json.encode(stored), flush=False)
        except errors.StorageError as error:
            self._runtime.log.warning("the ages of jobs are not written", error=error.text)

    def _load(self) -> None:
        try:
            data = documents.read(self._path)
            found = None if data is None else msgspec.json.decode(data, type=_Stored)
        except (errors.StorageError, msgspec.DecodeError) as error:
            self._runtime.log.warning("the ages of jobs begin anew", error=str(error))
            return
        if found is None or not self._boot or found.boot != self._boot:
            return
        now = self._runtime.clock()
        steps = [(job_id, min(time, now)) for job_id, time in found.steps[:STEPS_MAX]]
        if steps != sorted(steps) or [*map(_time, steps)] != sorted(map(_time, steps)):
            self._runtime.log.warning("the ages of jobs begin anew", error="they are in no order")
            return
        self._arrivals.restart(steps)
        self._last = found.last


def _time(step: tuple[int, float]) -> float:
    return step[1]
