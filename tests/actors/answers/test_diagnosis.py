"""The diagnosis of a queue on a stage: explanations and simulations."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from tests.actors.queue.queue_rules import REJECTS, UUID, command, take_rules
from tests.actors.queue.queue_stage import PID, Queue, spec
from tests.actors.runtime.stage import Asker

from ganger.actors.runtime.mailbox import Expired
from ganger.storage import errors, settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import JobVerdict, Message, PendingJob

MessageT = TypeVar("MessageT", bound=Message)

RUNNING, SUCCESS = JobStatus.RUNNING, JobStatus.SUCCESS


def reply(queue: Queue, message: Message, *, to: type[MessageT]) -> MessageT:
    """Answer the only request of this kind; the request."""
    [request] = queue.stage.take_requests(to)
    request.reply(message)
    queue.actor.handle_mail()
    return request.message  # type: ignore[return-value]


def test_questions_are_asked_again_when_a_component_was_replaced(queue: Queue) -> None:
    queue.submitted(spec())
    why, deadline = Asker(), queue.stage.now + 1_000.0
    queue.actor.handle(Envelope(messages.ExplainJob(id=1), why, deadline=deadline))
    what_if = queue.actor.say(messages.Simulate())
    tried = queue.actor.say(messages.TestFilters())
    deadlines = [request.deadline == deadline for _, request in queue.stage.requests]
    assert deadlines == [True, False, False]
    queue.stage.requests.clear()
    queue.actor.hear_of_restart("scheduler")
    reply(queue, messages.PendingExplained(position=None), to=messages.ExplainPending)
    assert why.answer_as(messages.JobExplained).text
    reply(queue, messages.FiltersTested(rows=[]), to=messages.JudgeTest)
    assert tried.answer_as(messages.FiltersTested).rows == []
    refusal = ("BadRequestError", "too much")
    reply(queue, messages.Failure(*refusal), to=messages.JudgeSimulation)
    assert what_if.refusal == refusal
    # Nothing is open any more.
    queue.actor.hear_of_restart("scheduler")
    assert queue.stage.requests == []


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_job_that_no_rule_can_look_at_names_its_damaged_file(
    queue: Queue, *, is_damaged: bool
) -> None:
    queue.submitted(spec())
    queue.rest()
    if is_damaged:
        (queue.stage.places.queue / "job-1").unlink()
    why = queue.actor.say(messages.ExplainJob(id=1))
    position = messages.QueuePosition(
        open=[], full=[], action="PAUSE", rule=None, ahead=0, first_ahead=[], running=[],
        slots=1, best_priority=0, remedy=messages.Remedy(priority=-3),
    )  # fmt: skip
    reply(queue, messages.PendingExplained(position=position), to=messages.ExplainPending)
    found = why.answer_as(messages.JobExplained)
    text = "job 1 is queued: no filter rule can be applied, because its file is damaged: "
    assert found.text.startswith(text) == is_damaged
    assert (found.remedy == messages.Remedy()) == is_damaged


@pytest.mark.parametrize(("priority", "is_named"), [(-3, True), (-6, False)])
def test_a_priority_that_a_rule_holds_is_no_way_to_the_locks(
    queue: Queue, priority: int, *, is_named: bool
) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.recorded(1, 10, JobStatus.WAITING)
    urgent = ["opcode", ["<", "priority", -5]]
    take_rules(queue, {**REJECTS, "action": "PAUSE", "predicates": [urgent]})
    why = queue.actor.say(messages.ExplainJob(id=1))
    found = messages.OwnerExplained(locks=[], remedy=messages.Remedy(priority=priority))
    reply(queue, found, to=messages.ExplainOwner)
    remedy = why.answer_as(messages.JobExplained).remedy
    assert (remedy.priority, remedy.is_turn) == (priority if is_named else None, not is_named)


def ask_about_running(queue: Queue) -> tuple[Asker, Envelope]:
    queue.run_new()
    why = Asker()
    patient = queue.stage.now + 1_000.0
    queue.actor.handle(Envelope(messages.ExplainJob(id=1), why, deadline=patient))
    [request] = queue.stage.take_requests(messages.ReadOpcodeWait)
    assert request.deadline == queue.stage.now + settings.OPCODE_WAIT_SECONDS
    return why, request


def end_running(queue: Queue) -> None:
    queue.recorded(1, 11, SUCCESS)
    queue.write_as_process(1, queue.body_of_process(1, 11, SUCCESS))
    queue.lose_process(1, has_left=True)


def test_a_running_job_is_explained_while_the_configuration_store_is_replaced(
    queue: Queue,
) -> None:
    why, request = ask_about_running(queue)
    request.refuse(errors.ComponentRestartedError("component config_store is being restarted"))
    queue.actor.handle_mail()
    assert why.answers == []
    queue.actor.handle(Expired(request.number))
    known = why.answer_as(messages.JobExplained)
    assert (known.status, known.obstacles) == (RUNNING, [])
    assert known.text == (
        f"job 1 is running (process {PID}); whether its opcode waits for cluster/config is not"
        " known, because the configuration store does not answer"
    )


def test_a_job_that_ends_while_the_configuration_store_is_replaced_has_ended(queue: Queue) -> None:
    why, request = ask_about_running(queue)
    end_running(queue)
    queue.actor.handle(Expired(request.number))
    assert why.answer_as(messages.JobExplained).text == "job 1 has ended: success"


def test_a_job_that_is_archived_while_the_store_is_replaced_is_not_explained(queue: Queue) -> None:
    why, request = ask_about_running(queue)
    end_running(queue)
    queue.actor.ask(messages.ArchiveJob(id=1))
    request.reply(messages.OpcodeWait())
    queue.actor.handle_mail()
    assert why.refusal == ("JobStateError", "job 1 has ended meanwhile")


def test_a_job_that_is_archived_meanwhile_is_not_explained(queue: Queue) -> None:
    queue.submitted(spec())
    why = queue.actor.say(messages.ExplainJob(id=1))
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.ask(messages.ArchiveJob(id=1))
    reply(queue, messages.PendingExplained(position=None), to=messages.ExplainPending)
    assert why.refusal == ("JobStateError", "job 1 has ended meanwhile")


def test_all_jobs_are_judged_before_the_scheduler_simulates(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TRIED_JOBS", 2)
    queue.submitted(*[spec() for _ in range(4)])
    lock_file = queue.start(1)
    what_if = queue.actor.say(messages.Simulate(ended={1: SUCCESS}))
    for pending, running in (([2, 3], [1]), ([4], [])):
        jobs, occupants = (
            [JobVerdict(job=PendingJob(id=one, priority=0)) for one in ids]
            for ids in (pending, running)
        )
        judged = messages.SimulationJudged(jobs=jobs, running=occupants)
        page = reply(queue, judged, to=messages.JudgeSimulation)
        assert [one.job.id for one in page.jobs] == pending
        assert [one.job.id for one in page.running] == running
    outcome = messages.Simulated(start=[2], paused=[], ended=[], counts={}, granted=[], waiting=[])
    asked = reply(queue, outcome, to=messages.RunSimulation)
    assert [one.job.id for one in (*asked.jobs, *asked.running)] == [2, 3, 4, 1]
    locks = messages.LocksSimulated(granted=[9], waiting=[], count=0)
    assert reply(queue, locks, to=messages.SimulateLocks).ended == [lock_file]
    answer = what_if.answer_as(messages.Simulated)
    assert (answer.start, answer.granted) == ([2], [9])


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"without": "no-such-rule"}, "without: there is no rule no-such-rule"),
        ({"priorities": {1: 20}}, "priorities[1]: expected -20 to 19, got 20"),
        ({"ended": {1: RUNNING}}, "ended[1]: expected a final status, not running"),
        ({"ended": {9: SUCCESS}}, "there is no live job 9"),
    ],
)
def test_what_cannot_be_so_is_not_simulated(queue: Queue, asked: Any, text: str) -> None:
    queue.submitted(command())
    take_rules(queue, REJECTS)
    assert queue.actor.ask(messages.Simulate(**asked)).refusal[1] == text
    assert queue.stage.take(messages.JudgeSimulation) == []
    queue.actor.say(messages.Simulate(without=UUID, priorities={1: 19}, ended={1: SUCCESS}))
    assert len(queue.stage.take(messages.JudgeSimulation)) == 1


def test_nothing_is_simulated_before_the_rules_are_known(queue: Queue) -> None:
    queue.actor.component.gate.rules = None
    asker = queue.actor.say(messages.TestFilters(without=UUID))
    assert asker.answers == []
    take_rules(queue, REJECTS)
    assert len(queue.stage.take(messages.JudgeTest)) == 1


def test_the_simulation_of_a_client_that_has_gone_is_given_up(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TRIED_JOBS", 1)
    queue.submitted(spec(), spec())
    judged = messages.SimulationJudged(jobs=[], running=[])
    gone = queue.actor.say(messages.Simulate(), peer=b"gone")
    reply(queue, judged, to=messages.JudgeSimulation)
    queue.actor.notify(messages.PeerGone(peer=b"gone"))
    reply(queue, judged, to=messages.JudgeSimulation)
    assert queue.stage.take_requests(messages.RunSimulation) == []
    assert gone.answers == []
    # The client repeats it over its next connection.
    queue.actor.say(messages.Simulate(), peer=b"back")
    reply(queue, judged, to=messages.JudgeSimulation)
    reply(queue, judged, to=messages.JudgeSimulation)
    assert len(queue.stage.take_requests(messages.RunSimulation)) == 1
    assert not queue.actor.component.diagnosis._simulating
