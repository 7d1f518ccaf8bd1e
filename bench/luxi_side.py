"""Measures LUXI: submissions, waiting for jobs, listings. The client is as plain as can be."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import psutil

from .figures import Timings, heading, row
from .ganger_side import Ganger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLIENTS = (1, 8)
LISTED = (5_000, 100_000)
WAITING, CANCELED = 3_000, 100
OPCODE = {
    "OP_ID": "OP_TEST_DELAY",
    "duration": 0.001,
    "on_master": False,
    "reason": [["gnt:user", "bench", 1]],
}
"""As the real Ganeti was measured with: no locks, no call of a node."""

WAIT_FIELDS = ["status"]
"""What `gnt-*` waits for."""


class Luxi:
    """One connection."""

    def __init__(self, path: str) -> None:
        self._end = socket.socket(socket.AF_UNIX)
        self._end.settimeout(120)
        self._end.connect(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def fileno(self) -> int:
        """The descriptor, for `select`."""
        return self._end.fileno()

    def call(self, method: str, *args: object) -> Any:  # noqa: ANN401 - JSON
        """The result; `RuntimeError` if the daemon refuses."""
        self.send(method, *args)
        return self.result()

    def send(self, method: str, *args: object) -> None:
        """Ask without waiting."""
        self._end.sendall(json.dumps({"method": method, "args": args}).encode() + b"\x03")

    def result(self) -> Any:  # noqa: ANN401 - JSON
        """The result of the oldest question."""
        reply = json.loads(self.document())
        if not reply["success"]:
            raise RuntimeError(reply["result"])
        return reply["result"]

    def document(self) -> bytes:
        """The next document as it is."""
        parts = []
        while True:
            data = self._end.recv(1 << 20)
            if not data:
                raise RuntimeError("the daemon has closed the connection")
            parts.append(data)
            if data.endswith(b"\x03"):
                return b"".join(parts)[:-1]

    def follow(self, job_id: int) -> None:
        """Wait until the job has ended, as `gnt-*` does."""
        known: list[Any] | None = None
        while known is None or known[0] not in ("success", "error", "canceled"):
            known, _ = self.call("WaitForJobChange", job_id, WAIT_FIELDS, known, None, 60)


def _path(ganger: Ganger) -> str:
    """The path of LUXI's socket."""
    [found] = [one.path for one in ganger.client.info().sockets if one.protocol == "LUXI"]
    return found


def measure(folder: Path, steps: int) -> None:
    """Measure and print."""
    with Ganger(folder / "luxi") as ganger:
        path = _path(ganger)
        heading("LUXI, jobs held by a PAUSE rule")
        ganger.client.add_filter(action="PAUSE")
        _submissions(path, steps)
        _waiting(ganger, path, steps)
        for count in LISTED:
            _listings(ganger, path, count)
    with Ganger(folder / "luxi-free") as ganger:
        path = _path(ganger)
        heading("LUXI, jobs run: submitted, followed by WaitForJobChange until they have ended")
        _followed(path, steps)


def _submissions(path: str, steps: int) -> None:
    for clients in CLIENTS:
        _together(
            f"SubmitJob, {clients} clients",
            path,
            clients,
            max(1, steps // clients),
            lambda luxi: luxi.call("SubmitJob", [OPCODE]),
        )
    for size in (100, 1_000):
        timings = Timings()
        with Luxi(path) as luxi:
            for _ in range(5):
                with timings.one():
                    luxi.call("SubmitManyJobs", [[OPCODE]] * size)
        per_second = size * len(timings.seconds) / sum(timings.seconds)
        row(f"SubmitManyJobs of {size:,}", f"{timings}  {per_second:8.0f} jobs per s")


def _waiting(ganger: Ganger, path: str, steps: int) -> None:
    with Luxi(path) as luxi:
        ended = luxi.call("SubmitJob", [OPCODE])
        luxi.call("CancelJob", ended)
    for clients in CLIENTS:
        _together(
            f"WaitForJobChange of an ended job, {clients} clients",
            path,
            clients,
            max(1, steps // clients),
            lambda luxi: luxi.call("WaitForJobChange", ended, WAIT_FIELDS, None, None, 60),
        )
    _many_wait(ganger, path)


def _many_wait(ganger: Ganger, path: str) -> None:
    """Let thousands wait for a job each, and cancel some of the jobs."""
    ids = ganger.client.submit_many([[OPCODE]] * WAITING)
    process = psutil.Process(ganger.client.info().pid)
    before = process.memory_info().rss
    waiting = {}
    with contextlib.ExitStack() as stack, select.epoll() as poll:
        for job_id in ids:
            luxi = waiting[job_id] = stack.enter_context(Luxi(path))
            # An answer, so that the daemon knows the connection before it waits.
            luxi.call("QueryTags", "cluster", "")
            luxi.send("WaitForJobChange", job_id, WAIT_FIELDS, ["queued"], None, 60)
            poll.register(luxi.fileno(), select.EPOLLIN)
        timings, woken = Timings(), 0
        for job_id in ids[:: WAITING // CANCELED]:
            with timings.one():
                ganger.client.cancel(job_id)
                ready = [descriptor for descriptor, _ in poll.poll(30)]
            assert waiting[job_id].fileno() in ready
            woken += len(ready) - 1
            waiting[job_id].result()
        grown = (process.memory_info().rss - before) / WAITING / 1024
        row(f"memory of each of {WAITING:,} clients that wait", f"{grown:.1f} KiB")
        row("cancel until its client knows", timings)
        row("  others that were woken", woken)


def _listings(ganger: Ganger, path: str, count: int) -> None:
    stored = sum(1 for _ in ganger.client.jobs(statuses=["queued"]))
    for begin in range(stored, count, 5_000):
        ganger.client.submit_many([[OPCODE]] * min(5_000, count - begin))
    for name, args in (
        ("id, status, summary", (None, ["id", "status", "summary"])),
        ("id, status", (None, ["id", "status"])),
        ("one id", ([1], ["id", "status", "summary"])),
    ):
        timings, size = Timings(), 0
        with Luxi(path) as luxi:
            for _ in range(5 if args[0] is None else 100):
                with timings.one():
                    luxi.send("QueryJobs", *args)
                    size = len(luxi.document())
        row(f"QueryJobs, {count:,} jobs: {name}", f"{timings}  {size:,} bytes")


def _followed(path: str, steps: int) -> None:
    for clients in CLIENTS:
        _together(
            f"SubmitJob until it has ended, {clients} clients",
            path,
            clients,
            max(1, steps // 2 // clients),
            lambda luxi: luxi.follow(luxi.call("SubmitJob", [OPCODE])),
        )


def _together(
    name: str, path: str, clients: int, count: int, step: Callable[[Luxi], object]
) -> None:
    """Do ``step`` so often on each of several connections at once, and print how long it took."""
    timings = [Timings() for _ in range(clients)]
    start = threading.Barrier(clients + 1)

    def work(mine: Timings) -> None:
        with Luxi(path) as luxi:
            start.wait()
            for _ in range(count):
                with mine.one():
                    step(luxi)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in timings]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begin
    total = Timings()
    for mine in timings:
        total.seconds.extend(mine.seconds)
    row(name, f"{total}  {len(total.seconds) / elapsed:8.0f} per s")
