"""Histograms of job times, from the events of the feed."""

from __future__ import annotations

import pytest

from ganger import JobStatus
from ganger.rapi.feed import Feed
from ganger.rapi.metrics import JobTimes
from ganger.storage.jobs.job_views import JobInfo, StatusChange

S = JobStatus


class World:
    """A feed with histograms behind it."""

    def __init__(self) -> None:
        self.times = JobTimes()
        self._feed = Feed("a")
        self._feed.call(self.times.hear)

    def job(
        self,
        now: float,
        status: JobStatus,
        previous: JobStatus | None,
        *,
        summary: str = "EXEC(true), EXEC(ls)",
        received: float | None = 1.0,
        started: float | None = None,
        ended: float | None = None,
    ) -> None:
        job = JobInfo(
            id=1,
            status=status,
            summary=summary,
            priority=0,
            received=received,
            started=started,
            ended=ended,
        )
        self._feed.add(StatusChange(job_id=1, status=status, previous=previous, job=job), now)

    def value(self, name: str, opcode: str = "EXEC") -> float | None:
        return self.times.registry.get_sample_value(name, {"opcode": opcode})


@pytest.fixture
def world() -> World:
    return World()


def test_an_ended_job_counts_with_its_delay_and_its_run_time(world: World) -> None:
    world.job(9, S.SUCCESS, S.RUNNING, started=3.0, ended=8.0)
    assert world.value("ganger_job_start_delay_seconds_sum") == 2.0
    assert world.value("ganger_job_run_seconds_sum") == 5.0
    assert world.value("ganger_job_run_seconds_count") == 1.0
    assert world.times.ended == {"success": 1}


def test_a_job_that_had_ended_before_the_feed_began_does_not_count(world: World) -> None:
    world.job(9, S.SUCCESS, None, started=3.0, ended=8.0)
    assert world.value("ganger_job_run_seconds_count") is None
    assert not world.times.ended


def test_a_canceled_job_that_never_started_has_no_times(world: World) -> None:
    world.job(9, S.CANCELED, S.QUEUED, ended=8.0)
    assert world.value("ganger_job_run_seconds_count") is None
    assert world.times.ended == {"canceled": 1}


def test_the_wait_with_a_process_is_measured(world: World) -> None:
    world.job(2, S.WAITING, S.QUEUED)
    world.job(5, S.RUNNING, S.WAITING, started=5.0)
    assert world.value("ganger_job_lock_wait_seconds_sum") == 3.0


def test_too_many_opcodes_share_one_name(world: World) -> None:
    for number in range(300):
        world.job(9, S.ERROR, S.RUNNING, summary=f"OP{number}(x)", started=3.0, ended=8.0)
    assert world.value("ganger_job_run_seconds_count", "OP199") == 1.0
    assert world.value("ganger_job_run_seconds_count", "other") == 100.0
