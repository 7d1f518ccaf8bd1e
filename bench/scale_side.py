"""Measures what must not depend on the length of the queue, and on the number of clients."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import zmq

from ganger import Client
from ganger.storage.disk import documents, paths
from ganger.storage.jobs import jobs
from ganger.storage.queue_files import job_files
from ganger.transport import frames, messages

from .different_jobs import different_jobs
from .figures import Timings
from .ganger_side import NO_OP
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .ganger_side import Ganger

BATCH = 5_000
WATCHES = 900
"""Watches beside one another; the daemon permits `settings.WATCHERS_MAX`."""

RULE: dict[str, Any] = {
    "priority": 1,
    "predicates": [["opcode", ["=", "OP_ID", "OP_EXEC"]]],
    "action": "PAUSE",
}
"""It looks at each job, and applies to none."""


class Filled(NamedTuple):
    """The queue was filled: jobs per second, submissions meanwhile, longest turn in seconds.

    ``bytes_before``: the daemon's resident memory before that.
    """

    per_second: float
    meanwhile: Timings
    longest_turn: float
    bytes_per_job: float
    bytes_before: int


def hold_all(ganger: Ganger) -> None:
    """Let no job start."""
    ganger.client.add_filter(priority=1_000, predicates=[], action="PAUSE", reason="bench")


def longest_turn(ganger: Ganger) -> float:
    """Seconds of the longest turn of the queue within the last ten to twenty seconds."""
    return ganger.client.info().longest_turns["job_queue"]


@contextmanager
def submitting(data: Path) -> Iterator[Timings]:
    """Submit one job after the other from a thread within the block."""
    timings, is_over = Timings(), threading.Event()

    def work() -> None:
        with Client(data) as client:
            while not is_over.is_set():
                with timings.one():
                    client.submit(NO_OP)

    thread = threading.Thread(target=work)
    thread.start()
    yield timings
    is_over.set()
    thread.join()


def fill(ganger: Ganger, data: Path, count: int, *, are_different: bool = False) -> Filled:
    """Store so many jobs, which a rule holds, in batches; meanwhile a client submits others."""
    daemon = psutil.Process(ganger.client.info().pid)
    before, longest = daemon.memory_info().rss, 0.0
    made = different_jobs if are_different else _no_ops
    begin = time.perf_counter()
    with submitting(data) as meanwhile:
        for start in range(0, count, BATCH):
            ganger.client.submit_many(made(start, min(BATCH, count - start)))
            longest = max(longest, longest_turn(ganger))
    seconds = time.perf_counter() - begin
    stored = count + len(meanwhile.seconds)
    grown = daemon.memory_info().rss - before
    return Filled(stored / seconds, meanwhile, longest, grown / stored, before)


def bytes_at_rest(ganger: Ganger, data: Path) -> int:
    """The daemon's resident memory when all jobs have files, which it writes after their journal.

    Raises `TimeoutError` if it does not come to that.
    """
    await_files(ganger, data)
    # After the last file, free memory goes back to the system.
    time.sleep(0.5)
    return psutil.Process(ganger.client.info().pid).memory_info().rss


def await_files(ganger: Ganger, data: Path) -> None:
    """Wait until all jobs have files. Raises `TimeoutError` if it does not come to that."""
    info = ganger.client.info()
    wanted = sum(count for name, count in info.counts.items() if name != "last_id")
    folder, end = paths.places(data).queue, time.monotonic() + 120
    while sum(1 for _ in folder.glob("job-*")) < wanted:
        if time.monotonic() > end:
            raise TimeoutError("not all jobs have files after two minutes")
        time.sleep(0.5)


def listed(client: Client) -> int:
    """List all jobs; returns how many there are."""
    return sum(1 for _ in client.jobs(fields=["id", "status", "summary"]))


def operations(ganger: Ganger, data: Path, steps: int) -> Iterator[tuple[str, Timings]]:
    """The timings of each operation on the queue as it is now."""
    client, last = ganger.client, ganger.client.info().counts["last_id"]
    chance = random.Random(1)
    pending = list(itertools.islice((job.id for job in client.jobs(statuses=["queued"])), 900))
    wire, page = Wire(data), messages.ListJobs(after=last - 100, limit=100)
    rules: list[str] = []
    pick: dict[str, tuple[int, Callable[[], object]]] = {
        "submission": (steps, lambda: client.submit(NO_OP)),
        "page of a listing": (steps // 10, lambda: wire.call(page)),
        "list of all, id, status and summary": (3, lambda: listed(client)),
        "why a job waits": (steps // 25, lambda: client.explain(chance.choice(pending))),
        "cancel": (steps // 10, lambda: client.cancel(pending.pop())),
        "rule added, in force": (3, lambda: rules.append(client.add_filter(**RULE))),
        "what if there were 5 run slots": (1, lambda: client.simulate(running=5, timeout=120)),
        "filter test of all": (1, lambda: client.test_filters(RULE, timeout=120)),
    }
    for name, (count, work) in pick.items():
        timings = Timings()
        for _ in range(max(1, count)):
            with timings.one():
                work()
        yield name, timings
    wire.close()
    for uuid in rules:
        client.delete_filter(uuid)


class Crowd:
    """Many connections of this process, which say and hear frames, and nothing else."""

    def __init__(self, data: Path, count: int) -> None:
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 4 * count + 100)
        self._poller = zmq.Poller()
        self.sockets = []
        for _ in range(count):
            socket = self._context.socket(zmq.DEALER)
            socket.connect(f"ipc://{paths.places(data).socket}")
            self._poller.register(socket, zmq.POLLIN)
            self.sockets.append(socket)

    def close(self) -> None:
        """End all connections."""
        self._context.destroy(linger=0)

    def heard(self, seconds: float) -> list[Any]:
        """The connections on which something has come within so many seconds."""
        return [socket for socket, _ in self._poller.poll(int(seconds * 1_000))]


class Together(NamedTuple):
    """Submissions of many clients: per second, timings, fewest and most of one client."""

    per_second: float
    timings: Timings
    fewest: int
    most: int


def submit_together(data: Path, clients: int, seconds: float) -> Together:
    """Each client submits a job as soon as its last one is stored."""
    crowd = Crowd(data, clients)
    asked = messages.SubmitJobs(jobs=[messages.JobSpec(ops=[NO_OP])])
    frame = frames.encode(asked, 1, 60.0)
    timings, sent, done = Timings(), {}, Counter[Any]()
    begin = time.perf_counter()
    end = begin + seconds
    for socket in crowd.sockets:
        socket.send(frame)
        sent[socket] = time.perf_counter()
    while sent:
        for socket in crowd.heard(60.0):
            reply = frames.decode(socket.recv(), messages.ClientReply).message
            assert isinstance(reply, messages.JobsSubmitted), reply
            now = time.perf_counter()
            timings.seconds.append(now - sent.pop(socket))
            done[socket] += 1
            if now < end:
                socket.send(frame)
                sent[socket] = now
    elapsed = time.perf_counter() - begin
    crowd.close()
    return Together(len(timings.seconds) / elapsed, timings, min(done.values()), max(done.values()))


def watch_together(ganger: Ganger, data: Path) -> tuple[Timings, int]:
    """Many clients follow a job each: how long until one hears of its job's end, and others woken.

    The jobs are canceled one after the other.
    """
    ids = ganger.client.submit_many([[NO_OP]] * WATCHES)
    crowd = Crowd(data, WATCHES)
    for socket, job_id in zip(crowd.sockets, ids, strict=True):
        socket.send(frames.encode(messages.WatchJobs(ids=[job_id], is_final_only=True), 1))
    # Each watch has no first part, so a listing on the same connection shows that it is open.
    crowd.sockets[-1].send(frames.encode(messages.ListJobs(ids=[ids[0]]), 2))
    crowd.sockets[-1].recv()
    time.sleep(0.5)
    timings, woken, expected = Timings(), set[Any](), set[Any]()
    for place in range(0, WATCHES, 30):
        expected.add(crowd.sockets[place])
        with timings.one():
            ganger.client.cancel(ids[place])
            while crowd.sockets[place] not in (heard := crowd.heard(10.0)):
                assert heard, "a follower has not heard of its job within ten seconds"
                woken |= _emptied(heard)
        woken |= _emptied(crowd.heard(0.05))
    crowd.close()
    return timings, len(woken - expected)


def _emptied(sockets: list[Any]) -> set[Any]:
    """These connections, when everything that has come on them was read."""
    for socket in sockets:
        while socket.poll(0):
            socket.recv()
    return set(sockets)


def store(ganger: Ganger, count: int, *, are_different: bool = False) -> None:
    """Store so many jobs, as fast as one client can."""
    made = different_jobs if are_different else _no_ops
    for start in range(0, count, BATCH):
        ganger.client.submit_many(made(start, min(BATCH, count - start)))


def _no_ops(_start: int, count: int) -> Sequence[Any]:
    return [[NO_OP]] * count


def archive(ganger: Ganger, data: Path, count: int) -> None:
    """Put so many jobs into the archive, as copies of one that has ended and was archived."""
    job_id = ganger.client.submit(NO_OP)
    ganger.client.wait(job_id)
    ganger.client.archive(job_id)
    places = paths.places(data)
    body = documents.read(job_files.path(job_files.archive_folder(places.archive, job_id), job_id))
    assert body is not None, "the job lies in the archive"
    job = jobs.decode_job(body)
    for number in range(job_id + 1, job_id + count):
        job.id = number
        path = Path(job_files.path(job_files.archive_folder(places.archive, number), number))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jobs.encode_job(job))


class Restart(NamedTuple):
    """Seconds until a listing is answered, and the daemon's processor time until then."""

    seconds: float
    processor_seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:8.2f} s, {self.processor_seconds:.2f} s of processor time"


def restart(data: Path, command: list[str]) -> Restart:
    """Kill the daemon, and start another one."""
    with Client(data) as client:
        info = client.info()
        pid, last = info.pid, info.counts["last_id"]
    os.kill(pid, signal.SIGKILL)
    while psutil.pid_exists(pid):
        time.sleep(0.01)
    begin = time.perf_counter()
    subprocess.run([*command, "up"], check=True, stdout=subprocess.DEVNULL)
    with Client(data) as client:
        next(client.jobs([last]))
        seconds = time.perf_counter() - begin
        times = psutil.Process(client.info().pid).cpu_times()
    return Restart(seconds, times.user + times.system)
