"""When jobs will start and end, if nothing changes: a plan from estimates. Pure.

The plan gives run slots to the jobs in the scheduler's order, each for its estimated run time. It
knows dependencies, and waits for locks as far as the forecasts are certain; it knows no new jobs
and no failures.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from .planned_locks import ClaimedLocks, Claims, Key

if TYPE_CHECKING:
    from collections.abc import Sequence

_OVERDUE = 0.1
"""A job that runs longer than ever before is guessed to need this part of its time once more."""

_LOOKS_PER_JOB_MAX: Final = 50
"""Looks at locks for each job, on average, after which the plan looks at none any more: jobs with
many locks each can wake each other in vain again and again."""


class Candidate(msgspec.Struct, frozen=True):
    """A pending job. ``seconds``: its estimated run time; None: it has no history.

    ``depends``: jobs that have not ended. ``is_held``: a rule or a full bucket holds it.
    ``claims``: the locks with which it begins.
    """

    id: int
    seconds: float | None
    depends: tuple[int, ...] = ()
    is_held: bool = False
    claims: Claims = ()


class Runner(msgspec.Struct, frozen=True):
    """A job in a run slot. ``seconds``: what it still needs; None: it has no history.

    ``claims``: the locks that it has, or for which it still waits (``waits``). ``is_overdue``:
    nobody knows when it ends.
    """

    id: int
    seconds: float | None
    claims: Claims = ()
    waits: bool = False
    is_overdue: bool = False


class Planned(msgspec.Struct, frozen=True):
    """When a job will start and end, in seconds from now; None: unknown.

    It starts when it has its locks. ``guesses``: jobs that start before it and have no history;
    they count with the usual run time. ``is_overdue``: it is overdue, or waits for a job that is.
    """

    start: float | None
    end: float | None
    guesses: int = 0
    is_overdue: bool = False


UNKNOWN = Planned(None, None)
"""The plan for a job of which nothing can be said."""

BEHIND_OVERDUE = Planned(None, None, is_overdue=True)
"""The plan for a job that waits for one that is overdue."""


def seconds_left(elapsed: float, typical: float, high: float) -> float:
    """How long an opcode runs on that has run for ``elapsed`` seconds."""
    for limit in (typical, high):
        if elapsed < limit:
            return limit - elapsed
    return elapsed * _OVERDUE


def plan(
    running: Sequence[Runner],
    candidates: Sequence[Candidate],
    slots: int,
    usual: float,
    *,
    holds_back: bool = False,
) -> dict[int, Planned]:
    """The plan for all these jobs.

    ``running``: jobs in run slots. ``candidates``: pending jobs in the order in which the scheduler
    looks at them. ``usual``: the seconds that count for a job without history. ``holds_back``:
    whether a job that would wait for locks gets no run slot before they are free.
    """
    return _Plan(running, candidates, slots, usual, holds_back=holds_back).made()


_Moment = tuple[float, int]
"""A moment, and the place of a job."""


class _Plan:
    """Jobs stand at places: the running ones first, then the candidates, in their order."""

    def __init__(
        self,
        running: Sequence[Runner],
        candidates: Sequence[Candidate],
        slots: int,
        usual: float,
        *,
        holds_back: bool,
    ) -> None:
        self._jobs: list[Runner | Candidate] = [*running, *candidates]
        self._usual = usual
        self._holds_back = holds_back
        self._guesses = 0
        self._found: dict[int, Planned] = {}
        self._ends: dict[int, float] = {}
        # More jobs may run than there are slots, after a change of their number.
        self._free = max(1, slots) - len(running)
        self._ending: list[_Moment] = []
        self._ready: list[_Moment] = []
        self._eligible: list[int] = []
        self._open: dict[int, set[int]] = {}
        self._dependants: defaultdict[int, list[int]] = defaultdict(list)
        self._locks = ClaimedLocks()
        self._looks_left = _LOOKS_PER_JOB_MAX * len(self._jobs)
        # Jobs that wait for a lock: when it is released, the first of them tries again.
        self._waiting: defaultdict[Key, list[int]] = defaultdict(list)
        self._woken_by: dict[int, Key] = {}
        # Jobs that have a run slot and no locks yet; of them, those that are to try again.
        self._with_slot: set[int] = set()
        self._trying: list[int] = []

    def made(self) -> dict[int, Planned]:
        """Give slots and locks to the jobs until none is left that can have them."""
        for place, one in enumerate(self._jobs):
            if isinstance(one, Candidate):
                if not one.is_held:
                    self._enter(place, one)
            elif one.waits:
                self._with_slot.add(place)
                self._trying.append(place)
            else:
                self._free += 1
                self._start(place, 0.0)
                end = None if one.is_overdue else one.seconds
                self._found[one.id] = Planned(0.0, end, is_overdue=one.is_overdue)
        now: float | None = 0.0
        while now is not None:
            self._end_jobs(now)
            while self._ready and self._ready[0][0] <= now:
                heapq.heappush(self._eligible, heapq.heappop(self._ready)[1])
            self._fill_slots(now)
            now = min((heap[0][0] for heap in (self._ending, self._ready) if heap), default=None)
        unplaced = [one for one in self._jobs if one.id not in self._found]
        self._found |= dict.fromkeys((one.id for one in unplaced), self._rest())
        if self._has_overdue:
            self._find_held()
        return self._found

    # ------------------------------------------------------------ jobs without a place

    @property
    def _has_overdue(self) -> bool:
        return any(isinstance(one, Runner) and one.is_overdue for one in self._jobs)

    def _rest(self) -> Planned:
        """What is said of jobs without a place: all but overdue jobs end some time."""
        return BEHIND_OVERDUE if self._has_overdue else UNKNOWN

    def _find_held(self) -> None:
        """Of the jobs without a place, those that are held, and those that depend on them."""
        held = [one.id for one in self._jobs if isinstance(one, Candidate) and one.is_held]
        while held:
            self._found[held[-1]] = UNKNOWN
            dependants = self._dependants.pop(held.pop(), ())
            held += [self._jobs[place].id for place in dependants]

    # ------------------------------------------------------------ dependencies

    def _enter(self, place: int, one: Candidate) -> None:
        left = {target for target in one.depends if target not in self._ends}
        if left:
            self._open[place] = left
            for target in left:
                self._dependants[target].append(place)
        else:
            heapq.heappush(self._ready, (self._ready_at(one), place))

    def _ready_at(self, one: Candidate) -> float:
        """When the jobs that it depends on have ended."""
        return max((self._ends[target] for target in one.depends), default=0.0)

    def _free_dependants(self, job_id: int) -> None:
        for place in self._dependants.pop(job_id, ()):
            left = self._open[place]
            left.discard(job_id)
            one = self._jobs[place]
            if not left and isinstance(one, Candidate):
                heapq.heappush(self._ready, (self._ready_at(one), place))

    # ------------------------------------------------------------ slots and locks

    def _end_jobs(self, now: float) -> None:
        while self._ending and self._ending[0][0] <= now:
            claims = self._jobs[heapq.heappop(self._ending)[1]].claims
            self._free += 1
            self._locks.release(claims)
            for key, _ in claims:
                self._wake(key)

    def _wake(self, key: Key) -> None:
        """Let the first job that waits for the lock try again."""
        if waiting := self._waiting.get(key):
            place = heapq.heappop(waiting)
            self._woken_by[place] = key
            heapq.heappush(self._trying if place in self._with_slot else self._eligible, place)

    def _fill_slots(self, now: float) -> None:
        while True:
            if self._trying:
                self._try(heapq.heappop(self._trying), now)
            elif self._eligible and self._free > 0:
                self._try(heapq.heappop(self._eligible), now)
            else:
                return

    def _try(self, place: int, now: float) -> None:
        """Start the job, or let it wait for a lock."""
        one = self._jobs[place]
        waker = self._woken_by.pop(place, None)
        self._looks_left -= 1
        key = self._locks.taken(one.claims) if self._looks_left > 0 else None
        if key is None:
            self._start(place, now)
        else:
            heapq.heappush(self._waiting[key], place)
            if not self._holds_back and place not in self._with_slot:
                self._with_slot.add(place)
                self._free -= 1
        # The next job may share the lock, or have it if this one waits for another.
        if waker is not None and waker != key:
            self._wake(waker)

    def _start(self, place: int, now: float) -> None:
        one = self._jobs[place]
        if place in self._with_slot:
            self._with_slot.remove(place)
        else:
            self._free -= 1
        self._locks.take(one.claims)
        end = now + (self._usual if one.seconds is None else one.seconds)
        known_end = None if one.seconds is None else end
        self._found[one.id] = Planned(now, known_end, self._guesses)
        self._guesses += one.seconds is None
        if isinstance(one, Runner) and one.is_overdue:
            # It keeps its slot and its locks.
            return
        self._ends[one.id] = end
        heapq.heappush(self._ending, (end, place))
        self._free_dependants(one.id)
