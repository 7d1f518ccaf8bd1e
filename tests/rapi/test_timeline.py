"""The timeline: spans of waiting and running, their causes, and its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from ganger import JobStatus
from ganger.rapi.feed import Feed
from ganger.rapi.timeline import Timeline
from ganger.storage import errors
from ganger.storage.access import rapi_settings
from ganger.storage.jobs.job_views import JobInfo, StatusChange
from ganger.storage.jobs.outcomes import Outcome
from ganger.transport.messages import JobExplained, Obstacle

if TYPE_CHECKING:
    from ganger import AsyncClient

S = JobStatus


class World:
    """A feed with a timeline behind it."""

    def __init__(self) -> None:
        self.feed = Feed("a")
        self.timeline = Timeline(self.feed.live)
        self.feed.call(self.timeline.hear)
        self._statuses: dict[int, JobStatus] = {}

    def job(
        self,
        now: float,
        status: JobStatus,
        job_id: int = 1,
        *,
        received: float = 0.0,
        started: float | None = None,
        ended: float | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        job = JobInfo(
            id=job_id,
            status=status,
            summary="EXEC(true)",
            priority=0,
            received=received,
            started=started,
            ended=ended,
            outcome=outcome,
        )
        previous = self._statuses.get(job_id)
        self._statuses[job_id] = status
        self.feed.add(StatusChange(job_id=job_id, status=status, previous=previous, job=job), now)

    def cause(self, now: float, kind: str, job_id: int = 1, **named: object) -> None:
        one = Obstacle(kind=kind, held=job_id, text="", **named)  # type: ignore[arg-type]
        found = JobExplained(id=job_id, status=S.QUEUED, text="", obstacles=[one])
        self.timeline.explained(found, now)

    def spans(self, job_id: int = 1) -> list[tuple[float, float | None, str, str]]:
        (row,) = (one for one in self.timeline.shown(0.0, 100.0, 1_000).rows if one.id == job_id)
        return [(one.begin, one.end, one.cause, one.resource) for one in row.spans]


@pytest.fixture
def world() -> World:
    return World()


def test_a_job_waits_then_runs_then_has_ended(world: World) -> None:
    world.job(1, S.QUEUED, received=1.0)
    world.job(3, S.RUNNING, received=1.0, started=3.0)
    world.job(7, S.SUCCESS, received=1.0, started=3.0, ended=7.0)
    assert world.spans() == [(1.0, 3.0, "waiting", ""), (3.0, 7.0, "running", "")]


def test_the_cause_of_a_wait_is_that_of_the_whole_span_until_another_is_known(world: World) -> None:
    world.job(1, S.QUEUED, received=1.0)
    world.cause(2, "slots")
    world.cause(4, "slots")
    world.cause(5, "lock", lock="node/n1")
    world.job(9, S.RUNNING, started=9.0)
    assert world.spans() == [
        (1.0, 5, "slots", ""),
        (5, 9.0, "lock", "node/n1"),
        (9.0, None, "running", ""),
    ]


def test_the_row_of_a_job_that_ended_tells_what_happened_to_it(world: World) -> None:
    world.job(1, S.RUNNING, started=1.0)
    assert [row.outcome for row in world.timeline.shown(0.0, 5.0, 9).rows] == [""]
    world.job(2, S.ERROR, started=1.0, ended=2.0, outcome=Outcome.TIMED_OUT)
    assert [row.outcome for row in world.timeline.shown(0.0, 5.0, 9).rows] == ["timed-out"]


def test_a_job_that_ran_between_two_events_still_shows_its_run(world: World) -> None:
    world.job(1, S.QUEUED, received=1.0)
    world.job(4, S.SUCCESS, received=1.0, started=2.0, ended=3.0)
    assert world.spans() == [(1.0, 2.0, "waiting", ""), (2.0, 3.0, "running", "")]


def test_a_running_job_that_waits_for_locks_again_gets_a_span(world: World) -> None:
    world.job(1, S.RUNNING, started=1.0)
    world.job(5, S.WAITING, started=1.0)
    world.cause(6, "lock", lock="node/n1")
    assert world.spans()[-1] == (5, None, "lock", "node/n1")


def test_the_cause_of_a_wait_is_told_while_it_lasts(world: World) -> None:
    world.job(1, S.QUEUED, received=1.0)
    assert world.timeline.cause(1) is None
    world.cause(2, "lock", lock="node/n1")
    assert world.timeline.cause(1) == ("lock", "node/n1")
    world.job(3, S.RUNNING, started=3.0)
    assert world.timeline.cause(1) is None


def test_a_cause_that_comes_too_late_changes_nothing(world: World) -> None:
    world.job(1, S.RUNNING, started=1.0)
    world.cause(2, "slots")
    world.cause(2, "slots", job_id=7)
    assert world.spans() == [(1.0, None, "running", "")]


def test_waiting_jobs_are_asked_for_in_turn(world: World) -> None:
    for job_id in range(1, 6):
        world.job(1, S.QUEUED, job_id)
    asked = [job for _ in range(5) for job in world.timeline.in_turn(2)]
    assert sorted(asked) == sorted([1, 2, 3, 4, 5] * 2)


def test_jobs_that_somebody_sees_are_asked_for_while_they_wait(world: World) -> None:
    for job_id in range(1, 101):
        world.job(1, S.QUEUED, job_id)
    world.timeline.look_at([50, 51, 52, 53], 10.0)
    assert world.timeline.seen(3, 11.0) == [50, 51, 52]
    for job_id in (50, 51, 52):
        world.timeline.waits(job_id, ("slots", ""), 11.0)
    # The one without a known cause, then that which was asked for longest ago.
    assert world.timeline.seen(3, 12.0) == [53, 50, 51]
    world.job(13, S.RUNNING, 53, started=13.0)
    assert world.timeline.seen(9, 13.0) == [52, 50, 51]
    assert world.timeline.seen(9, 10.0 + rapi_settings.LOOKED_AT_SECONDS + 1.0) == []


class Daemon:
    """Tells the causes of jobs, one of which has a process, and counts the requests."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.is_ending = False

    async def causes(self, job_ids: Sequence[int]) -> dict[int, tuple[str, str]]:
        self.asked.append([*job_ids])
        if self.is_ending:
            raise errors.TryAgainError
        return {one: ("lock", f"node/n{one}") for one in job_ids if one != 1}

    async def explain(self, job_id: int) -> JobExplained:
        self.asked.append([job_id])
        one = Obstacle(kind="lock", held=job_id, text="", lock="node/own")
        return JobExplained(id=job_id, status=S.WAITING, text="", obstacles=[one])


