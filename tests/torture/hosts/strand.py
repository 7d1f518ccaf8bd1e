"""Code that waits, as the process of a job does, on a thread that runs only while it is resumed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 60.0


class KilledStrandError(BaseException):
    """Its process is gone: nothing more may happen in it."""


class Strand:
    """One at a time runs: whoever resumes waits until it parks, or is over."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = False
        self.is_over = False
        self.error: Exception | None = None
        self._thread: threading.Thread | None = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_killed:
                self._body()
        except KilledStrandError:
            pass
        except Exception as error:  # noqa: BLE001 - who resumes tells it
            self.error = error
        self.is_over = True
        self._parked.release()

    def resume(self) -> None:
        """Let it go on until it parks."""
        if self._thread is None:
            return
        self._go.release()
        assert self._parked.acquire(timeout=PATIENCE_SECONDS)
        if self.is_over:
            self._thread.join()
            self._thread = None
        if self.error is not None:
            raise self.error

    def park(self) -> None:
        """Called on its own thread: wait until it is resumed."""
        self._parked.release()
        self._go.acquire()
        if self._is_killed:
            raise KilledStrandError

    def kill(self) -> None:
        """End it where it is."""
        self._is_killed = True
        self.resume()
