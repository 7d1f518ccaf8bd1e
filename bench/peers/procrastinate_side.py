"""Procrastinate on PostgreSQL: workers with the default concurrency of one job each."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import procrastinate
import psycopg

from . import servers
from .side import ADDRESS, POLL_SECONDS, WORKERS
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence


class Client(AnyClient):
    """A synchronous application, which names the task; the queue ``held`` has no worker."""

    def __init__(self) -> None:
        address = os.environ[ADDRESS]
        self._app = procrastinate.App(
            connector=procrastinate.SyncPsycopgConnector(conninfo=address, min_size=1, max_size=1)
        )
        self._app.open()
        self._no_op = self._app.configure_task("no_op", queue="running")
        self._held = self._app.configure_task("no_op", queue="held")

    def submit(self, *, is_held: bool = False) -> object:
        return (self._held if is_held else self._no_op).defer()

    def submit_many(self, count: int, *, is_held: bool = False) -> list[object]:
        return list((self._held if is_held else self._no_op).batch_defer(*[{}] * count))

    def wait_all(self, tickets: Sequence[Any]) -> None:
        for ticket in tickets:
            while (status := self._status(ticket)) != "succeeded":
                if status in ("failed", "aborted", "cancelled"):
                    raise RuntimeError(f"job {ticket}: {status}")
                time.sleep(POLL_SECONDS)

    def _status(self, ticket: int) -> str:
        return str(self._app.job_manager.get_job_status(ticket).value)

    def list_held(self) -> int:
        return len(list(self._app.job_manager.list_jobs(queue="held")))

    def close(self) -> None:
        self._app.close()


class Side(AnySide):
    """A PostgreSQL cluster and workers."""

    def start(self) -> str:
        os.environ[ADDRESS], version = servers.start_postgresql(self.processes, self.folder)
        connector = procrastinate.SyncPsycopgConnector(conninfo=os.environ[ADDRESS])
        with procrastinate.App(connector=connector).open() as app:
            app.schema_manager.apply_schema()
        program = (servers.beside_python("procrastinate"), "--log-level", "warning")
        application = ("--app", "bench.peers.procrastinate_tasks.app", "worker", "-q", "running")
        for number in range(WORKERS):
            self.processes.start(*program, *application, name=f"worker-{number}")
        ours = f"Procrastinate {procrastinate.__version__}"
        return f"{ours}, psycopg {psycopg.__version__}, {version}"
