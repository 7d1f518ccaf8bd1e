"""Counts what the evaluation of a filter costs, and interrupts one that takes too long.

The unit is a step: about the cost of looking at one byte. A comparison costs a few hundred, a
search the text's length times the weight of its regular expression. There is no clock: the same
evaluation costs the same on every machine.

How it works
------------
The meter interrupts an evaluation by an exception; the caller begins it again later. The meter
remembers the results of searches and of long lists until the next object, so each attempt gets
further than the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COMPARISON_STEPS: Final = 256
"""Cost of one operator, beside the lengths of its field and value."""

PATTERN_STEPS_SIZE: Final = 64
"""A regular expression costs one more step for each byte with every so many instructions."""

ITEM_STEPS: Final = 16
"""Cost of looking at one item of a list."""


class SliceOverError(Exception):
    """The slice of work is used up: evaluate the same object again, with a new slice."""


class TooMuchWorkError(Exception):
    """The evaluation costs more than it may."""


class Slice:
    """The steps until other work gets its turn; several meters may share one slice."""

    __slots__ = ("is_fresh", "left")

    def __init__(self, steps: int) -> None:
        self.begin(steps)

    def begin(self, steps: int) -> None:
        """Begin another slice. It grants the first piece of work, whatever its size."""
        self.left = steps
        self.is_fresh = True


class Meter:
    """Counts the steps of one evaluation, up to ``steps_max``."""

    __slots__ = ("_found", "_is_paid", "_slice", "left")

    def __init__(self, steps_max: int, slice_: Slice | None = None) -> None:
        self.left = steps_max
        self._slice = slice_
        self._found: dict[int, bool] = {}
        self._is_paid = False

    def begin_object(self) -> None:
        """Forget the results of the last object."""
        self._found.clear()
        self._is_paid = False

    def charge_once(self, steps: int) -> None:
        """Charge for what every attempt at this object does, at the first attempt only."""
        if not self._is_paid:
            self.charge(steps)
            self._is_paid = True

    def charge(self, steps: int) -> None:
        """Charge ``steps``; raises if too few are left."""
        if steps > self.left:
            raise TooMuchWorkError
        current = self._slice
        if current is not None:
            if steps > current.left and not current.is_fresh:
                raise SliceOverError
            current.is_fresh = False
            current.left -= steps
        self.left -= steps

    def look(self, key: int, steps: int, test: Callable[[], bool]) -> bool:
        """The outcome of ``test``, which costs ``steps`` the first time for this object.

        ``key`` tells it from the other tests of the same object.
        """
        found = self._found.get(key)
        if found is None:
            self.charge(steps)
            found = self._found[key] = test()
        return found
