"""Waiting for a change of a job: time limits, clients that come and go, and very many of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.actors.ganeti.queue_parts import answers_of, waits_of
from tests.actors.ganeti.waiting_clients import (
    SECONDS,
    answer,
    cancel,
    now,
    priority,
    request,
    wait,
    waits,
)
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker, Stage

from ganger.actors.ganeti import change_waits
from ganger.actors.ganeti.job_state import JobState
from ganger.actors.store.job_rows import Row
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()


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
    ticks = itertools.count(0, change_waits.JOB_WAITS_SLICE_SECONDS / 100)
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
    state = answers_of(queue.actor.component).queries.state

    def noted(row: Row) -> JobState:
        read.append(row.id)
        return state(row)

    monkeypatch.setattr(answers_of(queue.actor.component).queries, "state", noted)
    cancel(queue)
    queue.actor.end_turn()
    assert read == [1]
    assert waits(queue) == 100


@pytest.mark.slow
def test_jobs_of_others_are_not_read(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a job without waits costs nothing, however many wait for other jobs."""
    for _ in range(31):
        queue.submitted(*([spec()] * 100))
    for job_id in range(1, 3_001):
        begin(queue, 1, job_id)
    assert waits(queue) == 3_000
    monkeypatch.setattr(answers_of(queue.actor.component).queries, "state", None)
    monkeypatch.setattr(waits_of(queue.actor.component), "next_changed", lambda: None)
    queue.actor.ask(messages.CancelJob(id=3_001))
    assert queue.job(3_001).status is JobStatus.CANCELED
