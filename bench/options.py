"""What the options of both benchmarks share, and how they end."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM raise `KeyboardInterrupt`, so that whatever was started is stopped."""
    signal.signal(signal.SIGTERM, _interrupted)


def _interrupted(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


class at_least:  # noqa: N801 - it is used like a function
    """Reads a whole number that is not smaller than ``least``."""

    def __init__(self, least: int) -> None:
        self._least = least

    def __call__(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}") from None
        if value < self._least:
            raise argparse.ArgumentTypeError(f"expected {self._least} or more, not {value}")
        return value


def folder(text: str) -> Path:
    """A folder that exists."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return Path(text)
