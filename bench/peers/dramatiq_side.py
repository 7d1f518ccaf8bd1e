"""Dramatiq on Redis: processes with threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import dramatiq

from . import servers
from .side import ADDRESS, WORKERS
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_MILLISECONDS = 300_000


class Client(AnyClient):
    """Dramatiq's broker; jobs of the queue ``held`` have no worker."""

    def __init__(self) -> None:
        from . import dramatiq_tasks  # noqa: PLC0415 - it reads the address when it is imported

        self._tasks = dramatiq_tasks

    def submit(self, *, is_held: bool = False) -> object:
        return (self._tasks.held_no_op if is_held else self._tasks.no_op).send()

    def wait_all(self, tickets: Sequence[Any]) -> None:
        for ticket in tickets:
            ticket.get_result(block=True, timeout=WAIT_MILLISECONDS)

    def close(self) -> None:
        self._tasks.broker.close()


class Side(AnySide):
    """Redis and Dramatiq's default number of threads in each process."""

    def start(self) -> str:
        os.environ[ADDRESS], version = servers.start_redis(self.processes, self.folder)
        program = servers.beside_python("dramatiq")
        options = ("--processes", str(WORKERS), "--queues", "default")
        self.processes.start(program, "bench.peers.dramatiq_tasks", *options, name="worker")
        return f"Dramatiq {dramatiq.__version__}, {version}"
