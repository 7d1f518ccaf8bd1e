"""A process that holds a lock file, and does nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import Popen

HOLD = (
    "import sys; from ganger.storage import lock_files; "
    "print(lock_files.create(sys.argv[1], 'job_B').path, flush=True); sys.stdin.read()"
)


class LockOwner:
    """A process that holds a lock file until it is ended."""

    def __init__(self, folder: Path) -> None:
        self._process = Popen(
            [sys.executable, "-c", HOLD, os.fspath(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.lock_file = self._process.stdout.readline().strip()
        self.pid = self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
