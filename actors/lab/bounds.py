"""What no order of jobs can beat: lower bounds for a trace whose future is known. Pure.

**Makespan.** No schedule ends before (a) the work that arrives from any moment on is done by all
run slots together; (b) the opcodes that need one lock exclusively have run one after the other,
beside the longest of those that share it; (c) the longest chain of dependent jobs has run.

**Mean wait.** The jobs of a trace wait at least as long, on the mean, as if (a) one machine as fast
as all run slots did the shortest rest first, or (b) each group of jobs that need the same lock
exclusively had nothing else to wait for, and the shortest rest went first in each group.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ...storage.locks.locks import BGL, LockMode, group_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.lab.traces import Trace
    from .real_locks import Changes, RealLocks


class Bound(NamedTuple):
    """Lower bounds in seconds, of the time from the first arrival to the last end and the wait."""

    makespan: float
    wait_mean: float


class _Use(NamedTuple):
    """A use of a lock, not before ``release``, for this time; the job's ``tail`` comes after it."""

    release: float
    seconds: float
    tail: float


class _Lock:
    __slots__ = ("exclusive", "first", "shared")

    def __init__(self) -> None:
        self.exclusive: list[_Use] = []
        self.shared = 0.0
        self.first = math.inf

    def add(self, use: _Use, mode: str) -> None:
        """Note a use of the lock."""
        self.first = min(self.first, use.release)
        if mode == LockMode.EXCLUSIVE:
            self.exclusive.append(use)
        else:
            self.shared = max(self.shared, use.seconds)

    def add_all(self, other: _Lock) -> None:
        """Note the uses of its lock set."""
        self.first = min(self.first, other.first)
        self.exclusive = self.exclusive + other.exclusive
        self.shared = max(self.shared, other.shared)


def bound(trace: Trace, locks: RealLocks, slots: int) -> Bound:
    """The bounds of the trace on this number of run slots."""
    start = min(job.at for job in trace.jobs)
    found = _locks_of(trace, locks)
    makespan = max(
        _by_slots([(job.at, job.seconds) for job in trace.jobs], slots),
        _longest_chain(trace),
        max((_by_lock(lock) for lock in found.values()), default=0.0),
    )
    waits = max(_waits_by_slots(trace, slots), _waits_by_locks(trace, locks))
    return Bound(makespan - start, waits / len(trace.jobs))


def _locks_of(trace: Trace, locks: RealLocks) -> dict[str, _Lock]:
    found: defaultdict[str, _Lock] = defaultdict(_Lock)
    for job in trace.jobs:
        head, total = job.at, job.seconds
        for op in job.ops:
            total -= op.seconds
            for lock, mode in locks.of(op, job.id):
                found[lock].add(_Use(head, op.seconds, total), mode)
            head += op.seconds
    _add_lock_sets(found)
    return found


def _add_lock_sets(found: dict[str, _Lock]) -> None:
    """A lock set counts as each lock of its level."""
    for name, lock in found.items():
        group = group_of(name)
        if group is not None and group in found and name != BGL:
            lock.add_all(found[group])


def _by_slots(work: Iterable[tuple[float, float]], slots: int) -> float:
    best = left = 0.0
    for at, seconds in sorted(work, reverse=True):
        left += seconds
        best = max(best, at + left / slots)
    return best


def _by_lock(lock: _Lock) -> float:
    """The exclusive uses one after the other, and the longest shared one before or after them."""
    best = left = 0.0
    for release, seconds, _ in sorted(lock.exclusive, reverse=True):
        left += seconds
        best = max(best, release + left)
    tail = min((use.tail for use in lock.exclusive), default=0.0)
    return max(best + tail, lock.first + left + lock.shared)


def _longest_chain(trace: Trace) -> float:
    ends: dict[int, float] = {}
    for job in trace.jobs:
        ready = max((ends[target] for target in job.depends), default=0.0)
        ends[job.id] = max(job.at, ready) + job.seconds
    return max(ends.values())


def _waits_by_slots(trace: Trace, slots: int) -> float:
    ends = _shortest_rest_first([(job.at, job.seconds / slots) for job in trace.jobs])
    return ends - sum(job.at + job.seconds for job in trace.jobs)


def _waits_by_locks(trace: Trace, locks: RealLocks) -> float:
    """Each job counts for one lock: that with the most exclusive work of those that it needs."""
    load: defaultdict[str, float] = defaultdict(float)
    for job in trace.jobs:
        for op in job.ops:
            for lock in _exclusive(locks.of(op, job.id)):
                load[lock] += op.seconds
    groups: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for job in trace.jobs:
        head = job.at
        best: tuple[float, str, float, float] | None = None
        for op in job.ops:
            for lock in _exclusive(locks.of(op, job.id)):
                if best is None or load[lock] > best[0]:
                    best = (load[lock], lock, head, op.seconds)
            head += op.seconds
        if best is not None:
            groups[best[1]].append(best[2:])
    return sum(
        _shortest_rest_first(uses) - sum(release + seconds for release, seconds in uses)
        for uses in groups.values()
    )


def _exclusive(changes: Changes) -> list[str]:
    return [lock for lock, mode in changes if mode == LockMode.EXCLUSIVE]


def _shortest_rest_first(work: list[tuple[float, float]]) -> float:
    """The sum of the ends on one machine that always works on what has the least left.

    No other order, on one machine and with interruptions, has a smaller sum.
    """
    work = sorted(work)
    left: list[float] = []
    now = total = 0.0
    for place, (at, seconds) in enumerate(work):
        now = max(now, at)
        heapq.heappush(left, seconds)
        until = work[place + 1][0] if place + 1 < len(work) else math.inf
        while left and now < until:
            rest = heapq.heappop(left)
            if now + rest > until:
                heapq.heappush(left, rest - (until - now))
                now = until
            else:
                now += rest
                total += now
    return total
