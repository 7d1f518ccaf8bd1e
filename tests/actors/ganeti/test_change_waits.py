"""Waiting for a change of a job: what is told at once, and what wakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.actors.ganeti.queue_parts import waits_of
from tests.actors.ganeti.waiting_clients import (
    answer,
    cancel,
    log,
    now,
    priority,
    request,
    wait,
    waits,
    woken,
)
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Stage

from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, RUNNING = JobStatus.QUEUED, JobStatus.WAITING, JobStatus.RUNNING


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()


def test_what_the_client_does_not_know_is_told_at_once(queue: Queue) -> None:
    queue.submitted(spec())
    asker = queue.actor.ask(request(fields=["status", "opstatus"]))
    assert asker.answer == messages.JobAwaited(
        values=b'["queued",["queued"]]', log=b"[]", is_final=False
    )
    other = queue.actor.ask(request(fields=["status"], values=["running"]))
    assert answer(other) == (["queued"], [])
    assert waits(queue) == 0


def test_new_log_entries_are_told_at_once(queue: Queue) -> None:
    queue.run_new()
    log(queue, 1, 2)
    values = now(queue)
    asker = queue.actor.ask(request(values=values, log_serial=1))
    assert answer(asker) == (values, [[2, [5, 6], "message", "line 2"]])


def test_an_ended_job_is_told_at_once_whatever_is_known(queue: Queue) -> None:
    queue.finish_new()
    values = now(queue)
    found = queue.actor.ask(request(values=values)).answer_as(messages.JobAwaited)
    assert (json.loads(found.values), found.is_final) == (values, True)
    assert values[0] == "success"


def test_without_time_to_wait_the_answer_comes_at_once(queue: Queue) -> None:
    queue.submitted(spec())
    values = now(queue)
    assert answer(queue.actor.ask(request(values=values, seconds=0.0))) == (values, [])


def test_an_unknown_field_makes_all_values_null_and_waiting_goes_on(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    asker = queue.actor.ask(request(fields=["status", "nope"], values=["queued", None]))
    assert answer(asker) == ([None, None], [])
    asker = wait(queue, fields=["status", "nope"], values=[None, None])
    queue.start_running(1)
    assert asker.answers == []
    log(queue, 1)
    assert answer(asker) == ([None, None], [[1, [5, 6], "message", "line 1"]])


def test_an_unknown_or_archived_job_is_refused(queue: Queue) -> None:
    queue.finish_new()
    queue.actor.ask(messages.ArchiveJob(id=1))
    for job_id, error in ((1, "ArchivedJobError"), (2, "UnknownJobError")):
        assert queue.actor.ask(request(job_id)).refusal == (
            error,
            f"there is no live job {job_id}",
        )


def test_too_many_fields_are_refused(queue: Queue) -> None:
    queue.submitted(spec())
    asked = queue.actor.ask(request(fields=["status"] * 101))
    assert asked.refusal == ("BadRequestError", "fields: expected at most 100, got 101")


def test_a_wait_keeps_nothing_large(queue: Queue) -> None:
    large = {"OP_ID": "OP_EXEC", "argv": ["x" * 100_000]}
    queue.submitted(messages.JobSpec(ops=[large]), spec())
    for number, fields in enumerate((["ops"], ["ops", "y" * 100_000]), 1):
        [values] = [answer(queue.actor.ask(request(fields=fields)))[0]]
        queue.actor.say(request(fields=fields, values=values), number=number)
    found = list(waits_of(queue.actor.component)._waits.values())
    assert len(found) == 2
    for one in found:
        kept = (one.known, one.fields, one.envelope.message)
        assert len(msgspec.msgpack.encode(kept)) < 200


# ---------------------------------------------------------------- what wakes


def reject(queue: Queue) -> None:
    queue.actor.notify(messages.JobsRejected(jobs=[(1, "no")]))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (priority, ["queued", ["queued"], -10]),
        (cancel, ["canceled", ["canceled"], 0]),
        (reject, ["canceled", ["canceled"], 0]),
    ],
)
def test_changes_of_a_pending_job_wake(
    queue: Queue, change: Callable[[Queue], None], expected: list[Any]
) -> None:
    queue.submitted(spec(), spec())
    values, _ = woken(queue, lambda: change(queue))
    assert values[:3] == expected


def test_the_end_of_waiting_for_dependencies_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    asker = wait(queue, 2)
    assert now(queue, 2)[:2] == ["waiting", ["waiting"]]
    queue.choose(eligible=[2])
    assert answer(asker)[0][:2] == ["queued", ["queued"]]


def test_a_job_that_starts_out_of_waiting_for_dependencies_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    asker = wait(queue, 2)
    queue.choose(2)
    assert answer(asker)[0][:2] == ["queued", ["queued"]]


def test_states_of_the_process_wake(queue: Queue) -> None:
    queue.submitted(spec(ops=2), spec())
    queue.start(1)
    values, _ = woken(queue, lambda: queue.record(1, 10, RUNNING, QUEUED, started=7.5))
    assert (values[0], values[1], values[3]) == ("running", ["running", "queued"], [7, 500_000])
    # The status of the job stays the same.
    values, _ = woken(queue, lambda: queue.record(1, 11, JobStatus.SUCCESS, QUEUED))
    assert values[1] == ["success", "queued"]
    values, _ = woken(queue, lambda: queue.record(1, 12, JobStatus.SUCCESS, RUNNING))
    assert values[1] == ["success", "running"]


def test_a_result_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)

    def record() -> None:
        job = jobs.decode_job(queue.body_of_process(1, 11, RUNNING))
        job.ops[0].result = {"done": True}
        body = jobs.encode_job(job)
        queue.actor.say(queue.state(1, 11, RUNNING, body=body))

    values, _ = woken(queue, record)
    assert values[5] == [{"done": True}]


def test_a_state_that_the_process_has_flushed_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)

    def record() -> None:
        queue.write_as_process(1, queue.body_of_process(1, 11, JobStatus.ERROR))
        queue.actor.say(queue.state(1, 11, JobStatus.ERROR, body=None))

    values, _ = woken(queue, record)
    assert values[:2] == ["error", ["error"]]


@pytest.mark.parametrize("is_in_message", [True, False])
def test_waiting_for_locks_wakes(queue: Queue, is_in_message: bool) -> None:  # noqa: FBT001
    queue.submitted(spec(), spec())
    queue.start(1)

    def wait_for_locks() -> None:
        body = queue.body_of_process(1, 11, WAITING)
        queue.write_as_process(1, body)
        waits = messages.JobWaits(job_id=1, serial=11, body=body if is_in_message else None)
        queue.actor.notify(waits)

    values, _ = woken(queue, wait_for_locks)
    assert values[:2] == ["waiting", ["waiting"]]


def test_a_new_priority_of_a_running_job_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    job = queue.job(1)

    def reprioritised() -> None:
        queue.actor.say(messages.ChangeJobPriority(id=1, priority=-10))
        asked = queue.stage.take_one(messages.DeliverToJob).message
        assert isinstance(asked, messages.PriorityRequested)
        job.ops[0].priority = -10
        job.extra[jobs.STATE_SERIAL_KEY] = 11
        state = messages.RecordState(
            job_id=1,
            serial=11,
            status=RUNNING,
            priority=-10,
            log_serial=0,
            body=jobs.encode_job(job),
        )
        queue.actor.say(state)
        answered = messages.PriorityAnswered(
            job_id=1, token=asked.token, priority=-10, accepted=True, text=""
        )
        queue.actor.notify(answered)

    values, _ = woken(queue, reprioritised)
    assert values[2] == -10


def test_an_answer_of_the_process_about_the_priority_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    answered = messages.PriorityAnswered(job_id=1, token=5, priority=-10, accepted=True, text="")
    values, _ = woken(queue, lambda: queue.actor.notify(answered))
    assert values[2] == -10


def test_log_entries_wake_and_known_ones_do_not(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    log(queue, 1)
    values = now(queue)
    asker = wait(queue)
    log(queue, 1)
    assert asker.answers == []
    log(queue, 2, 3)
    assert answer(asker) == (
        values,
        [[serial, [5, 6], "message", f"line {serial}"] for serial in (2, 3)],
    )


def test_entries_behind_a_gap_wake_when_the_gap_is_closed(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    log(queue, 1)
    asker = wait(queue)
    log(queue, 3)
    assert asker.answers == []
    log(queue, 2, 3)
    assert [entry[0] for entry in answer(asker)[1]] == [2, 3]


def test_log_entries_of_a_later_state_wake(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)

    def record() -> None:
        job = jobs.decode_job(queue.body_of_process(1, 11, RUNNING))
        job.ops[0].log = [(1, (5, 6), "message", "hello")]
        state = queue.state(1, 11, RUNNING, body=jobs.encode_job(job), log_serial=1)
        queue.actor.say(state)

    assert woken(queue, record)[1] == [[1, [5, 6], "message", "hello"]]


def test_the_death_of_the_process_wakes(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    values, _ = woken(queue, lambda: queue.end_process(1, has_left=False))
    assert (values[0], values[5][0][:22]) == ("error", "detected death of job ")
    assert values[4] is not None


def test_a_job_that_its_process_gives_back_wakes(queue: Queue) -> None:
    queue.submitted(spec(ops=2), spec())
    queue.start(1)
    queue.recorded(1, 10, JobStatus.SUCCESS, RUNNING)

    def give_back() -> None:
        job = jobs.decode_job(queue.body_of_process(1, 11, JobStatus.SUCCESS, QUEUED))
        job.livelock = job.process_id = None
        body = jobs.encode_job(job)
        queue.write_as_process(1, body)
        queue.actor.say(messages.JobReturns(job_id=1, serial=11, body=body))

    values, _ = woken(queue, give_back)
    assert values[1] == ["success", "queued"]
    values = now(queue)
    asker = wait(queue)
    queue.lose_process(1)
    found = now(queue)
    assert found == values or answer(asker)[0] == found


def test_a_state_that_changes_nothing_relevant_does_not_wake(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start_running(1)
    asker = wait(queue)
    queue.recorded(1, 11, RUNNING)
    queue.actor.ask(messages.ReadJob(id=1))
    assert asker.answers == []
    assert waits(queue) == 1


def test_a_change_counts_when_it_is_durable(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.submitted(spec(), spec())
    queue.rest()
    asker = wait(queue)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("os.fdatasync", refuse)
        refused = queue.actor.ask(messages.CancelJob(id=1))
    assert refused.refusal[0] == "OutcomeUnknownError"
    assert asker.answers == []
    queue.retry_disk()
    queue.actor.ask(messages.CancelJob(id=1))
    assert answer(asker)[0][0] == "canceled"


def test_a_job_that_was_archived_before_its_turn_came_is_refused(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec())
    values = now(queue)
    askers = [queue.actor.say(request(values=values), number=number) for number in (1, 2, 3)]
    monkeypatch.setattr("ganger.actors.ganeti.change_waits.JOB_WAITS_SLICE_SECONDS", 0.0)
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.ask(messages.ArchiveJob(id=1))
    queue.actor.turn(messages.JobWaitsDue())
    assert answer(askers[0])[0][0] == "canceled"
    for asker in askers[1:]:
        assert asker.refusal == ("ArchivedJobError", "there is no live job 1")
