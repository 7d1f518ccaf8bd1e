"""Pending jobs of one kind, which differ in nothing but their ids and the names of locks: pure.

Kinds answer questions about all pending jobs without looking at each: how many come before a job,
which are the first ones, what holds how many back. The jobs of a kind have the same priority,
limits and rule, and the same shape of locks (`predicting`). Those of them that want the same of the
names that are taken now (`parts`) have the same weight and prospects. So among these the lower id
comes first; and if age or place in line lets one go, it lets all with a lower id go.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ..runtime.id_sets import IdSet
from .alike import Alike
from .pending_job import HELD, REJECTED
from .predicting import shape_of
from .wanted_names import WantedNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .holding import NamesTaken
    from .pending_job import Pending, RuleVerdict
    from .predicting import Shape
    from .remedies import Buckets

_STOPPED = HELD | {REJECTED}

_Verdict = Alike | tuple[str, str | None, "Buckets"]
"""The set whose verdict the jobs share, or what theirs says."""

_Key = tuple[int, "Shape | None", "Shape | None", _Verdict, bool]


class Kind:
    """The ids of the pending jobs of one kind.

    ``action`` and ``rule``: the rule that holds or rejects them; "" and None: none does.
    ``has_locks``: they are weighed for locks. ``is_open``: a dependency is open.
    """

    __slots__ = (
        "_first_names", "_names", "action", "buckets", "has_locks", "ids", "is_open", "key",
        "priority", "rule",
    )  # fmt: skip

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.priority, shape, first_shape, verdict, self.is_open = key
        if isinstance(verdict, Alike):
            self.take(verdict)
        else:
            self.action, self.rule, self.buckets = verdict
        self.has_locks = shape is not None
        self.ids = IdSet()
        # The names for which they are weighed, and those for which they are held back.
        self._names = WantedNames()
        self._first_names = self._names if first_shape is None else WantedNames()

    def add(self, job: Pending) -> None:
        """Take a job in."""
        self.ids.add(job.id)
        if job.needs is not None:
            self._names.add(job.id, job.needs)
            if job.needs_first is not None:
                self._first_names.add(job.id, job.needs_first)

    def discard(self, job: Pending) -> None:
        """Let a job go, which wants the same names as when it came."""
        self.ids.discard(job.id)
        if job.needs is not None:
            self._names.discard(job.id, job.needs)
            if job.needs_first is not None:
                self._first_names.discard(job.id, job.needs_first)

    def wanting(self, taken: Iterable[NamesTaken]) -> Iterator[IdSet]:
        """Of each taken name that jobs want in a conflicting mode, the set of these jobs."""
        yield from self._names.in_conflict(taken)
        if self._first_names is not self._names:
            yield from self._first_names.in_conflict(taken)

    def beginning_with(self, taken: Iterable[NamesTaken]) -> Iterator[IdSet]:
        """As `wanting`, of the names for which the jobs are held back."""
        return self._first_names.in_conflict(taken)

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
        """Put a pending job where it belongs now. Before its locks change, it is removed."""
        needs, first = job.needs, job.needs_first
        judged = job.judged
        verdict: _Verdict = judged if isinstance(judged, Alike) else _verdict_of(judged)
        shape = None if needs is None else shape_of(needs)
        first_shape = None if first is None else shape_of(first)
        key = (job.priority, shape, first_shape, verdict, job.entry is None)
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
            found = kinds[key] = Kind(key)
            if isinstance(judged, Alike):
                judged.kinds[found] = None
        found.add(job)
        job.kind = found

    def remove(self, job: Pending) -> None:
        """Take out a job that is pending no longer."""
        kind, job.kind = job.kind, None
        if kind is None:
            return
        kind.discard(job)
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
        return any(kind.has_locks for kind in self)


def _verdict_of(judged: RuleVerdict) -> tuple[str, str | None, Buckets]:
    stops = judged.action in _STOPPED
    return judged.action if stops else "", judged.rule if stops else None, judged.buckets
