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
    """Those that wait. ``awaited``: the position of the last record for which one was hung up.

    Late ones wait for a flush that is made for others, and keep none of these waiting.
    """

    def __init__(self) -> None:
        self.awaited = 0
        self._waiting: deque[_Effect] = deque()
        self._late: deque[_Effect] = deque()

    def __bool__(self) -> bool:
        """Whether any waits."""
        return bool(self._waiting)

    def add(self, done: Callable[[], None], failed: Failed) -> None:
        """Do this when everything that is awaited so far is durable."""
        self._waiting.append(_Effect(self.awaited, done, failed))

    def add_late(self, position: int, done: Callable[[], None], failed: Failed) -> None:
        """Do this when the record at this position is durable, whenever that is."""
        self._late.append(_Effect(position, done, failed))

    @property
    def has_late(self) -> bool:
        """Whether any waits for a flush that is made for others."""
        return bool(self._late)

    def run(self, durable: int) -> bool:
        """Run those for which the log is durable far enough; whether there was one."""
        has_run = False
        for waiting in (self._late, self._waiting):
            while waiting and waiting[0].position <= durable:
                waiting.popleft().done()
                has_run = True
        return has_run

    def fail(self, error: errors.GangerError, durable: int) -> None:
        """None of what is not durable will be."""
        failed = [*self._late, *self._waiting]
        self._late, self._waiting = deque(), deque()
        self.awaited = durable
        for effect in failed:
            effect.failed(error)
