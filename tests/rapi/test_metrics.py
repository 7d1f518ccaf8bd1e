"""What Prometheus gets: histograms from the events of the feed, and the answer to a scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.rapi.served import Served
from tests.system.hosts import free_endpoint

from ganger import JobStatus
from ganger.rapi.feed import Feed
from ganger.rapi.metrics import JobTimes
from ganger.storage.jobs.job_views import JobInfo, StatusChange

if TYPE_CHECKING:
    from pathlib import Path

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


# A scrape.


def scraped(served: Served) -> dict[tuple[str, ...], float]:
    """The samples of a request, each by its name and the values of its labels."""
    answer = served.request("GET", "/metrics", user="reader")
    assert answer.status == 200, answer
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


@pytest.mark.slow
def test_a_scrape_counts_what_happened_since_the_last_one(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        before = scraped(served)
        with served.client() as client:
            job_id = client.submit([{"OP_ID": "OP_TEST_DELAY", "duration": 0.001}])
            client.wait(job_id)
            client.invite_node("web1", endpoint=free_endpoint())
        after = scraped(served)
    statuses = {name[1] for name in after if name[0] == "ganger_jobs"}
    assert statuses == set(JobStatus)
    finals = {name[1] for name in after if name[0] == "ganger_jobs_ended_total"}
    assert finals == {status for status in JobStatus if status.is_final}
    assert before["ganger_jobs", "success"] == 0
    assert after["ganger_jobs", "success"] == 1
    assert after["ganger_last_job_id",] == before["ganger_last_job_id",] + 1 == job_id
    assert after["ganger_flushes_total",] > before["ganger_flushes_total",]
    assert after["ganger_component_ready", "job_queue"] == 1
    assert [before["ganger_nodes", state] for state in ("there", "silent", "invited")] == [0, 0, 0]
    assert [after["ganger_nodes", state] for state in ("there", "silent", "invited")] == [0, 0, 1]
