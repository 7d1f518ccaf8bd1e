"""Which process is meant: its pid, when it started, and in which boot of the machine.

A pid alone names nobody: it is given to others after a reboot, and when the numbers have come
round. The three together name one process for ever; they are called its mark.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_BOOT_CHARACTERS = 8
_START_FIELD = 19
"""Place of the start time behind the name of the program in ``/proc/<pid>/stat``."""

_ENDED_STATES = (b"Z", b"X")

_boot = ""


class ProcessIdentity(NamedTuple):
    """One process. ``start`` counts the ticks of the kernel's clock since the boot ``boot``."""

    pid: int
    start: int
    boot: str

    def __str__(self) -> str:
        """As it stands in names of files.

        >>> str(ProcessIdentity(4711, 88123, "1a2b3c4d"))
        '4711.88123.1a2b3c4d'
        """
        return f"{self.pid}.{self.start}.{self.boot}"


def parse(text: str) -> ProcessIdentity | None:
    """The mark that stands there; None if none does.

    >>> parse("4711.88123.1a2b3c4d")
    ProcessIdentity(pid=4711, start=88123, boot='1a2b3c4d')
    >>> parse("4711")
    """
    pid, _, rest = text.partition(".")
    start, _, boot = rest.partition(".")
    if not (pid.isdecimal() and start.isdecimal() and boot.isalnum()):
        return None
    return ProcessIdentity(int(pid), int(start), boot)


def own() -> ProcessIdentity:
    """The mark of this process. Raises `OSError` if the system does not tell."""
    return ProcessIdentity(os.getpid(), int(_fields("self")[_START_FIELD]), _boot or boot())


def of(pid: int) -> ProcessIdentity | None:
    """The mark of the process that has this pid now; None if it has ended, or nobody can tell."""
    try:
        fields = _fields(str(pid))
        return (
            None
            if fields[0] in _ENDED_STATES
            else ProcessIdentity(pid, int(fields[_START_FIELD]), boot())
        )
    except OSError:
        return None


def parent(pid: int) -> int | None:
    """The pid of the parent of the process, ended or not; None if there is no such process."""
    try:
        return int(_fields(str(pid))[1])
    except OSError:
        return None


def lives(mark: ProcessIdentity) -> bool:
    """Whether the process has not ended, reaped or not. Who cannot tell, says that it lives."""
    try:
        if mark.boot != boot():
            return False
        fields = _fields(str(mark.pid))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return int(fields[_START_FIELD]) == mark.start and fields[0] not in _ENDED_STATES


def boot() -> str:
    """The present boot of the machine. Raises `OSError` if the system does not tell."""
    global _boot  # noqa: PLW0603 - it does not change while this process lives
    if not _boot:
        text = _read("/proc/sys/kernel/random/boot_id")
        _boot = text.decode("ascii").replace("-", "")[:_BOOT_CHARACTERS]
    return _boot


def _fields(name: str) -> list[bytes]:
    """What the kernel says of a process, from its state on: before that stands what it likes."""
    return _read(f"/proc/{name}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4_096)
    finally:
        os.close(descriptor)
