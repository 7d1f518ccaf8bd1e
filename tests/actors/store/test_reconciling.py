"""What becomes of any job that is found after a restart; see tests/transcripts/recovery."""

from __future__ import annotations

import itertools

import pytest

from ganger.actors.store.reconciling import TABLE, Fate, Life, Progress, fate, progress
from ganger.storage.jobs.jobs import JobStatus, job_status

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

EVERY = [
    list(statuses)
    for length in (1, 2, 3)
    for statuses in itertools.product(JobStatus, repeat=length)
]


def test_the_table_has_every_case() -> None:
    assert set(TABLE) == set(itertools.product(Progress, Life))


def test_a_living_process_keeps_its_job() -> None:
    assert {fate(statuses, Life.ALIVE) for statuses in EVERY} == {Fate.ADOPT}


@pytest.mark.parametrize("life", [Life.NONE, Life.DEAD])
def test_what_has_begun_is_never_started_again(life: Life) -> None:
    for statuses in EVERY:
        if fate(statuses, life) is Fate.ENQUEUE:
            # What has succeeded stays so; only a job that gave itself back goes on behind it.
            allowed = {QUEUED, WAITING} if life is Life.DEAD else {QUEUED, WAITING, SUCCESS}
            assert set(statuses) <= allowed, statuses
        if {RUNNING, CANCELING}.intersection(statuses):
            assert fate(statuses, life) in (Fate.FAIL, Fate.KEEP), statuses


@pytest.mark.parametrize("life", [Life.NONE, Life.DEAD])
def test_what_is_final_stays_as_it_is(life: Life) -> None:
    for statuses in EVERY:
        is_final = job_status(statuses).is_final
        assert (fate(statuses, life) is Fate.KEEP) == is_final, statuses
        assert (progress(statuses, life) is Progress.FINAL) == is_final, statuses
