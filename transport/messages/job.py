"""Messages of the daemon to a job process."""

from __future__ import annotations

from typing import Any

from .base import Notice
from .values import ChosenUnder


class JobGo(Notice, frozen=True):
    """The hand-over is durable: from here on only the job process writes its job file.

    ``body``: the job file; empty: it is too large for a frame, and is read from the file.
    ``spares``: files in the queue directory, for new versions of the job file
    (`queue_files.inodes`). ``secrets``: the parameters of each opcode, by its place, that are never
    written. ``queue``: the queue directory. ``socket``: where the next daemon will listen.
    ``chosen``: the rules under which the job was chosen. ``direct``: the components that live in
    another process than the daemon's, each with the socket there. ``reuses``: the process may
    take another job after this one.
    """

    body: bytes
    spares: list[str]
    secrets: dict[int, dict[str, Any]]
    queue: str
    socket: str
    chosen: ChosenUnder = ChosenUnder()
    direct: dict[str, str] = {}
    reuses: bool = False


class NextJob(Notice, frozen=True):
    """To a process that has left its job in order: take this one, as if made for it."""

    job_id: int


class CancelRequested(Notice, frozen=True):
    """Cancel the job, or kill its command; reply with `CancelAnswered`."""

    token: int
    kill: bool = False


class PriorityRequested(Notice, frozen=True):
    """Change the priority of the job; reply with `PriorityAnswered`."""

    token: int
    priority: int


class GateChanged(Notice, frozen=True):
    """From the queue's start gate: other filter rules are in force.

    A waiting process asks again (`AskGate`).
    """


class ResendRequested(Notice, frozen=True):
    """A component was replaced: repeat all requests without an answer."""
