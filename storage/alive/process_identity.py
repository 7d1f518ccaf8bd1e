"""The identity of a process: its pid, its start time, and the boot of the machine.

The kernel reuses a pid after a reboot, and when the numbers wrap around. All three together
identify one process for ever.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

_BOOT_CHARACTERS = 8
_START_FIELD = 19
"""Index of the start time in ``/proc/<pid>/stat``, counted behind the program's name."""

_FIELDS_SPLIT = _START_FIELD + 1
"""No field behind the start time is of interest."""

_NO_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""What the kernel says when no process has the pid: the second while the process is being reaped,
the third in older kernels."""

_ENDED_STATES = (b"Z", b"X")
_FLAGS_FIELD = 6
_KERNEL_THREAD = 0x0020_0000

_boot = ""

_SHOWN = b"job "
_SHOWN_NONE = _SHOWN + b"-"
_NAME_FILE = "/proc/self/comm"

SHOWN_JOB_MAX = 10**11 - 1
"""The largest number of a job that fits into the name of a process."""


class ProcessIdentity(NamedTuple):
    """One process. ``start`` counts the ticks of the kernel's clock since the boot ``boot``."""

    pid: int
    start: int
    boot: str

    def __str__(self) -> str:
        """The form used in names of lock files.

        >>> str(ProcessIdentity(4711, 88123, "1a2b3c4d"))
        '4711.88123.1a2b3c4d'
        """
        return f"{self.pid}.{self.start}.{self.boot}"


def parse(text: str) -> ProcessIdentity | None:
    """The identity from its text form; None if the text is none.

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
    """The identity of this process. Raises `OSError` if the system does not say."""
    return ProcessIdentity(os.getpid(), int(_fields("self")[_START_FIELD]), _boot or boot())


def of(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this pid now; None if it has ended, or is unknown."""
    try:
        fields = _fields(str(pid))
        return (
            None
            if fields[0] in _ENDED_STATES
            else ProcessIdentity(pid, int(fields[_START_FIELD]), boot())
        )
    except OSError:
        return None


def open_pidfd(pid: int) -> int:
    """A pidfd of the process that has this pid now. Raises `ProcessLookupError` if it is gone.

    Everything opens pidfds with it: the kernel has several ways to say "gone". Raises another
    `OSError` if no descriptor is left.
    """
    try:
        return os.pidfd_open(pid)  # noqa: TID251 - its one home
    except OSError as error:
        if error.errno not in _NO_PROCESS:
            raise
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error


def begins_program(pid: int) -> bool:
    """Whether the process is being given a program: its environment shows a moment later.

    Also true of one that lives without arguments and environment; false of kernel threads.
    """
    try:
        if _read(f"/proc/{pid}/cmdline"):
            return False
        fields = _fields(str(pid))
    except OSError:
        return False
    return fields[0] not in _ENDED_STATES and not int(fields[_FLAGS_FIELD]) & _KERNEL_THREAD


def parent(pid: int) -> int | None:
    """The pid of the parent of the process, ended or not; None if there is no such process."""
    try:
        return int(_fields(str(pid))[1])
    except OSError:
        return None


def lives(process: ProcessIdentity) -> bool:
    """Whether the process has not ended, reaped or not. In doubt, it lives."""
    try:
        if process.boot != boot():
            return False
        fields = _fields(str(process.pid))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return int(fields[_START_FIELD]) == process.start and fields[0] not in _ENDED_STATES


def serves(process: ProcessIdentity, job_id: int) -> bool:
    """Whether the process lives, and does not say that it serves another job, or none.

    In doubt, it does.
    """
    try:
        if process.boot != boot():
            return False
        head, _, rest = _read(f"/proc/{process.pid}/stat").rpartition(b")")
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    fields = rest.split()
    if int(fields[_START_FIELD]) != process.start or fields[0] in _ENDED_STATES:
        return False
    name = head.partition(b"(")[2]
    return not name.startswith(_SHOWN) or name == shown_name(job_id)


def show_job(job_id: int | None) -> None:
    """Say in this process's name which job it serves, for `serves`; None: none.

    A process that has not said so yet serves the job for which it was made. Call it from the main
    thread. Raises `OSError` if the system refuses.
    """
    descriptor = os.open(_NAME_FILE, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, _SHOWN_NONE if job_id is None else shown_name(job_id))
    finally:
        os.close(descriptor)


def shown_name(job_id: int) -> bytes:
    """The name of a process that says that it serves this job, up to `SHOWN_JOB_MAX`.

    >>> shown_name(17)
    b'job 17'
    """
    return b"%s%d" % (_SHOWN, job_id)


def boot() -> str:
    """The present boot of the machine. Raises `OSError` if the system does not say."""
    global _boot  # noqa: PLW0603 - it does not change while this process lives
    if not _boot:
        text = _read("/proc/sys/kernel/random/boot_id")
        _boot = text.decode("ascii").replace("-", "")[:_BOOT_CHARACTERS]
    return _boot


def _fields(name: str) -> list[bytes]:
    """The fields of ``/proc/<pid>/stat`` behind the program's name, which may hold anything."""
    return _read(f"/proc/{name}/stat").rpartition(b")")[2].split(None, _FIELDS_SPLIT)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4_096)
    finally:
        os.close(descriptor)
