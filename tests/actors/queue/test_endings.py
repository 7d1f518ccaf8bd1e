"""However a job ends, listing, file, restart and archive say the same of it, with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.actors.queue.queue_stage import Queue, listed, spec

from ganger.storage.jobs import job_views, outcomes
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Ending, Outcome
from ganger.transport import messages

RUNNING, SUCCESS, ERROR, CANCELED = (
    JobStatus.RUNNING,
    JobStatus.SUCCESS,
    JobStatus.ERROR,
    JobStatus.CANCELED,
)
RULE = "rejected by filter rule r"


def cancel(queue: Queue) -> None:
    queue.submitted(spec())
    assert queue.actor.ask(messages.CancelJob(id=1)).answer_as(messages.CancelOutcome).accepted


def reject(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(unsatisfiable=[(1, "rejected", "r")])


def reject_as_the_evaluator_does(queue: Queue) -> None:
    queue.submitted(spec())
    queue.actor.turn(messages.JobsRejected(jobs=[(1, RULE)]))


def fail_start(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.actor.turn(messages.StartFailed(job_id=1, text="no room"))


def die(queue: Queue) -> None:
    queue.run_new()
    queue.lose_process(1)


def be_killed(queue: Queue) -> None:
    queue.run_new()
    queue.lose_process(1, was_killed=True)


def fail(queue: Queue) -> None:
    queue.finish_new(ERROR)


def fail_in_a_large_state(queue: Queue) -> None:
    """The process has flushed its file itself."""
    queue.run_new()
    body = queue.body_of_process(1, 11, ERROR)
    queue.write_as_process(1, body)
    queue.actor.ask(queue.state(1, 11, ERROR, body=None))
    queue.lose_process(1, has_left=True)


def fail_unheard(queue: Queue) -> None:
    """The process has written its end, and the queue finds it when the process has gone."""
    queue.run_new()
    queue.write_as_process(1, queue.body_of_process(1, 11, ERROR))
    queue.lose_process(1)


def succeed(queue: Queue) -> None:
    queue.finish_new()


UNTOLD = "its result does not say why"
DIED = "its process ended without a result"
WAYS: list[tuple[Callable[[Queue], None], JobStatus, Ending]] = [
    (cancel, CANCELED, Ending(Outcome.CANCELED, "before it began")),
    (reject, CANCELED, Ending(Outcome.REJECTED, RULE)),
    (reject_as_the_evaluator_does, CANCELED, Ending(Outcome.REJECTED, RULE)),
    (fail_start, ERROR, Ending(Outcome.LOST, "it failed to start: no room")),
    (die, ERROR, Ending(Outcome.LOST, DIED)),
    (
        be_killed,
        ERROR,
        Ending(Outcome.KILLED, "on request; it did not react, and got SIGKILL"),
    ),
    (fail, ERROR, Ending(Outcome.FAILED, UNTOLD)),
    (fail_in_a_large_state, ERROR, Ending(Outcome.FAILED, UNTOLD)),
    (fail_unheard, ERROR, Ending(Outcome.FAILED, UNTOLD)),
    (succeed, SUCCESS, outcomes.SUCCEEDED),
]


def shown(one: Any) -> tuple[JobStatus, Ending]:
    return one.status, Ending(one.outcome, one.reason_ended, one.cause)


def seen(queue: Queue, job_id: int, *, archived: bool = False) -> list[tuple[JobStatus, Ending]]:
    """What listing and file say."""
    [row] = [one for one in listed(queue.actor, archived=archived) if one.id == job_id]
    document = queue.actor.say(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)
    return [shown(row), shown(job_views.job_info(document.body))]


def look(queue: Queue, job_id: int, expected: tuple[JobStatus, Ending]) -> None:
    """Now, after a restart, and in the archive."""
    assert seen(queue, job_id) == [expected] * 2
    queue.kill_all()
    queue.restart()
    assert seen(queue, job_id) == [expected] * 2
    archived = queue.actor.ask(messages.ArchiveJob(id=job_id))
    assert archived.answer_as(messages.ArchiveOutcome).archived == [job_id]
    assert seen(queue, job_id, archived=True) == [expected] * 2
    assert queue.actor.component.store.endings.of(job_id) == (expected[0], expected[1].outcome)


@pytest.mark.parametrize(("end", "status", "ending"), WAYS)
def test_each_way_to_end_has_one_outcome(
    queue: Queue, end: Callable[[Queue], None], status: JobStatus, ending: Ending
) -> None:
    end(queue)
    look(queue, 1, (status, ending))


@pytest.mark.parametrize("end", [fail, die, be_killed, cancel, reject, fail_start, succeed])
@pytest.mark.parametrize("verdict", ["canceled", "failed"])
@pytest.mark.parametrize("name", ["", "check"])
def test_a_job_that_is_skipped_names_the_job_that_is_the_cause(
    queue: Queue, end: Callable[[Queue], None], verdict: str, name: str
) -> None:
    end(queue)
    known = queue.actor.component.store.table.find(1)
    assert known is not None
    if name:
        known.origin = known.origin.__class__(name=name)
    first = known.run.ending or outcomes.SUCCEEDED
    queue.submitted(spec((1, ["skipped"])), spec((-1, ["skipped"])))
    # A chain ends in one turn: the end of the first is not durable when the second one ends.
    queue.choose(unsatisfiable=[(2, verdict, "no"), (3, verdict, "no")], dependencies={2: 1, 3: 2})
    status = CANCELED if verdict == "canceled" else ERROR
    ending = outcomes.skipped(1, name or known.summary, first)
    assert ending.outcome is Outcome.SKIPPED
    assert ending.cause == 1
    assert (name or "TEST_DELAY") in ending.reason
    for job_id in (2, 3):
        look(queue, job_id, (status, ending))


def test_a_job_that_only_a_failure_would_need_says_so(queue: Queue) -> None:
    queue.finish_new()
    queue.finish_new()
    queue.submitted(spec((1, ["any-failed"]), (2, ["any-failed"])))
    queue.choose(unsatisfiable=[(3, "failed", "none of them failed")])
    look(queue, 3, (ERROR, Ending(Outcome.SKIPPED, "not needed, as none of the jobs 1, 2 failed")))


def test_the_scheduler_hears_outcomes_that_statuses_do_not_say(queue: Queue) -> None:
    fail(queue)
    succeed(queue)
    store = queue.actor.component.store
    ends = {1: (ERROR, Outcome.FAILED), 2: (SUCCESS, Outcome.SUCCESS), 9: None}
    assert {job_id: store.endings.of(job_id) for job_id in ends} == ends
    queue.submitted(spec())
    queue.start_running(3)
    queue.stage.sent.clear()
    queue.lose_process(3)
    finished = queue.stage.take_one(messages.JobsFinished)
    assert (finished.jobs, finished.outcomes) == ([(3, ERROR)], {3: Outcome.LOST})
    # As after a restart, and of archived jobs.
    queue.restart()
    queue.actor.ask(messages.ArchiveJob(id=3))
    queue.stage.sent.clear()
    queue.actor.turn(messages.ReportStatuses(ids=[1, 2, 3, 9]))
    told = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert dict(told.jobs) == {1: ERROR, 2: SUCCESS, 3: ERROR, 9: None}
    assert told.outcomes == {3: Outcome.LOST}
