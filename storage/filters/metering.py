"""Counts what the evaluation of a filter costs, and ends one that costs too much.

The unit is a step: about the cost of looking at one byte. A comparison costs a few hundred, a
search the text's length times the weight of its regular expression. There is no clock: the same
evaluation costs the same on every machine.

An evaluation of one predicate is never interrupted: the caller looks between two predicates
whether the slice is over.
"""

from __future__ import annotations

from typing import Final

COMPARISON_STEPS: Final = 256
"""Cost of one operator, beside the lengths of its field and value."""

PATTERN_STEPS_SIZE: Final = 64
"""Instructions of a regular expression that cost one more step for each byte."""

ITEM_STEPS: Final = 16
"""Cost of looking at one item of a list."""

PREDICATE_STEPS_MAX: Final = 2**28
"""Most steps of one predicate on one opcode, about 0.4 s: nothing else is served meanwhile."""


class TooMuchWorkError(Exception):
    """The evaluation costs more than it may."""


class Slice:
    """The steps until other work gets its turn; several meters may share one slice."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps


class Meter:
    """Counts the steps of judging one job, up to ``steps_max``, and takes them from ``slice_``."""

    __slots__ = ("_least", "_slice", "left")

    def __init__(self, steps_max: int, slice_: Slice | None = None) -> None:
        self.left = steps_max
        self._least = 0
        self._slice = slice_

    @property
    def is_slice_over(self) -> bool:
        """Whether other work gets its turn before the next predicate."""
        return self._slice is not None and self._slice.left <= 0

    def begin_predicate(self) -> None:
        """From here on, `PREDICATE_STEPS_MAX` steps are granted, and no more than are left."""
        self._least = max(0, self.left - PREDICATE_STEPS_MAX)

    def charge(self, steps: int) -> None:
        """Charge ``steps``; raises `TooMuchWorkError` if too few are left."""
        left = self.left - steps
        if left < self._least:
            raise TooMuchWorkError
        self.left = left
        if self._slice is not None:
            self._slice.left -= steps
