"""The rows of all live jobs: by id, by key, by status, and those with a run slot."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from typing import TYPE_CHECKING

from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import OF_STATUS, Outcome
from ...storage.jobs.plan_runs import Member, newest_run
from ..runtime.id_maps import IdMap
from . import job_classes
from .job_rows import WITH_SLOT, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...storage.jobs.origins import Origin, Submitter
    from .job_rows import Row


_GONE_IDS_MIN = 1_000


class JobTable:
    """The rows, by id, in the order of ids.

    Ids nearly always come in order; a large submission comes after smaller ones that began later.
    Ids of removed rows stay in the list until they are half of it.
    """

    def __init__(self) -> None:
        # What jobs share does not depend on another table that was in this process before.
        job_classes.forget_all()
        self._rows: IdMap[Row] = IdMap()
        self.find: Callable[[int], Row | None] = self._rows.get
        """The live job's row."""
        self._keys: dict[str, list[int]] = {}
        self._names: dict[str, dict[int, None]] = {}
        self._plans: dict[str, dict[int, None]] = {}
        # The jobs with a run slot, and some that have had one.
        self._chosen: set[int] = set()
        self._statuses: Counter[JobStatus] = Counter()
        self._outcomes: Counter[Outcome] = Counter()
        # The counted outcomes that the statuses by themselves do not say.
        self._special: dict[int, Outcome] = {}
        self._ids: list[int] = []
        self.mark = time.time_ns()
        """Another number whenever a row has come or gone, also than that of an earlier table."""

    def __len__(self) -> int:
        """How many jobs are live."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        """All rows in id order."""
        return self._rows_from(0)

    def add(self, row: Row) -> None:
        """Add a row with a new id."""
        job_id = row.id
        if not self._ids or job_id > self._ids[-1]:
            self._ids.append(job_id)
        else:
            place = bisect.bisect_left(self._ids, job_id)
            if self._ids[place] != job_id:
                self._ids.insert(place, job_id)
        if (before := self._rows.get(job_id)) is not None:
            self._uncount(before)
        self._rows[job_id] = row
        self._count(row)
        if row.phase in WITH_SLOT:
            self._chosen.add(job_id)
        self.mark += 1
        if row.key is not None:
            self._keys.setdefault(row.key, []).append(job_id)
        if (origin := row.origin).name:
            self._names.setdefault(origin.name, {})[job_id] = None
        if origin.plan:
            self._plans.setdefault(origin.plan, {})[job_id] = None

    @property
    def last_id(self) -> int:
        """No live job has a higher id; 0 if none was ever added."""
        return self._ids[-1] if self._ids else 0

    def remove(self, job_id: int) -> None:
        """Remove the row of a job that is no longer live."""
        row = self._rows.take(job_id)
        if row is None:
            return
        self._chosen.discard(job_id)
        self._uncount(row)
        self.mark += 1
        if len(self._ids) > 2 * len(self._rows) + _GONE_IDS_MIN:
            # The map gives them in order, four times as fast as a look for each.
            self._ids = list(self._rows)
        if row.key is not None:
            ids = self._keys.get(row.key, [])
            ids.remove(job_id)
            if not ids:
                del self._keys[row.key]
        for known, name in ((self._names, row.origin.name), (self._plans, row.origin.plan)):
            if name:
                of_name = known[name]
                del of_name[job_id]
                if not of_name:
                    del known[name]

    def ids_of_key(self, key: str) -> list[int] | None:
        """The live jobs submitted under this key."""
        found = self._keys.get(key)
        return None if found is None else list(found)

    def called(self, name: str) -> list[int]:
        """The newest live job of this name, or all live jobs of the newest plan of this name."""
        newest = max(self._names.get(name, ()), default=0)
        of_plan = self._plans.get(name)
        if of_plan is None or max(of_plan) < newest:
            return [newest] if newest else []
        rows = (self._rows[one] for one in of_plan)
        return newest_run({row.id: Member(row.received, row.origin.retry_of) for row in rows})

    def newest_of(self, submitter: Submitter) -> list[int]:
        """The newest live job that this user has submitted, if there is one."""
        of_user: dict[Origin, bool] = {}
        for job_id in reversed(self._ids):
            row = self.find(job_id)
            if row is None:
                continue
            origin = row.origin
            if origin not in of_user:
                of_user[origin] = submitter.is_same_user(origin.submitter)
            if of_user[origin]:
                return [job_id]
        return []

    def give_status(self, row: Row, status: JobStatus) -> None:
        """The job has this status now; if that is final, also how it ended may be new."""
        if self._rows.get(row.id) is not row:
            row.status = status
            return
        self._uncount(row)
        row.status = status
        self._count(row)

    def _count(self, row: Row) -> None:
        self._statuses[row.status] += 1
        if (outcome := row.end.outcome) is None:
            return
        self._outcomes[outcome] += 1
        if outcome is not OF_STATUS[row.status][0]:
            self._special[row.id] = outcome

    def _uncount(self, row: Row) -> None:
        self._statuses[row.status] -= 1
        if row.status.is_final:
            # As it was counted: what the row says of its end may be another thing since.
            self._outcomes[self._special.pop(row.id, OF_STATUS[row.status][0])] -= 1

    def give_slot(self, row: Row, phase: Phase) -> None:
        """The job has a run slot now: it is in this phase."""
        row.phase = phase
        self._chosen.add(row.id)

    def in_phase(self, *phases: Phase) -> list[Row]:
        """The rows in one of these phases, by id.

        Those with a run slot are found without a look at the others.
        """
        if not WITH_SLOT.issuperset(phases):
            return [row for row in self if row.phase in phases]
        rows = [row for row in map(self._rows.get, sorted(self._chosen)) if row is not None]
        with_slot = [row for row in rows if row.phase in WITH_SLOT]
        self._chosen = {row.id for row in with_slot}
        return [row for row in with_slot if row.phase in phases]

    def page(
        self, *, after: int, limit: int, statuses: Iterable[JobStatus] | None
    ) -> tuple[list[Row], bool]:
        """Up to ``limit`` rows with ids above ``after``, and whether there are more."""
        if statuses is None:
            return self._page_of(after, limit, lambda _: True)
        wanted = frozenset(statuses)
        return self._page_of(after, limit, lambda row: row.status in wanted)

    def pending_after(self, job_id: int, limit: int) -> tuple[list[Row], bool]:
        """Up to ``limit`` pending rows with ids above ``job_id``, and whether there are more."""
        return self._page_of(job_id, limit, lambda row: row.phase is Phase.PENDING)

    def unfinished_after(self, job_id: int, limit: int) -> tuple[list[Row], bool]:
        """As `pending_after`, of all rows that are not final."""
        return self._page_of(job_id, limit, lambda row: not row.status.is_final)

    def ids_after(self, job_id: int) -> Iterator[int]:
        """The ids above ``job_id``, in order, as long as none is added or removed."""
        return (row.id for row in self._rows_from(bisect.bisect_right(self._ids, job_id)))

    def ids_before(self, before: int | None, after: int = 0) -> Iterator[int]:
        """The ids between these two, from the highest on, while none is added or removed."""
        ids = self._ids
        end = len(ids) if before is None else bisect.bisect_left(ids, before)
        first = bisect.bisect_right(ids, after)
        return (ids[place] for place in range(end - 1, first - 1, -1))

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each status."""
        return {str(status): self._statuses[status] for status in JobStatus}

    def outcomes(self) -> dict[str, int]:
        """How many of the jobs have ended in each outcome."""
        return {str(outcome): self._outcomes[outcome] for outcome in Outcome}

    def _page_of(
        self, job_id: int, limit: int, is_wanted: Callable[[Row], bool]
    ) -> tuple[list[Row], bool]:
        found: list[Row] = []
        for row in self._rows_from(bisect.bisect_right(self._ids, job_id)):
            if is_wanted(row):
                if len(found) == limit:
                    return found, True
                found.append(row)
        return found, False

    def _rows_from(self, place: int) -> Iterator[Row]:
        ids, find = self._ids, self._rows.get
        for index in range(place, len(ids)):
            if (row := find(ids[index])) is not None:
                yield row
