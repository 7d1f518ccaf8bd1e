"""Measures the remote API: requests with users and TLS, beside the bare framework; listeners."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from . import http_load
from .figures import heading, median, row
from .ganger_side import NO_OP, Ganger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .http_load import Load

USER, PASSWORD = "bench", "measure"
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
CONNECTIONS = (1, 16)
LISTENERS = 500
MANY_JOBS = 5_000
ROUNDS, JOBS = 3, 500


def measure(folder: Path, steps: int) -> None:
    """Measure and print."""
    users = folder / "rapi" / "rapi"
    users.mkdir(parents=True)
    (users / "users").write_text(f"{USER} {PASSWORD} write\n")
    (users / "users").chmod(0o600)
    with Ganger(folder / "rapi", has_rapi=True) as ganger, _bare(folder) as bare:
        _hold_all(ganger)
        heading("The remote API, with a user and TLS")
        ganger.client.submit(NO_OP)
        for count in (1, MANY_JOBS):
            if count > 1:
                ganger.client.submit_many([[NO_OP]] * (count - 1))
            first = _load(ganger, _get("/2/jobs?bulk=1"), 1, 1)
            row(f"GET /2/jobs?bulk=1, {count:,} jobs, the first", f"{first.timings}")
            _requests(ganger, bare, count, steps)
        _changes(ganger, steps)
        _listeners(ganger)
    _jobs(folder)


def _requests(ganger: Ganger, bare: _Bare, count: int, steps: int) -> None:
    paths = {"/2/jobs": steps, "/2/jobs?bulk=1": steps, "/2/jobs/1": steps * 4}
    for path, wanted in paths.items():
        number = max(10, wanted // 20) if count > 1 and path != "/2/jobs/1" else wanted
        for connections in CONNECTIONS:
            request = _get(path)
            ours = _load(ganger, request, number, connections)
            put = http_load.prepared("POST", "/", body=ours.body)
            http_load.run(bare.port, bare.certificate, [[put]])
            theirs = http_load.run(
                bare.port, bare.certificate, _shared(request, number, connections)
            )
            name = f"GET {path}, {count:,} jobs, {connections} connections"
            ratio = theirs.per_second / ours.per_second
            row(name, f"{ours.timings}  {ours.per_second:8.0f} per s, bare / this {ratio:.2f}")


def _get(path: str) -> bytes:
    return http_load.prepared("GET", path, AUTHORIZATION)


def _load(ganger: Ganger, request: bytes, number: int, connections: int) -> Load:
    state = ganger.client.info().rapi
    assert state is not None
    certificate = ganger.data / "rapi.pem"
    return http_load.run(state.port, certificate, _shared(request, number, connections))


def _shared(request: bytes, number: int, connections: int) -> list[list[bytes]]:
    return [[request] * max(1, number // connections)] * connections


def _changes(ganger: Ganger, steps: int) -> None:
    job = json.dumps({"ops": [NO_OP]}).encode()
    rule = json.dumps({"priority": 900, "action": "CONTINUE"}).encode()
    for name, path, body, number in (
        ("POST of a job", "/2/jobs", job, steps),
        ("POST of a filter rule", "/2/filters", rule, max(16, steps // 10)),
    ):
        for connections in CONNECTIONS:
            request = http_load.prepared("POST", path, AUTHORIZATION, body)
            ours = _load(ganger, request, number, connections)
            row(
                f"{name}, {connections} connections",
                f"{ours.timings}  {ours.per_second:8.0f} per s",
            )


def _listeners(ganger: Ganger) -> None:
    """Open many streams of events; measure how soon all of them hear of one job."""
    state = ganger.client.info().rapi
    assert state is not None
    context = ssl.create_default_context(cafile=ganger.data / "rapi.pem")
    context.check_hostname = False
    request = http_load.prepared("GET", "/2/events", AUTHORIZATION)
    process = psutil.Process(_pid(ganger))
    before = process.memory_info().rss
    streams = []
    for _ in range(LISTENERS):
        plain = socket.create_connection(("127.0.0.1", state.port), timeout=30)
        stream = context.wrap_socket(plain)
        stream.sendall(request)
        streams.append(stream)
    for stream in streams:
        _read_until(stream, b"event: hello")
    row(
        f"memory of the process, without / with {LISTENERS} listeners",
        f"{before / 2**20:.1f} / {process.memory_info().rss / 2**20:.1f} MiB",
    )
    begin = time.perf_counter()
    ganger.client.submit(NO_OP)
    for stream in streams:
        _read_until(stream, b"event: job")
    row(
        f"a job until {LISTENERS} listeners know", f"{(time.perf_counter() - begin) * 1_000:.0f} ms"
    )
    for stream in streams:
        stream.close()


def _jobs(folder: Path) -> None:
    """What the process, which follows all jobs, costs these."""
    with (
        Ganger(folder / "with", has_rapi=True) as with_it,
        Ganger(folder / "without") as without_it,
    ):
        process = psutil.Process(_pid(with_it))
        ways = {"with": with_it, "without": without_it}
        rates: dict[str, list[float]] = {way: [] for way in ways}
        seconds = {way: -ganger.processor_seconds() for way, ganger in ways.items()}
        own = -_processor_seconds(process)
        for _ in range(ROUNDS):
            for way, ganger in ways.items():
                rates[way].append(ganger.throughput(JOBS))
        own += _processor_seconds(process)
        for way, ganger in ways.items():
            per_job = (seconds[way] + ganger.processor_seconds()) / (ROUNDS * JOBS) * 1e3
            row(
                f"no-op jobs {way} the remote API",
                f"{median(rates[way]):8.0f} jobs per s, daemon's processor time {per_job:.3f} ms",
            )
        row("  the process's processor time per job", f"{own / (ROUNDS * JOBS) * 1e3:.3f} ms")


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _read_until(stream: ssl.SSLSocket, mark: bytes) -> None:
    data = b""
    while mark not in data:
        part = stream.recv(65_536)
        if not part:
            raise RuntimeError("the stream has ended")
        data += part


def _pid(ganger: Ganger) -> int:
    """The process of the remote API."""
    daemon = psutil.Process(ganger.client.info().pid)
    return next(
        child.pid for child in daemon.children() if "ganger.rapi.process" in child.cmdline()
    )


def _hold_all(ganger: Ganger) -> None:
    """Let no job start."""
    ganger.client.add_filter(priority=1_000, predicates=[], action="PAUSE", reason="bench")


class _Bare:
    """The bare framework, which serves what was sent to it last."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port = port
        self.certificate = certificate


@contextmanager
def _bare(folder: Path) -> Iterator[_Bare]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    certificate = folder / "rapi" / "rapi.pem"
    words = [str(port), str(certificate)]
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_http", *words])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield _Bare(port, certificate)
    finally:
        process.terminate()
        process.wait()
