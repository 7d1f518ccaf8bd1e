"""Jobs whose locks the configuration decides: held until it has answered, and judged again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.actors.rules.rules_in_force import RulesInForce
from ganger.storage import errors
from ganger.storage.filters.rules import FilterRule, parse_rule
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.lock_types import (
    UNKNOWN,
    JobForecast,
    LockForecast,
    exclusive,
    forecast_of,
)
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import ChosenUnder, JobsArrived, JobToJudge, JobVerdict, PendingJob

UUID = "aaaaaaaa-0000-4000-8000-000000000000"
ON_N7 = ["lock", ["=", "touches", "node/n7"]]


def rule(*predicates: list[Any], action: object = "PAUSE") -> FilterRule:
    raw = {"uuid": UUID, "watermark": 1, "action": action, "predicates": list(predicates)}
    return parse_rule(raw)


def delay(node: str) -> list[dict[str, Any]]:
    return [{"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_master": False, "on_nodes": [node]}]


def arrived(job_id: int, node: str = "n7") -> JobToJudge:
    return JobToJudge(job=PendingJob(id=job_id, priority=0), inputs=delay(node))


def taking(name: str) -> LockForecast:
    return forecast_of(node=exclusive([name]))


class Told:
    """An evaluator with one rule, and the configuration store that it asks."""

    def __init__(self, stage: Stage, known: FilterRule) -> None:
        self.stage = stage
        self.evaluator: Staged[FilterEvaluator] = stage.start(FilterEvaluator)
        self.evaluator.notify(messages.RulesChanged(rules=[known], serial=1))
        self.chain = self.next_chain()

    def next_chain(self) -> int:
        return self.stage.take_one(messages.RuleChainChanged, to="scheduler").chain

    def hear(self, *pending: JobToJudge, running: tuple[JobToJudge, ...] = ()) -> list[JobVerdict]:
        self.evaluator.notify(JobsArrived(jobs=list(pending), running=list(running)))
        return self.verdicts()

    def verdicts(self) -> list[JobVerdict]:
        found = self.stage.take_one(messages.JobsJudged, to="scheduler")
        return [*found.running, *found.jobs]

    def asked(self) -> Envelope:
        [envelope] = self.stage.take_requests(messages.ResolveForecasts)
        return envelope

    def answer(self, *taken: LockForecast, serial_no: int = 1) -> None:
        self.asked().reply(
            messages.ForecastsResolved(
                forecasts=[JobForecast(one, one) for one in taken], serial_no=serial_no
            )
        )
        self.evaluator.handle_mail()


def told(verdict: JobVerdict) -> tuple[str, str | None, bool]:
    return verdict.action, verdict.rule, bool(verdict.chain)


@pytest.mark.parametrize(
    ("name", "expected"), [("n7", ("PAUSE", UUID, True)), ("n8", ("ACCEPT", None, True))]
)
def test_a_job_is_held_until_the_configuration_has_said_which_locks_it_takes(
    stage: Stage, name: str, expected: tuple[str, str | None, bool]
) -> None:
    store = Told(stage, rule(ON_N7))
    [verdict] = store.hear(arrived(3))
    assert told(verdict) == ("PAUSE", UUID, True)
    store.answer(taking(name))
    [verdict] = store.verdicts()
    assert (told(verdict), verdict.chain) == (expected, store.chain)
    # Others that ask the same are judged at once.
    [verdict] = store.hear(arrived(4))
    assert told(verdict) == expected
    assert stage.take_requests(messages.ResolveForecasts) == []


def test_a_job_that_would_only_be_rejected_perhaps_is_not(stage: Stage) -> None:
    store = Told(stage, rule(ON_N7, action="REJECT"))
    [verdict] = store.hear(arrived(3))
    assert told(verdict) == ("PAUSE", UUID, True)
    assert stage.take(messages.JobsRejected) == []
    store.answer(taking("n7"))
    [verdict] = store.verdicts()
    assert told(verdict) == ("REJECT", UUID, True)
    assert [job_id for job_id, _ in stage.take_one(messages.JobsRejected).jobs] == [3]


def test_nothing_is_asked_where_the_answer_decides_nothing(stage: Stage) -> None:
    store = Told(stage, rule(["lock", ["=", "level", "cluster"]]))
    [verdict] = store.hear(arrived(3))
    assert told(verdict) == ("PAUSE", UUID, True)
    assert stage.take_requests(messages.ResolveForecasts) == []


def test_a_running_job_keeps_its_place_meanwhile(stage: Stage) -> None:
    store = Told(stage, rule(ON_N7))
    [verdict] = store.hear(running=(arrived(3),))
    assert told(verdict)[2] is False
    store.answer(UNKNOWN)
    [verdict] = store.verdicts()
    # It may take any lock also by the configuration.
    assert told(verdict) == ("PAUSE", UUID, True)


def test_when_answers_may_be_others_each_job_is_judged_again(stage: Stage) -> None:
    store = Told(stage, rule(ON_N7))
    store.hear(arrived(3))
    store.answer(taking("n8"), serial_no=4)
    store.verdicts()
    store.evaluator.notify(messages.ForecastsOutdated(serial_no=5))
    assert store.next_chain() != store.chain
    [verdict] = store.hear(arrived(3))
    assert told(verdict) == ("PAUSE", UUID, True)
    # An answer of the old configuration counts for nothing: it is asked again.
    store.answer(taking("n8"), serial_no=4)
    assert stage.take(messages.JobsJudged) == []
    store.answer(taking("n7"), serial_no=5)
    [verdict] = store.verdicts()
    assert told(verdict) == ("PAUSE", UUID, True)


def test_before_anything_was_answered_a_change_makes_no_new_chain(stage: Stage) -> None:
    store = Told(stage, rule(ON_N7))
    store.evaluator.notify(messages.ForecastsOutdated(serial_no=5))
    assert stage.take(messages.RuleChainChanged) == []


def test_a_store_that_does_not_answer_is_asked_again_later(stage: Stage) -> None:
    store = Told(stage, rule(ON_N7))
    store.hear(arrived(3))
    store.asked().refuse(errors.DeadlineError())
    store.evaluator.handle_mail()
    assert stage.take_requests(messages.ResolveForecasts) == []
    stage.run_timers()
    store.evaluator.notify(stage.take_one(messages.ForecastsDue, to="filter_evaluator"))
    store.answer(taking("n8"))
    [verdict] = store.verdicts()
    assert told(verdict) == ("ACCEPT", None, True)


def test_a_job_that_has_ended_or_come_again_is_judged_once(stage: Stage) -> None:
    store = Told(stage, rule(ON_N7))
    store.hear(arrived(3), arrived(4), arrived(5, "n8"))
    store.evaluator.notify(messages.JobsFinished(jobs=[(3, JobStatus.CANCELED)]))
    store.hear(arrived(4, "n8"))
    store.answer(taking("n7"))
    assert stage.take(messages.JobsJudged) == []
    store.answer(taking("n8"))
    found = {one.job.id: told(one)[0] for one in store.verdicts()}
    assert found == {4: "ACCEPT", 5: "ACCEPT"}


# At the gate the configuration store is not asked.


def gated(known: FilterRule, *, has_begun: bool = False) -> messages.GateAnswered:
    ops = [jobs.OpcodeEntry(input=one, status=JobStatus.QUEUED, priority=0) for one in delay("n8")]
    rules = RulesInForce([known], 7, wall_clock=lambda: 0.0)
    return rules.gate(jobs.Job(id=3, ops=ops), ChosenUnder(5, ""), has_begun=has_begun)


@pytest.mark.parametrize("action", ["PAUSE", "REJECT"])
def test_a_job_that_a_rule_stops_perhaps_goes_back_to_the_queue(action: str) -> None:
    found = gated(rule(ON_N7, action=action))
    assert (found.is_open, found.is_rejected) == (False, False)
    assert "the configuration has to say which locks it takes" in found.text


def test_what_the_answer_does_not_decide_is_decided_at_the_gate() -> None:
    # A rule that rejects does not concern a job that has begun.
    assert gated(rule(ON_N7, action="REJECT"), has_begun=True).is_open
    assert gated(rule(["lock", ["=", "touches", "instance/web"]])).is_open
    found = gated(
        rule(
            [
                "lock",
                ["=", "level", "node"],
            ],
            action="PAUSE",
        )
    )
    assert not found.is_open
