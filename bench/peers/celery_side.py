"""Celery: prefork workers, Redis as broker and for the results."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import celery

from . import servers
from .side import ADDRESS, WORKERS
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_SECONDS = 300


class Client(AnyClient):
    """Celery's application; jobs of the queue ``held`` have no worker."""

    def __init__(self) -> None:
        from . import celery_tasks  # noqa: PLC0415 - it reads the address when it is imported

        self._app = celery_tasks.app
        self._no_op = celery_tasks.no_op

    def submit(self, *, is_held: bool = False) -> object:
        return self._no_op.apply_async(queue="held" if is_held else None)

    def wait_all(self, tickets: Sequence[Any]) -> None:
        for ticket in tickets:
            ticket.get(timeout=WAIT_SECONDS)

    def close(self) -> None:
        self._app.close()


class Side(AnySide):
    """Redis and one worker with a pool of processes."""

    def start(self) -> str:
        os.environ[ADDRESS], version = servers.start_redis(self.processes, self.folder)
        application = ("-A", "bench.peers.celery_tasks", "worker")
        options = ("--pool", "prefork", "--concurrency", str(WORKERS))
        program = servers.beside_python("celery")
        self.processes.start(program, *application, *options, name="worker")
        return f"Celery {celery.__version__}, {version}"
