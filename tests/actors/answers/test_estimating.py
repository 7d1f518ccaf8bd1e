"""What the queue learns of run times, keeps, and sends for a plan."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.actors.queue.queue_stage import SUCCESS, Queue, spec

from ganger.storage import settings
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.estimates import Estimates
from ganger.transport import messages
from ganger.transport.messages import JobSpec

MAKE = "OP_EXEC make"


def command(*argv: str) -> JobSpec:
    return JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": list(argv)}])


def learnt(queue: Queue) -> Estimates:
    return queue.actor.component.estimating.estimates


def run(queue: Queue, job_id: int, seconds: float, **op: Any) -> None:
    """Run a job whose first opcode takes so long."""
    queue.start(job_id)
    job = queue.job(job_id)
    job.ops[0].status = op.get("status", SUCCESS)
    job.ops[0].exec_timestamp = jobs.timestamp(1_000)
    job.ops[0].end_timestamp = job.end_timestamp = jobs.timestamp(1_000 + seconds)
    job.extra[jobs.STATE_SERIAL_KEY] = 10
    job.extra.update(op.get("extra", {}))
    body = op.get("body", jobs.encode_job(job))
    queue.actor.ask(queue.state(job_id, 10, job.ops[0].status, body=body))


def plan(queue: Queue, order: messages.OrderReported) -> messages.PlanRead:
    asker = queue.actor.say(messages.ReadPlan())
    [request] = queue.stage.take_requests(messages.ReportOrder)
    request.reply(order)
    queue.actor.handle_mail()
    return asker.answer_as(messages.PlanRead)


def test_the_run_time_of_a_job_that_succeeded_is_learnt(queue: Queue) -> None:
    [job_id] = queue.submitted(command("/usr/bin/make", "all"))
    run(queue, job_id, 2.5)
    found = learnt(queue).of_key(MAKE)
    assert found is not None
    assert (found.count, found.typical) == (1, 2.5)


def test_failures_and_texts_that_cannot_be_read_or_are_long_teach_nothing(queue: Queue) -> None:
    ids = queue.submitted(*(command("make") for _ in range(3)))
    run(queue, ids[0], 2.5, status=JobStatus.ERROR)
    run(queue, ids[1], 2.5, extra={"more": "x" * settings.LEARNT_BODY_BYTES_MAX})
    run(queue, ids[2], 2.5, body=None)
    queue.actor.component.estimating.learn(b"no job")
    assert len(learnt(queue)) == 0


def test_what_was_learnt_is_written_later_and_read_by_a_successor(queue: Queue) -> None:
    [job_id] = queue.submitted(command("make"))
    run(queue, job_id, 2.5)
    path = queue.stage.places.estimates
    [timer] = [timer for timer in queue.stage.timers if timer.seconds == 600]
    assert not path.exists()
    queue.actor.turn(messages.StoreEstimates())
    assert timer is not None
    queue.restart(2)
    found = learnt(queue).of_key(MAKE)
    assert found is not None
    assert found.typical == 2.5


def test_nothing_is_written_twice(queue: Queue) -> None:
    [job_id] = queue.submitted(command("make"))
    run(queue, job_id, 2.5)
    queue.actor.turn(messages.StoreEstimates())
    queue.stage.places.estimates.unlink()
    queue.actor.turn(messages.StoreEstimates())
    assert not queue.stage.places.estimates.exists()


def test_a_queue_that_stops_writes_what_it_has_learnt(queue: Queue) -> None:
    [job_id] = queue.submitted(command("make"))
    run(queue, job_id, 2.5)
    queue.actor.close()
    assert len(Estimates.decode(queue.stage.places.estimates.read_bytes())) == 1


def test_a_damaged_file_costs_the_estimates_alone(queue: Queue) -> None:
    queue.submitted(command("make"))
    queue.stage.places.estimates.write_bytes(b"\0\0\0")
    queue.restart()
    assert len(learnt(queue)) == 0
    assert queue.submitted(command("make")) == [2]


def test_a_pipe_in_the_place_of_the_file_does_not_stop_the_queue(queue: Queue) -> None:
    os.mkfifo(queue.stage.places.estimates)
    queue.restart()
    assert len(learnt(queue)) == 0
    assert queue.submitted(command("make")) == [1]


def test_a_disk_that_refuses_the_file_does_no_harm(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = queue.submitted(command("make"))
    run(queue, job_id, 2.5)
    # A directory stands in its place.
    queue.stage.places.estimates.mkdir()
    queue.actor.turn(messages.StoreEstimates())
    assert len(learnt(queue)) == 1
    monkeypatch.undo()


def test_a_plan_gets_the_order_and_the_estimates_of_each_kind_of_work(queue: Queue) -> None:
    first, *others = queue.submitted(*(command("make") for _ in range(3)), spec())
    run(queue, first, 4.0)
    queue.start(others[0])
    order = messages.OrderReported(
        pending=[(others[2], [], False), (others[1], [others[0]], True), (99, [], False)],
        count=3,
        running=[first, others[0]],
        slots=20,
    )
    found = plan(queue, order)
    make, delay = found.works
    assert make is not None
    assert (make.typical, delay, found.usual) == (4.0, None, 4.0)
    # The first one holds its slot, until its process has gone.
    assert found.running == [(first, 0, 0.0), (others[0], 0, 0.0)]
    assert found.pending == [(others[2], 1, [], False), (others[1], 0, [others[0]], True)]
    assert (found.slots, found.count, found.accuracy) == (20, 3, None)


def test_the_causes_of_too_many_jobs_are_refused(queue: Queue) -> None:
    asked = messages.ReadPlan(causes_of=[*range(1, settings.CAUSES_MAX + 2)])
    refused = queue.actor.say(asked).answer_as(messages.Failure)
    assert refused.error == "BadRequestError"
    assert refused.text == "causes_of: expected at most 1000, got 1001"


def test_a_plan_says_how_long_a_job_has_been_running(queue: Queue) -> None:
    [job_id] = queue.submitted(command("make"))
    queue.start(job_id)
    started = queue.actor.component.runtime.wall_clock() - 7
    queue.recorded(job_id, 10, JobStatus.RUNNING, started=started)
    order = messages.OrderReported(pending=[], count=0, running=[job_id], slots=1)
    [(_, _, elapsed)] = plan(queue, order).running
    assert 7 <= elapsed < 600


def test_jobs_of_the_same_kinds_share_what_their_estimate_goes_by(queue: Queue) -> None:
    ids = queue.submitted(command("make", "a"), command("/bin/make", "b"))
    rows = [queue.actor.component.store.table.find(job_id) for job_id in ids]
    works = [row.work for row in rows if row is not None]
    assert works[0] is works[1] == (MAKE,)
