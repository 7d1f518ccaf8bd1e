"""Jobs that wait until a test lets them go on, and looking at jobs without waiting for time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.faults.harness import until

from ganger import Client, JobStatus
from ganger.storage import settings

if TYPE_CHECKING:
    from pathlib import Path

IN_BOTH_PLACEMENTS = pytest.mark.parametrize("daemon", settings.PLACEMENTS, indirect=True)
"""For tests of locks and configuration, which may live in a process of their own."""

PATIENCE_SECONDS = 60
"""Far more than anything takes; a longer wait has found a fault."""


def shell(script: str) -> dict[str, Any]:
    """An opcode that runs a shell script."""
    return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", script]}


def delay() -> dict[str, Any]:
    """An opcode of another kind, which does nothing."""
    return {"OP_ID": "OP_TEST_DELAY", "duration": 0.001}


class Gate:
    """A named pipe at which jobs wait."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name
        os.mkfifo(self.path)
        # Both ends are held, so that opening it never waits, and no reader meets its end.
        self._descriptor = os.open(self.path, os.O_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def job(self, **fields: Any) -> dict[str, Any]:
        """An opcode that ends when it is let through. It takes one byte, and no one else's."""
        return shell(f"dd bs=1 count=1 < {self.path} 2>/dev/null") | fields

    def let_through(self, count: int = 1) -> None:
        """Let so many of the waiting jobs go on."""
        os.write(self._descriptor, b"." * count)


def until_running(client: Client, *ids: int) -> None:
    """Wait until all of these jobs have begun."""
    until(client, ids, JobStatus.RUNNING, seconds=PATIENCE_SECONDS)


def end(client: Client, *ids: int) -> dict[int, JobStatus]:
    """Wait for the ends of these jobs."""
    return {job.id: job.status for job in client.wait(*ids, timeout=PATIENCE_SECONDS)}


def statuses(client: Client, *ids: int) -> list[str]:
    """The statuses of these jobs now, in their order."""
    found = {job.id: str(job.status) for job in client.jobs(ids)}
    return [found[job_id] for job_id in ids]


def run_by(client: Client) -> None:
    """Let a job run past all others: each job that could start before it has."""
    job_id = client.submit(shell("true"), priority=19, reason="let by")
    assert end(client, job_id) == {job_id: JobStatus.SUCCESS}
