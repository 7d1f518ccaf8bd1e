"""Runs a command in the place of ours: it has our terminal, and its exit code is ours."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING, Self

from . import output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

SIGNAL_BASE = 128
"""A shell's exit code for a process that a signal has ended is this and the signal's number."""

_NOT_FOUND_EXIT_CODE, _NOT_EXECUTABLE_EXIT_CODE = 127, 126
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndedError(BaseException):
    """A signal asks this process to end: ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class InPlace:
    """Within the block, a signal that asks for our end raises `EndedError`, or ends the command."""

    def __init__(self) -> None:
        self._handlers: dict[int, object] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._heard: int | None = None

    def __enter__(self) -> Self:
        for number in _ENDING:
            # Who ignores one, as `nohup` does, goes on to.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def run(self, command: Sequence[str]) -> int:
        """Run the command; its exit code, 128 and its signal if one has ended it."""
        # An exception now would leave a process behind that nobody waits for.
        self._is_starting = True
        try:
            self._process = subprocess.Popen(command)
        except OSError as error:
            output.echo(f"ganger: {command[0]}: {error.strerror}", err=True)
            is_missing = isinstance(error, FileNotFoundError)
            return _NOT_FOUND_EXIT_CODE if is_missing else _NOT_EXECUTABLE_EXIT_CODE
        finally:
            self._is_starting = False
        if self._heard is not None:
            self._pass_on(self._heard)
        code = self._process.wait()
        self._process = None
        return code if code >= 0 else SIGNAL_BASE - code

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self._is_starting:
            self._heard = number
        elif self._process is None:
            raise EndedError(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        # The terminal has sent Ctrl-C to the command as well.
        if self._process is not None and number != signal.SIGINT:
            self._process.send_signal(number)
