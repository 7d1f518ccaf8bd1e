"""How many files of new jobs a busy queue lets be created, before its journal is full. Pure.

How it works. Files of new jobs have time: a thread creates them while the queue rests. A queue
that never rests would leave all of them to the end, and its journal would grow to the limit at
which each turn waits for files as long as it may. So from half of the limit on files are due for
each new job, the more the less room is left; soon more than one, so that the thread catches up.
Files that were created at rest count: a queue that rests enough lets nothing more be done. If the
thread does not come to the files that are due, turns wait for it, the longer the less room is left.

Everything is averaged over some turns: one large submission does not make the small ones after it
wait.
"""

from __future__ import annotations

from typing import NamedTuple

_TURNS = 32
"""About so many turns are averaged."""

_FROM = 0.5
"""Of the journal's limit: below that no file is due."""

_AT_LIMIT = 8.0
"""Files that are due for each new job when the journal is at its limit."""


class Due(NamedTuple):
    """What a turn lets be done."""

    files: int = 0
    """Files to be created though messages wait."""

    wait: float = 0.0
    """How much of the longest wait for files the turn takes, from 0 to 1."""


class FilePace:
    """The new jobs and the files of the last turns."""

    def __init__(self) -> None:
        self._new = self._created = self._at_rest = self._owed = 0.0
        self._due = 0

    def after_turn(self, new: int, created: int, used: float) -> Due:
        """What is due after a turn with ``new`` jobs.

        ``created``: files since the turn before, but for those for which that one waited.
        ``used``: the journal's bytes as a part of its limit.
        """
        self._new += (new - self._new) / _TURNS
        self._created += (created - self._created) / _TURNS
        self._at_rest += (max(0, created - self._due) - self._at_rest) / _TURNS
        wanted = due_for_each(used) * self._new
        self._owed = max(0.0, self._owed % 1 + wanted - self._at_rest)
        self._due = int(self._owed)
        if wanted <= self._created + 1:
            return Due(self._due)
        return Due(self._due, min(1.0, _beyond(used)))


def due_for_each(used: float) -> float:
    """How many files are due for each new job."""
    return _AT_LIMIT * _beyond(used) ** 2


def _beyond(used: float) -> float:
    return max(0.0, used - _FROM) / (1 - _FROM)
