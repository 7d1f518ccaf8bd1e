"""Pending jobs of one kind, which differ in nothing but their ids: pure.

Kinds answer questions about all pending jobs without looking at each: how many come before a job,
which are the first ones, what holds how many back. The jobs of a kind have the same priority,
locks, limits and rule. So among them the lower id comes first; and if age or place in line lets one
go, it lets all with a lower id go.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .id_sets import IdSet
from .known_jobs import HELD, REJECTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.prediction.lock_types import LockForecast
    from .known_jobs import Pending
    from .remedies import Buckets

_STOPPED = HELD | {REJECTED}

_Key = tuple[int, int, int, str, str | None, "Buckets", bool]


class Kind:
    """The ids of the pending jobs of one kind.

    ``needs``: the locks for which they are weighed; ``first``: those for which they are held back.
    ``action`` and ``rule``: the rule that holds or rejects them; "" and None: none does.
    ``is_open``: a dependency is open.
    """

    __slots__ = ("action", "buckets", "first", "ids", "is_open", "key", "needs", "priority", "rule")

    def __init__(self, job: Pending, key: _Key) -> None:
        self.key = key
        self.priority, _, _, self.action, self.rule, self.buckets, self.is_open = key
        self.needs: LockForecast | None = job.needs
        self.first: LockForecast | None = job.needs_first or job.needs
        self.ids = IdSet()

    @property
    def is_held(self) -> bool:
        """Whether a rule holds these jobs back."""
        return self.action in HELD


class Kinds:
    """All pending jobs by their kinds."""

    def __init__(self) -> None:
        self._by_priority: dict[int, dict[_Key, Kind]] = {}

    def place(self, job: Pending) -> None:
        """Put a pending job where it belongs now."""
        needs = job.needs
        action, rule = (
            ("", None)
            if job.judged.action not in _STOPPED
            else (job.judged.action, job.judged.rule)
        )
        # Jobs with the same locks share one forecast, as far as they come one after the other.
        first = None if needs is None else job.wants.forecast
        key = (
            job.priority, id(needs), id(first), action, rule, job.judged.buckets, job.entry is None
        )  # fmt: skip
        kind = job.kind
        if kind is not None:
            if kind.key == key:
                return
            self.remove(job)
        kinds = self._by_priority.get(job.priority)
        if kinds is None:
            kinds = self._by_priority[job.priority] = {}
        found = kinds.get(key)
        if found is None:
            found = kinds[key] = Kind(job, key)
        found.ids.add(job.id)
        job.kind = found

    def remove(self, job: Pending) -> None:
        """Take out a job that is pending no longer."""
        kind, job.kind = job.kind, None
        if kind is None:
            return
        kind.ids.discard(job.id)
        if not kind.ids:
            kinds = self._by_priority[kind.priority]
            del kinds[kind.key]
            if not kinds:
                del self._by_priority[kind.priority]

    def __iter__(self) -> Iterator[Kind]:
        """All kinds, by priority."""
        return itertools.chain.from_iterable(self.of_each_priority())

    def of_each_priority(self, lowest: int | None = None) -> Iterator[list[Kind]]:
        """The kinds of each priority, the most urgent ones first, up to the priority ``lowest``."""
        for priority in sorted(self._by_priority):
            if lowest is None or priority <= lowest:
                yield list(self._by_priority.get(priority, {}).values())

    @property
    def is_weighed(self) -> bool:
        """Whether locks play a role in the order."""
        return any(kind.needs is not None for kind in self)
