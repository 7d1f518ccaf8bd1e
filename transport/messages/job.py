"""What the daemon says to a job process."""

from __future__ import annotations

from typing import Any

from .base import Notice
from .values import ChosenUnder


class JobGo(Notice, frozen=True):
    """The hand-over is durable: ``body`` is the job file; from here on it is yours alone.

    An empty ``body`` stands for one too large for a frame, which is to be read from the file.
    ``queue`` is the queue directory, ``socket`` where the daemon's successor will listen,
    ``spares`` are files in the directory lent for writing new versions (`queue_files.inodes`),
    ``secrets`` the parameters of each opcode (by its place) that are never written, ``chosen``
    the rules under which the job was let through.
    """

    body: bytes
    spares: list[str]
    secrets: dict[int, dict[str, Any]]
    queue: str
    socket: str
    chosen: ChosenUnder = ChosenUnder()


class CancelRequested(Notice, frozen=True):
    """Somebody wants the job canceled, or killed; answer with `CancelAnswered`."""

    token: int
    kill: bool = False


class PriorityRequested(Notice, frozen=True):
    """Somebody wants another priority; answer with `PriorityAnswered`."""

    token: int
    priority: int


class GateChanged(Notice, frozen=True):
    """Other filter rules are in force: a process that waits asks the gate again."""


class ResendRequested(Notice, frozen=True):
    """A component was replaced: repeat every request that has no answer."""
