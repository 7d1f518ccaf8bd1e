"""Virtual time: what happens when, and the dice. Everything in the world of hosts stands on it."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

START = 1_000.0
EPOCH = 1_700_000_000.0
STEPS_MAX = 60_000
"""Steps after which a world counts as one that does not come to its end."""


class Agenda:
    """One thing happens after the other. ``trace``: a list that gets a line for each; None: not."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)
        self.now = START
        self.injected: Counter[str] = Counter()
        self.problems: list[str] = []
        self.trace: list[str] | None = None
        self._entries: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.steps = 0

    @property
    def wall(self) -> float:
        """What a right clock shows."""
        return EPOCH + self.now

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this then."""
        heapq.heappush(self._entries, (self.now + seconds, next(self._numbers), action))

    def soon(self, action: Callable[[], object]) -> None:
        """Do this after a moment that the dice choose."""
        self.later(self.dice.expovariate(1_000.0), action)

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Go on until this time, or until it is over."""
        while self._entries and self._entries[0][0] <= until and not is_over():
            self.now, _, action = heapq.heappop(self._entries)
            self.steps += 1
            if self.steps > STEPS_MAX:
                self.problem(f"no end after {STEPS_MAX} steps")
                return
            action()
        if not is_over():
            self.now = max(self.now, until)

    def problem(self, text: str) -> None:
        """Something was not as promised."""
        self.note(f"PROBLEM {text}")
        self.problems.append(text)

    def note(self, text: str) -> None:
        """For a reader of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now - START:10.4f}  {text}")
