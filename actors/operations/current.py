"""The operation in Python that runs in this process, for `ganger.node`."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from ...storage.opcodes import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.opcodes import OperationContext


class _Running(NamedTuple):
    context: OperationContext
    process: int
    thread: int


_running: _Running | None = None


@contextlib.contextmanager
def operation(context: OperationContext) -> Iterator[None]:
    """Within this, an operation with this context runs."""
    global _running  # noqa: PLW0603 - a process runs one operation at a time
    _running = _Running(context, os.getpid(), threading.get_ident())
    try:
        yield
    finally:
        _running = None


def context() -> OperationContext:
    """That of the operation that calls. `OperationError`: it is called from somewhere else."""
    if _running is None:
        text = "ganger.node is for operations: here none runs"
        raise OperationError("OpPrereqError", text)
    if (os.getpid(), threading.get_ident()) != (_running.process, _running.thread):
        text = "ganger.node is for the thread that runs the operation"
        raise OperationError("OpPrereqError", text)
    return _running.context
