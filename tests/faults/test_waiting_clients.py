"""Thousands of clients wait for changes of jobs, also while the queue is restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.harness import Daemon

from ganger import AsyncClient
from ganger.storage.jobs.job_views import JobChange

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
JOBS, OF_EACH = 30, 100


def test_each_of_thousands_hears_of_his_job_alone_also_over_a_restart(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        asyncio.run(scene(daemon))


async def scene(daemon: Daemon) -> None:
    async with AsyncClient(daemon.data, timeout=60.0) as client:
        await client.add_filter(action="PAUSE")
        first, second, *others = ids = await client.submit_many([[OP]] * JOBS)
        waits = {job_id: [begin(client, job_id) for _ in range(OF_EACH)] for job_id in ids}
        await asyncio.sleep(0)
        # The queue has all of them when it answers what was sent after them.
        await client.job(first)
        await end(client, first, waits)
        await asyncio.to_thread(daemon.crash, "job_queue")
        await end(client, second, waits)
        for job_id in others:
            await end(client, job_id, waits)


def begin(client: AsyncClient, job_id: int) -> asyncio.Task[JobChange]:
    return asyncio.create_task(client.await_change(job_id, ["status"], ["queued"], seconds=600.0))


async def end(
    client: AsyncClient, job_id: int, waits: dict[int, list[asyncio.Task[JobChange]]]
) -> None:
    """Cancel a job: all that wait for it get its end, and nobody else gets anything."""
    await client.cancel(job_id)
    for change in await asyncio.gather(*waits.pop(job_id)):
        assert (change.values, change.log, change.is_final) == (["canceled"], [], True)
    assert not any(wait.done() for of_job in waits.values() for wait in of_job)
