"""D12: what the daemon uses does not grow with the jobs it has run, and no log can stop it.

A daemon runs thousands of short jobs, which are archived as it goes. Its log cannot be written
and its standard error is a pipe without a reader. After each hundred jobs its descriptors,
its threads and its memory are looked at, and those of its fork server.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from tests.faults.harness import Daemon
from tests.torture.tally import Tally

from ganger.storage import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ganger import Client

JOBS_BETWEEN_LOOKS = 100
WARM_UP_LOOKS = 5
"""Pools, caches and allocators have grown to their size by then."""

DESCRIPTORS_PER_SPARE_CHILD = 2
"""Its channel and its pidfd, in the fork server."""

DESCRIPTORS_SPARE = DESCRIPTORS_PER_SPARE_CHILD * settings.SPARE_CHILDREN + 8
"""By how much they vary: a fork server has all its spare children, or none; and jobs leave."""

BYTES_PER_JOB_MAX = 1_024
"""Above this slope something grows with the jobs; a live job alone takes more."""

MEMORY_NOISE_BYTES = 6 * 2**20
"""What an allocator may keep or give back between two looks."""

READY_SECONDS = 30


class Usage(NamedTuple):
    """What a process uses."""

    descriptors: int
    threads: int
    memory: int


def run_soak(count: int, seed: int, folder: Path) -> Tally:
    """Run ``count`` jobs; each look after a hundred of them counts as one fault put in."""
    looks = max(WARM_UP_LOOKS + 1, count // JOBS_BETWEEN_LOOKS)
    tally = Tally(wanted=looks - WARM_UP_LOOKS)
    chance = random.Random(seed)
    with _mute_daemon(folder) as (daemon, client):
        first: dict[str, Usage] = {}
        jobs = 0
        for look in range(1, looks + 1):
            _run_jobs(client, chance)
            jobs += JOBS_BETWEEN_LOOKS
            now = _usage(daemon)
            if look <= WARM_UP_LOOKS:
                first = now
                continue
            grown = jobs - WARM_UP_LOOKS * JOBS_BETWEEN_LOOKS
            problems = [
                problem
                for name, usage in now.items()
                for problem in _growth(name, first.get(name), usage, grown)
            ]
            if problems:
                tally.failed(f"seed {seed} after {jobs} jobs: {'; '.join(problems)}")
            else:
                tally.passed()
        for name, usage in now.items():
            tally.figures[name] = (
                f"{usage.descriptors} descriptors, {usage.threads} threads, "
                f"{(usage.memory - first[name].memory) / 2**20:+.1f} MiB over {grown} jobs"
            )
        tally.figures["jobs"] = str(jobs)
    return tally


def _run_jobs(client: Client, chance: random.Random) -> None:
    """A hundred jobs of several kinds, to their ends and into the archive."""
    jobs: list[list[dict[str, Any]]] = []
    for _ in range(JOBS_BETWEEN_LOOKS):
        kind = chance.randrange(10)
        if kind == 0:
            locks = {"node": {"exclusive": [f"n{chance.randrange(3)}"]}}
            jobs.append([{"OP_ID": "OP_EXEC", "argv": ["echo", "x"], "locks": locks}])
        elif kind == 1:
            jobs.append([{"OP_ID": "OP_EXEC", "argv": ["false"]}])
        else:
            jobs.append([{"OP_ID": "OP_TEST_DELAY", "duration": 0.0001, "on_master": False}])
    ids = client.submit_many(jobs, timeout=60)
    client.wait(*ids, timeout=120, fields=["id"])
    while client.autoarchive(-1, timeout=60).left:
        pass
    for job_id in ids:
        # One whose process was about to leave is archived when it has left.
        with contextlib.suppress(Exception):
            client.archive(job_id, timeout=30)


def _growth(name: str, first: Usage | None, now: Usage, jobs: int) -> Iterator[str]:
    if first is None:
        yield f"{name} was not there before"
        return
    if now.descriptors > first.descriptors + DESCRIPTORS_SPARE:
        yield f"{name} has {now.descriptors} descriptors, {first.descriptors} at first"
    if now.threads > first.threads:
        yield f"{name} has {now.threads} threads, {first.threads} at first"
    grown = now.memory - first.memory
    if grown > MEMORY_NOISE_BYTES + jobs * BYTES_PER_JOB_MAX:
        yield f"{name} has grown by {grown:,} bytes over {jobs} jobs"


def _usage(daemon: psutil.Process) -> dict[str, Usage]:
    """What the daemon and its fork server use."""
    found = {"daemon": _of(daemon)}
    for server in daemon.children():
        found["fork server"] = _of(server)
    return found


def _of(process: psutil.Process) -> Usage:
    return Usage(process.num_fds(), process.num_threads(), process.memory_info().rss)


@contextlib.contextmanager
def _mute_daemon(folder: Path) -> Iterator[tuple[psutil.Process, Client]]:
    """A daemon in the foreground, whose log is a full disk and whose standard error is stuck."""
    harness = Daemon(folder)
    harness.data.mkdir(parents=True)
    harness.places.log.symlink_to("/dev/full")
    reader, writer = os.pipe()
    # Full before the daemon writes its first byte into it.
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4_096)
    os.set_blocking(writer, True)
    ready, announce = os.pipe()
    command = [
        sys.executable,
        "-m",
        "ganger.cli.main",
        "--data",
        os.fspath(harness.data),
        "daemon",
        "--no-rapi",
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
        pass_fds=[announce],
        env={
            **os.environ,
            "GANGER_READY_FD": str(announce),
            "GANGER_TEST_FOLDER": os.fspath(folder),
        },
    )
    os.close(announce)
    os.close(writer)
    try:
        with os.fdopen(ready, "rb") as stream:
            word = stream.readline()
        assert word == b"ready\n", f"the daemon did not start: {word!r}"
        with harness.client() as client:
            yield psutil.Process(process.pid), client
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(READY_SECONDS)
        os.close(reader)
        harness.__exit__()
