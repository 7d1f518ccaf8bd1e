"""A command under strace with all that it starts, and what each thread of them did to files.

How it works. strace writes one file for each thread. A thread's role is the name that a dispatcher
gives it, or the program that it executed, or follows from who started it.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.harness import GANGER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGES = (
    "openat", "creat", "mkdir", "rename", "renameat2", "link", "unlink", "rmdir", "symlink",
    "chmod", "fchmod", "bind",
)  # fmt: skip
"""Calls that may change what lies in a directory; an `openat` only if it is for writing."""

TRACED = (
    *CHANGES, "execve", "clone", "clone3", "fork", "vfork", "write", "pwrite64", "flock", "fcntl",
    "listen", "close", "prlimit64", "kill",
)  # fmt: skip

_LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\) += (-?\w+)")
_ENDED = re.compile(r"(\d+\.\d+) \+\+\+ ((?:exited|killed) .*) \+\+\+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")


class Event(NamedTuple):
    """One call: when it began, who made it, its arguments, and the paths that it concerns."""

    when: float
    role: str
    thread: int
    call: str
    arguments: str
    result: str
    paths: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The paths that the call made, changed or removed; none if it failed."""
        if self.call not in CHANGES or self.result.startswith("-"):
            return ()
        if self.call == "openat" and not re.search("O_WRONLY|O_RDWR|O_CREAT", self.arguments):
            return ()
        return self.paths

    def __str__(self) -> str:
        return f"{self.role}: {self.call}({self.arguments}) = {self.result}"


def begin(folder: Path, data: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Begin a command under strace, which leaves its files in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    strace = ["strace", "--seccomp-bpf", "-ff", "-ttt", "-y", "-v", "-s", "65536"]
    traced = ["-o", f"{folder}/t", "-e", f"trace={','.join(TRACED)}"]
    return subprocess.Popen(
        [*strace, *traced, *GANGER, "--data", str(data), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    )


def events(folder: Path) -> list[Event]:
    """Everything that was traced, in the order of its begin."""
    found = [event for path in folder.iterdir() for event in _events(path)]
    roles = _Roles(found)
    return sorted(event._replace(role=roles.of(event)) for event in found)


def _events(path: Path) -> Iterator[Event]:
    thread = int(path.suffix[1:])
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if ended := _ENDED.match(line):
                yield Event(float(ended[1]), "", thread, "exit", ended[2], "", ())
            elif match := _LINE.match(line):
                when, call, arguments, result = match.groups()
                paths = _paths(call, arguments)
                yield Event(float(when), "", thread, call, arguments, result, paths)


def _paths(call: str, arguments: str) -> tuple[str, ...]:
    if call in ("write", "pwrite64", "close", "flock", "fcntl", "fchmod", "listen"):
        match = _DESCRIPTOR.match(arguments)
        return (match[1],) if match else ()
    if call in CHANGES:
        return tuple(_QUOTED.findall(arguments))
    return ()


class _Roles:
    """The role of each thread, which may change when it executes a program."""

    def __init__(self, found: list[Event]) -> None:
        self._parents: dict[int, tuple[int, float]] = {}
        self._names: dict[int, str] = {}
        self._programs: dict[int, list[tuple[float, str]]] = {}
        for event in sorted(found):
            if event.call in ("clone", "clone3", "fork", "vfork") and event.result.isdigit():
                self._parents[int(event.result)] = event.thread, event.when
            elif event.call == "write" and event.paths and event.paths[0].endswith("/comm"):
                name = _QUOTED.findall(event.arguments)[0]
                # A process says which of its jobs it serves.
                self._names[event.thread] = "job" if name.startswith("job ") else name
            elif event.call == "execve" and event.result == "0":
                program = event.when, _program(event.arguments)
                self._programs.setdefault(event.thread, []).append(program)

    def of(self, event: Event) -> str:
        return self._names.get(event.thread) or self._at(event.thread, event.when)

    def _at(self, thread: int, when: float) -> str:
        begun = [name for began, name in self._programs.get(thread, []) if began <= when]
        if begun:
            return begun[-1]
        if thread not in self._parents:
            return "strace"
        parent, then = self._parents[thread]
        role = self._names.get(parent) or self._at(parent, then)
        return {"fork_server": "job", "job": "command"}.get(role, f"thread of {role}")


def _program(arguments: str) -> str:
    words = _QUOTED.findall(arguments.partition("], [")[0])
    if "ganger.actors.execution.template" in words:
        return "fork_server"
    if not any(word.startswith("ganger.cli.") for word in words):
        return "command"
    return "daemon" if "daemon" in words else "client"
