"""Collects timings and prints them. Holds no measurement."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Timings:
    """Durations of one step, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        """Measure one."""
        start = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - start)

    def milliseconds(self, quantile: float) -> float:
        """The duration below which this share of all lies."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * quantile))] * 1_000

    def __str__(self) -> str:
        """Half and nearly all of them."""
        return f"p50 {self.milliseconds(0.5):8.3f} ms   p99 {self.milliseconds(0.99):8.3f} ms"


def row(name: str, value: object) -> None:
    """Print one figure."""
    print(f"  {name:<46} {value}", flush=True)


def heading(text: str) -> None:
    """Print what the next figures are about."""
    print(f"\n{text}", flush=True)


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]
