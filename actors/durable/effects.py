"""What may happen only once records of the log are durable, in the order of their places. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...storage import errors

Failed = Callable[[errors.GangerError], None]


class _Effect(NamedTuple):
    """What may happen once the log is durable up to a position."""

    position: int
    done: Callable[[], None]
    failed: Failed


def ignore(_: errors.GangerError) -> None:
    """No request depends on the outcome."""


def nothing() -> None:
    """Nothing is left to be done."""


class Effects:
    """Those that wait. ``awaited``: the position of the last record for which one was hung up."""

    def __init__(self) -> None:
        self.awaited = 0
        self._waiting: deque[_Effect] = deque()

    def __bool__(self) -> bool:
        """Whether any waits."""
        return bool(self._waiting)

    def add(self, done: Callable[[], None], failed: Failed) -> None:
        """Do this when everything that is awaited so far is durable."""
        self._waiting.append(_Effect(self.awaited, done, failed))

    def run(self, durable: int) -> bool:
        """Run those for which the log is durable far enough; whether there was one."""
        has_run = False
        while self._waiting and self._waiting[0].position <= durable:
            self._waiting.popleft().done()
            has_run = True
        return has_run

    def fail(self, error: errors.GangerError, durable: int) -> None:
        """None of what is not durable will be."""
        failed, self._waiting = self._waiting, deque()
        self.awaited = durable
        for effect in failed:
            effect.failed(error)
