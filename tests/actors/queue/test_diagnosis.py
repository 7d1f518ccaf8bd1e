"""The diagnosis of a queue on a stage: explanations and simulations."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.queue.queue_rules import REJECTS, UUID, command, take_rules
from tests.actors.queue.queue_stage import Queue, spec

from ganger.storage.jobs import JobStatus
from ganger.transport import messages

RUNNING, SUCCESS = JobStatus.RUNNING, JobStatus.SUCCESS


def test_questions_are_asked_again_when_the_asked_component_is_replaced(queue: Queue) -> None:
    queue.submitted(spec())
    why = queue.actor.say(messages.ExplainJob(id=1))
    what_if = queue.actor.say(messages.Simulate())
    queue.stage.sent.clear()
    queue.actor.notify(messages.ComponentReplaced(component="scheduler"))
    token = queue.stage.take_one(messages.ExplainPending, to="filter_evaluator").token
    page = queue.stage.take_one(messages.JudgeSimulation, to="filter_evaluator")
    queue.actor.notify(messages.PendingExplained(token=token, position=None))
    assert why.answer_as(messages.JobExplained).text
    text = "refused"
    queue.actor.notify(messages.SimulationFailed(token=page.token, text=text))
    assert what_if.refusal == ("BadRequestError", text)
    # Nothing is open any more.
    queue.stage.sent.clear()
    queue.actor.notify(messages.ComponentReplaced(component="scheduler"))
    assert queue.stage.sent == []


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


def test_a_simulation_that_failed_is_refused(queue: Queue) -> None:
    asker = queue.actor.ask(messages.Simulate())
    page = queue.stage.take_one(messages.JudgeSimulation)
    queue.actor.notify(messages.SimulationFailed(token=page.token, text="too much"))
    assert asker.refusal == ("BadRequestError", "too much")
    queue.actor.notify(messages.SimulationFailed(token=page.token, text="too much"))
    assert len(asker.answers) == 1
