"""The feed of job events: numbers, the ring, slow listeners, and resumption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from ganger import JobStatus
from ganger.rapi.feed import Feed, JobEvent, following
from ganger.storage import errors
from ganger.storage.access import rapi_settings
from ganger.storage.jobs.job_views import JobInfo, StatusChange


def changed(
    job_id: int, status: JobStatus, previous: JobStatus | None = None, **more: float
) -> StatusChange:
    job = JobInfo(id=job_id, status=status, summary="EXEC(true)", priority=0, **more)  # type: ignore[arg-type]
    return StatusChange(job_id=job_id, status=status, previous=previous, job=job)


def test_events_are_numbered_from_one_and_kept_in_order() -> None:
    feed = Feed("a")
    feed.add(changed(1, JobStatus.QUEUED), 10.0)
    feed.add(changed(1, JobStatus.RUNNING, JobStatus.QUEUED), 11.0)
    found = feed.since(0)
    assert found is not None
    assert [(one.number, one.status, one.previous, one.time) for one in found] == [
        (1, "queued", None, 10.0),
        (2, "running", "queued", 11.0),
    ]
    assert feed.since(1) == found[1:]
    assert feed.since(2) == []


def test_an_ended_job_is_no_longer_live() -> None:
    feed = Feed("a")
    feed.add(changed(1, JobStatus.RUNNING), 0.0)
    feed.add(changed(2, JobStatus.QUEUED), 0.0)
    feed.add(changed(1, JobStatus.SUCCESS, JobStatus.RUNNING), 1.0)
    assert list(feed.live) == [2]


def test_only_the_last_ended_jobs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "ENDED_KEPT", 2)
    feed = Feed("a")
    for number in range(1, 5):
        feed.add(changed(number, JobStatus.SUCCESS), 0.0)
    assert list(feed.ended) == [3, 4]


class Listing:
    """A daemon with these live jobs."""

    def __init__(self, *ids: int) -> None:
        self.mark, self.ids = 1, [*ids]
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None

    async def job_ids(self, known_mark: int | None = None) -> tuple[int, list[int] | None]:
        self.asked += 1
        found = None if known_mark == self.mark else [*self.ids]
        self.meanwhile()
        return self.mark, found


def test_ended_jobs_that_were_archived_or_purged_are_forgotten() -> None:
    async def scene() -> None:
        feed, daemon = Feed("a"), Listing(1, 2, 3)
        await feed.forget_gone(cast("Any", daemon), 0.0)
        assert daemon.asked == 0
        for number in (1, 2, 3):
            feed.add(changed(number, JobStatus.SUCCESS), 0.0)
        await feed.forget_gone(cast("Any", daemon), 0.0)
        assert list(feed.ended) == [1, 2, 3]
        daemon.mark, daemon.ids = 2, [1, 3]
        # One that comes and ends after the answer was made is none of those that have gone.
        daemon.meanwhile = lambda: feed.add(changed(4, JobStatus.SUCCESS), 0.0)
        await feed.forget_gone(cast("Any", daemon), 1_000.0)
        assert list(feed.ended) == [1, 3, 4]
        before = daemon.asked
        await feed.forget_gone(cast("Any", daemon), 1_000.0)
        assert daemon.asked == before

    asyncio.run(scene())


def test_events_that_left_the_ring_are_reported_as_lost() -> None:
    feed = Feed("a", size=3)
    for number in range(5):
        feed.add(changed(number, JobStatus.QUEUED), 0.0)
    kept = feed.since(2)
    assert kept is not None
    assert [one.number for one in kept] == [3, 4, 5]
    assert feed.since(1) is None


def test_a_number_from_the_future_is_not_known() -> None:
    assert Feed("a").since(1) is None


def test_a_listener_gets_what_is_there_then_what_comes_then_a_sign_of_silence() -> None:
    async def listen() -> list[list[JobEvent] | None]:
        feed = Feed("a")
        feed.add(changed(1, JobStatus.QUEUED), 0.0)
        found: list[list[JobEvent] | None] = []
        async for events in following(feed, 0, 0.05):
            found.append(events)
            if len(found) == 1:
                soon = asyncio.get_running_loop().call_soon
                soon(feed.add, changed(2, JobStatus.QUEUED), 0.0)
            if events is None:
                return found
        raise AssertionError

    first, second, silence = asyncio.run(listen())
    assert first is not None
    assert second is not None
    assert [one.job_id for one in first] == [1]
    assert [one.job_id for one in second] == [2]
    assert silence is None


def test_a_slow_listener_is_told_what_it_lost_and_goes_on_with_the_present() -> None:
    assert asyncio.run(_numbers_of_a_slow_listener()) == [[1], [], [7]]


async def _numbers_of_a_slow_listener() -> list[list[int]]:
    feed = Feed("a", size=2)
    feed.add(changed(0, JobStatus.QUEUED), 0.0)
    found: list[list[int]] = []
    async for events in following(feed, 0, 0.05):
        if events is None:
            return found
        found.append([one.number for one in events])
        if len(found) == 1:
            for number in range(5):
                feed.add(changed(number, JobStatus.QUEUED), 0.0)
        elif len(found) == 2:
            feed.add(changed(9, JobStatus.QUEUED), 0.0)
    raise AssertionError


class Watched:
    """Stands for a client: each watch gives the parts of one list, then fails or waits."""

    def __init__(self, *lists: list[StatusChange | Exception]) -> None:
        self._lists = list(lists)
        self.began = 0

    async def jobs(self, *, statuses: object) -> AsyncIterator[JobInfo]:
        assert "success" in tuple(statuses)  # type: ignore[arg-type]
        yield changed(7, JobStatus.SUCCESS).job

    async def watch(self, *, log: bool, pause: float, gathered: bool) -> object:
        assert not log
        assert gathered
        assert pause > 0
        self.began += 1
        for part in self._lists.pop(0):
            if isinstance(part, Exception):
                raise part
            yield part
        await asyncio.Event().wait()


def test_what_a_new_watch_repeats_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "PAUSE_SECONDS", 0.001)
    queued = changed(1, JobStatus.QUEUED)
    running = changed(1, JobStatus.RUNNING)
    client = Watched([queued, errors.BusyError()], [queued, running])

    async def follow() -> list[str]:
        feed = Feed("a")
        task = asyncio.create_task(feed.follow(client))  # type: ignore[arg-type]
        while feed.last < 2:
            await feed.news(feed.last, 5)
        task.cancel()
        found = feed.since(0)
        assert found is not None
        assert list(feed.ended) == [7]
        return [one.status for one in found]

    assert asyncio.run(follow()) == ["queued", "running"]
    assert client.began == 2
