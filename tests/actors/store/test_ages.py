"""When jobs came: what a scheduler hears, and what outlasts the queue and the daemon."""

from __future__ import annotations

import pytest
from tests.actors.queue.queue_stage import Queue, spec

from ganger.storage import settings
from ganger.storage.alive import process_identity
from ganger.transport import messages


def told(queue: Queue) -> list[tuple[int, float]]:
    """The times that a new scheduler hears."""
    queue.stage.take(messages.JobsArrived)
    queue.actor.turn(messages.ReportAllJobs())
    return queue.stage.take_one(messages.JobsArrived).came


def submit_at(queue: Queue, now: float, count: int = 1) -> None:
    queue.stage.now = now
    queue.submitted(*[spec()] * count)


def test_a_new_scheduler_hears_when_jobs_came(queue: Queue) -> None:
    submit_at(queue, 1_000.0, 2)
    submit_at(queue, 1_000.5)
    submit_at(queue, 1_200.0)
    queue.stage.now = 2_000.0
    assert told(queue) == [(1, 1_000.0), (4, 1_200.0)]


def test_a_job_that_is_pending_again_is_as_old_as_before(queue: Queue) -> None:
    submit_at(queue, 1_000.0)
    queue.stage.now = 1_500.0
    queue.actor.component.store.announcements.again(messages.ReportJobs(ids=[1]))
    assert told(queue) == [(1, 1_000.0)]


def test_the_next_queue_knows_it_whatever_the_time_of_day(queue: Queue) -> None:
    submit_at(queue, 1_000.0)
    submit_at(queue, 1_100.0)
    queue.actor.turn(messages.StoreAges())
    queue.stage.now, queue.stage.today = 1_400.0, 5.0
    queue.restart()
    assert told(queue) == [(1, 1_000.0), (2, 1_100.0)]


def test_jobs_that_came_after_the_file_was_written_count_from_the_restart(queue: Queue) -> None:
    submit_at(queue, 1_000.0)
    queue.actor.turn(messages.StoreAges())
    submit_at(queue, 1_003.0)
    queue.stage.now = 1_400.0
    queue.restart()
    assert told(queue) == [(1, 1_000.0), (2, 1_400.0)]


def test_a_queue_that_ends_in_order_forgets_nothing(queue: Queue) -> None:
    submit_at(queue, 1_000.0)
    queue.actor.close()
    queue.stage.now = 1_900.0
    queue.restart()
    assert told(queue) == [(1, 1_000.0)]


def test_the_file_is_written_once_for_all_jobs_of_some_seconds(queue: Queue) -> None:
    for now in range(1_000, 1_005):
        submit_at(queue, float(now))
    due = [timer for timer in queue.stage.timers if timer.seconds == settings.AGES_WRITE_SECONDS]
    assert len(due) == 1
    queue.actor.turn(messages.StoreAges())
    assert queue.stage.places.ages.stat().st_size < 300
    queue.stage.places.ages.unlink()
    queue.actor.turn(messages.StoreAges())
    assert not queue.stage.places.ages.exists()


def test_after_another_boot_ages_begin_anew(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_at(queue, 1_000.0)
    queue.actor.close()
    monkeypatch.setattr(process_identity, "boot", lambda: "another")
    queue.stage.now = 20.0
    queue.restart()
    assert told(queue) == [(1, 20.0)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"boot": "BOOT", "last": 1, "steps": [[1, "x"]]}',
        b'{"boot": "BOOT", "last": 2, "steps": [[2, 5.0], [1, 6.0]]}',
        b'{"boot": "BOOT", "last": 2, "steps": [[1, 6.0], [2, 5.0]]}',
        b'{"boot": "BOOT", "last": 99999999999999999999, "steps": []}',
    ],
)
def test_a_damaged_file_costs_the_ages_alone(queue: Queue, data: bytes) -> None:
    submit_at(queue, 1_000.0)
    queue.actor.close()
    boot = process_identity.boot().encode()
    queue.stage.places.ages.write_bytes(data.replace(b"BOOT", boot))
    queue.stage.now = 1_900.0
    queue.restart()
    assert told(queue) == [(1, 1_900.0)]
    assert "the ages of jobs begin anew" in queue.stage.log_stream.getvalue()


def test_no_job_came_in_the_future(queue: Queue) -> None:
    submit_at(queue, 1_000.0)
    queue.actor.close()
    # As in a container with a clock of its own.
    queue.stage.now = 20.0
    queue.restart()
    assert told(queue) == [(1, 20.0)]