def follow(world: World, daemon: Daemon, job_ids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """The causes of these jobs, as a list shows them that is asked for now."""

    async def shown() -> dict[int, tuple[str, str]]:
        client = cast("AsyncClient", daemon)
        following = asyncio.create_task(world.timeline.follow(world.feed, client))
        await asyncio.sleep(0)
        begin = asyncio.get_running_loop().time()
        found = await world.timeline.await_causes(job_ids)
        following.cancel()
        assert asyncio.get_running_loop().time() - begin < rapi_settings.CAUSES_SECONDS / 2
        return found

    return asyncio.run(shown())


def test_the_causes_of_all_jobs_of_a_list_come_with_it_by_one_request(world: World) -> None:
    """And one more for a job that has a process."""
    world.feed.is_connected = True
    for job_id in range(1, 501):
        world.job(1, S.QUEUED, job_id)
    daemon = Daemon()
    found = follow(world, daemon, range(1, 101))
    assert found == {1: ("lock", "node/own")} | {n: ("lock", f"node/n{n}") for n in range(2, 101)}
    assert {*daemon.asked[0]} >= {*range(1, 101)}
    assert daemon.asked[1:] == [[1]]
    # What is known is not awaited again.
    daemon.asked.clear()
    assert follow(world, daemon, range(1, 101)) == found
    assert daemon.asked == []


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_list_does_not_wait_long_for_causes_that_do_not_come(
    world: World, *, is_connected: bool
) -> None:
    world.feed.is_connected = is_connected
    world.job(1, S.QUEUED, 7)
    daemon = Daemon()
    daemon.is_ending = True
    assert follow(world, daemon, [7]) == {}
    assert bool(daemon.asked) == is_connected


def test_old_rows_are_forgotten_but_not_those_of_living_jobs(world: World) -> None:
    late = rapi_settings.TIMELINE_SECONDS + 100.0
    world.job(1, S.QUEUED, 1)
    world.job(2, S.SUCCESS, 1, started=1.0, ended=2.0)
    world.job(3, S.QUEUED, 2)
    world.job(late, S.QUEUED, 3)
    world.job(late + 1, S.SUCCESS, 3, started=late, ended=late + 1)
    rows = world.timeline.shown(0.0, late + 2, 1_000).rows
    assert [row.id for row in rows] == [2, 3]


def test_a_job_that_waits_for_ever_does_not_keep_the_rows_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rapi_settings, "TIMELINE_JOBS_MAX", 5)
    world.job(1, S.QUEUED, 1)
    for job_id in range(2, 30):
        world.job(job_id, S.QUEUED, job_id)
        world.job(job_id + 0.5, S.SUCCESS, job_id, started=job_id, ended=job_id + 0.5)
    rows = world.timeline.shown(0.0, 40.0, 1_000).rows
    assert [row.id for row in rows] == [1, 25, 26, 27, 28, 29]
    late = rapi_settings.TIMELINE_SECONDS + 100.0
    world.job(late, S.QUEUED, 30)
    world.job(late + 1, S.SUCCESS, 30, started=late, ended=late + 1)
    assert [row.id for row in world.timeline.shown(0.0, late + 2, 1_000).rows] == [1, 30]


