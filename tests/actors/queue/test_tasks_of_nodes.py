"""Tasks in the queue of a node: the flush of their start makes them durable, too."""

from __future__ import annotations

import errno

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker
from tests.refusals import refusing

from ganger.storage import settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.origins import Submitter
from ganger.transport import messages

RUNNING = JobStatus.RUNNING
MASTER = Submitter(user="cluster:task-1", via="node")


def begin(queue: Queue, key: str = "task-1") -> Asker:
    """A master has the task of this key run."""
    return queue.submit(spec(name=key), key=key, submitter=MASTER)


def find(queue: Queue, key: str = "task-1") -> Asker:
    return queue.actor.ask(messages.FindJobs(names=[key]))


def flushes(queue: Queue) -> int:
    return queue.actor.component.store.ledger.flushes


def test_a_task_and_its_start_share_one_flush(queue: Queue) -> None:
    before = flushes(queue)
    asked = begin(queue)
    queue.start(1)
    assert asked.answers == []
    recording = queue.record(1, 10, RUNNING)
    assert (asked.answers, recording.answers, flushes(queue)) == ([], [], before)
    queue.actor.end_turn()
    assert asked.answer_as(messages.JobsSubmitted).ids == [1]
    recording.answer_as(messages.StateRecorded)
    assert flushes(queue) == before + 1
    queue.crash_machine()
    assert queue.statuses() == {1: "error"}


def test_a_task_that_no_flush_has_seen_was_never_there(queue: Queue) -> None:
    begin(queue)
    queue.start(1)
    queue.crash_machine()
    assert queue.statuses() == {}
    # The master asks again. The torn file of the first has its id.
    asked = begin(queue)
    queue.start_running(2)
    assert asked.answer_as(messages.JobsSubmitted) == messages.JobsSubmitted(ids=[2])


def test_a_task_that_waits_is_flushed_at_rest(queue: Queue) -> None:
    asked = begin(queue)
    queue.rest()
    assert asked.answer_as(messages.JobsSubmitted).ids == [1]
    queue.crash_machine()
    assert queue.statuses() == {1: "queued"}


def test_a_task_that_waits_is_flushed_soon_though_the_queue_never_rests(queue: Queue) -> None:
    asked = begin(queue)
    queue.actor.ask(messages.ReadQueueState())
    assert asked.answers == []
    queue.stage.now += 2 * settings.LAZY_SECONDS
    queue.actor.ask(messages.ReadQueueState())
    assert asked.answer_as(messages.JobsSubmitted).ids == [1]


def test_a_task_is_found_only_when_it_is_durable(queue: Queue) -> None:
    before = flushes(queue)
    asked = begin(queue)
    repeated = begin(queue)
    assert find(queue, "task-2").answer_as(messages.JobsFound).found == [[]]
    assert flushes(queue) == before
    assert find(queue).answer_as(messages.JobsFound).found == [[1]]
    assert flushes(queue) == before + 1
    assert asked.answer_as(messages.JobsSubmitted).ids == [1]
    assert repeated.answer_as(messages.JobsSubmitted) == messages.JobsSubmitted(
        ids=[1], is_repeat=True
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_when_the_shared_flush_fails_the_master_hears_that_nobody_knows(
    queue: Queue, number: int
) -> None:
    asked = begin(queue)
    queue.start(1)
    with refusing("fdatasync", number=number):
        recording = queue.recorded(1, 10, RUNNING)
    # The process makes its state durable itself, or waits for the disk: it may run.
    recording.answer_as(messages.Failure)
    name, text = asked.refusal
    assert name == "OutcomeUnknownError"
    assert "whether this change took effect is unknown" in text
    find(queue).answer_as(messages.Failure)
    # Nothing was lost: the task is found when the disk works, and is durable then.
    queue.retry_disk()
    assert find(queue).answer_as(messages.JobsFound).found == [[1]]
    queue.crash_machine()
    assert list(queue.statuses()) == [1]


def test_jobs_of_users_are_durable_before_anybody_knows_them(queue: Queue) -> None:
    asked = queue.actor.say(messages.SubmitJobs(jobs=[spec()]))
    assert queue.statuses() == {}
    queue.actor.end_turn()
    assert asked.answer_as(messages.JobsSubmitted).ids == [1]
    queue.crash_machine()
    assert queue.statuses() == {1: "queued"}
