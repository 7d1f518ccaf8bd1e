"""What is measured, in the same way for each side. All times are in seconds."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from .side import CannotListError

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from .side import Client

BATCH = 5_000
CROWD_START_SECONDS = 60


def submissions(client: Client, count: int) -> list[float]:
    """The time of each of so many submissions, one after the other."""
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        client.submit(is_held=True)
        found.append(time.perf_counter() - begin)
    return found


def throughput(client: Client, count: int) -> float:
    """Jobs per second, from the first submission to the end of the last job."""
    begin = time.perf_counter()
    client.wait_all(client.submit_many(count))
    return count / (time.perf_counter() - begin)


def idle(client: Client, count: int, pause_seconds: float) -> list[float]:
    """The times from submission to end of single jobs, each after a pause."""
    found = []
    for _ in range(count):
        time.sleep(pause_seconds)
        begin = time.perf_counter()
        client.wait_all([client.submit()])
        found.append(time.perf_counter() - begin)
    return found


def listing(client: Client, count: int) -> dict[str, float] | None:
    """Store so many jobs and list them; None if the library cannot.

    ``stored`` is in jobs per second, ``seconds`` is the time of the list.
    """
    try:
        before = client.list_held()
    except CannotListError:
        return None
    begin = time.perf_counter()
    for start in range(0, count, BATCH):
        client.submit_many(min(BATCH, count - start), is_held=True)
    stored = count / (time.perf_counter() - begin)
    begin = time.perf_counter()
    listed = client.list_held()
    seconds = time.perf_counter() - begin
    if listed != before + count:
        raise RuntimeError(f"the list has {listed} jobs instead of {before + count}")
    return {"stored": stored, "seconds": seconds}


def crowd(module: str, clients: int, count: int) -> float:
    """Submissions per second of so many clients at once, each in a process of its own.

    They start together, and each makes its share of ``count``. ``module`` has the class ``Client``.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module, module.replace("_side", "_tasks")])
    share = max(1, count // clients)
    start = context.Barrier(clients)
    found: Any = context.SimpleQueue()
    members = [
        context.Process(target=_member, args=(module, share, start, found), daemon=True)
        for _ in range(clients)
    ]
    try:
        for member in members:
            member.start()
        times = [found.get() for _ in members]
    except BaseException:
        for member in members:
            member.kill()
        raise
    for member in members:
        member.join()
    problems = [problem for _, _, problem in times if problem]
    if problems:
        raise RuntimeError(f"a client failed: {problems[0]}")
    begin, end = min(one[0] for one in times), max(one[1] for one in times)
    rate: float = clients * share / (end - begin)
    return rate


def _member(module: str, share: int, start: Barrier, found: Any) -> None:  # noqa: ANN401
    """One client of the crowd: tell when its submissions began and ended, and what failed."""
    try:
        client: Client = importlib.import_module(module).Client()
        client.submit(is_held=True)
        start.wait(CROWD_START_SECONDS)
        begin = time.perf_counter()
        for _ in range(share):
            client.submit(is_held=True)
        found.put((begin, time.perf_counter(), ""))
        client.close()
    except BaseException as error:
        start.abort()
        found.put((0.0, 0.0, f"{type(error).__name__}: {error}"))
        raise
