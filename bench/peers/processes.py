"""Servers and workers as processes: started for one measurement, stopped whatever happens."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10


class Processes:
    """The processes that a side has started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *command: str,
        name: str,
        user: str | None = None,
        given: bytes | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program as ``user``, with ``given`` on its standard input; ``name`` its log."""
        with (self._folder / f"{name}.log").open("ab") as log, tempfile.TemporaryFile() as text:
            text.write(given or b"")
            text.seek(0)
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                stdin=text,
                stdout=log,
                stderr=log,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
            )
        self._running.append(process)
        return process

    def stop(self) -> None:
        """End all, the last one first; kill what does not end in time."""
        while self._running:
            process = self._running.pop()
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
