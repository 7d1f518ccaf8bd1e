"""The filter evaluator on a stage: what arrives goes on to the scheduler, judged."""

from __future__ import annotations

from typing import Any

from tests.actors.stage import Stage

from ganger.actors.filter_evaluator import FilterEvaluator
from ganger.transport import messages
from ganger.transport.addresses import Envelope
from ganger.transport.messages import JobArrived, JobsArrived, JobVerdict, PendingJob, RulesChanged

UUID = "aaaaaaaa-0000-4000-8000-000000000000"
OTHER = "bbbbbbbb-0000-4000-8000-000000000000"
DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}


def rule(uuid: str = UUID, **fields: Any) -> dict[str, Any]:
    return {"uuid": uuid, "watermark": 100, "priority": 0, "action": "PAUSE", **fields}


ON_IDS = rule(predicates=[["jobid", [">", "id", 5]]], action=["RATE_LIMIT", 3])
ON_OPCODES = rule(predicates=[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]])


def arrived(*ids: int, inputs: list[dict[str, Any]] | None = None, **fields: Any) -> JobsArrived:
    jobs = [JobArrived(job=PendingJob(id=n, priority=0), inputs=inputs) for n in ids]
    return JobsArrived(jobs=jobs, **fields)


def judged(stage: Stage) -> list[JobVerdict]:
    return stage.take_one(messages.JobsJudged, to="scheduler").jobs


def test_a_new_evaluator_asks_for_rules_and_queue(stage: Stage) -> None:
    component = FilterEvaluator(stage.surroundings, 1)
    component.on_receive(Envelope(messages.Boot()))
    stage.take_one(messages.ReportConfiguration, to="config_store")
    stage.take_one(messages.ReportQueue, to="job_queue")


def test_without_rules_every_job_may_start(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(arrived(1, 2))
    assert judged(stage) == [
        JobVerdict(job=PendingJob(id=n, priority=0), action="ACCEPT") for n in (1, 2)
    ]


def test_the_rest_of_the_word_goes_on_as_it_is(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(arrived(1, is_all=True, running=[7, 8]))
    told = stage.take_one(messages.JobsJudged)
    assert (told.is_all, told.running) == (True, [7, 8])


def test_a_job_gets_the_verdict_of_the_rule_that_applies(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[ON_IDS]))
    evaluator.notify(arrived(5, 6))
    first, second = judged(stage)
    assert (first.action, first.rule) == ("ACCEPT", None)
    assert (second.action, second.rule, second.limit) == ("RATE_LIMIT", UUID, 3)


def test_new_rules_are_told_to_the_queue_before_it_tells_of_its_jobs(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[ON_OPCODES]))
    assert stage.told == [
        ("job_queue", messages.RuleChainChanged(reads_opcodes=True)),
        ("job_queue", messages.ReportQueue()),
    ]
    stage.told.clear()
    evaluator.notify(RulesChanged(rules=[ON_IDS]))
    assert stage.told[0] == ("job_queue", messages.RuleChainChanged(reads_opcodes=False))


def test_a_rule_may_read_the_opcodes(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[ON_OPCODES]))
    stage.told.clear()
    evaluator.notify(arrived(1, inputs=[DELAY]))
    [paused] = judged(stage)
    assert (paused.action, paused.rule) == ("PAUSE", UUID)
    evaluator.notify(arrived(2, inputs=[DELAY | {"OP_ID": "OP_OTHER"}]))
    [accepted] = judged(stage)
    assert accepted.action == "ACCEPT"
    assert stage.told == []


def test_jobs_that_came_without_what_the_rules_read_wait_and_are_asked_for_again(
    stage: Stage,
) -> None:
    # The queue was replaced, and its successor has not heard that anybody reads opcodes.
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[ON_OPCODES]))
    stage.told.clear()
    evaluator.notify(arrived(1, is_all=True))
    assert [verdict.action for verdict in judged(stage)] == ["PAUSE"]
    assert stage.told == [
        ("job_queue", messages.RuleChainChanged(reads_opcodes=True)),
        ("job_queue", messages.ReportQueue()),
    ]


def test_a_malformed_rule_is_left_out_and_named(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[rule(OTHER, action="STOP"), ON_IDS]))
    evaluator.notify(arrived(6))
    assert [verdict.rule for verdict in judged(stage)] == [UUID]
    assert "filter rule is left out" in stage.log_stream.getvalue()


def test_a_new_priority_goes_the_way_of_the_jobs(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    changed = messages.JobReprioritised(id=1, priority=-5)
    evaluator.notify(changed)
    assert stage.told == [("scheduler", changed)]
