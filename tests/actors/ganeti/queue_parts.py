"""What packages answer in the queue's turns."""

from __future__ import annotations

from ganger.actors.ganeti.queue_answers import QueueAnswers
from ganger.actors.ganeti.wait_list import WaitList
from ganger.actors.queue.job_queue import JobQueue


def answers_of(queue: JobQueue) -> QueueAnswers:
    """The part for queries and waits."""
    [found] = queue.answers._answers
    assert isinstance(found, QueueAnswers)
    return found


def waits_of(queue: JobQueue) -> WaitList:
    """Who waits for changes of jobs."""
    return answers_of(queue).waits.waits
