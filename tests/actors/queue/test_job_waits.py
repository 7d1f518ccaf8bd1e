"""Waiting for a change of a job: what ends it, and with which answer."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker, Stage

from ganger.actors.queue.job_state import JobState
from ganger.actors.queue.job_table import Row
from ganger.storage import jobs, settings
from ganger.storage.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

FIELDS = ["status", "opstatus", "priority", "start_ts", "end_ts", "opresult"]
SECONDS = 60.0
QUEUED, WAITING, RUNNING = JobStatus.QUEUED, JobStatus.WAITING, JobStatus.RUNNING


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()


def request(job_id: int = 1, **fields: Any) -> messages.AwaitJobChange:
    fields.setdefault("seconds", SECONDS)
    return messages.AwaitJobChange(id=job_id, fields=fields.pop("fields", FIELDS), **fields)


def answer(asker: Asker) -> tuple[list[Any], list[Any]]:
    """The values and the log of the only answer."""
    found = asker.answer_as(messages.JobAwaited)
    return json.loads(found.values), json.loads(found.log)


def now(queue: Queue, job_id: int = 1) -> list[Any]:
    """The values as they are now."""
    return answer(queue.actor.ask(request(job_id)))[0]


def last_serial(queue: Queue, job_id: int = 1) -> int:
    return queue.job(job_id).last_log_serial


def wait(queue: Queue, job_id: int = 1, **fields: Any) -> Asker:
    """Somebody who has everything up to now waits for more."""
    fields.setdefault("values", now(queue, job_id))
    fields.setdefault("log_serial", last_serial(queue, job_id))
    asker = queue.actor.say(request(job_id, **fields), number=next(_numbers))
    queue.actor.end_turn()
    assert asker.answers == []
    return asker


_numbers = itertools.count(1_000_000)


def woken(queue: Queue, change: Callable[[], object]) -> tuple[list[Any], list[Any]]:
    """What somebody who waits gets when this has happened; he who waits for another job: none."""
    asker, other = wait(queue), wait(queue, 2)
    change()
    queue.actor.end_turn()
    assert other.answers == []
    return answer(asker)


def waits(queue: Queue) -> int:
    return len(queue.actor.component.store.reader.waits)


def log(queue: Queue, *serials: int, job_id: int = 1) -> None:
    entries = [(serial, (5, 6), "message", f"line {serial}") for serial in serials]
    queue.actor.turn(messages.JobLogAppended(job_id=job_id, op_index=0, entries=entries))


# ---------------------------------------------------------------- at once


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
    waits = list(queue.actor.component.store.reader.waits._waits.values())
    assert len(waits) == 2
    for wait in waits:
        kept = (wait.known, wait.fields, wait.envelope.message)
        assert len(msgspec.msgpack.encode(kept)) < 200


# ---------------------------------------------------------------- what wakes


def priority(queue: Queue) -> None:
    queue.actor.say(messages.ChangeJobPriority(id=1, priority=-10))


def cancel(queue: Queue) -> None:
    queue.actor.say(messages.CancelJob(id=1))


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
    assert refused.refusal[0] == "ReadOnlyError"
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
    monkeypatch.setattr(settings, "JOB_WAITS_SLICE_SECONDS", 0.0)
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.ask(messages.ArchiveJob(id=1))
    queue.actor.turn(messages.JobWaitsDue())
    assert answer(askers[0])[0][0] == "canceled"
    for asker in askers[1:]:
        assert asker.refusal == ("ArchivedJobError", "there is no live job 1")


# ---------------------------------------------------------------- time


def rings(queue: Queue) -> list[float]:
    """The times of the alarms for waits that are set."""
    return [
        timer.seconds
        for timer in queue.stage.timers
        if timer.alarm is not None
        and not timer.alarm.is_canceled
        and isinstance(timer.alarm.item, Envelope)
        and isinstance(timer.alarm.item.message, messages.JobWaitsDue)
    ]


def pass_time(queue: Queue, seconds: float) -> None:
    queue.stage.now += seconds
    queue.actor.turn(messages.JobWaitsDue())


def test_when_the_time_is_up_the_job_is_told_as_it_is(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    values = now(queue)
    asker, other = wait(queue), wait(queue, 2, seconds=SECONDS + 1)
    pass_time(queue, SECONDS - 1)
    assert asker.answers == []
    pass_time(queue, 1)
    assert answer(asker) == (values, [])
    assert other.answers == []
    pass_time(queue, 1)
    assert answer(other) == (values, [])
    assert waits(queue) == 0


def test_one_alarm_is_for_all(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    values = now(queue)
    for number, seconds in enumerate((30.0, 40.0, 20.0, 50.0), 1):
        queue.actor.say(request(values=values, seconds=seconds), number=number)
        assert len(rings(queue)) == 1
    assert rings(queue) == [20.0]
    queue.stage.timers.clear()
    pass_time(queue, 20.0)
    assert rings(queue) == [10.0]


def test_no_alarm_is_set_for_what_is_answered_at_once(queue: Queue) -> None:
    queue.finish_new()
    queue.actor.ask(request())
    assert rings(queue) == []


# ---------------------------------------------------------------- who waits


def test_a_repeated_request_is_answered_once_under_its_last_number(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    values = now(queue)
    asked = request(values=values, ticket=7)
    first = queue.actor.say(asked, number=1)
    again = queue.actor.say(asked, number=2)
    priority(queue)
    queue.actor.end_turn()
    assert first.answers == []
    assert [envelope.number for envelope in again.envelopes] == [2]


def test_a_request_that_comes_again_after_the_change_ends_the_first(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    asked = request(values=now(queue), ticket=7)
    first = queue.actor.ask(asked)
    priority(queue)
    again = queue.actor.say(asked, number=2)
    queue.actor.end_turn()
    assert first.answers == []
    assert answer(again)[0][2] == -10
    assert waits(queue) == 0


def test_a_client_that_has_gone_or_stops_gets_no_answer(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    values = now(queue)
    gone = queue.actor.say(request(values=values), number=1, peer=b"a")
    stopped = queue.actor.say(request(values=values), number=1, peer=b"b")
    left = queue.actor.say(request(values=values), number=2, peer=b"b")
    queue.actor.turn(messages.PeerGone(peer=b"a"))
    queue.actor.say(messages.StopWatch(request_id=1), peer=b"b")
    assert waits(queue) == 1
    priority(queue)
    queue.actor.end_turn()
    assert gone.answers == stopped.answers == []
    assert answer(left)[0][2] == -10


def test_after_a_restart_the_repeated_request_gets_what_has_changed_meanwhile(
    queue: Queue,
) -> None:
    queue.submitted(spec(), spec())
    values = now(queue)
    lost = wait(queue)
    queue.actor.ask(messages.CancelJob(id=1))
    assert answer(lost)[0][0] == "canceled"
    queue.restart(2)
    again = queue.actor.ask(request(values=values))
    assert answer(again)[0][0] == "canceled"
    waiting = wait(queue, 2)
    queue.actor.ask(messages.CancelJob(id=2))
    assert answer(waiting)[0][0] == "canceled"


# ---------------------------------------------------------------- many


def begin(queue: Queue, count: int, job_id: int = 1, **fields: Any) -> list[Asker]:
    values = now(queue, job_id)
    return [
        queue.actor.say(
            request(job_id, values=values, **fields), number=number, peer=b"%d" % job_id
        )
        for number in range(1, count + 1)
    ]


def test_many_waits_of_one_job_are_answered_a_slice_at_a_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec())
    askers = begin(queue, 1_000)
    queue.actor.end_turn()
    ticks = itertools.count(0, settings.JOB_WAITS_SLICE_SECONDS / 100)
    monkeypatch.setattr(queue.actor.component.runtime, "clock", lambda: next(ticks))
    cancel(queue)
    queue.actor.end_turn()
    answered = [0]
    while queue.stage.take(messages.JobWaitsDue):
        answered.append(sum(bool(asker.answers) for asker in askers))
        assert 90 <= answered[-1] - answered[-2] <= 110
        queue.actor.turn(messages.JobWaitsDue())
    assert [answer(asker)[0][0] for asker in askers] == ["canceled"] * 1_000
    assert waits(queue) == 0


def test_a_job_is_read_once_for_all_that_wait_for_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec())
    begin(queue, 100)
    begin(queue, 100, 2)
    read: list[int] = []
    state = queue.actor.component.queries.state

    def noted(row: Row) -> JobState:
        read.append(row.id)
        return state(row)

    monkeypatch.setattr(queue.actor.component.queries, "state", noted)
    cancel(queue)
    queue.actor.end_turn()
    assert read == [1]
    assert waits(queue) == 100


def test_jobs_of_others_are_not_read(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a job without waits costs nothing, however many wait for other jobs."""
    for _ in range(31):
        queue.submitted(*([spec()] * 100))
    for job_id in range(1, 3_001):
        begin(queue, 1, job_id)
    assert waits(queue) == 3_000
    monkeypatch.setattr(queue.actor.component.queries, "state", None)
    monkeypatch.setattr(queue.actor.component.store.reader.waits, "next_changed", lambda: None)
    queue.actor.ask(messages.CancelJob(id=3_001))
    assert queue.job(3_001).status is JobStatus.CANCELED
