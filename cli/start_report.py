"""How a daemon that starts tells ``ganger up`` how far it is, and what became of the start.

``ganger up`` gives the daemon one end of a pipe. Through it the daemon sends lines of progress, and
then, as the last thing, one word: ``ready`` and the credentials that it has made, or the exit code
and text of its error. The pipe ends with the daemon, too.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from ..storage import settings
from . import first_rapi, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from ..storage import errors
    from ..storage.disk.paths import Places
    from .first_rapi import FirstCredentials

READY_VARIABLE = "GANGER_READY_FD"
"""Names the descriptor of the pipe; behind it `WITH_PROGRESS` if progress is wanted as well."""

WITH_PROGRESS = " progress"

WITHOUT_SECRETS = " unseen"
"""Stands behind all else if nobody sees what the command prints."""

PROGRESS_MARK = "starting "
"""Each line of progress begins with it."""

_TOLD_EVERY_SECONDS = 0.5
_SHOWN_AFTER_SECONDS = 5.0
_SHOWN_EVERY_SECONDS = 15.0
_TERMINAL_AFTER_SECONDS = 1.5
_CLEAR_LINE = "\r\x1b[K"


class Seldom:
    """Says when something that happens often may be told again."""

    def __init__(
        self, after: float, every: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The first time is ``after`` seconds from now, the next ones come ``every`` seconds."""
        self._clock, self._every = clock, every
        self._next = clock() + after

    def is_due(self) -> bool:
        """Whether it is time; if so, the next time is later."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._every
        return True


class Announcement:
    """Reports the progress of a start, and once that the daemon is ready, or why it is not.

    `ganger up` reads the report from a descriptor, a person on standard output. Any thread may
    report progress.
    """

    def __init__(self, places: Places, clock: Callable[[], float] = time.monotonic) -> None:
        self._data = places.data
        self._is_for_people = READY_VARIABLE not in os.environ
        text = os.environ.pop(READY_VARIABLE, "")
        number, *marks = text.split(" ")
        self._is_progress_wanted = WITH_PROGRESS.strip() in marks
        self.is_seen = (
            sys.stdout.isatty() if self._is_for_people else WITHOUT_SECRETS.strip() not in marks
        )
        """Whether a person sees what is printed, and no file or journal keeps it."""
        self._descriptor = int(number) if number.isdecimal() else None
        if self._descriptor is not None:
            os.set_inheritable(self._descriptor, False)  # noqa: FBT003
        self.log: FilteringBoundLogger | None = None
        """The daemon's log, as soon as there is one; it gets the progress, seldom."""
        self._lock = threading.Lock()
        self._to_command = Seldom(_TOLD_EVERY_SECONDS, _TOLD_EVERY_SECONDS, clock)
        self._to_people = Seldom(_SHOWN_AFTER_SECONDS, _SHOWN_EVERY_SECONDS, clock)

    def progress(self, doing: str, done: int = 0, total: int = 0) -> None:
        """The daemon is doing this, and has done so many jobs of so many; 0: not counted."""
        with self._lock:
            if self._to_people.is_due():
                text = progress_text(doing, done, total)
                if self.log is not None:
                    self.log.info("starting", doing=text)
                if self._is_for_people:
                    _print(f"Starting: {text}")
            if not self._is_progress_wanted or self._descriptor is None:
                return
            if not self._to_command.is_due():
                return
            # A pipe that is not read gets full; the start goes on all the same.
            with suppress(OSError):
                if select.select([], [self._descriptor], [], 0)[1]:
                    line = f"{PROGRESS_MARK}{progress_text(doing, done, total)}\n"
                    os.write(self._descriptor, line.encode())

    def files_checked(self, count: int) -> None:
        """The daemon has looked who owns so many files."""
        self.progress(f"checking who owns the files of the queue: {count:,}")

    def ready(self, credentials: FirstCredentials | None = None) -> None:
        """The daemon takes requests; these credentials are for its remote API."""
        if self._is_for_people:
            pid = os.getpid()
            _print(
                f"The daemon is ready (pid {pid}) in {self._data}; Ctrl-C or `ganger down` ends it"
            )
            for line in credentials.lines() if credentials is not None else []:
                _print(line)
        self._say(f"ready {first_rapi.text(credentials)}".rstrip() + "\n")

    def warn(self, text: str) -> None:
        """Print a warning; `ganger up` prints its own."""
        if self._is_for_people:
            _print(f"ganger: {text}")

    def stopped(self) -> None:
        """The daemon has stopped in order."""
        if self._is_for_people:
            _print("The daemon has stopped; jobs that run go on")

    def failed(self, error: errors.GangerError) -> None:
        """The daemon could not start."""
        self._say(f"{error.exit_code} {error.text}\n")

    def _say(self, text: str) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(BrokenPipeError):
                os.write(descriptor, text.encode())
            os.close(descriptor)


