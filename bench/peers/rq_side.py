"""RQ: its default worker, which forks a process for each job, on Redis."""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from typing import TYPE_CHECKING

import redis
import rq

from . import servers
from .rq_tasks import no_op
from .side import ADDRESS, POLL_SECONDS, WORKERS, until
from .side import Client as AnyClient
from .side import Side as AnySide

if TYPE_CHECKING:
    from collections.abc import Sequence


class Client(AnyClient):
    """A connection to Redis and two queues, one of them without workers."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(os.environ[ADDRESS])
        self._queue = rq.Queue(connection=self._redis)
        self._held = rq.Queue("held", connection=self._redis)

    def submit(self, *, is_held: bool = False) -> object:
        return (self._held if is_held else self._queue).enqueue(no_op)

    def submit_many(self, count: int, *, is_held: bool = False) -> list[object]:
        queue = self._held if is_held else self._queue
        return list(queue.enqueue_many([rq.Queue.prepare_data(no_op) for _ in range(count)]))

    def wait_all(self, tickets: Sequence[object]) -> None:
        for job in tickets:
            while (status := job.get_status(refresh=True)) != "finished":  # type: ignore[attr-defined]
                if status == "failed":
                    raise RuntimeError(f"a job failed: {job}")
                time.sleep(POLL_SECONDS)

    def list_held(self) -> int:
        return len(self._held.get_jobs())

    def close(self) -> None:
        self._redis.close()


class Side(AnySide):
    """Redis and RQ's default workers."""

    def start(self) -> str:
        address, server = servers.start_redis(self.processes, self.folder)
        os.environ[ADDRESS] = address
        worker = (servers.beside_python("rq"), "worker", "-q")
        for number in range(WORKERS):
            environment = {"RQ_REDIS_URL": address}
            self.processes.start(*worker, name=f"worker-{number}", environment=environment)
        with redis.Redis.from_url(address) as connection:
            until(lambda: rq.Worker.count(connection) == WORKERS, "RQ's workers start")
        return f"RQ {version('rq')}, {server}"