def test_a_job_that_ended_before_anybody_looked_has_no_row(world: World) -> None:
    world.job(1, S.SUCCESS, started=0.5, ended=1.0)
    assert world.timeline.shown(0.0, 2.0, 10).rows == []


def test_spans_of_one_job_are_bounded(world: World) -> None:
    world.job(0, S.QUEUED)
    for now in range(1, 500):
        world.cause(float(now), "lock", lock=f"node/{now}")
    spans = world.spans()
    assert len(spans) == rapi_settings.SPANS_MAX
    assert spans[0][0] == 0.0
    assert spans[-1][3] == "node/499"


def test_a_job_that_only_waits_is_shown_and_has_no_row_in_memory(world: World) -> None:
    for job_id in (1, 2, 3):
        world.job(5, S.QUEUED, job_id, received=1.0)
    world.job(6, S.WAITING, 1, received=1.0)
    world.cause(6, "slots", 2)
    assert list(world.timeline._rows) == [2]
    shown = world.timeline.shown(0.0, 9.0, 10)
    assert [(row.id, row.status, row.spans[0].cause) for row in shown.rows] == [
        (1, "waiting", "waiting"),
        (2, "queued", "slots"),
        (3, "queued", "waiting"),
    ]
    assert shown.count == 3
    assert world.spans(3) == [(1.0, None, "waiting", "")]
    assert sorted(job for _ in range(3) for job in world.timeline.in_turn(1)) == [1, 2, 3]


def test_only_the_newest_rows_are_shown_with_the_count_of_all(world: World) -> None:
    for job_id in range(10):
        world.job(1, S.QUEUED, job_id)
    shown = world.timeline.shown(0.0, 5.0, 3)
    assert [row.id for row in shown.rows] == [7, 8, 9]
    assert shown.count == 10
