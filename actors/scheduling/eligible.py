"""The jobs that may start, in order: by priority, then by what is left of their weight, then by id.

How it works. Jobs without locks, and all jobs while prediction is off, stand in heaps (`runs`):
they cost what first in, first out costs. Jobs with locks stand in *lines*. A line holds the jobs of
one priority and one shape (`predicting`) for which the same names were taken in a conflicting mode
when they entered it. Its jobs have the same weight, and ids grow with age, so the first of a line
is the one with the lowest id.

Lines of the same weight make a *group*, so a pass compares the first jobs of a few groups. When
the owners of a name change, the lines that the name is in go to another group. The weight
of a group is never more than that of each job in it, because a name that was taken later only
adds to the weight of a job. So when a job comes first, its names are looked up; if more of them
are taken than its line knows, it enters another line.

An order takes over another one by its heaps and lines, without a look at each job. So it may have
several of one kind. Jobs that filter rules cannot tell apart (`alike`) have heaps and lines of
their own, which move to another order as a whole.

A group whose jobs are certain to block is passed over, unless its first job has no weight left
(`Policy.holds_back`). Its jobs cost nothing until a name changes hands.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from .alike import alike_of
from .predicting import Mask, Prediction, Shape, mask_of, shape_of
from .runs import FEW, Entry, Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .holding import Conflict
    from .pending_job import Pending


SortKey = tuple[int, float, int]
"""Priority, what is left of the weight, id."""


class _ShapeLine:
    """Jobs of one priority and shape, with conflicts on the same names.

    ``alike``: the set whose verdict they share; None: each has its own.
    """

    __slots__ = ("alike", "group", "heap", "key", "order", "priority")

    def __init__(self, order: Eligible, priority: int, key: _LineKey, alike: Hashable) -> None:
        self.order = order
        self.priority = priority
        self.key = key
        self.alike = alike
        self.heap: list[Entry] = []
        self.group: _Group | None = None

    def refresh(self) -> None:
        """The owners of a name in this line have changed."""
        self.order.regroup(self)

    def __lt__(self, other: object) -> bool:
        # Two heads of groups with the same entry, of which one is stale: any order will do.
        return False


class _Group:
    """Lines whose jobs have the same weight and the same prospects."""

    __slots__ = (
        "_heads", "first_mask", "first_shape", "generation", "is_behind", "is_blocked", "key",
        "lines", "mask", "shape", "weight",
    )  # fmt: skip

    def __init__(self, key: _GroupKey) -> None:
        self.key = key
        self.shape, self.mask, self.first_shape, self.first_mask, self.is_behind = key
        self.lines: set[_ShapeLine] = set()
        self._heads: list[_Head] = []
        self.generation = -1
        self.weight = 0.0
        self.is_blocked = False

    def weigh(self, prediction: Prediction) -> None:
        """Bring weight and prospects up to date."""
        if self.generation != prediction.generation:
            self.generation = prediction.generation
            self.weight = prediction.weight(self.shape, self.mask)
            self.is_blocked = prediction.policy.holds_back and prediction.is_certain_to_block(
                self.first_shape, self.first_mask
            )

    def note(self, line: _ShapeLine) -> None:
        """A line of this group has another first job."""
        heapq.heappush(self._heads, _head_of(line))
        if len(self._heads) > 2 * len(self.lines) + _STALE_HEADS_MAX:
            self._heads = [_head_of(one) for one in self.lines]
            heapq.heapify(self._heads)

    def first_line(self) -> _ShapeLine | None:
        """The line with the first job of all."""
        while self._heads:
            _, entry, line = self._heads[0]
            if line.group is self and line.heap[0] is entry:
                return line
            # It stands in another group now, or has another first job.
            heapq.heappop(self._heads)
        return None


_Head = tuple[int, Entry, _ShapeLine]
"""The first job of a line, its entry, and the line."""


def _head_of(line: _ShapeLine) -> _Head:
    first = line.heap[0]
    return (first.id, first, line)


_STALE_HEADS_MAX = 16

_Conflicts = tuple["Conflict", ...]
_LineKey = tuple[Shape, Shape, _Conflicts, _Conflicts]
_Place = tuple[int, _LineKey, "Hashable"]
_GroupKey = tuple[Shape, Mask, Shape, Mask, bool]


class Eligible:
    """Jobs in order. ``find`` returns the job of an entry, or None if the entry is stale."""

    def __init__(self, prediction: Prediction, find: Callable[[Entry], Pending | None]) -> None:
        self._prediction = prediction
        self._find = find
        self._free = Runs()
        self._lines: set[_ShapeLine] = set()
        # Jobs enter these.
        self._open: dict[_Place, _ShapeLine] = {}
        self._groups: dict[int, dict[_GroupKey, _Group]] = {}
        self._from: _ShapeLine | None = None

    def __len__(self) -> int:
        """How many entries there are, stale ones included."""
        return len(self._free) + sum(len(line.heap) for line in self._lines)

    def add(self, job: Pending) -> None:
        """Put the job in its place, under its present entry."""
        assert job.entry is not None
        if job.needs is None:
            self._free.add(job.entry, alike_of(job))
        else:
            self._enter_line(job)

    def absorb(self, *others: Eligible) -> None:
        """Take over all entries of other orders, which are empty then.

        The cost does not grow with their number: whole lines change hands.
        """
        for other in others:
            other._free.give_all(self._free)  # noqa: SLF001 - the same class
            for line in list(other._lines):  # noqa: SLF001 - the same class
                other._give(line, self)  # noqa: SLF001 - the same class

    def forget(self) -> None:
        """Forget all jobs."""
        self._free.clear()
        for line in list(self._lines):
            self._drop_line(line)

    def first(self, now: float) -> Pending | None:
        """The first job that nothing holds back; None also if the pass must pause."""
        free = self._first_free() if self._free else None
        self._from = None
        if not self._groups:
            return free
        self._prediction.look()
        for priority in sorted(self._groups):
            if free is not None and free.priority < priority:
                return free
            is_same = free is not None and free.priority == priority
            found = self._lightest(priority, now, free if is_same else None)
            if found is not None:
                return found
            if self._prediction.is_tired:
                return None
        return free

    def take(self) -> None:
        """Remove the job that `first` has just returned."""
        line, self._from = self._from, None
        if line is not None:
            self._pop(line)
        elif (run := self._free.first()) is not None:
            self._free.pop(run)

    def move(self, other: Eligible) -> None:
        """Move the job that `first` has just returned, and all of its line, to another order.

        All of them have the same ``alike``.
        """
        line, self._from = self._from, None
        if line is not None:
            self._give(line, other)
        elif (run := self._free.first()) is not None:
            self._free.give(run, other._free)

    def sort_key(self, job: Pending, now: float) -> SortKey:
        """The place of a job in the order, as long as nothing changes."""
        weight = self._prediction.weight_of(job.needs)
        return (job.priority, self._prediction.adjusted(weight, job.id, now), job.id)

    def is_before(self, job: Pending, other: Pending, now: float) -> bool:
        """Whether a job comes before another one."""
        if job.needs is None and other.needs is None:
            # The same weight, and the lower id is at least as old.
            return (job.priority, job.id) < (other.priority, other.id)
        return self.sort_key(job, now) < self.sort_key(other, now)

    def due_at(self) -> float | None:
        """When the next job that is held back has no weight left; None: none is held back."""
        aged_at = self._prediction.aged_at
        found = [
            aged_at(line.heap[0].id)
            for priority, groups in list(self._groups.items())
            for group in list(groups.values())
            if self._is_blocked(group, priority)
            and (line := self._first_line(group)) is not None
            and not self._is_behind(group, line.heap[0].id)
        ]
        return min(found, default=None)

    @property
    def is_plain(self) -> bool:
        """Whether priority and id alone decide: no job has locks."""
        return not self._lines

    def has_jobs(self) -> bool:
        """Whether any job is left, held back or not."""
        return self._first_free() is not None or any(
            self._first_line(group) is not None
            for groups in list(self._groups.values())
            for group in list(groups.values())
        )

    # ------------------------------------------------------------ jobs without locks

    def _first_free(self) -> Pending | None:
        while (run := self._free.first()) is not None:
            job = self._find(run.entries[0])
            if job is not None:
                return job
            self._free.pop(run)
        return None

    # ------------------------------------------------------------ lines

    def _enter_line(self, job: Pending) -> None:
        assert job.needs is not None
        assert job.entry is not None
        taken = self._prediction.taken
        shape = first_shape = shape_of(job.needs)
        conflicts = first_conflicts = taken.conflicts(job.needs, job.id)
        if (needs_first := job.needs_first) is not None:
            first_shape = shape_of(needs_first)
            first_conflicts = taken.conflicts(needs_first, job.id)
        key = (shape, first_shape, conflicts, first_conflicts)
        place = (job.priority, key, alike_of(job))
        line = self._open.get(place)
        if line is None:
            line = self._open[place] = _ShapeLine(self, *place)
            self._lines.add(line)
            for level, name, _ in {*conflicts, *first_conflicts}:
                taken.watchers[level, name].add(line.refresh)
        self._push(line, job.entry)

    def _push(self, line: _ShapeLine, entry: Entry) -> None:
        heapq.heappush(line.heap, entry)
        if line.heap[0] is entry:
            self.regroup(line)

    def _give(self, line: _ShapeLine, other: Eligible) -> None:
        """Let another order have a line of this one."""
        place = (line.priority, line.key, line.alike)
        known = other._open.get(place)
        if known is not None and len(line.heap) <= FEW:
            self._drop_line(line)
            for entry in line.heap:
                other._push(known, entry)
            return
        self._leave_group(line)
        self._forget_line(line)
        line.order = other
        other._lines.add(line)
        other._open.setdefault(place, line)
        other.regroup(line)

    def regroup(self, line: _ShapeLine) -> None:
        """Put a line into the group of its jobs, by the names that are taken now."""
        shape, first_shape, conflicts, first_conflicts = line.key
        mask = first_mask = self._still(conflicts)
        if first_conflicts is not conflicts:
            first_mask = self._still(first_conflicts)
        is_behind = self._prediction.stands_behind(first_conflicts, line.heap[0].id)
        key = (shape, mask, first_shape, first_mask, is_behind)
        groups = self._groups.setdefault(line.priority, {})
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(key)
        if line.group is not group:
            self._leave_group(line)
            line.group = group
            group.lines.add(line)
        group.note(line)

    def _still(self, conflicts: _Conflicts) -> Mask:
        is_taken = self._prediction.taken.is_taken
        return mask_of(tuple(one for one in conflicts if is_taken(*one)))

    def _leave_group(self, line: _ShapeLine) -> None:
        group, line.group = line.group, None
        if group is None:
            return
        group.lines.discard(line)
        if not group.lines:
            groups = self._groups[line.priority]
            del groups[group.key]
            if not groups:
                del self._groups[line.priority]

    def _pop(self, line: _ShapeLine) -> None:
        heapq.heappop(line.heap)
        if line.heap:
            self.regroup(line)
        else:
            self._drop_line(line)

    def _forget_line(self, line: _ShapeLine) -> None:
        self._lines.remove(line)
        place = (line.priority, line.key, line.alike)
        if self._open.get(place) is line:
            del self._open[place]

    def _drop_line(self, line: _ShapeLine) -> None:
        self._forget_line(line)
        self._leave_group(line)
        _, _, conflicts, first_conflicts = line.key
        watchers = self._prediction.taken.watchers
        for level, name, _ in {*conflicts, *first_conflicts}:
            watchers[level, name].discard(line.refresh)
            if not watchers[level, name]:
                del watchers[level, name]

    # ------------------------------------------------------------ groups

    def _is_blocked(self, group: _Group, priority: int) -> bool:
        group.weigh(self._prediction)
        return group.is_blocked and not self._prediction.outranks_an_owner(priority)

    def _is_behind(self, group: _Group, job_id: int) -> bool:
        """Whether the first job of a group would stand in line behind an older one."""
        return group.is_behind or self._prediction.stands_behind_types(group.first_shape, job_id)

    def _first_line(self, group: _Group) -> _ShapeLine | None:
        """The line with the first job of a group, after dropping stale entries."""
        while (line := group.first_line()) is not None:
            if self._find(line.heap[0]) is not None:
                return line
            self._pop(line)
        return None

    def _lightest(self, priority: int, now: float, free: Pending | None) -> Pending | None:
        """The first job of a priority, among jobs with locks and ``free``, if nothing holds it."""
        prediction = self._prediction
        while True:
            best_line = self._lightest_line(priority, now, free)
            if best_line is None:
                return free
            job = self._find(best_line.heap[0])
            assert job is not None
            if self._is_in_place(job, best_line):
                self._from = best_line
                return job
            self._pop(best_line)
            self.add(job)
            if not prediction.spend():
                # Nothing may start before it is known which job is first.
                return None

    def _lightest_line(self, priority: int, now: float, free: Pending | None) -> _ShapeLine | None:
        """The line with the first job, as far as lines know; None: ``free`` comes before."""
        prediction = self._prediction
        best: tuple[float, int] | None = None
        best_line: _ShapeLine | None = None
        if free is not None:
            weight = prediction.weight_without_locks()
            best = (prediction.adjusted(weight, free.id, now), free.id)
        for group in list(self._groups.get(priority, {}).values()):
            line = self._first_line(group)
            if line is None:
                continue
            job_id = line.heap[0].id
            if self._is_blocked(group, priority) and (
                not prediction.is_aged(job_id, now) or self._is_behind(group, job_id)
            ):
                continue
            found = (prediction.adjusted(group.weight, job_id, now), job_id)
            if best is None or found < best:
                best, best_line = found, line
        return best_line

    def _is_in_place(self, job: Pending, line: _ShapeLine) -> bool:
        """Whether no more names of a job are taken than its line knows."""
        group, taken = line.group, self._prediction.taken
        assert group is not None
        assert job.needs is not None
        conflicts = first_conflicts = taken.conflicts(job.needs, job.id)
        if job.needs_first is not None:
            first_conflicts = taken.conflicts(job.needs_first, job.id)
        return (
            mask_of(conflicts) == group.mask
            and mask_of(first_conflicts) == group.first_mask
            and self._prediction.stands_behind(first_conflicts, job.id) == group.is_behind
        )
