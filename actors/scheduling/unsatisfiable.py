"""Jobs that can never start, and how many of them end at a time: pure.

To end a job takes the queue a part of a millisecond, and many may come to their end together: all
that depend on one job that was canceled, or a chain of them. A pass ends some, and another one is
due at once. A chain of jobs would end one by one, with a flush for each, if each had to wait until
the one before it is known to have ended. So those that can but be canceled then are ended in the
same pass; the queue ends them in this order, and makes it durable together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .pass_outcome import Unsatisfiable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class UnsatisfiableJobs:
    """The jobs that can never start, in the order in which they end."""

    def __init__(self, at_once: int | None) -> None:
        """``at_once``: how many end in a pass, and others with them; None: all, and no others."""
        self._at_once = at_once
        self._found: deque[Unsatisfiable] = deque()
        self._rejected: list[Unsatisfiable] = []

    def __len__(self) -> int:
        """How many are left for other passes."""
        return len(self._found)

    def add(self, one: Unsatisfiable) -> None:
        """The job is no longer pending."""
        if one.verdict == "rejected":
            # Now: the next pass may come under other rules.
            self._rejected.append(one)
        else:
            self._found.append(one)

    def take(self, doomed_by: Callable[[int], Iterable[int]]) -> list[Unsatisfiable]:
        """Those that a pass ends.

        ``doomed_by`` takes the jobs out of the pending ones that must be canceled if this one is.
        """
        taken, self._rejected = self._rejected, []
        if self._at_once is None:
            taken += self._found
            self._found.clear()
            return taken
        ending: list[Unsatisfiable] = []
        while self._found and len(ending) < self._at_once:
            ending.append(self._next(doomed_by))
        return taken + ending

    def _next(self, doomed_by: Callable[[int], Iterable[int]]) -> Unsatisfiable:
        one = self._found.popleft()
        if one.verdict == "canceled":
            self._found += [
                Unsatisfiable(each, "canceled", "", one.id) for each in doomed_by(one.id)
            ]
        return one
