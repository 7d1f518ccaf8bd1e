"""Measures locks over the wire: other locks held and waited for, wake-ups, owners that die."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from ganger import Client, JobStatus
from ganger.storage.alive import lock_files
from ganger.storage.disk import paths
from ganger.storage.jobs.job_views import StatusChange
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.messages import LocksGranted, LocksPending

from .figures import Timings
from .wire import Wire

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from .ganger_side import Ganger

HELD = (10, 1_000, 10_000)
WAITERS = 1_000
CLIENTS = 4
UNDER_WAY = 8
"""Requests of a client that does not wait for each reply."""
LOCKS_OF_THE_DEAD = 100

_SPAWN = multiprocessing.get_context("spawn")


class LockOwner:
    """A program with a lock file and a connection of its own."""

    def __init__(self, data: Path, name: str) -> None:
        places = paths.places(data)
        self._held = lock_files.create(places.lock_files, f"bench-{name}")
        self._wire = Wire(data, of_locks=True)
        self.say, self.hear, self.call = self._wire.say, self._wire.hear, self._wire.call
        self.owner = self.named(name)

    def __enter__(self) -> Self:
        """Reach the daemon."""
        self.call(messages.ReadOwner(self.owner))
        return self

    def __exit__(self, *_: object) -> None:
        """Free everything."""
        self._wire.close()
        self._held.remove()

    def named(self, name: str) -> Owner:
        """An owner of this name, with this lock file."""
        return Owner(name, self._held.path, os.getpid())

    def take(self, *locks: str) -> None:
        """Get these locks, which are free."""
        tried = self.call(messages.TryLocks(self.owner, [(lock, "exclusive") for lock in locks]))
        assert tried == messages.LocksTried([]), tried

    def free(self) -> None:
        """Release everything."""
        assert self.call(messages.ReleaseLocks(self.owner)) == messages.Done()


class Crowd:
    """One owner that holds so many locks, and owners that wait for them."""

    def __init__(self, data: Path, held: int, waiters: int) -> None:
        self._owner = LockOwner(data, "crowd")
        self._held = held
        self._waiters = waiters

    def __enter__(self) -> Self:
        """Take the locks, and stand in line."""
        self._owner.__enter__()
        names = [f"node/held-{number:05d}" for number in range(self._held)]
        for begin in range(0, self._held, 1_000):
            self._owner.take(*names[begin : begin + 1_000])
        for number in range(self._waiters):
            wanted = [(names[number % self._held], "exclusive")]
            one = self._owner.named(f"waiter-{number}")
            reply = self._owner.call(messages.RequestLocks(one, 0, wanted))
            assert isinstance(reply, LocksPending), reply
        return self

    def __exit__(self, *_: object) -> None:
        """Withdraw the requests, and free the locks."""
        for number in range(self._waiters):
            self._owner.call(messages.ReleaseLocks(self._owner.named(f"waiter-{number}")))
        self._owner.free()
        self._owner.__exit__()


class Updates(NamedTuple):
    """The time of each request, pairs of take and free per second, processor time of a request."""

    timings: Timings
    pairs_per_second: float
    daemon_seconds: float
    client_seconds: float


def updates(ganger: Ganger, data: Path, clients: int, pairs: int, *, under_way: int = 1) -> Updates:
    """Let clients, each a process of its own, take a lock and free it, again and again.

    Each has so many requests under way; with one, it waits for each reply.
    """
    results: SimpleQueue[tuple[list[float], float]] = _SPAWN.SimpleQueue()
    start = _SPAWN.Barrier(clients + 1)
    processes = [
        _SPAWN.Process(
            target=_take_and_free,
            args=(data, number, pairs // clients, under_way),
            kwargs={"start": start, "results": results},
        )
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    before = ganger.processor_seconds()
    start.wait()
    begin = time.perf_counter()
    timings, of_clients = Timings(), 0.0
    for _ in processes:
        seconds, used = results.get()
        timings.seconds += seconds
        of_clients += used
    elapsed = time.perf_counter() - begin
    of_daemon = ganger.processor_seconds() - before
    for process in processes:
        process.join()
    count = len(timings.seconds)
    return Updates(timings, count / 2 / elapsed, of_daemon / count, of_clients / count)


def _take_and_free(
    data: Path,
    number: int,
    pairs: int,
    under_way: int,
    *,
    start: Barrier,
    results: SimpleQueue[tuple[list[float], float]],
) -> None:
    seconds: list[float] = []
    with LockOwner(data, f"client-{number}") as one:
        requests = (
            messages.TryLocks(one.owner, [(f"node/client-{number}", "exclusive")]),
            messages.ReleaseLocks(one.owner),
        )
        expected = (messages.LocksTried([]), messages.Done())
        sent_at: deque[float] = deque()
        sent = 0
        start.wait()
        before = time.process_time()
        for answered in range(2 * pairs):
            while sent < min(2 * pairs, answered + under_way):
                sent_at.append(time.perf_counter())
                one.say(requests[sent % 2])
                sent += 1
            _, reply = one.hear()
            seconds.append(time.perf_counter() - sent_at.popleft())
            assert reply == expected[answered % 2], reply
        used = time.process_time() - before
    results.put((seconds, used))


def wake_ups(data: Path, count: int) -> Timings:
    """From the release of a lock to the moment in which the next owner knows that it has it."""
    timings = Timings()
    with LockOwner(data, "holder") as holder, LockOwner(data, "next") as following:
        for _ in range(count):
            holder.take("node/passed-on")
            wanted = [("node/passed-on", "exclusive")]
            reply = following.call(messages.RequestLocks(following.owner, 0, wanted))
            assert isinstance(reply, LocksPending), reply
            with timings.one():
                number = holder.say(messages.ReleaseLocks(holder.owner))
                _, granted = following.hear()
            assert isinstance(granted, LocksGranted), granted
            assert holder.hear()[0] == number
            following.free()
    return timings


def deaths_of_programs(data: Path, count: int) -> Timings:
    """From the death of a program with many locks to the moment in which the next one has them."""
    timings = Timings()
    for _ in range(count):
        command = [sys.executable, "-m", "bench.locks_side", str(data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            _time_death(data, program.pid, timings)
    return timings


def deaths_of_jobs(ganger: Ganger, data: Path, count: int) -> Timings:
    """The same, if a job's process dies."""
    timings = Timings()
    names = [lock.partition("/")[2] for lock in _locks_of_the_dead()]
    opcode = {
        "OP_ID": "OP_EXEC",
        "argv": ["sleep", "3600"],
        "locks": {"node": {"exclusive": names}},
    }
    for _ in range(count):
        job_id = ganger.client.submit(opcode)
        _until_running(ganger.client, job_id)
        process_id = ganger.client.job(job_id).process_id
        assert process_id is not None
        _time_death(data, process_id, timings)
        ganger.client.wait(job_id)
    return timings


def _until_running(client: Client, job_id: int) -> None:
    for part in client.watch(job_id, log=False):
        if isinstance(part, StatusChange) and part.status is JobStatus.RUNNING:
            return


def _time_death(data: Path, process_id: int, timings: Timings) -> None:
    with LockOwner(data, "heir") as heir:
        wanted = [(lock, "exclusive") for lock in _locks_of_the_dead()]
        reply = heir.call(messages.RequestLocks(heir.owner, 0, wanted))
        assert isinstance(reply, LocksPending), reply
        with timings.one():
            os.kill(process_id, 9)
            _, granted = heir.hear()
        assert isinstance(granted, LocksGranted), granted
        heir.free()


def _locks_of_the_dead() -> list[str]:
    return [f"node/{number:03d}" for number in range(LOCKS_OF_THE_DEAD)]


def _hold_until_killed(data: Path) -> None:
    with LockOwner(data, "mortal") as mortal:
        mortal.take(*_locks_of_the_dead())
        print("holds", flush=True)
        time.sleep(3_600)


if __name__ == "__main__":
    from pathlib import Path

    _hold_until_killed(Path(sys.argv[1]))
