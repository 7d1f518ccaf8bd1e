"""Collects timings and prints them."""

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
        """Measure one step."""
        start = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - start)

    def milliseconds(self, quantile: float) -> float:
        """The duration at this quantile."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * quantile))] * 1_000

    def __str__(self) -> str:
        """The median and the 99th percentile."""
        return f"p50 {self.milliseconds(0.5):8.3f} ms   p99 {self.milliseconds(0.99):8.3f} ms"


def row(name: str, value: object) -> None:
    """Print one figure."""
    print(f"  {name:<46} {value}", flush=True)


def heading(text: str) -> None:
    """Print the heading of the next figures."""
    print(f"\n{text}", flush=True)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return sorted(values)[len(values) // 2]
