"""Allocates the code that a job runs anew, side by side, in a fork server.

How it works. Modules are loaded whole, so the code objects that a job runs lie on a hundred pages,
between many that it does not run. To run one, the interpreter counts a reference, and so each of
these pages must be copied for a child. Copies of these code objects, made one after the other when
the allocator has no free blocks in between, lie on few pages.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType


def move_together(work: Callable[[], None]) -> None:
    """Give each Python function that ``work`` calls a copy of its code, one behind the other.

    The copies have learned nothing yet: the interpreter must run them some times.
    """
    run = _code_run_by(work)
    moved: dict[int, CodeType] = {}
    for code in run.values():
        _move(code, run, moved)
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and id(function.__code__) in moved:
            function.__code__ = moved[id(function.__code__)]


def _code_run_by(work: Callable[[], None]) -> dict[int, CodeType]:
    """The code objects that ``work`` runs, by their `id`, in the order of their first calls."""
    run: dict[int, CodeType] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            run.setdefault(id(frame.f_code), frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return run


def _move(code: CodeType, run: dict[int, CodeType], moved: dict[int, CodeType]) -> CodeType:
    """The copy of ``code``, with copies of the code and tuples in it, such as comprehensions."""
    if id(code) not in moved:
        constants = tuple([_moved_constant(one, run, moved) for one in code.co_consts])
        moved[id(code)] = code.replace(co_consts=constants)
    return moved[id(code)]


def _moved_constant(
    constant: object, run: dict[int, CodeType], moved: dict[int, CodeType]
) -> object:
    if isinstance(constant, CodeType) and id(constant) in run:
        return _move(constant, run, moved)
    return (*constant,) if type(constant) is tuple else constant
