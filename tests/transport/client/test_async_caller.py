"""What only the asyncio client has: many tasks at once, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.transport.client.both_clients import shown
from tests.transport.client.fake_daemon import PATIENCE_SECONDS, FakeDaemon

from ganger import AsyncClient
from ganger.storage import errors
from ganger.storage.jobs.job_views import LogLine, StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.client import async_caller, reachability, session

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
Start = Callable[..., FakeDaemon]
T = TypeVar("T")


def run(data: Path, scene: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
    """Run ``scene`` with a client; no task may be left behind."""

    async def whole() -> T:
        async with AsyncClient(data, timeout=PATIENCE_SECONDS) as client:
            result = await scene(client)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(whole())


async def in_thread(call: Callable[[], T]) -> T:
    """Something that blocks, such as waiting for what the daemon sees."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def some(parts: AsyncIterator[StatusChange | LogLine], count: int) -> list[str]:
    return [shown(await anext(parts)) for _ in range(count)]


@pytest.mark.usefixtures("daemon")
def test_many_calls_are_under_way_at_once_and_more_wait_their_turn(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_caller, "CALLS_MAX", 7)

    async def scene(client: AsyncClient) -> list[int]:
        return await asyncio.gather(*(client.submit(OP) for _ in range(100)))

    assert sorted(run(data, scene)) == list(range(1, 101))


def test_an_asynchronous_turn_that_does_not_come_is_a_missed_deadline(
    start: Start, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_caller, "CALLS_MAX", 1)
    daemon = start(silent_to=(messages.ReadJob,))

    async def scene(client: AsyncClient) -> None:
        slow = asyncio.create_task(client.job(1))
        await in_thread(lambda: daemon.wait_for(messages.ReadJob))
        with pytest.raises(errors.DeadlineError, match="too many other calls"):
            await client.cancel(1, timeout=0.05)
        slow.cancel()
        assert await client.submit(OP) == 2

    daemon.store.add(messages.JobSpec(ops=[OP]))
    run(data, scene)


def test_who_waits_for_changes_keeps_nobody_from_calling(
    start: Start, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_caller, "CALLS_MAX", 1)
    daemon = start(silent_to=(messages.AwaitJobChange,))

    async def scene(client: AsyncClient) -> None:
        waits = [asyncio.create_task(client.await_change(1, ["status"])) for _ in range(3)]
        for _ in waits:
            await in_thread(lambda: daemon.wait_for(messages.AwaitJobChange))
        assert await client.submit(OP) == 2
        for wait in waits:
            wait.cancel()
        for _ in waits:
            await in_thread(lambda: daemon.wait_for(messages.StopWatch))

    daemon.store.add(messages.JobSpec(ops=[OP]))
    run(data, scene)


def test_calls_end_at_their_deadlines_each_at_its_own(start: Start, data: Path) -> None:
    daemon = start(silent_to=(messages.SubmitJobs,))

    async def scene(client: AsyncClient) -> None:
        slow = asyncio.create_task(client.submit(OP))
        await in_thread(lambda: daemon.wait_for(messages.SubmitJobs))
        # The task that waits for frames knows of the later deadline only.
        with pytest.raises(errors.DeadlineError, match="submit_jobs"):
            await client.submit(OP, timeout=0.05)
        assert not slow.done()
        slow.cancel()

    run(data, scene)


def test_other_tasks_run_while_a_call_waits_for_a_connection(
    daemon: FakeDaemon, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "GRACE_SECONDS", 0.5)
    daemon.kill()

    async def scene(client: AsyncClient) -> None:
        call = asyncio.create_task(client.info())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        with pytest.raises(errors.DaemonUnreachableError):
            await call

    run(data, scene)


def test_a_missing_daemon_is_an_error_for_each_waiting_call(data: Path) -> None:
    async def scene(client: AsyncClient) -> list[str]:
        calls: list[Awaitable[object]] = [client.info(), client.submit(OP), client.wait(1)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        return [type(outcome).__name__ for outcome in outcomes]

    assert run(data, scene) == ["DaemonUnreachableError"] * 3


def test_several_watches_and_calls_share_a_connection(daemon: FakeDaemon, data: Path) -> None:
    async def scene(client: AsyncClient) -> list[list[str]]:
        await client.submit_many([OP] * 5)

        async def follow(job_id: int) -> list[str]:
            return [shown(part) async for part in client.watch(job_id)]

        follows = [asyncio.create_task(follow(job_id)) for job_id in range(1, 6)]
        for _ in follows:
            await in_thread(lambda: daemon.wait_for(messages.WatchJobs))
        await asyncio.gather(*(client.cancel(job_id) for job_id in range(1, 6)))
        return list(await asyncio.gather(*follows))

    assert run(data, scene) == [[f"{each}:queued", f"{each}:canceled"] for each in range(1, 6)]


def test_a_slow_reader_goes_on_where_it_stopped(
    daemon: FakeDaemon, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PARTS_MAX", 3)

    async def scene(client: AsyncClient) -> list[str]:
        await client.submit(OP)
        parts = client.watch(1)
        got = await some(parts, 1)
        for number in range(20):
            daemon.log(1, str(number))
        await in_thread(lambda: daemon.wait_for(messages.StopWatch))
        daemon.change(1, JobStatus.SUCCESS)
        return got + [shown(part) async for part in parts]

    got = run(data, scene)
    lines = [f"1#{number}" for number in range(20)]
    assert [part for part in got if "#" in part] == lines
    assert [part for part in got if "#" not in part] == ["1:queued", "1:success"]


@pytest.mark.usefixtures("daemon")
def test_the_daemon_learns_that_a_watch_was_closed_and_a_wait_cancelled(
    daemon: FakeDaemon, data: Path
) -> None:
    async def scene(client: AsyncClient) -> None:
        await client.submit(OP)
        parts = client.watch(1)
        assert await some(parts, 1) == ["1:queued"]
        await parts.aclose()  # type: ignore[attr-defined]
        await in_thread(lambda: daemon.wait_for(messages.StopWatch))

        waiting = asyncio.create_task(client.wait(1))
        await in_thread(lambda: daemon.wait_for(messages.WatchJobs))
        waiting.cancel()
        await in_thread(lambda: daemon.wait_for(messages.StopWatch))

    run(data, scene)


def test_closing_ends_what_is_under_way(start: Start, data: Path) -> None:
    daemon = start(silent_to=(messages.SubmitJobs,))

    async def scene(client: AsyncClient) -> None:
        call = asyncio.create_task(client.submit(OP))
        await in_thread(lambda: daemon.wait_for(messages.SubmitJobs))
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await call
        with pytest.raises(RuntimeError, match="closed"):
            await client.submit(OP)
        with pytest.raises(RuntimeError, match="closed"):
            await anext(client.watch(1))

    run(data, scene)
