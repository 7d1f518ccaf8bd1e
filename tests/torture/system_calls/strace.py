"""The daemon's system calls through strace: recorded, refused, or the last that it ever makes.

How it works. strace counts calls for each thread by itself, and its faults are put in by that
count. So a `Point` is a thread of the daemon, a call, and how often the thread has made this
call since strace was attached to it. Dispatchers name their threads; the others are known by
the order in which they were started.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Self

import msgspec
from tests.faults.harness import Daemon, wait_for_end

from ganger.actors.runtime.dispatcher import THREAD
from ganger.actors.supervision.placement import COMPONENTS, PLACEMENT, SUPERVISION
from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

DISPATCHERS = {
    name[:15]: name for name in (SUPERVISION, *(PLACEMENT[part.name] for part in COMPONENTS))
}
"""By the name that the kernel has of their threads."""

UNNAMED = ("main", "log writer", "freed frames")
"""The other threads of Python, in the order of their start. By the last one pyzmq hears that a
frame which it did not copy has been sent."""

OF_ZMQ = ("zmq reaper of freed frames", "zmq io of freed frames", "zmq reaper", "zmq io")
"""libzmq's own threads, likewise."""

ATTACHED_SECONDS = 30.0
HELD_SECONDS = 20
"""How long a thread is held after a call, at most: until it is killed there."""

BEGUN = re.compile(r"(?:(\d+) +)?(\w+)\((.*)")
"""A line of strace where a call begins: thread, call, arguments."""

LAUNCHER = """
import os, sys
from ganger.actors.queue.job_queue import JobQueue
from ganger.cli.main import main
from ganger.storage.alive import process_identity
from ganger.storage import settings
for word in sys.argv.pop(1).split():
    name, _, value = word.partition("=")
    setattr(settings, name, type(getattr(settings, name))(value))
boot, gate = JobQueue.boot, int(os.environ.pop("GANGER_TEST_GATE", "-1"))
def boot_on_request(queue):
    JobQueue.boot = boot
    os.write(gate, b"here")
    os.read(gate, 4)
    os.close(gate)
    boot(queue)
if gate >= 0:
    JobQueue.boot = boot_on_request
main()
"""
"""Starts a command with some limits set otherwise, so that what is rare happens at once.

With a gate, the job queue waits there before it reads its directory.
"""


class Point(msgspec.Struct, frozen=True):
    """A call that a thread makes, and how often it has made this call by then."""

    thread: str
    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call} {self.number} of {self.thread}"


