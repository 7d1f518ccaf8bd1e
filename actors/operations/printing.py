"""Makes what an operation in Python prints output of its job, not of the daemon.

Only processes that run users' operations import this module. Children that an operation forks
print into ``daemon.out``. Text that other threads print is passed on when the operation itself
prints, or ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from ...storage import settings
from .command_output import OutputLog, take_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.opcodes import OperationContext

TRACEBACK = "traceback"
"""The kind of log entries that hold a traceback of the operation."""

_DESCRIPTORS = {"stdout": 1, "stderr": 2}


@contextlib.contextmanager
def captured(context: OperationContext) -> Iterator[None]:
    """Within this context, printed text becomes output of the job."""
    log = OutputLog(context)
    printed = [_Printed(context, stream, log) for stream in _DESCRIPTORS]
    with contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1]):
        try:
            yield
        finally:
            for one in printed:
                one.finish()


def traceback_lines(error: BaseException) -> list[str]:
    """The traceback from the operation's own first line on; only the end of a long one."""
    trace = error.__traceback__
    # The first frame is `_run_declared`, which called the operation.
    own = trace.tb_next if trace is not None and trace.tb_next is not None else trace
    text = "".join(traceback.format_exception(type(error), error, own))
    lines = text.encode("utf-8", "backslashreplace").decode().splitlines()
    left = settings.TRACEBACK_BYTES_MAX
    kept: list[str] = []
    for line in reversed(lines):
        left -= len(line.encode()) + 1
        if left < 0:
            kept.append("... (the beginning is cut)")
            break
        kept.append(line)
    return kept[::-1]


def end_forked_child(error: BaseException | None) -> NoReturn:
    """End the child that an operation has forked, as Python ends: ``error`` came out of it."""
    status = 0 if error is None else 1
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = (error.code or 0) & 0xFF
    elif error is not None:
        with contextlib.suppress(OSError):
            os.write(_DESCRIPTORS["stderr"], "\n".join([*traceback_lines(error), ""]).encode())
    os._exit(status)


class _Printed(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr`` while an operation runs."""

    def __init__(self, context: OperationContext, stream: str, log: OutputLog) -> None:
        self._context = context
        self._stream = stream
        self._log = log
        self._owner = os.getpid(), threading.get_ident()
        self._waiting: deque[bytes] = deque()
        self._unfinished = bytearray()
        self._bytes = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As other programs' output is read."""
        return "utf-8"

    @property
    def buffer(self) -> Any:  # noqa: ANN401 - what a text stream has there
        """Takes bytes."""
        return self._bytes

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, text: str) -> int:
        """Take in text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.take(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self, data: bytes) -> None:
        """Take in bytes, in any thread or process."""
        process, thread = self._owner
        if os.getpid() != process:
            # A forked child must not use its parent's link to the daemon.
            os.write(_DESCRIPTORS[self._stream], data)
            return
        self._waiting.append(data)
        if threading.get_ident() == thread:
            self._pass_on()

    def finish(self) -> None:
        """Pass on the rest, also a line without an end."""
        self._pass_on()
        if self._unfinished and not self._log.is_full:
            self._log.add([bytes(self._unfinished)], self._stream)

    def _pass_on(self) -> None:
        while self._waiting:
            data = self._waiting.popleft()
            self._context.output(data, self._stream)
            if not self._log.is_full:
                self._unfinished += data
                self._log.add(take_pieces(self._unfinished), self._stream)


class _Bytes(io.RawIOBase):
    """Stands for the ``buffer`` of such a stream."""

    def __init__(self, printed: _Printed) -> None:
        self._printed = printed

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - whatever holds bytes
        """Take in bytes."""
        copied = bytes(data)
        self._printed.take(copied)
        return len(copied)
