"""Commands that change many jobs: requests that are under way together, and their lines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any, Self

import click
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli import call as call_module
from ganger.cli import many, output
from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.transport.messages import CancelOutcome

COUNT = 100
IDS = range(1, COUNT + 1)


class SlowDaemon:
    """Answers requests only when as many are under way as there may be, or all that are left."""

    def __init__(self) -> None:
        self.under_way_max = 0
        self.lost: set[int] = set()
        self.unknown: set[int] = set()
        self.interrupts_at: int | None = None
        self._waiting: list[tuple[int, asyncio.Event]] = []
        self._asked = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def cancel(self, job_id: int, *, kill: bool) -> CancelOutcome:
        del kill
        self._asked += 1
        event = asyncio.Event()
        self._waiting.append((job_id, event))
        self.under_way_max = max(self.under_way_max, len(self._waiting))
        # The newest is answered first.
        if len(self._waiting) == many.UNDER_WAY_MAX or self._asked == COUNT:
            for _, one in reversed(self._waiting):
                one.set()
                await asyncio.sleep(0)
            self._waiting.clear()
        await event.wait()
        if job_id == self.interrupts_at:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        if job_id in self.lost:
            raise errors.DaemonUnreachableError
        if job_id in self.unknown:
            raise errors.UnknownJobError(f"there is no job {job_id}")
        return CancelOutcome(accepted=True, text=f"Dequeued job {job_id}")


@pytest.fixture(name="daemon")
def slow_daemon(monkeypatch: pytest.MonkeyPatch) -> SlowDaemon:
    daemon = SlowDaemon()
    monkeypatch.setattr(call_module.Call, "async_client", lambda _call: daemon)
    return daemon


def run(*words: str) -> Result:
    command = ["job", "cancel", *words, *map(str, IDS)]
    return CliRunner().invoke(ganger, command, standalone_mode=False)


def lines(of: Callable[[int], bool]) -> list[str]:
    return [f"Dequeued job {job_id}" for job_id in IDS if of(job_id)]


def test_requests_are_under_way_together_and_their_lines_keep_the_order(daemon: SlowDaemon) -> None:
    daemon.unknown = {3, 70}
    done = run("-v")
    assert done.stdout.splitlines() == lines(lambda job_id: job_id not in {3, 70})
    assert done.stderr == "ganger: there is no job 3\nganger: there is no job 70\n"
    assert done.return_value == 1
    assert daemon.under_way_max == many.UNDER_WAY_MAX


def test_what_was_answered_is_printed_although_the_daemon_then_goes_away(
    daemon: SlowDaemon,
) -> None:
    daemon.lost = {5}
    done = run("-v")
    assert isinstance(done.exception, errors.DaemonUnreachableError)
    expected = lines(lambda job_id: job_id != 5 and job_id <= many.UNDER_WAY_MAX)
    assert done.stdout.splitlines() == expected


def test_what_was_answered_is_printed_when_the_user_interrupts(daemon: SlowDaemon) -> None:
    daemon.interrupts_at = 1
    done = run()
    # `main` gives this its exit code.
    assert isinstance(done.exception, KeyboardInterrupt | click.Abort)
    expected = lines(lambda job_id: 1 < job_id <= many.UNDER_WAY_MAX)
    assert done.stdout.splitlines() == expected


def test_each_line_of_few_jobs_is_printed_before_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[int] = []

    class Quick:
        def cancel(self, job_id: int, **_: object) -> CancelOutcome:
            assert shown == list(range(1, job_id))
            return CancelOutcome(accepted=True, text=str(job_id))

    def show(text: Any, **_: object) -> None:
        shown.append(int(text))

    stand_in.use(monkeypatch, Quick())
    monkeypatch.setattr(output, "echo", show)
    CliRunner().invoke(ganger, ["job", "cancel", "1", "2", "3"], standalone_mode=False)
    assert shown == [1, 2, 3]
