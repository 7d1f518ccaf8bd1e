"""What the rounds found: medians, spreads and ratios. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one peer in one round; None was not measured. Times in milliseconds."""

    jobs_per_second: float | None = None
    idle_p50: float | None = None
    idle_p99: float | None = None
    submit_p50: float | None = None
    submit_p99: float | None = None
    crowd_per_second: float | None = None
    listed_seconds: float | None = None
    stored_per_second: float | None = None


FIGURES = Round.__struct_fields__


class Measured(msgspec.Struct):
    """All rounds of one peer, and why some are missing."""

    name: str
    versions: str = ""
    rounds: list[Round] = msgspec.field(default_factory=list)
    problem: str = ""
    """Why it was not measured, or not to the end; one line."""
    has_failed: bool = False
    """Whether it failed at work; what is not installed has not failed."""

    def spread(self, figure: str) -> Spread | None:
        """The median and the extremes of a figure; None if no round has it."""
        values = [value for one in self.rounds if (value := getattr(one, figure)) is not None]
        return spread(values)


class Spread(NamedTuple):
    """A median with the smallest and the largest value."""

    median: float
    lowest: float
    highest: float
    rounds: int


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of the values; None if there are none.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, lowest=1.0, highest=3.0, rounds=3)
    """
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def quantile_ms(seconds: Sequence[float], quantile: float) -> float:
    """The duration at this quantile (0 to 1), in milliseconds.

    >>> quantile_ms([0.003, 0.001, 0.002], 0.5)
    2.0
    """
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * quantile))] * 1_000


def ratio(ours: Spread | None, theirs: Spread | None) -> float | None:
    """The ratio of two medians; None if one is missing or the second is nothing."""
    if ours is None or theirs is None or not theirs.median:
        return None
    return ours.median / theirs.median


class Target(NamedTuple):
    """What a ratio or a figure of Ganger's should reach; a limit is the most or the least."""

    what: str
    figure: str
    of: str
    against: str | None
    at_least: float
    on_the_way_to: float
    is_most: bool


class Reached(NamedTuple):
    """A target with what the run found; None if it was not measured."""

    target: Target
    found: float | None

    @property
    def is_met(self) -> bool:
        """Whether the target is met."""
        if self.found is None:
            return False
        wanted = self.target.at_least
        return self.found <= wanted if self.target.is_most else self.found >= wanted


def reached(targets: Sequence[Target], measured: Sequence[Measured]) -> list[Reached]:
    """Compare each target with what was found."""
    found = {one.name: one for one in measured}

    def spread_of(name: str, figure: str) -> Spread | None:
        return found[name].spread(figure) if name in found else None

    def value(target: Target) -> float | None:
        ours = spread_of(target.of, target.figure)
        if target.against is None:
            return None if ours is None else ours.median
        return ratio(ours, spread_of(target.against, target.figure))

    return [Reached(target, value(target)) for target in targets]