class DirectDaemon(Daemon):
    """A daemon that is a child of this process, so that its end is seen as it happens.

    ``limits`` are settings and their values, such as ``JOURNAL_SEGMENT_BYTES=1``.
    """

    def __init__(self, folder: Path, limits: str = "") -> None:
        super().__init__(folder)
        self.limits = limits
        self._process: subprocess.Popen[bytes] | None = None

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        if self._process is not None:
            self._process.wait(timeout=20)

    def up(self) -> None:
        """Start the daemon (again) and wait until it is ready."""
        ready = self.start()
        with os.fdopen(ready, "rb") as stream:
            word = stream.read()
        assert word == b"ready\n", word

    def start(self, gate: int = -1) -> int:
        """Start the daemon; returns the descriptor on which it says that it is ready.

        With a ``gate``, a socket, the job queue tells there that it is about to read its
        directory, and waits for an answer.
        """
        self.data.mkdir(exist_ok=True)
        reader, writer = os.pipe()
        launch = [sys.executable, "-P", "-c", LAUNCHER, self.limits]
        with (self.data / "daemon.out").open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *launch,
                    "--data",
                    str(self.data),
                    "daemon",
                    "--no-rapi",
                    "--placement",
                    self.placement,
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                pass_fds=[writer, *([gate] if gate >= 0 else [])],
                cwd="/",
                env={
                    **os.environ,
                    "GANGER_READY_FD": str(writer),
                    "GANGER_TEST_FOLDER": str(self.folder),
                    "GANGER_TEST_GATE": str(gate),
                },
            )
        os.close(writer)
        return reader

    def pid(self) -> int:
        """The daemon's process."""
        assert self._process is not None
        return self._process.pid

    def open_pidfd(self) -> int:
        """A descriptor that is readable when the daemon has ended."""
        return process_identity.open_pidfd(self.pid())

    def has_ended(self, seconds: float) -> bool:
        """Whether the daemon has ended, or does within this time."""
        descriptor = self.open_pidfd()
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)

    def reap(self) -> int:
        """Wait for the daemon's end; returns its exit status."""
        assert self._process is not None
        return self._process.wait(timeout=20)

    @property
    def is_up(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL the daemon and wait for its end."""
        assert self._process is not None
        descriptor = self.open_pidfd()
        self._process.kill()
        wait_for_end(descriptor)
        self.reap()

    def threads(self) -> dict[str, int]:
        """The ids of the daemon's threads, as far as they have been started, by name."""
        deadline = time.monotonic() + ATTACHED_SECONDS
        while (found := self._threads()) is None:
            assert time.monotonic() < deadline, "threads of the daemon do not name themselves"
        return found

    def _threads(self) -> dict[str, int] | None:
        """As `threads`; None if one has just begun and has no name yet, or just ended."""
        # The kernel lists them as they were started; their numbers may have begun anew.
        folder = f"/proc/{self.pid()}/task"
        found: dict[str, int] = {}
        unnamed, of_zmq = iter(UNNAMED), iter(OF_ZMQ)
        for task in os.listdir(folder):
            try:
                with open(f"{folder}/{task}/comm") as file:
                    comm = file.read().rstrip()
            except (FileNotFoundError, ProcessLookupError):
                return None
            # A thread that a dispatcher starts has its name at first.
            if comm in DISPATCHERS and DISPATCHERS[comm] not in found:
                found[DISPATCHERS[comm]] = int(task)
            elif comm != THREAD:
                name = next(of_zmq if comm.startswith("ZMQ") else unnamed, None)
                if name is None:
                    return None
                found[name] = int(task)
        return found


class Tracer:
    """strace, attached to threads or processes that run, until it is closed.

    ``tasks`` are the ids; with ``follows``, also what they start, and all threads of a
    process. Each line of its output is kept in ``lines`` and given to ``on_line``, on a
    thread of its own; strace lets the threads go when that returns True.
    """

    def __init__(
        self,
        tasks: Iterable[int],
        words: Sequence[str],
        *,
        follows: bool = False,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.lines: list[str] = []
        self._on_line = on_line
        attach = [word for task in tasks for word in ("-p", str(task))]
        reader, writer = os.pipe()
        self._process = subprocess.Popen(
            ["strace", *(["-f"] if follows else []), "-o", f"/dev/fd/{writer}", *words, *attach],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[writer],
        )
        os.close(writer)
        self._reading = threading.Thread(target=self._read, args=[reader], daemon=True)
        self._reading.start()
        try:
            self._wait_until_attached(len(attach) // 2)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the threads go. Twice is harmless."""
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reading.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def kill(self) -> None:
        """End strace at once: the kernel lets the threads go."""
        self._process.kill()
        self._process.wait()

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self.lines.append(line)
                if self._on_line is not None and self._on_line(line):
                    self._process.terminate()

    def _wait_until_attached(self, count: int) -> None:
        # It says so on its error stream, in one line for each id that it was given.
        assert self._process.stderr is not None
        said = b""
        # A thread that was made for one piece of work may have ended meanwhile.
        while said.count(b" attached") + said.count(b"No such process") < count:
            descriptor = self._process.stderr.fileno()
            if not select.select([descriptor], [], [], ATTACHED_SECONDS)[0]:
                raise AssertionError(f"strace does not attach: {said!r}")
            part = os.read(descriptor, 4_096)
            if not part:
                raise AssertionError(f"strace: {said.decode(errors='replace')}")
            said += part


def points(lines: Iterable[str], threads: dict[str, int]) -> list[tuple[Point, str]]:
    """The calls in what strace has recorded of ``threads``, each with its arguments."""
    names = {task: name for name, task in threads.items()}
    made: Counter[tuple[str, str]] = Counter()
    found = []
    for line in lines:
        match = BEGUN.match(line)
        if match is None or match[1] is None or int(match[1]) not in names:
            continue
        thread, call = names[int(match[1])], match[2]
        made[thread, call] += 1
        found.append((Point(thread, call, made[thread, call]), match[3]))
    return found


def tracing(calls: Iterable[str]) -> list[str]:
    """What tells strace to look at these calls."""
    return ["-e", f"trace={','.join(calls)}"]


def killing(call: str, number: int, *, after: bool) -> list[str]:
    """What tells strace to kill a process instead of a call, or to hold it after the call."""
    fault = f"delay_exit={HELD_SECONDS * 1_000_000}" if after else "signal=KILL"
    return [*tracing([call]), "-e", f"inject={call}:{fault}:when={number}"]


def refusing(calls: Sequence[str], error: str, when: str, paths: Iterable[str]) -> list[str]:
    """What tells strace to make calls that concern ``paths`` fail; ``when`` as strace has it."""
    names = ",".join(calls)
    where = [word for path in paths for word in ("-P", path)]
    return [*tracing(calls), *where, "-e", f"inject={names}:error={error}:when={when}"]


def describe(error: Exception) -> str:
    """An error with the lines that led to it, for one line of a report."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames[-6:]]
    return f"{error!r} ({' '.join(places)})"


def is_held(line: str) -> bool:
    """Whether the line tells that a thread is held after its call."""
    return "(DELAYED)" in line


def is_refused(line: str) -> bool:
    """Whether the line tells that a call was made to fail."""
    return "(INJECTED)" in line
