"""What judging filters costs: a meter that interrupts an evaluation which takes too long.

The unit is a step: about what it takes to look at one byte. A comparison is a few hundred of them,
a search the text's length times the weight of its regular expression. No clock: the same
evaluation costs the same on every machine.

How it works
------------
An evaluation is interrupted by an exception and begun again later. What was looked at at length
(a search, a long list) is remembered until the next object, so that each attempt gets
further than the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

COMPARISON_STEPS: Final = 256
"""What one operator costs beside the lengths of its field and value."""

PATTERN_STEPS_SIZE: Final = 64
"""Instructions of a compiled regular expression that make it cost once more for each byte."""

ITEM_STEPS: Final = 16
"""What it costs to look at one item of a list."""


class SliceOverError(Exception):
    """The slice of work is used up: evaluate the same object again, with a new slice."""


class TooMuchWorkError(Exception):
    """The evaluation costs more than it may."""


class Slice:
    """What may be done before somebody else has a turn; several meters may share one."""

    __slots__ = ("is_fresh", "left")

    def __init__(self, steps: int) -> None:
        self.begin(steps)

    def begin(self, steps: int) -> None:
        """Begin another slice. Its first piece of work is granted, whatever its size."""
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
        """Another object is looked at: what was found in the last one does not matter."""
        self._found.clear()
        self._is_paid = False

    def charge_once(self, steps: int) -> None:
        """Pay for what every attempt at this object does; not again when it is begun again."""
        if not self._is_paid:
            self.charge(steps)
            self._is_paid = True

    def charge(self, steps: int) -> None:
        """Pay for ``steps``; raises if there are too few left."""
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
