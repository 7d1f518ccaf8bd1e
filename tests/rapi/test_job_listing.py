"""The listings of all jobs are kept as bytes, and never older than the request."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.rapi.job_listing import JobListing, Objects, Shared
from ganger.storage import errors


class Queue:
    """Jobs by id: version (0: it runs), status, and whether it is archived."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, str]] = {}
        self.archived: set[int] = set()
        self.read: list[list[int]] = []
        self.is_asked = asyncio.Event()

    async def job_ids(self, known_mark: int | None) -> tuple[int, list[int] | None]:
        ids = sorted(self.jobs.keys() - self.archived)
        mark = hash(tuple(ids))
        return mark, None if mark == known_mark else ids

    async def job_versions(self) -> tuple[list[int], list[int]]:
        self.is_asked.set()
        ids = sorted(self.jobs.keys() - self.archived)
        versions = [self.jobs[job_id][0] for job_id in ids]
        await asyncio.sleep(0)
        return ids, versions

    async def query_json(self, what: str, fields: Any, raw_filter: Any) -> tuple[None, bytes]:
        assert what == "job"
        found = sorted(self.jobs.keys() - self.archived)
        if raw_filter is not None:
            found = [value for _, _, value in raw_filter[1:]]
        self.read.append(found)
        await asyncio.sleep(0)
        return None, json.dumps([self._row(job_id, fields) for job_id in found]).encode()

    def _row(self, job_id: int, fields: list[str]) -> list[Any]:
        known = {"id": job_id, "archived": job_id in self.archived}
        if job_id in self.jobs:
            known["status"] = cast("Any", self.jobs[job_id][1])
        return [[0, known[name]] if name in known else [3, None] for name in fields]


def statuses(body: bytes) -> dict[int, str]:
    return {job["id"]: job["status"] for job in json.loads(body)}


def test_only_what_has_changed_is_read_again() -> None:
    async def scene() -> None:
        queue = Queue()
        listing = JobListing(cast("Any", queue))
        assert await listing.bulk() == b"[]\n"
        queue.jobs = dict.fromkeys(range(1, 6), (9, "queued"))
        first = await listing.bulk()
        assert queue.read == [[1, 2, 3, 4, 5]]
        assert json.loads(first)[0] == {
            "id": 1, "ops": None, "status": "queued", "summary": None, "opstatus": None,
            "received_ts": None, "start_ts": None, "end_ts": None, "outcome": None,
            "reason_ended": None, "cause": None, "name": None, "plan": None, "user": None,
        }  # fmt: skip
        assert await listing.bulk() is first
        queue.jobs[2] = (10, "success")
        assert statuses(await listing.bulk())[2] == "success"
        assert queue.read[1:] == [[2]]
        del queue.jobs[3]
        assert list(statuses(await listing.bulk())) == [1, 2, 4, 5]
        assert queue.read[2:] == []

    asyncio.run(scene())


def test_a_job_that_runs_is_read_each_time() -> None:
    async def scene() -> None:
        queue = Queue()
        listing = JobListing(cast("Any", queue))
        queue.jobs = {1: (7, "queued"), 2: (0, "waiting"), 3: (7, "queued")}
        await listing.bulk()
        queue.jobs[2] = (0, "running")
        assert statuses(await listing.bulk()) == {1: "queued", 2: "running", 3: "queued"}
        assert queue.read[1:] == [[2]]

    asyncio.run(scene())


def test_a_job_that_is_archived_meanwhile_is_left_out() -> None:
    async def scene() -> None:
        queue = Queue()
        listing = JobListing(cast("Any", queue))
        queue.jobs = {1: (7, "queued"), 2: (7, "error"), 3: (7, "queued"), 4: (7, "queued")}
        await listing.bulk()
        queue.jobs[2] = (8, "error")
        queue.is_asked.clear()
        reading = asyncio.create_task(listing.bulk())
        await queue.is_asked.wait()
        queue.archived.add(2)
        assert list(statuses(await reading)) == [1, 3, 4]
        assert list(statuses(await listing.bulk())) == [1, 3, 4]

    asyncio.run(scene())


def test_the_short_listing_has_ids_and_uris() -> None:
    async def scene() -> None:
        queue = Queue()
        listing = JobListing(cast("Any", queue))
        assert await listing.short() == b"[]\n"
        queue.jobs = {7: (1, "queued"), 12: (0, "running")}
        shown = b'[{"id":7,"uri":"/2/jobs/7"},{"id":12,"uri":"/2/jobs/12"}]\n'
        first = await listing.short()
        assert first == shown
        assert await listing.short() is first
        del queue.jobs[7]
        assert await listing.short() == b'[{"id":12,"uri":"/2/jobs/12"}]\n'
        assert queue.read == []

    asyncio.run(scene())


@given(
    st.lists(
        st.dictionaries(st.integers(1, 8), st.integers(0, 3), max_size=8), min_size=1, max_size=8
    ),
    st.integers(0, 40),
)
def test_whatever_changes_the_listing_is_right(steps: list[dict[int, int]], bytes_max: int) -> None:
    objects = Objects(bytes_max)
    for number, now in enumerate(steps):
        ids = sorted(now)
        versions = [now[job_id] for job_id in ids]
        # What has version 0 has another content each time.
        content = {
            job_id: b'"%d.%d.%d"' % (job_id, now[job_id], 0 if now[job_id] else number)
            for job_id in ids
        }
        found = {job_id: content[job_id] for job_id in objects.missing(ids, versions)}
        body = objects.whole(ids, versions, found)
        assert body == b"[%b]\n" % b",".join(content[job_id] for job_id in ids)


def test_who_asks_at_the_same_time_shares_one_run_that_begins_later() -> None:
    async def scene() -> None:
        runs: list[int] = []
        begun, gate = asyncio.Event(), asyncio.Event()

        async def work() -> int:
            runs.append(1)
            begun.set()
            number = len(runs)
            await gate.wait()
            return number

        shared = Shared(work)
        first = asyncio.create_task(shared.result())
        await begun.wait()
        others = [asyncio.create_task(shared.result()) for _ in range(3)]
        await asyncio.sleep(0)
        others[0].cancel()
        gate.set()
        assert await first == 1
        # The first run had begun when they asked: it may have looked already.
        assert await asyncio.gather(*others[1:]) == [2, 2]
        assert await shared.result() == 3

    asyncio.run(scene())


def test_an_error_reaches_all_and_the_next_run_is_another() -> None:
    async def scene() -> None:
        failures = [errors.BusyError("too much"), None]

        async def work() -> str:
            if (failure := failures.pop(0)) is not None:
                raise failure
            return "done"

        shared = Shared(work)
        with pytest.raises(errors.BusyError, match="too much"):
            await shared.result()
        assert await shared.result() == "done"

    asyncio.run(scene())
