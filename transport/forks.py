"""Tells clients that they are in another process now: a child that was forked.

A connection belongs to the process that made it: its threads are not in the child, and its locks
may be held there for ever. What a child inherits of it is kept and never touched, because
to close it could say something on the parent's connection.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

INHERITED = "this was begun before a fork, in another process; begin it anew in this one"


class Forkable(Protocol):
    """What is told of forks."""

    def forked(self) -> None:
        """This is a child now, with one thread; nothing else has run in it."""


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()
_inherited: list[object] = []


def follow(client: Forkable) -> None:
    """Tell ``client`` of each fork, in the child, for as long as there is one."""
    _clients.add(client)


def keep(inherited: object) -> None:
    """Let nothing of ``inherited`` be freed in this process."""
    _inherited.append(inherited)


def _tell() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_tell)
