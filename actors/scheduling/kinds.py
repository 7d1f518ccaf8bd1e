"""Pending jobs of one kind, which differ in nothing but their ids: pure.

Kinds answer questions about all pending jobs without looking at each: how many come before a job,
which are the first ones, what holds how many back. The jobs of a kind have the same priority,
locks, limits and rule. So among them the lower id comes first; and if age or place in line lets one
go, it lets all with a lower id go.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from .alike import Alike
from .id_sets import IdSet
from .known_jobs import HELD, REJECTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.prediction.lock_types import LockForecast
    from .known_jobs import Judged, Pending
    from .remedies import Buckets

_STOPPED = HELD | {REJECTED}

_Verdict = Alike | tuple[str, str | None, "Buckets"]
"""The set whose verdict the jobs share, or what theirs says."""

_Key = tuple[int, int, int, _Verdict, bool]


class Kind:
    """The ids of the pending jobs of one kind.

    ``needs``: the locks for which they are weighed; ``first``: those for which they are held back.
    ``action`` and ``rule``: the rule that holds or rejects them; "" and None: none does.
    ``is_open``: a dependency is open.
    """

    __slots__ = ("action", "buckets", "first", "ids", "is_open", "key", "needs", "priority", "rule")

    def __init__(self, job: Pending, key: _Key) -> None:
        self.key = key
        self.priority, _, _, verdict, self.is_open = key
        if isinstance(verdict, Alike):
            self.take(verdict)
        else:
            self.action, self.rule, self.buckets = verdict
        self.needs: LockForecast | None = job.needs
        self.first: LockForecast | None = job.needs_first or job.needs
        self.ids = IdSet()

    def take(self, alike: Alike) -> None:
        """This is the verdict of all these jobs."""
        self.action, self.rule, self.buckets = _verdict_of(alike)

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
        judged = job.judged
        verdict: _Verdict = judged if isinstance(judged, Alike) else _verdict_of(judged)
        # Jobs with the same locks share one forecast, as far as they come one after the other.
        first = None if needs is None else job.wants.forecast
        key = (job.priority, id(needs), id(first), verdict, job.entry is None)
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
            if isinstance(judged, Alike):
                judged.kinds[found] = None
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
            verdict = kind.key[3]
            if isinstance(verdict, Alike):
                del verdict.kinds[kind]
            if not kinds:
                del self._by_priority[kind.priority]

    @staticmethod
    def take(alike: Alike) -> None:
        """The verdict of these jobs is another one."""
        for kind in alike.kinds:
            kind.take(alike)

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


def _verdict_of(judged: Judged) -> tuple[str, str | None, Buckets]:
    stops = judged.action in _STOPPED
    return judged.action if stops else "", judged.rule if stops else None, judged.buckets
