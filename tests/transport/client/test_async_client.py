"""The asyncio client: the same verbs, many at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.transport.client.fake_daemon import PATIENCE_SECONDS, FakeDaemon

from ganger.storage import errors
from ganger.storage.job_views import LogLine, StatusChange
from ganger.storage.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.client import async_caller, session
from ganger.transport.client.async_client import AsyncClient
from ganger.transport.client.client import Client

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


async def aside(call: Callable[[], T]) -> T:
    """Something that blocks, such as waiting for what the daemon sees."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def some(parts: AsyncIterator[StatusChange | LogLine], count: int) -> list[str]:
    return [shown(await anext(parts)) for _ in range(count)]


def shown(part: StatusChange | LogLine) -> str:
    if isinstance(part, StatusChange):
        return f"{part.job_id}:{part.status}"
    return f"{part.job_id}#{part.text}"


def test_both_clients_have_the_same_verbs_with_the_same_arguments() -> None:
    def verbs(client: type) -> dict[str, list[str]]:
        return {
            name: [str(each) for each in inspect.signature(verb).parameters.values()]
            for name, verb in vars(client).items()
            if inspect.isfunction(verb) and not name.startswith("_")
        }

    assert verbs(AsyncClient) == verbs(Client)
    assert list(inspect.signature(AsyncClient).parameters) == list(
        inspect.signature(Client).parameters
    )


def test_every_verb_works(daemon: FakeDaemon, data: Path) -> None:
    async def scene(client: AsyncClient) -> None:
        assert await client.submit(OP, reason="why") == 1
        assert await client.submit_many([[OP], OP], key="k") == [2, 3]
        assert await client.submit(OP, dry_run=True) == 0
        assert [job.id async for job in client.jobs()] == [1, 2, 3]
        whole = [job async for job in client.jobs([2, 1], fields=["ops"])]
        assert [job.ops is not None and job.id for job in whole] == [1, 2]
        assert (await client.cancel(3)).accepted
        assert [job.id async for job in client.jobs(statuses=["canceled"])] == [3]
        (final,) = await client.wait(3)
        assert final == await client.job(3)
        assert await client.wait() == []
        assert not (await client.set_priority(1, 5)).accepted
        assert (await client.archive(3)).archived == [3]
        assert (await client.autoarchive(-1)).left == 2
        assert [row.name for row in await client.locks()] == ["node/n1"]
        await client.stop()

    run(data, scene)
    assert daemon.store.specs[1].reason[0][1] == "why"


@pytest.mark.usefixtures("daemon")
def test_many_calls_are_under_way_at_once_and_more_wait_their_turn(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_caller, "CALLS_MAX", 7)

    async def scene(client: AsyncClient) -> list[int]:
        return await asyncio.gather(*(client.submit(OP) for _ in range(100)))

    assert sorted(run(data, scene)) == list(range(1, 101))


def test_a_turn_that_does_not_come_is_a_missed_deadline(
    start: Start, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_caller, "CALLS_MAX", 1)
    daemon = start(silent_to=(messages.ReadJob,))

    async def scene(client: AsyncClient) -> None:
        slow = asyncio.create_task(client.job(1))
        await aside(lambda: daemon.wait_for(messages.ReadJob))
        with pytest.raises(errors.DeadlineError, match="too many other calls"):
            await client.cancel(1, timeout=0.05)
        slow.cancel()
        assert await client.submit(OP) == 2

    daemon.store.add(messages.JobSpec(ops=[OP]))
    run(data, scene)


def test_calls_end_at_their_deadlines_each_at_its_own(start: Start, data: Path) -> None:
    daemon = start(silent_to=(messages.SubmitJobs,))

    async def scene(client: AsyncClient) -> None:
        slow = asyncio.create_task(client.submit(OP))
        await aside(lambda: daemon.wait_for(messages.SubmitJobs))
        # The task that waits for frames knows of the later deadline only.
        with pytest.raises(errors.DeadlineError, match="submit_jobs"):
            await client.submit(OP, timeout=0.05)
        assert not slow.done()
        slow.cancel()

    run(data, scene)


@pytest.mark.usefixtures("daemon")
def test_errors_arrive_with_their_class(data: Path) -> None:
    async def scene(client: AsyncClient) -> None:
        with pytest.raises(errors.UnknownJobError, match="job 9"):
            await client.job(9)
        with pytest.raises(errors.OpcodeError):
            await client.submit([5])  # type: ignore[list-item]
        with pytest.raises(errors.UnknownJobError):
            await client.wait(9)
        with pytest.raises(errors.UnknownJobError):
            [job async for job in client.jobs([9], fields=["ops"])]

    run(data, scene)


