"""What each side offers: servers and workers that start and stop, clients that submit and wait.

A side runs in the environment of its own library: this file and ``processes``,
``servers``, ``steps`` and ``side_program`` need the standard library only.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from .processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ADDRESS = "GANGER_BENCH_ADDRESS"
"""The environment variable that tells clients and workers where their server is."""

WORKERS = 2
"""How many workers each side starts."""

POLL_SECONDS = 0.0003
"""How long a client sleeps between two looks, where the library has no call that waits."""


class CannotListError(Exception):
    """The library has no call that lists jobs."""


class Client(ABC):
    """One client. It finds the server through the environment variable ``ADDRESS``."""

    @abstractmethod
    def submit(self, *, is_held: bool = False) -> object:
        """Submit a no-op job; return its ticket when the queue has acknowledged it.

        No worker takes a held job, so nothing else runs while submissions are measured.
        """

    def submit_many(self, count: int, *, is_held: bool = False) -> list[object]:
        """Submit so many jobs, with the library's own call for many where it has one."""
        return [self.submit(is_held=is_held) for _ in range(count)]

    @abstractmethod
    def wait_all(self, tickets: Sequence[object]) -> None:
        """Return when the queue says of each of these jobs that it ended well.

        Raises RuntimeError if one of them failed.
        """

    def list_held(self) -> int:
        """List all held jobs with what the library knows of them; return how many there are."""
        raise CannotListError

    def close(self) -> None:
        """Close the connection, where the library needs it."""
        return


class Side(ABC):
    """The servers and workers of one queue."""

    def __init__(self, variant: str, folder: Path) -> None:
        """``variant`` is the part of a peer's name after the library; ``folder`` is for files."""
        self.variant = variant
        self.folder = folder
        self.processes = Processes(folder)

    @abstractmethod
    def start(self) -> str:
        """Start servers and workers, set the environment variable ``ADDRESS``; return versions."""

    def stop(self) -> None:
        """Stop everything that ``start`` started, also if it failed halfway."""
        self.processes.stop()


def until(
    holds: Callable[[], bool], what: str, *, seconds: float = 20, pause: float = 0.02
) -> None:
    """Return when ``holds()``; TimeoutError that names ``what`` if it does not in ``seconds``."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} within {seconds:.0f} s")
        time.sleep(pause)
