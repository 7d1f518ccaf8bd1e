"""Work in a thread beside a dispatcher, step by step, while the dispatcher has nothing to do.

How it works. Threads of one interpreter take turns: one that works all the time takes a share of
every other one's. So before each step the thread waits until the dispatcher has slept for a moment,
unless the step is granted (`allow`) or the work is urgent (`hurry`).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class IdleWait:
    """Lets threads wait until a dispatcher sleeps."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether the dispatcher sleeps. Its thread sets this, and then looks at `waiting`."""
        self.waiting: list[threading.Lock] = []
        """One held lock for each thread that waits."""

    def wait(self, is_enough: Callable[[], bool]) -> None:
        """Wait until the gate is open, or until `wake` is called and ``is_enough`` says so."""

        def may_pass() -> bool:
            return self.is_open or is_enough()

        while not may_pass():
            lock = threading.Lock()
            lock.acquire()
            self.waiting.append(lock)
            # The thread that opens the gate sees this lock, or its gate is seen open here.
            if not may_pass():
                lock.acquire()

    def wake(self) -> None:
        """Wake all threads that wait."""
        while self.waiting:
            with contextlib.suppress(IndexError):
                self.waiting.pop().release()


class IdleWork:
    """Such work. One thread calls `run`, that of the dispatcher the rest."""

    def __init__(self, gate: IdleWait, steps: Iterator[object]) -> None:
        self._gate = gate
        self._steps = steps
        self._allowed = 0
        self._is_urgent = False
        self._over = threading.Event()

    def run(self) -> None:
        """Take all steps."""
        try:
            while True:
                self._gate.wait(self._may_go_on)
                self._allowed = max(0, self._allowed - 1)
                next(self._steps)
        except StopIteration:
            pass
        finally:
            self._over.set()

    def allow(self, count: int) -> None:
        """Let this many steps be taken though the dispatcher works."""
        self._allowed = count
        self._gate.wake()

    def hurry(self, seconds: float) -> None:
        """Wait at most this long while steps are taken."""
        self._is_urgent = True
        self._gate.wake()
        self._over.wait(seconds)
        self._is_urgent = False

    def finish(self) -> None:
        """Take the steps that are left, if any, without waiting for anything."""
        self._is_urgent = True
        self._gate.wake()

    def _may_go_on(self) -> bool:
        return self._is_urgent or self._allowed > 0
