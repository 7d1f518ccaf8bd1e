"""task-spooler: a server for one user that runs commands, driven by its command ``tsp``."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from . import servers
from .side import WORKERS, until
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence

# More slots than there are: such a job is never started.
HELD = ("-N", str(WORKERS + 1))
UNFINISHED = ("queued", "running")


class Client(AnyClient):
    """Calls ``tsp``; the server's socket stands in the environment."""

    def submit(self, *, is_held: bool = False) -> object:
        return _tsp(*(HELD if is_held else ()), "true").strip()

    def wait_all(self, tickets: Sequence[Any]) -> None:
        _tsp("-w", tickets[-1])
        # The last job ended; with two slots another one may be running still.
        until(lambda: not unfinished(_tsp("-l")), "jobs end", seconds=60, pause=0.001)


class Side(AnySide):
    """The server, which the first call of ``tsp`` starts."""

    def start(self) -> str:
        program = servers.needed("tsp")
        os.environ.update(
            TS_SOCKET=str(self.folder / "socket"), TMPDIR=str(self.folder), TS_SLOTS=str(WORKERS)
        )
        _tsp()
        return " ".join(servers.program_version(program, "-V").split(" - ")[0].split())

    def stop(self) -> None:
        _tsp("-K")


def unfinished(listed: str) -> bool:
    """Whether a list of ``tsp -l`` has jobs that are queued or running."""
    return any(line.split()[1:2] and line.split()[1] in UNFINISHED for line in listed.splitlines())


def _tsp(*arguments: str) -> str:
    command = ("tsp", *arguments)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
