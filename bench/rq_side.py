"""RQ on Redis with the same durability: Redis flushes its append-only file at every write."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from .figures import Timings

WORKERS = 2


def missing() -> str | None:
    """Why RQ cannot be measured; None if it can."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed"
    try:
        import redis  # noqa: F401, PLC0415
        import rq  # noqa: F401, PLC0415
    except ImportError as error:
        return f"{error.name} is not installed"
    return None


def no_op() -> None:
    """The function of RQ's jobs."""


class Rq:
    """A Redis server on a free port, and RQ's default workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start Redis and the workers, and wait until they work."""
        import redis  # noqa: PLC0415
        import rq  # noqa: PLC0415

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self._start("redis-server", "--port", str(port), *options, "--dir", str(self._folder))
        self._redis = redis.Redis(port=port)
        self._until_redis_answers()
        self._queue = rq.Queue(connection=self._redis)
        program = Path(sys.executable).parent / "rq"
        for _ in range(WORKERS):
            self._start(str(program), "worker", "-q", "--url", f"redis://127.0.0.1:{port}")
        self.throughput(10)
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
        self._redis.close()

    def throughput(self, count: int) -> float:
        """No-op jobs per second."""
        begin = time.perf_counter()
        jobs = [self._queue.enqueue(no_op) for _ in range(count)]
        for job in jobs:
            self._until_finished(job)
        return count / (time.perf_counter() - begin)

    def submit(self, count: int) -> Timings:
        """The time of each call, on a queue without workers."""
        import rq  # noqa: PLC0415

        queue = rq.Queue("without-workers", connection=self._redis)
        timings = Timings()
        for _ in range(count):
            with timings.one():
                queue.enqueue(no_op)
        queue.delete(delete_jobs=True)
        return timings

    def idle(self, count: int, pause_seconds: float) -> Timings:
        """Submit one job at a time after a pause: the times to the end."""
        timings = Timings()
        for _ in range(count):
            time.sleep(pause_seconds)
            with timings.one():
                self._until_finished(self._queue.enqueue(no_op))
        return timings

    @staticmethod
    def _until_finished(job: object) -> None:
        while job.get_status(refresh=True) != "finished":  # type: ignore[attr-defined]
            time.sleep(0.0003)

    def _until_redis_answers(self) -> None:
        import redis  # noqa: PLC0415

        for _ in range(200):
            try:
                self._redis.ping()
            except redis.ConnectionError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError("redis-server does not answer")

    def _start(self, *command: str) -> None:
        root = Path(__file__).parent.parent
        environment = {**os.environ, "PYTHONPATH": str(root)}
        self._processes.append(
            subprocess.Popen(
                command,
                env=environment,
                cwd=self._folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
