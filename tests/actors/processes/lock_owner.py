"""A process that holds a lock file, and does nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.programs import Program

HOLD = (
    "import sys; from ganger.storage.alive import lock_files; "
    "print(lock_files.create(sys.argv[1], 'job_B').path, flush=True); sys.stdin.read()"
)


class LockOwner(Program):
    """A process that holds a lock file until it is ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__(HOLD, folder)
        self.lock_file = self.line
