"""Daemons that a test passes on to the next one: it finds them as if they had just begun.

To begin and end a daemon, and its first job, costs more processor time than most tests of a module.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from tests.faults.harness import Daemon

from ganger.storage import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ganger.transport.messages import HistoryLine


class PassedOn:
    """The daemons of a module, by their placements."""

    def __init__(self, make_folder: Callable[[], Path]) -> None:
        self._make_folder = make_folder
        self._free: dict[str | None, tuple[Daemon, Any]] = {}

    def take(self, placement: str | None) -> tuple[Daemon, Any]:
        """A running daemon, and how it looks; a new one if none was passed on."""
        if placement in self._free:
            return self._free.pop(placement)
        daemon = Daemon(self._make_folder(), placement=placement)
        daemon.up()
        return daemon, look(daemon)

    def give_back(self, placement: str | None, daemon: Daemon, before: Any) -> None:
        """The next test gets it if it looks as it did before; otherwise it ends."""
        try:
            tidy(daemon)
            is_as_before = look(daemon) == before
        except errors.GangerError:
            is_as_before = False
        if is_as_before:
            self._free[placement] = daemon, before
        else:
            daemon.__exit__()

    def end(self) -> None:
        """End those that no test has."""
        while self._free:
            self._free.popitem()[1][0].__exit__()


def tidy(daemon: Daemon) -> None:
    """Take away jobs that wait, rules and files."""
    with daemon.client() as client:
        for job in client.jobs(statuses=["queued"]):
            client.cancel(job.id, timeout=10)
        for rule in client.filters():
            client.delete_filter(rule.uuid, timeout=10)
    for path in daemon.folder.iterdir():
        if path.is_dir() and path != daemon.data:
            shutil.rmtree(path)
        elif path != daemon.data:
            path.unlink()


def look(daemon: Daemon) -> Any:
    """What a test may have changed besides, after all jobs that have ended are purged."""
    with daemon.client() as client:
        client.purge(older_than=0.0, timeout=10)
        info = client.info()
        history = client.config_history(count=100)
        return (
            info.pid,
            [(part.name, part.restarts) for part in info.components],
            (info.is_drained, info.is_read_only, info.quarantined, info.endpoints),
            list(client.jobs(archived=True)),
            [lock.name for lock in client.locks() if lock.owners],
            client.limits(),
            [line for line in history if not _is_of_rules(line)],
        )


def _is_of_rules(line: HistoryLine) -> bool:
    """A rule that was deleted again changes nothing else."""
    return all(path.startswith("filters/") for path, _, _ in line.changes)
