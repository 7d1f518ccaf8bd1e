"""Writes the log from a thread of its own, so that no log can stop or fail its writers.

A full disk, or a pipe without a reader, costs log lines and nothing else: lines wait in a bounded
queue. The writer counts lines that do not fit, and writes the count when writing works again.
"""

from __future__ import annotations

import queue
import threading
from typing import TextIO

LINES_MAX = 10_000
"""Lines that may wait to be written."""


class LogWriter:
    """Stands in for a text stream; one thread writes, any thread may call."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event | None] = queue.Queue(LINES_MAX)
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue ``text`` for the thread; never blocks, never fails."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Nothing: lines are written as they come."""

    def catch_up(self, timeout_seconds: float) -> None:
        """Wait until the lines so far are written, unless that takes too long."""
        reached = threading.Event()
        try:
            self._lines.put_nowait(reached)
        except queue.Full:
            return
        reached.wait(timeout_seconds)

    def close(self, timeout_seconds: float) -> None:
        """Write what waits, unless that takes too long."""
        try:
            self._lines.put(None, timeout=timeout_seconds)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            if isinstance(text, threading.Event):
                text.set()
                continue
            lost, self._lost = self._lost, 0
            try:
                if lost:
                    self._stream.write(f'{{"event": "{lost} log lines were lost"}}\n')
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                # The count of lost lines reports it when writing works again.
                self._lost += lost + 1
