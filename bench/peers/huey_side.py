"""Huey on SQLite, with threads or processes as workers."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import huey

from . import servers
from .side import ADDRESS, POLL_SECONDS, WORKERS
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKER_TYPES = {"threads": "thread", "processes": "process"}


class Client(AnyClient):
    """Huey's two queues in the file; the connection is made with the first call."""

    def __init__(self) -> None:
        from . import huey_tasks  # noqa: PLC0415 - it reads the address when it is imported

        self._tasks = huey_tasks

    def submit(self, *, is_held: bool = False) -> object:
        return self._tasks.held_no_op() if is_held else self._tasks.no_op()

    def wait_all(self, tickets: Sequence[Any]) -> None:
        # Each look is a query of the one file; a result that was read is deleted.
        for ticket in tickets:
            while not ticket.is_ready():
                time.sleep(POLL_SECONDS)
            ticket.get(preserve=False)

    def list_held(self) -> int:
        return len(self._tasks.held.pending())


class Side(AnySide):
    """The SQLite file and a consumer with workers."""

    def start(self) -> str:
        os.environ[ADDRESS] = str(self.folder / "huey.db")
        kind = WORKER_TYPES[self.variant]
        options = ("-k", kind, "-w", str(WORKERS), "-q")
        consumer = servers.beside_python("huey_consumer")
        self.processes.start(consumer, "bench.peers.huey_tasks.queue", *options, name="consumer")
        return f"Huey {huey.__version__}, SQLite {sqlite3.sqlite_version}"