def is_kept(stream: TextIO) -> bool:
    """Whether what is printed there goes into a file or, as that of a service, the journal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    journal = os.environ.get("JOURNAL_STREAM")
    return stat.S_ISREG(status.st_mode) or journal == f"{status.st_dev}:{status.st_ino}"


def _print(text: str) -> None:
    # A closed terminal or pipe must not end a daemon.
    with suppress(OSError, ValueError):
        output.echo(text)


def progress_text(doing: str, done: int, total: int) -> str:
    """What a start is doing, in words: ``reading the queue: 340,000 of 1,000,000 jobs``."""
    return f"{doing}: {done:,} of {total:,} jobs" if total else doing


class Progress:
    """Shows what a start is doing, on standard error: refreshed on a terminal, else seldom."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_terminal = sys.stderr.isatty()
        after = _TERMINAL_AFTER_SECONDS if self._is_terminal else _SHOWN_AFTER_SECONDS
        every = 0.0 if self._is_terminal else _SHOWN_EVERY_SECONDS
        self._seldom = Seldom(after, every, clock)
        self._is_shown = False
        self.last = ""
        """What the daemon told last."""

    def note(self, text: str) -> None:
        """The daemon has told what it is doing."""
        self.last = text

    def show(self) -> None:
        """Show what was told last, if it is time."""
        if not self.last or not self._seldom.is_due():
            return
        line = f"ganger: starting: {output.harmless(self.last)}"
        with suppress(OSError, ValueError):
            if self._is_terminal:
                self._is_shown = True
                output.echo(_CLEAR_LINE + line, err=True, nl=False, kept=_CLEAR_LINE)
            else:
                output.echo(line, err=True)

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_shown:
            self._is_shown = False
            with suppress(OSError, ValueError):
                output.echo(_CLEAR_LINE, err=True, nl=False, kept=_CLEAR_LINE)


class NotReady(Exception):  # noqa: N818 - the daemon may become ready later
    """The daemon neither was ready nor ended in time; the text says why the wait is over."""


def await_word(
    reader: int, process: int, seconds: float | None = None, progress: Progress | None = None
) -> str:
    """The daemon's last word, from its pipe ``reader``; empty: it ended without one.

    Waits while the daemon tells of progress, and at most ``seconds`` long; `NotReady` says what
    went by. ``process`` is a descriptor of the daemon's process.
    """
    shown = Progress() if progress is None else progress
    begun = time.monotonic()
    heard, lines = begun, _Lines()
    poll = select.poll()
    for descriptor in (reader, process):
        poll.register(descriptor, select.POLLIN)
    try:
        while True:
            now = time.monotonic()
            left = heard + settings.START_SILENCE_SECONDS - now
            if seconds is not None and begun + seconds <= now:
                raise NotReady(f"was not ready within {seconds:g} s")
            if left <= 0:
                raise NotReady(f"has told of no progress for {settings.START_SILENCE_SECONDS:g} s")
            if seconds is not None:
                left = min(left, begun + seconds - now)
            # Whole milliseconds, rounded up: so at the end of the time it is over.
            found = dict(poll.poll(1 + int(1_000 * min(left, _TOLD_EVERY_SECONDS))))
            if reader in found:
                if not (part := os.read(reader, 4_096)):
                    return lines.word
                if (told := lines.add(part)) is not None and told != shown.last:
                    shown.note(told)
                    heard = time.monotonic()
            elif process in found:
                return lines.word
            shown.show()
    finally:
        shown.clear()


class _Lines:
    """What has come through the pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, part: bytes) -> str | None:
        """Take more; the last whole line of progress in it, if there is one."""
        mark, told = PROGRESS_MARK.encode(), None
        self._rest += part
        while self._rest.startswith(mark) and b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            told = line.removeprefix(mark).decode("utf-8", "replace")
        return told

    @property
    def word(self) -> str:
        """The last word; empty if there is none, or half a line of progress."""
        text = self._rest.decode("utf-8", "replace").strip()
        return "" if text.startswith(PROGRESS_MARK) else text
