"""What the system knows of this process, to compare before and after a job.

A process may take another job only if the last one has left it as it was (`difference`). It
compares everything that a job could leave behind and a later one could notice; it repairs nothing.

Imported by the lean fork server, so it imports only what is cheap.
"""

from __future__ import annotations

# Importing `locale` takes longer.
import _locale
import ctypes
import fcntl
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

from ...storage import settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

OwnState = dict[str, Any]
"""What is compared, each part by its name."""

MEMORY = "memory of its own"
"""The part that may grow, by `settings.REUSED_GROWTH_BYTES_MAX`."""

_MEMORY_PARTS = (MEMORY, "shared memory", "swapped memory")
"""Parts that count together: shared memory of a job is its own, and swapped out it still counts."""

_STATUS_BYTES_MAX = 16 * 1024
_STATUS_PARTS = {
    b"Name": "name",
    b"RssAnon": MEMORY,
    b"RssShmem": "shared memory",
    b"VmSwap": "swapped memory",
    b"VmLck": "locked memory",
    b"Umask": "umask",
    b"TracerPid": "tracer",
    b"Uid": "user",
    b"Gid": "group",
    b"Groups": "groups",
    b"Threads": "number of threads",
    b"SigPnd": "pending signals",
    b"ShdPnd": "pending signals of the process",
    b"SigBlk": "blocked signals",
    b"SigIgn": "ignored signals",
    b"SigCgt": "signals with a handler",
    b"CapInh": "inheritable capabilities",
    b"CapPrm": "permitted capabilities",
    b"CapEff": "capabilities",
    b"CapBnd": "bounding capabilities",
    b"CapAmb": "ambient capabilities",
    b"NoNewPrivs": "right to gain rights",
    b"Seccomp": "filter of system calls",
    b"Cpus_allowed": "processors",
    b"Mems_allowed": "memory nodes",
}
_KIBIBYTE = 1024
_OF_THE_LIBRARY = 0b11 << 31
"""Signals 32 and 33: the C library handles them from the first thread on, and nothing else may."""

_HANDLED = "signals with a handler"
_LIMITS = tuple(number for name, number in vars(resource).items() if name.startswith("RLIMIT_"))
_NAMESPACES = tuple(
    path
    for name in (
        "cgroup",
        "ipc",
        "mnt",
        "net",
        "pid_for_children",
        "time_for_children",
        "user",
        "uts",
    )
    # Not every kernel has each of them.
    if os.path.lexists(path := f"/proc/self/ns/{name}")
)
_places: dict[int, list[tuple[int, str, int]]] = {}
"""By the number of lines of the status: where the parts are. The kernel does not move them."""

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_TIMERS_FILE = "/proc/self/timers"
"""Timers of POSIX (`timer_create`), where the kernel tells them."""

_library = ctypes.CDLL(None)
_personality = _library.personality
_personality.argtypes = [ctypes.c_ulong]
_ONLY_ASK = 0xFFFFFFFF
_SYS_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
_OF_A_PROCESS = 1

_has_timers_file = os.path.exists(_TIMERS_FILE)  # noqa: PTH110 - pathlib is slow to import


def take(*, without: int = -1) -> OwnState:
    """The state of this process now, without the descriptor ``without``.

    Raises `OSError` if the system does not say.
    """
    state = _of_status()
    caught = int(state[_HANDLED], 16) & ~_OF_THE_LIBRARY
    state[_HANDLED] = caught
    state["directory"] = _place(".")
    state["root directory"] = _place("/")
    # Without decoding each variable.
    state["environment"] = dict(vars(os.environ)["_data"])
    state["descriptors"] = _descriptors(without)
    state["handlers"] = _handlers(caught)
    state["timers"] = tuple(map(_timer, _TIMERS))
    if _has_timers_file:
        state["further timers"] = _text(_TIMERS_FILE)
    state["limits"] = tuple(map(resource.getrlimit, _LIMITS))
    state["session"] = os.getsid(0)
    state["process group"] = os.getpgid(0)
    state["niceness"] = os.getpriority(os.PRIO_PROCESS, 0)
    state["scheduling policy"] = os.sched_getscheduler(0)
    if _SYS_IOPRIO_GET is not None:
        state["priority of input and output"] = _library.syscall(_SYS_IOPRIO_GET, _OF_A_PROCESS, 0)
    state["personality"] = _personality(_ONLY_ASK)
    state["name spaces"] = tuple(map(os.readlink, _NAMESPACES))
    state["rank for the out-of-memory killer"] = _text("/proc/self/oom_score_adj")
    return state | _of_interpreter()


