"""Tells clients that they are in another process now: a child that was forked.

A connection belongs to the process that made it: its threads are not in the child, and its locks
may be held there for ever. What a child inherits of it is kept and never touched, because
to close it could say something on the parent's connection.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

INHERITED = "this was begun before a fork, in another process; begin it anew in this one"

_methods: set[weakref.WeakMethod[Callable[[], None]]] = set()
_inherited: list[object] = []


def call_in_child(method: Callable[[], None]) -> None:
    """Call this bound method in the child of each fork, for as long as its object lives.

    The child has one thread then, in which nothing else has run.
    """
    _methods.add(weakref.WeakMethod(method, _methods.discard))


def keep_untouched(inherited: object) -> None:
    """Let nothing of ``inherited`` be freed in this process."""
    _inherited.append(inherited)


def _call_all() -> None:
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_call_all)
