"""Programs in processes of their own, which say a line and wait to be ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import PIPE, Popen  # tests replace `subprocess.Popen`
from typing import Self


class Program:
    """A Python program with one argument; it has printed its first line."""

    def __init__(self, script: str, argument: Path | str, *, leads_session: bool = False) -> None:
        self._process = Popen(
            [sys.executable, "-c", script, os.fspath(argument)],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
            start_new_session=leads_session,
        )
        self.pid = self._process.pid
        self.line = self.next_line()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def next_line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        """Let it read a line."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Kill it, unless it has ended. Twice is harmless."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
