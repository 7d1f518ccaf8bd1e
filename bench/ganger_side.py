"""Ganger under measurement: a daemon on a fresh data directory, driven through `Client`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import psutil

from ganger import Client, JobStatus
from ganger.storage.disk import paths
from ganger.storage.jobs.job_views import StatusChange

from .figures import Timings

if TYPE_CHECKING:
    from pathlib import Path

NO_OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
"""A job that does nothing, without locks."""


class Submissions(NamedTuple):
    """The time of each call, calls per second, flushes per acknowledged job."""

    timings: Timings
    per_second: float
    flushes: float


class Ganger:
    """A running daemon and a client."""

    placement = "together"
    """Where lock manager and configuration store live."""

    def __init__(self, data: Path, *options: str, has_rapi: bool = False) -> None:
        self.data = data
        self._options = options if has_rapi else ("--no-rapi", *options)
        self.command = [sys.executable, "-m", "ganger.cli.main", "--data", str(data)]

    def __enter__(self) -> Self:
        """Start the daemon."""
        command = [*self.command, "up", "--placement", self.placement, *self._options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.client = Client(self.data)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it. Its run directory would wait for the next daemon on the data directory."""
        self.client.close()
        subprocess.run([*self.command, "down"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(paths.places(self.data).run, ignore_errors=True)

    def flushes(self) -> int:
        """The number of flushes that the daemon has made."""
        return self.client.info().flushes

    def processor_seconds(self) -> float:
        """The processor time of the daemon, and of its process for the lock manager, if any."""
        daemon = psutil.Process(self.client.info().pid)
        beside = [
            one for one in daemon.children() if "authority_process" in " ".join(one.cmdline())
        ]
        times = [one.cpu_times() for one in (daemon, *beside)]
        return float(sum(each.user + each.system for each in times))

    def memory(self) -> dict[str, int]:
        """Resident bytes of the daemon, its fork servers and the process of one job."""
        job_id = self.client.submit(NO_OP | {"duration": 3600.0})
        self._until_running(job_id)
        process_id = self.client.job(job_id).process_id
        sizes = psutil.Process(process_id).memory_full_info()
        self._kill(job_id)
        self.client.wait(job_id)
        return {
            **self.client.info().memory,
            "a job's process": sizes.rss,
            "  of it its own (the rest is shared)": sizes.uss,
        }

    def submit(self, count: int, clients: int) -> Submissions:
        """Submit jobs one at a time from several clients.

        The jobs depend on one that fails at the end, so that no job starts meanwhile.
        """
        blocker = self.client.submit(
            {"OP_ID": "OP_TEST_DELAY", "duration": 3600.0, "on_master": False}
        )
        self._until_running(blocker)
        timings = [Timings() for _ in range(clients)]
        held = NO_OP | {"depends": [[blocker, ["success"]]]}
        start = threading.Barrier(clients + 1)

        def work(mine: Timings) -> None:
            with Client(self.data) as client:
                client.info()
                start.wait()
                for _ in range(count // clients):
                    with mine.one():
                        client.submit(held)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in timings]
        for thread in threads:
            thread.start()
        start.wait()
        flushes = self.flushes()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - begin
        flushes = self.flushes() - flushes
        self._remove_held(blocker)
        total = Timings()
        for mine in timings:
            total.seconds.extend(mine.seconds)
        return Submissions(total, len(total.seconds) / elapsed, flushes / count)

    def _remove_held(self, blocker: int) -> None:
        held = [job.id for job in self.client.jobs() if job.id > blocker]
        for job_id in held:
            self.client.cancel(job_id)
        self._kill(blocker)
        self.client.wait(blocker)

    def _until_running(self, job_id: int) -> None:
        """Wait until the job has a process: `_kill` needs one."""
        for part in self.client.watch(job_id, log=False):
            if isinstance(part, StatusChange) and part.status is JobStatus.RUNNING:
                break

    def _kill(self, job_id: int) -> None:
        process_id = self.client.job(job_id).process_id
        if process_id is not None:
            subprocess.run(["kill", "-9", str(process_id)], check=True)

    def throughput(self, count: int) -> float:
        """No-op jobs per second, from submission to the last end."""
        begin = time.perf_counter()
        ids = self.client.submit_many([[NO_OP]] * count)
        self.client.wait(*ids, fields=["id"])
        return count / (time.perf_counter() - begin)

    def idle(self, count: int, pause_seconds: float) -> tuple[Timings, Timings]:
        """Submit one job at a time after a pause: the times to the ids, and to the end."""
        acknowledged, finished = Timings(), Timings()
        for _ in range(count):
            time.sleep(pause_seconds)
            with finished.one():
                with acknowledged.one():
                    job_id = self.client.submit(NO_OP)
                self.client.wait(job_id, fields=["id"])
        return acknowledged, finished