def test_a_missing_daemon_is_an_error_for_everybody_who_waits(data: Path) -> None:
    async def scene(client: AsyncClient) -> list[str]:
        calls: list[Awaitable[object]] = [client.info(), client.submit(OP), client.wait(1)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        return [type(outcome).__name__ for outcome in outcomes]

    assert run(data, scene) == ["DaemonUnreachableError"] * 3


def test_a_daemon_that_starts_later_is_found(start: Start, data: Path) -> None:
    async def scene(client: AsyncClient) -> None:
        with pytest.raises(errors.DaemonUnreachableError):
            await client.submit(OP)
        await aside(start)
        assert await client.submit(OP) == 1

    run(data, scene)


def test_a_dead_daemons_word_is_seen_through(daemon: FakeDaemon, data: Path) -> None:
    daemon.kill()

    async def scene(client: AsyncClient) -> None:
        # Long before the deadline of the call.
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            with pytest.raises(errors.DaemonUnreachableError, match="ganger up"):
                await client.info()

    run(data, scene)


def test_a_submission_cut_off_by_a_restart_is_stored_once(start: Start, data: Path) -> None:
    first = start(silent_to=(messages.SubmitJobs,))

    async def scene(client: AsyncClient) -> list[int]:
        call = asyncio.create_task(client.submit_many([OP, OP]))
        await aside(lambda: first.wait_for(messages.SubmitJobs))
        first.kill()
        await aside(lambda: start(first.store))
        return await call

    assert run(data, scene) == [1, 2]
    assert len(first.store.specs) == 2


def test_a_watch_goes_on_after_a_restart(start: Start, data: Path) -> None:
    first = start()

    async def scene(client: AsyncClient) -> list[str]:
        await client.submit(OP)
        parts = client.watch(1)
        assert await some(parts, 1) == ["1:queued"]
        first.log(1, "one")
        assert await some(parts, 1) == ["1#one"]
        first.kill()
        second = await aside(lambda: start(first.store))
        await aside(lambda: second.wait_for(messages.WatchJobs))
        second.change(1, JobStatus.RUNNING)
        second.log(1, "two")
        second.change(1, JobStatus.SUCCESS)
        return [shown(part) async for part in parts]

    assert run(data, scene) == ["1:running", "1#two", "1:success"]


def test_several_watches_and_calls_share_a_connection(daemon: FakeDaemon, data: Path) -> None:
    async def scene(client: AsyncClient) -> list[list[str]]:
        await client.submit_many([OP] * 5)

        async def follow(job_id: int) -> list[str]:
            return [shown(part) async for part in client.watch(job_id)]

        follows = [asyncio.create_task(follow(job_id)) for job_id in range(1, 6)]
        for _ in follows:
            await aside(lambda: daemon.wait_for(messages.WatchJobs))
        await asyncio.gather(*(client.cancel(job_id) for job_id in range(1, 6)))
        return list(await asyncio.gather(*follows))

    assert run(data, scene) == [[f"{each}:queued", f"{each}:canceled"] for each in range(1, 6)]


def test_a_reader_who_was_slow_goes_on_where_he_stopped(
    daemon: FakeDaemon, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PARTS_MAX", 3)

    async def scene(client: AsyncClient) -> list[str]:
        await client.submit(OP)
        parts = client.watch(1)
        got = await some(parts, 1)
        for number in range(20):
            daemon.log(1, str(number))
        await aside(lambda: daemon.wait_for(messages.StopWatch))
        daemon.change(1, JobStatus.SUCCESS)
        return got + [shown(part) async for part in parts]

    got = run(data, scene)
    lines = [f"1#{number}" for number in range(20)]
    assert [part for part in got if "#" in part] == lines
    assert [part for part in got if "#" not in part] == ["1:queued", "1:success"]


@pytest.mark.usefixtures("daemon")
def test_waiting_too_long_names_the_jobs_that_go_on(data: Path) -> None:
    async def scene(client: AsyncClient) -> None:
        await client.submit_many([OP, OP])
        await client.cancel(1)
        with pytest.raises(errors.DeadlineError, match=r"2 \(queued\)$"):
            await client.wait(1, 2, timeout=0.1)

    run(data, scene)


def test_a_watch_with_pauses_gives_none_while_nothing_comes(daemon: FakeDaemon, data: Path) -> None:
    async def scene(client: AsyncClient) -> None:
        await client.submit(OP)
        parts = client.watch(1, pause=0.01)
        assert await anext(parts) is not None
        assert [await anext(parts), await anext(parts)] == [None, None]
        daemon.log(1, "line")
        async for part in parts:
            if part is not None:
                assert shown(part) == "1#line"
                break

    run(data, scene)


def test_the_daemon_learns_that_a_watch_was_left_or_cancelled(
    daemon: FakeDaemon, data: Path
) -> None:
    async def scene(client: AsyncClient) -> None:
        await client.submit(OP)
        parts = client.watch(1)
        assert await some(parts, 1) == ["1:queued"]
        await parts.aclose()  # type: ignore[attr-defined]
        await aside(lambda: daemon.wait_for(messages.StopWatch))

        waiting = asyncio.create_task(client.wait(1))
        await aside(lambda: daemon.wait_for(messages.WatchJobs))
        waiting.cancel()
        await aside(lambda: daemon.wait_for(messages.StopWatch))

    run(data, scene)


def test_closing_ends_what_is_under_way(start: Start, data: Path) -> None:
    daemon = start(silent_to=(messages.SubmitJobs,))

    async def scene(client: AsyncClient) -> None:
        call = asyncio.create_task(client.submit(OP))
        await aside(lambda: daemon.wait_for(messages.SubmitJobs))
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await call
        with pytest.raises(RuntimeError, match="closed"):
            await client.submit(OP)
        with pytest.raises(RuntimeError, match="closed"):
            await anext(client.watch(1))

    run(data, scene)
