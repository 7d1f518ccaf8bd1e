"""Ganger itself, with a process for each job or with processes that serve several."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganger import Client as GangerClient

from .servers import MissingError
from .side import ADDRESS, until
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
BLOCKER = NO_OP | {"duration": 3600.0}
FRESH = "--fresh-processes"


class Client(AnyClient):
    """A client of the daemon. Held jobs depend on a job that does not end, the blocker."""

    def __init__(self) -> None:
        self._data = Path(os.environ[ADDRESS])
        self._client = GangerClient(self._data)
        self._held: dict[str, object] | None = None

    def submit(self, *, is_held: bool = False) -> object:
        return self._client.submit(self._opcode(is_held=is_held))

    def submit_many(self, count: int, *, is_held: bool = False) -> list[object]:
        return list(self._client.submit_many([[self._opcode(is_held=is_held)]] * count))

    def _opcode(self, *, is_held: bool) -> dict[str, object]:
        if not is_held:
            return NO_OP
        if self._held is None:
            self._held = NO_OP | {"depends": [[self._blocker(), ["success"]]]}
        return self._held

    def _blocker(self) -> int:
        """The id of the one job that all held jobs wait for; the first client submits it."""
        note = blocker_note(self._data)
        if not note.exists():
            job_id = self._client.submit(BLOCKER)
            until(lambda: self._client.job(job_id).process_id is not None, "the blocker runs")
            note.write_text(f"{job_id} {self._client.job(job_id).process_id}")
        return int(note.read_text().split()[0])

    def wait_all(self, tickets: Sequence[Any]) -> None:
        ended = self._client.wait(*tickets, fields=["id", "status"])
        failed = [job for job in ended if job.status != "success"]
        if failed:
            raise RuntimeError(f"job {failed[0].id}: {failed[0].status}")

    def list_held(self) -> int:
        blocker = self._blocker()
        return sum(job.id > blocker for job in self._client.jobs())

    def close(self) -> None:
        self._client.close()


class Side(AnySide):
    """A daemon on a new data directory. Variants: ``fresh``, ``fresh-2-slots``, ``reused``."""

    def __init__(self, variant: str, folder: Path) -> None:
        super().__init__(variant, folder)
        self._data = folder / "data"

    def start(self) -> str:
        kind, _, slots = self.variant.partition("-")
        can_reuse = FRESH in _ganger("up", "--help")
        if kind == "reused" and not can_reuse:
            raise MissingError("this version of Ganger reuses no processes")
        os.environ[ADDRESS] = str(self._data)
        is_fresh = kind == "fresh" and can_reuse
        _ganger("--data", str(self._data), "up", *([FRESH] if is_fresh else []))
        if slots:
            _ganger("--data", str(self._data), "queue", "limit", slots.partition("-")[0])
        return f"Ganger {version('ganger')}"

    def stop(self) -> None:
        if self._data.exists():
            _ganger("--data", str(self._data), "down")
        # Jobs outlive the daemon.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _, process_id = blocker_note(self._data).read_text().split()
            os.kill(int(process_id), signal.SIGKILL)


def blocker_note(data: Path) -> Path:
    """The file that holds the blocker's job id and process id."""
    return data.parent / "blocker"


def _ganger(*arguments: str) -> str:
    command = (sys.executable, "-m", "ganger.cli.main", *arguments)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
