"""When jobs will start and end, if nothing changes: a plan from estimates. Pure.

The plan gives run slots to the jobs in the scheduler's order, each for its estimated run time. It
knows dependencies, but no waits for locks, no new jobs and no failures.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_OVERDUE = 0.1
"""A job that runs longer than ever before is expected to need this part of its time once more."""


class Candidate(msgspec.Struct, frozen=True):
    """A pending job. ``seconds``: its estimated run time; None: it has no history.

    ``depends``: jobs that have not ended. ``is_held``: a rule or a full bucket holds it.
    """

    id: int
    seconds: float | None
    depends: tuple[int, ...] = ()
    is_held: bool = False


class Planned(msgspec.Struct, frozen=True):
    """When a job will start and end, in seconds from now; None: unknown.

    ``guesses``: jobs before it without history, which count with the usual run time.
    """

    start: float | None
    end: float | None
    guesses: int = 0


UNKNOWN = Planned(None, None)
"""The plan for a job of which nothing can be said."""


def seconds_left(elapsed: float, typical: float, high: float) -> float:
    """How long an opcode runs on that has run for ``elapsed`` seconds."""
    for limit in (typical, high):
        if elapsed < limit:
            return limit - elapsed
    return elapsed * _OVERDUE


def plan(
    running: Mapping[int, float | None],
    candidates: Sequence[Candidate],
    slots: int,
    usual: float,
) -> dict[int, Planned]:
    """The plan for all these jobs.

    ``running``: jobs in run slots, with the seconds that each still needs (None: no history).
    ``candidates``: pending jobs in the order in which the scheduler looks at them. ``usual``: the
    seconds that count for a job without history.
    """
    return _Plan(running, candidates, slots, usual).made()


class _Plan:
    def __init__(
        self,
        running: Mapping[int, float | None],
        candidates: Sequence[Candidate],
        slots: int,
        usual: float,
    ) -> None:
        self._candidates = candidates
        self._usual = usual
        self._guesses = 0
        self._found: dict[int, Planned] = {}
        self._slots: list[float] = [0.0] * max(0, slots - len(running))
        self._ends: dict[int, float] = {}
        for job_id, left in running.items():
            self._guesses += left is None
            end = usual if left is None else left
            self._found[job_id] = Planned(0.0, left)
            self._ends[job_id] = end
            self._slots.append(end)
        heapq.heapify(self._slots)
        # More jobs may run than there are slots, after a change of their number.
        for _ in range(len(self._slots) - max(1, slots)):
            heapq.heappop(self._slots)
        self._ready: list[tuple[float, int]] = []
        self._eligible: list[int] = []
        self._open: dict[int, set[int]] = {}
        self._dependants: defaultdict[int, list[int]] = defaultdict(list)

    def made(self) -> dict[int, Planned]:
        """Give slots to the candidates until none is left that can have one."""
        for place, one in enumerate(self._candidates):
            if not one.is_held:
                self._enter(place, one)
        now = 0.0
        while self._eligible or self._ready:
            # A slot that was free while nothing was eligible is free still.
            now = max(now, heapq.heappop(self._slots))
            if not self._eligible:
                now = max(now, self._ready[0][0])
            while self._ready and self._ready[0][0] <= now:
                heapq.heappush(self._eligible, heapq.heappop(self._ready)[1])
            self._start(heapq.heappop(self._eligible), now)
        for one in self._candidates:
            self._found.setdefault(one.id, UNKNOWN)
        return self._found

    def _enter(self, place: int, one: Candidate) -> None:
        left = {target for target in one.depends if target not in self._ends}
        if left:
            self._open[place] = left
            for target in left:
                self._dependants[target].append(place)
        else:
            moment = self._moment(one)
            heapq.heappush(self._ready, (moment, place))

    def _moment(self, one: Candidate) -> float:
        """When the jobs that it depends on have ended."""
        return max((self._ends[target] for target in one.depends), default=0.0)

    def _start(self, place: int, now: float) -> None:
        one = self._candidates[place]
        is_known = one.seconds is not None
        seconds = one.seconds if one.seconds is not None else self._usual
        end = now + seconds
        self._found[one.id] = Planned(now, end if is_known else None, self._guesses)
        self._guesses += not is_known
        self._ends[one.id] = end
        heapq.heappush(self._slots, end)
        for dependant in self._dependants.pop(one.id, ()):
            left = self._open[dependant]
            left.discard(one.id)
            if not left:
                moment = self._moment(self._candidates[dependant])
                heapq.heappush(self._ready, (moment, dependant))


def errors_of(planned: Iterable[tuple[float, float]]) -> list[float]:
    """The relative errors of predicted spans, each beside the real one, both in seconds."""
    return [abs(span - real) / real for span, real in planned if real > 0]
