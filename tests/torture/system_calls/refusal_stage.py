"""What is refused in one case, and the data directory with a daemon in which it happens."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psutil
from tests.torture.system_calls.strace import DirectDaemon

if TYPE_CHECKING:
    from pathlib import Path


Target = Literal["daemon", "job"]
Scope = Literal["queue", "data"]

ANY_DESCRIPTOR = "any descriptor"
"""Not a call: all of those that make a descriptor, because the process may have no more."""

LIMITS = "JOURNAL_SEGMENT_BYTES=2048 DISK_RETRY_SECONDS=0.1"
"""So that segments are renewed, and the disk is tried again, within each case."""

THREADS = ("", " FILES_UNWRITTEN_MAX=0")
"""Who writes the files of new jobs: the queue in its turns, or the compactor. By turns."""

WAIT_SECONDS = 40.0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: whose call is refused, with what error, and how often."""

    target: Target
    call: str
    cause: str
    when: str
    """As strace has it: ``1+`` for as long as it is attached, ``3`` for the third call only."""
    scope: Scope = "queue"
    """The files: those of the queue directory, or also the locks and the log."""
    left: int = 0
    """With `ANY_DESCRIPTOR`: how many descriptors the daemon may still make."""
    is_killed: bool = False
    """Whether the daemon is killed before the cause is gone: what it said must be true."""

    @property
    def lasts(self) -> bool:
        """Whether the calls are refused until strace lets go."""
        return self.when.endswith("+")

    @property
    def text(self) -> str:
        """What the system calls the cause."""
        return os.strerror(getattr(errno, self.cause))

    def __str__(self) -> str:
        what = f"but {self.left}" if self.left else self.when
        killed = ", killed meanwhile" if self.is_killed else ""
        return f"{self.cause} at {self.call} {what} of the {self.target} ({self.scope}){killed}"


class RefusalStage:
    """One data directory with a daemon in it, and witnesses of what ran."""

    def __init__(self, folder: Path, number: int) -> None:
        """``number``: of the daemon, from 0 on."""
        self.daemon = DirectDaemon(folder, LIMITS + THREADS[number % len(THREADS)])
        self.folder = folder
        (folder / "witnesses").mkdir(parents=True)
        self.numbers = itertools.count(1)
        self.daemon.up()
        with self.daemon.client() as client:
            # Its files are the first spares: from their names those of the next ones follow.
            client.wait(client.submit(self.job()), timeout=WAIT_SECONDS)

    def job(self, *, depends: int = 0, command: str = "", size: int = 0) -> dict[str, Any]:
        """A job that leaves a line in a file of its own."""
        path = self.folder / "witnesses" / str(next(self.numbers))
        opcode: dict[str, Any] = {
            "OP_ID": "OP_EXEC",
            "argv": ["sh", "-c", f"echo ran >> {path}; {command}"],
            "env": {"LARGE": "x" * size} if size else {},
        }
        return opcode | ({"depends": [[depends, ["success"]]]} if depends else {})

    def runs(self, job: dict[str, Any]) -> int:
        """How often it ran."""
        path = job["argv"][2].partition(">> ")[2].partition(";")[0]
        with contextlib.suppress(FileNotFoundError), open(path) as lines:
            return len(lines.readlines())
        return 0

    def paths(self, scope: Scope) -> list[str]:
        """The files that the next calls may concern."""
        places = self.daemon.places
        queue, pid = places.queue, self.daemon.pid()
        names = os.listdir(queue)
        spares = [name.rpartition("-") for name in names if name.startswith(f".spare-{pid}-")]
        [stem] = {stem for stem, _, _ in spares}
        made = max(int(number) for _, _, number in spares)
        segment = max(int(path.stem) for path in places.journal.glob("*.journal"))
        last = int((queue / "serial").read_text())
        found = [str(path) for path in (queue, places.journal, places.archive, queue / "serial")]
        found += [f"{queue}/{stem}-{number}" for number in range(1, made + 60)]
        found += [f"{places.journal}/{number:08d}.journal" for number in range(segment + 200)]
        found += [f"{queue}/job-{number}" for number in range(last + 30)]
        found += [f"{places.archive}/0/job-{number}" for number in range(last + 30)]
        found += [
            f"{queue}/.tmp-job-{number}.{task}.{count}"
            for task in self.job_tasks()
            for number in range(last, last + 10)
            for count in range(6)
        ]
        if scope == "data":
            found += [str(places.log), str(places.locks), str(places.lock_journal)]
            found += [
                f"{places.data}/.tmp-locks.{kind}.{pid}.{count}"
                for kind in ("data", "journal")
                for count in range(100)
            ]
        return found

    def job_tasks(self) -> list[int]:
        """The fork server, and its children that wait for jobs."""
        [server] = psutil.Process(self.daemon.pid()).children()
        return [server.pid, *(child.pid for child in server.children())]

    def close(self) -> None:
        """End every process."""
        self.daemon.__exit__()
