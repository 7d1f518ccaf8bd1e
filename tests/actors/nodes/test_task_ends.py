"""A node's daemon ends tasks whose jobs have lost their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ganger.actors.nodes.task_ends import TaskEnds
from ganger.storage import errors
from ganger.transport import messages

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED = messages.CancelOutcome(accepted=True, text="")
FINAL = messages.JobAwaited(values=b'["error"]', log=b"[]", is_final=True)
RUNS = messages.JobAwaited(values=b'["running"]', log=b"[]", is_final=False)


class Queue:
    """Stands for the runtime: keeps what the queue is asked, until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Callable[[Any], None], Callable[[Any], None]]] = []
        self.due: list[Any] = []
        self.said: list[tuple[messages.LeftTaskEnded, int]] = []
        self.ends = TaskEnds(self, lambda reply, number: self.said.append((reply, number)))  # type: ignore[arg-type]

    def ask(self, _: object, request: Any, then: Any, otherwise: Any) -> None:
        self.asked.append((request, then, otherwise))

    def later(self, _: float, due: Any) -> None:
        self.due.append(due)

    def answer(self, kind: type, reply: Any) -> None:
        request, then, otherwise = self.asked.pop(0)
        assert type(request) is kind
        (otherwise if isinstance(reply, errors.GangerError) else then)(reply)


@pytest.fixture(name="queue")
def queue_of_a_node() -> Queue:
    return Queue()


def found(*ids: int) -> messages.JobsFound:
    return messages.JobsFound(found=[[*ids]])


def test_a_task_is_killed_and_its_end_awaited(queue: Queue) -> None:
    queue.ends.end("key", 5)
    queue.answer(messages.FindJobs, found(7))
    queue.answer(messages.CancelJob, KILLED)
    queue.answer(messages.AwaitJobChange, RUNS)
    assert queue.said == []
    queue.answer(messages.AwaitJobChange, FINAL)
    assert queue.said == [(messages.LeftTaskEnded(existed=True, was_killed=True), 5)]


def test_a_task_that_goes_on_is_killed_again(queue: Queue) -> None:
    queue.ends.end("key", 5)
    queue.answer(messages.FindJobs, found(7))
    refused = messages.CancelOutcome(accepted=False, text="cannot be reached now")
    queue.answer(messages.CancelJob, refused)
    queue.answer(messages.AwaitJobChange, RUNS)
    queue.answer(messages.AwaitJobChange, RUNS)
    queue.answer(messages.CancelJob, KILLED)
    queue.answer(messages.AwaitJobChange, FINAL)
    assert queue.said == [(messages.LeftTaskEnded(existed=True, was_killed=True), 5)]


def test_a_task_in_the_archive_has_ended(queue: Queue) -> None:
    queue.ends.end("key", 5)
    queue.answer(messages.FindJobs, found(7))
    queue.answer(messages.CancelJob, messages.CancelOutcome(accepted=False, text="not found"))
    queue.answer(messages.AwaitJobChange, errors.ArchivedJobError())
    assert queue.said == [(messages.LeftTaskEnded(existed=True), 5)]


def test_a_task_that_never_came_is_not_started_when_it_comes_late(queue: Queue) -> None:
    queue.ends.end("key", 5)
    queue.answer(messages.FindJobs, found())
    assert queue.said == [(messages.LeftTaskEnded(existed=False), 5)]
    with pytest.raises(errors.JobStateError, match="ended before it began"):
        queue.ends.note_submission("key", 9)


def test_a_submission_under_way_is_waited_for(queue: Queue) -> None:
    queue.ends.note_submission("key", 9)
    queue.ends.end("key", 5)
    assert queue.asked == []
    queue.ends.note_answer(8)
    assert queue.asked == []
    queue.ends.note_answer(9)
    queue.answer(messages.FindJobs, found(7))
    assert type(queue.asked[0][0]) is messages.CancelJob


def test_a_request_that_comes_again_gets_the_answer_of_the_first(queue: Queue) -> None:
    queue.ends.end("key", 5)
    queue.ends.end("key", 6)
    queue.answer(messages.FindJobs, found())
    assert (queue.said, queue.asked) == ([(messages.LeftTaskEnded(existed=False), 6)], [])


def test_a_queue_that_cannot_answer_is_asked_later(queue: Queue) -> None:
    queue.ends.end("key", 5)
    queue.answer(messages.FindJobs, errors.DeadlineError())
    assert queue.due == [messages.TaskEndDue(key="key")]
    queue.ends.look_again("key")
    queue.answer(messages.FindJobs, found())
    assert queue.said == [(messages.LeftTaskEnded(existed=False), 5)]