def _of_interpreter() -> OwnState:
    """What an opcode may have set in the interpreter, as far as it is cheap to see."""
    return {
        "sys.path": tuple(sys.path),
        "import hooks": tuple(map(id, sys.meta_path)),
        "trace functions": (sys.gettrace(), sys.getprofile()),
        "standard streams": tuple(map(_stream, (sys.stdin, sys.stdout, sys.stderr))),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "locale": _locale.setlocale(_locale.LC_ALL),
    }


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first part that is not as it was; None if there is none.

    >>> difference({"umask": b"0022", MEMORY: 100}, {"umask": b"0022", MEMORY: 5_000})
    >>> difference({"umask": b"0022", MEMORY: 100}, {"umask": b"0077", MEMORY: 100})
    'umask'
    """
    for part, value in now.items():
        if part == MEMORY:
            if value - before[part] > settings.REUSED_GROWTH_BYTES_MAX:
                return part
        elif value != before.get(part):
            return part
    return next((part for part in before if part not in now), None)


def _text(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _STATUS_BYTES_MAX)
    finally:
        os.close(descriptor)


def _of_status() -> OwnState:
    lines = _text("/proc/self/status").split(b"\n")
    if len(lines) not in _places:
        _places[len(lines)] = _find_places(lines)
    state: OwnState = {}
    for place, part, start in _places[len(lines)]:
        state[part] = lines[place][start:]
    parts = [state.pop(part, b"0") for part in _MEMORY_PARTS]
    state[MEMORY] = sum(int(part.split()[0]) for part in parts) * _KIBIBYTE
    return state


def _find_places(lines: list[bytes]) -> list[tuple[int, str, int]]:
    """Where the parts are: the number of the line, the part's name, and where its value begins."""
    found = []
    for place, line in enumerate(lines):
        name, _, _ = line.partition(b":")
        if (part := _STATUS_PARTS.get(name)) is not None:
            found.append((place, part, len(name) + len(b":\t")))
    return found


def _place(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 - pathlib is slow to import
    return found.st_dev, found.st_ino


def _descriptors(without: int) -> dict[int, tuple[int, int, int, int]]:
    """The open descriptors, each with the file behind it, and both kinds of flags."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow to import
        number = int(name)
        if number != without:
            try:
                file = os.fstat(number)
            except OSError:
                # The descriptor of the listing itself, closed by now.
                continue
            flags = fcntl.fcntl(number, fcntl.F_GETFL), fcntl.fcntl(number, fcntl.F_GETFD)
            found[number] = file.st_dev, file.st_ino, *flags
    return found


def _timer(number: int) -> tuple[bool, float]:
    """Whether this timer runs, and how often it rings."""
    left, interval = signal.getitimer(number)
    return left > 0, interval


def _stream(stream: TextIO | None) -> tuple[int, bool]:
    """Which stream this is, and whether it is closed."""
    return id(stream), stream is not None and stream.closed


def _handlers(caught: int) -> dict[int, object]:
    """The handlers of these signals: bit 0 stands for signal 1."""
    numbers = [place + 1 for place in range(caught.bit_length()) if caught >> place & 1]
    return {number: signal.getsignal(number) for number in numbers}
