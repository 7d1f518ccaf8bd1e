"""Entries of jobs in order, in runs that move from one order to another as a whole. Pure.

A run is a heap. An order takes over another order by its runs, and jobs that filter rules cannot
tell apart have runs of their own, so that all of them go where the first one goes: neither looks at
each job.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable

import msgspec

FEW = 64
"""So many entries are put into another run one by one: else there would be many small runs."""

_STALE_HEADS_MAX = 16


class Entry(msgspec.Struct, frozen=True, order=True, gc=False):
    """A place of a job in the order. Another entry of the job is another object, and may be equal.

    It takes 16 bytes less than a tuple, and is compared as fast.
    """

    priority: int
    id: int


class RunOfEntries:
    """A heap of entries. ``alike``: what their jobs have in common; None: nothing."""

    __slots__ = ("alike", "entries", "home")

    def __init__(self, alike: Hashable) -> None:
        self.alike = alike
        self.entries: list[Entry] = []
        self.home: Runs | None = None


class Runs:
    """Entries in order; a run for each ``alike``, and for each one that was taken over."""

    def __init__(self) -> None:
        self._all: set[RunOfEntries] = set()
        # New entries enter these.
        self._open: dict[Hashable, RunOfEntries] = {}
        # The first entry of each run, and some that are so no longer. The number says which is
        # newer: equal entries can be those of one job.
        self._heads: list[tuple[Entry, int, RunOfEntries]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(len(run.entries) for run in self._all)

    def __bool__(self) -> bool:
        """Whether there is any entry."""
        return bool(self._all)

    def add(self, entry: Entry, alike: Hashable = None) -> None:
        """Put an entry in its place."""
        run = self._open.get(alike)
        if run is None:
            run = RunOfEntries(alike)
            run.entries.append(entry)
            self._take(run)
        else:
            heapq.heappush(run.entries, entry)
            if run.entries[0] is entry:
                self._note(run)

    def first(self) -> RunOfEntries | None:
        """The run with the first entry of all."""
        heads = self._heads
        while heads:
            entry, _, run = heads[0]
            if run.home is self and run.entries[0] is entry:
                return run
            heapq.heappop(heads)
        return None

    def pop(self, run: RunOfEntries) -> None:
        """Remove the first entry of all; ``run`` is what `first` has returned."""
        heapq.heappop(run.entries)
        if run.entries:
            heapq.heapreplace(self._heads, (run.entries[0], next(self._numbers), run))
        else:
            self._leave(run)

    def give(self, run: RunOfEntries, other: Runs) -> None:
        """Let another order have a run of these."""
        self._leave(run)
        known = other._open.get(run.alike)
        if known is not None and len(run.entries) <= FEW:
            for entry in run.entries:
                other.add(entry, run.alike)
        elif known is not None and len(known.entries) <= FEW:
            other._leave(known)
            other._take(run)
            for entry in known.entries:
                other.add(entry, run.alike)
        else:
            other._take(run)

    def give_all(self, other: Runs) -> None:
        """Let another order have all of these."""
        for run in list(self._all):
            self.give(run, other)

    def clear(self) -> None:
        """Remove all entries. Runs refer to their order: without this they would stay for long."""
        for run in list(self._all):
            self._leave(run)
        self._heads.clear()

    def _take(self, run: RunOfEntries) -> None:
        run.home = self
        self._all.add(run)
        self._open.setdefault(run.alike, run)
        self._note(run)

    def _leave(self, run: RunOfEntries) -> None:
        run.home = None
        self._all.remove(run)
        if self._open.get(run.alike) is run:
            del self._open[run.alike]

    def _note(self, run: RunOfEntries) -> None:
        """A run has another first entry."""
        heapq.heappush(self._heads, (run.entries[0], next(self._numbers), run))
        if len(self._heads) > 2 * len(self._all) + _STALE_HEADS_MAX:
            self._heads = [(run.entries[0], next(self._numbers), run) for run in self._all]
            heapq.heapify(self._heads)
