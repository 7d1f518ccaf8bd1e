"""What only the plain client has: threads that take turns."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.transport.client.both_clients import Aside
from tests.transport.client.fake_daemon import PATIENCE_SECONDS, FakeDaemon

from ganger import Client
from ganger.storage import errors
from ganger.transport import messages

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
Start = Callable[..., FakeDaemon]


def test_a_turn_that_does_not_come_is_a_missed_deadline(start: Start, data: Path) -> None:
    first = start(silent_to=(messages.ReadJob,))
    with Client(data, timeout=PATIENCE_SECONDS) as client:
        client.submit(OP)
        waiting = Aside(lambda: client.job(1))
        first.wait_for(messages.ReadJob)
        with pytest.raises(errors.DeadlineError, match="another thread"):
            client.cancel(1, timeout=0.05)
        first.kill()
        start(first.store)
        assert waiting.result().id == 1


@pytest.mark.parametrize("follows", [True, False])
def test_a_client_that_is_closed_ends_the_call_of_another_thread(
    start: Start, data: Path, *, follows: bool
) -> None:
    daemon = start(silent_to=(messages.ReadJob,))
    client = Client(data)
    job_id = client.submit(OP)
    waiting = Aside(lambda: client.wait(job_id) if follows else client.job(job_id))
    daemon.wait_for(messages.WatchJobs if follows else messages.ReadJob)
    Aside(client.close).result()
    with pytest.raises(RuntimeError, match="closed"):
        waiting.result()


def test_a_signal_handler_may_close_the_client_that_its_thread_waits_for(
    start: Start, data: Path
) -> None:
    daemon = start(silent_to=(messages.ReadJob,))
    client = Client(data, timeout=PATIENCE_SECONDS)
    client.submit(OP)

    def interrupt() -> None:
        daemon.wait_for(messages.ReadJob)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    with _handler(signal.SIGUSR1, client.close):
        sender = Aside(interrupt)
        with pytest.raises(RuntimeError, match="closed"):
            client.job(1)
        sender.result()


def test_a_forked_child_that_closes_its_client_does_not_close_the_parents(
    start: Start, data: Path
) -> None:
    first = start(silent_to=(messages.ReadJob,))
    with Client(data, timeout=PATIENCE_SECONDS) as client:
        client.submit(OP)
        pid = os.fork()
        if pid == 0:
            client.close()
            os._exit(0)
        os.waitpid(pid, 0)
        waiting = Aside(lambda: client.job(1))
        first.wait_for(messages.ReadJob)
        first.kill()
        start(first.store)
        assert waiting.result().id == 1


@contextlib.contextmanager
def _handler(number: int, handle: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(number, lambda *_: handle())
    try:
        yield
    finally:
        signal.signal(number, before)
