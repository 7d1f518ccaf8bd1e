"""Clients in a process that was forked: they connect anew or say what to do, and never hang."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transport.client.fake_daemon import FakeDaemon

from ganger import AsyncClient, Client
from ganger.storage import errors
from ganger.storage.alive import process_identity
from ganger.transport.zmq import dealer

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0}
PATIENCE_SECONDS = 20
EPOLL_WAITS = {"232", "281", "441", "22"}
"""The system calls of epoll that wait, on x86 and on ARM."""

Start = Callable[..., FakeDaemon]


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` returns in a forked process, as text, or how it failed."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(read)
            try:
                text = str(work())
            except Exception as error:  # noqa: BLE001 - sent to the parent
                text = f"{type(error).__name__}: {error}"
            os.write(write, text.encode())
        finally:
            os._exit(0)
    os.close(write)
    descriptor = process_identity.open_pidfd(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(PATIENCE_SECONDS * 1_000):
            os.kill(pid, signal.SIGKILL)
            pytest.fail("the child hangs")
        return os.read(read, 10_000).decode()
    finally:
        os.waitpid(pid, 0)
        os.close(descriptor)
        os.close(read)


@pytest.fixture
def plain(data: Path) -> Iterator[Client]:
    with Client(data) as client:
        yield client


@pytest.fixture
def used(start: Start, plain: Client) -> Client:
    """A client with a connection."""
    start()
    plain.submit(OP)
    return plain


def test_a_child_and_its_parent_both_go_on(used: Client) -> None:
    assert in_child(lambda: used.submit(OP, timeout=10)) == "2"
    assert used.submit(OP, timeout=10) == 3


def test_a_grandchild_goes_on_as_well(used: Client) -> None:
    def work() -> str:
        own = used.submit(OP, timeout=10)
        return f"{own} {in_child(lambda: used.submit(OP, timeout=10))}"

    assert in_child(work) == "2 3"
    assert used.submit(OP, timeout=10) == 4


def test_many_workers_that_were_forked_beforehand_use_it_at_once(used: Client) -> None:
    context = multiprocessing.get_context("fork")
    submit = _Submit(used)
    with context.Pool(4) as pool:
        found = pool.map_async(submit, range(20)).get(PATIENCE_SECONDS)
    assert sorted(found) == list(range(2, 22))


class _Submit:
    """Uses a client that it does not pickle: it is inherited."""

    client: Client

    def __init__(self, client: Client) -> None:
        type(self).client = client

    def __call__(self, _: int) -> int:
        return self.client.submit(OP, timeout=10)

    def __reduce__(self) -> Any:
        return _inherited_submit, ()


def _inherited_submit() -> Callable[[int], int]:
    return _Submit(_Submit.client)


def test_a_fork_within_another_threads_call_does_not_lock_the_child(used: Client) -> None:
    watching = threading.Event()
    ended: list[str] = []

    def follow() -> None:
        watch = used.watch(log=False)
        watching.set()
        with contextlib.suppress(StopIteration, RuntimeError):
            next(watch)
        ended.append("over")

    with used._caller._lock:
        assert in_child(lambda: used.submit(OP, timeout=10)) == "2"
    thread = threading.Thread(target=follow)
    thread.start()
    assert watching.wait(PATIENCE_SECONDS)
    assert in_child(lambda: used.submit(OP, timeout=10)) == "3"
    thread.join(PATIENCE_SECONDS)
    assert ended == ["over"]


def test_a_watch_from_before_the_fork_is_refused_as_the_parents(used: Client) -> None:
    watch = used.watch(1, log=False)
    next(watch)
    assert "begun before a fork" in in_child(lambda: next(watch))

    def drop() -> int:
        nonlocal watch
        watch.close()  # type: ignore[attr-defined]
        del watch
        gc.collect()
        return used.submit(OP, timeout=10)

    assert in_child(drop) == "2"
    other = Client(used._caller._connection._resolver._endpoint_file.parent)
    with other:
        other.cancel(1)
        assert next(watch) is not None


def test_a_child_does_not_clean_up_what_its_parent_gave_up(used: Client) -> None:
    watch = used.watch(1, log=False)
    next(watch)
    caller = used._caller
    with caller._lock:
        # Another thread is at work: the next one to have its turn cleans up.
        watch.close()  # type: ignore[attr-defined]
        assert len(caller._abandoned) == 1
        assert in_child(lambda: len(caller._abandoned)) == "0"


def wait_for_others_to_rest() -> None:
    """Return when each other thread of this process waits in the kernel for a descriptor."""
    own = str(threading.get_native_id())
    for name in (name for name in os.listdir("/proc/self/task") if name != own):
        while Path("/proc/self/task", name, "syscall").read_text().split()[0] not in EPOLL_WAITS:
            os.sched_yield()


def test_a_process_that_closes_all_descriptors_connects_anew(used: Client) -> None:
    """Daemons do that; libzmq ends a process that uses a connection after it.

    It also ends one whose descriptors are closed while a thread of it is at work: that is beyond
    a client.
    """

    def work() -> str:
        own = used.submit(OP, timeout=10)
        wait_for_others_to_rest()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(("anon_inode:", "socket:")):
                    os.close(int(name))
        found = f"{own} {used.submit(OP, timeout=10)} {used.submit(OP, timeout=10)}"
        used.close()
        return found

    assert in_child(work) == "2 3 4"


def test_without_free_descriptors_a_call_fails_and_the_process_lives(used: Client) -> None:
    def work() -> str:
        # Earlier tests in this process may have many open.
        limit = max(map(int, os.listdir("/proc/self/fd"))) + 64
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        outcomes = []
        for _ in range(dealer.DESCRIPTORS + 4):
            try:
                outcomes.append(str(used.submit(OP, timeout=10)))
                break
            except (OSError, errors.StorageError) as error:
                outcomes.append(str(error))
            os.close(held.pop())
        assert all("Too many open files" in each for each in outcomes[:-1]), outcomes
        return f"{len(outcomes) > 1} {outcomes[-1]}"

    assert in_child(work) == "True 2"


@pytest.mark.parametrize("end", ["close", "with", "drop"])
def test_ending_it_in_the_child_does_not_harm_the_parent(used: Client, end: str) -> None:
    watch = used.watch(1, log=False)
    next(watch)

    def work() -> str:
        if end == "close":
            used.close()
        elif end == "with":
            with used:
                pass
        else:
            for name in list(vars(used)):
                delattr(used, name)
            gc.collect()
        return "ended"

    assert in_child(work) == "ended"
    assert used.submit(OP, timeout=10) == 2


def test_a_child_that_ends_as_processes_of_a_pool_do_ends(used: Client) -> None:
    process = multiprocessing.get_context("fork").Process(target=used.submit, args=(OP,))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 0


# A small process of its own: to take down an interpreter with all that tests have loaded is slow.
FORKS = """
import os, sys
from ganger import Client
client = Client(sys.argv[1])
client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0.0})
pid = os.fork()
client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0.0}, timeout=10)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else 7)
"""


def test_a_child_that_ends_as_interpreters_do_ends(daemon: FakeDaemon, data: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(data)]
    with subprocess.Popen(command, start_new_session=True) as parent:
        try:
            assert parent.wait(PATIENCE_SECONDS) == 7
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
    assert len(daemon.store.specs) == 3


def test_a_closed_client_stays_closed_in_the_child(used: Client) -> None:
    used.close()
    assert "the client was closed" in in_child(lambda: used.submit(OP, timeout=10))


def test_an_asynchronous_client_is_refused_at_once_as_the_parents(start: Start, data: Path) -> None:
    start()

    async def main() -> None:
        async with AsyncClient(data) as client:
            assert await client.submit(OP) == 1

            def use() -> object:
                asyncio._set_running_loop(None)
                return asyncio.run(client.submit(OP, timeout=10))

            def close() -> object:
                asyncio._set_running_loop(None)
                return asyncio.run(client.close())

            assert "begun before a fork" in in_child(use)
            assert in_child(close) == "None"
            assert await client.submit(OP) == 2

    asyncio.run(main())
