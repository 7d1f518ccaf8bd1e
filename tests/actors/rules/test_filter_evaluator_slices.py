"""The filter evaluator when judging takes long: slices, between which others are served."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.rules.test_filter_evaluator import OTHER, UUID, obey
from tests.actors.runtime.stage import Stage

from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.storage import settings
from ganger.storage.filters import metering
from ganger.storage.filters.rules import FilterRule, parse_rule
from ganger.transport import messages
from ganger.transport.messages import JobsArrived, JobToJudge, JobVerdict, PendingJob, RulesChanged

SEARCHES = 50
TEXT = 100_000

LARGE: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"], "comment": "x" * TEXT}
SMALL: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"], "comment": "y"}
LACKS = [["opcode", ["!", ["=~", "comment", f"z{number}*$"]]] for number in range(1, SEARCHES)]
FINDS_Y = [*LACKS, ["opcode", ["=~", "comment", "y[0-9]*$"]]]
"""Predicates that look through the text one after the other; the last one decides."""


def rule(uuid: str = UUID, **fields: Any) -> FilterRule:
    found = {"uuid": uuid, "watermark": 100, "action": "REJECT"}
    return parse_rule({**found, "predicates": FINDS_Y, **fields})


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is enough for three searches of a large text, and for many small jobs."""
    monkeypatch.setattr(settings, "JUDGE_STEPS_AT_ONCE", 3 * TEXT)


def job(job_id: int, op: dict[str, Any], priority: int = 0) -> JobToJudge:
    return JobToJudge(job=PendingJob(id=job_id, priority=priority), inputs=[op])


def judged(stage: Stage) -> messages.JobsJudged:
    return stage.take_one(messages.JobsJudged, to="scheduler")


def shown(verdict: JobVerdict) -> tuple[int, str, str | None, bool]:
    return verdict.job.id, verdict.action, verdict.rule, verdict.chain != 0


def test_a_job_that_takes_more_than_a_slice_is_held_until_it_is_judged(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    assert [shown(one) for one in judged(stage).jobs] == [(1, "PAUSE", UUID, True)]
    assert evaluator.work_off() >= SEARCHES // 3 - 1
    verdicts = judged(stage)
    assert [shown(one) for one in verdicts.jobs] == [(1, "ACCEPT", None, True)]
    assert verdicts.is_repeat


def test_jobs_that_a_long_judgment_rejects_are_reported(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, {**LARGE, "comment": "x" * TEXT + "y49"})]))
    assert stage.take(messages.JobsRejected) == []
    evaluator.work_off()
    [(job_id, text)] = stage.take_one(messages.JobsRejected, to="job_queue").jobs
    assert job_id == 1
    assert f"rejected by filter rule {UUID}" in text


def test_others_are_served_between_two_slices(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    stage.take(messages.JobsJudged)
    evaluator.notify(JobsArrived(jobs=[job(2, SMALL)]))
    assert [one.job.id for one in judged(stage).jobs] == [2]
    assert evaluator.work_off() > 1


def test_what_one_message_costs_is_bounded_and_the_rest_is_asked_for_again(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    small = {**SMALL, "comment": "x"}
    evaluator.notify(JobsArrived(jobs=[job(number, small) for number in range(1, 101)]))
    found = judged(stage).jobs
    done = [one for one in found if one.chain]
    assert 0 < len(done) < 100
    assert [one.job.id for one in found] == list(range(1, 101))
    # Since the chain can reject, the rest is looked through wherever it stands.
    assert stage.take_one(messages.SweepJobs).after == len(done)


def test_of_a_page_of_a_sweep_the_next_one_begins_where_this_one_ended(stage: Stage) -> None:
    evaluator, chain = obey(stage, rule())
    page = [job(number, {**SMALL, "comment": "x"}) for number in range(1, 101)]
    evaluator.notify(JobsArrived(jobs=page, is_repeat=True, sweep=chain, next_after=100))
    done = [one.job.id for one in judged(stage).jobs]
    assert 0 < len(done) < 100
    assert done == list(range(1, len(done) + 1))
    assert stage.take_one(messages.SweepJobs).after == done[-1]


def test_a_large_running_job_keeps_its_place_and_is_not_answered_twice(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule(action=["RATE_LIMIT", 1]))
    evaluator.notify(JobsArrived(jobs=[], running=[job(1, LARGE)], is_repeat=True))
    assert [shown(one) for one in judged(stage).running] == [(1, "ACCEPT", None, False)]
    evaluator.notify(JobsArrived(jobs=[], running=[job(1, LARGE)], is_repeat=True))
    # It has asked, and waits; another answer that knows nothing would make it ask for ever.
    assert judged(stage).running == []
    evaluator.work_off()
    assert [shown(one) for one in judged(stage).running] == [(1, "ACCEPT", None, True)]


def test_a_job_that_ends_meanwhile_is_forgotten(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    stage.take(messages.JobsJudged)
    evaluator.notify(messages.JobsFinished(jobs=[]))
    evaluator.notify(messages.JobsFinished(jobs=[(1, "canceled")]))  # type: ignore[list-item]
    evaluator.work_off()
    assert stage.take(messages.JobsJudged) == []


def test_under_a_new_chain_what_was_begun_counts_no_more(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    evaluator.notify(RulesChanged(rules=[], serial=5))
    stage.take(messages.JobsJudged)
    evaluator.work_off()
    assert stage.take(messages.JobsJudged) == []


def test_a_job_that_takes_too_much_work_is_held_by_the_rule_at_which_it_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JUDGE_STEPS_MAX", 20 * TEXT)
    evaluator, _ = obey(stage, rule(OTHER, predicates=[["jobid", ["<", "id", 0]]]), rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    stage.take(messages.JobsJudged)
    evaluator.work_off()
    assert [shown(one) for one in judged(stage).jobs] == [(1, "PAUSE", UUID, True)]
    assert stage.take(messages.JobsRejected) == []


def test_one_search_that_alone_is_too_much_holds_the_job_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JUDGE_STEPS_MAX", TEXT // 2)
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    evaluator.work_off()
    *_, last = stage.take(messages.JobsJudged)
    assert [shown(one) for one in last.jobs] == [(1, "PAUSE", UUID, True)]


def test_a_job_that_begins_at_the_end_of_a_slice_goes_on_where_it_was(stage: Stage) -> None:
    """Each predicate looks at it once: nothing is paid for twice."""
    evaluator, _ = obey(stage, rule())
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE), job(2, LARGE)]))
    first, second = judged(stage).jobs
    assert (shown(first)[1:3], shown(second)[1:4]) == (("PAUSE", UUID), ("ACCEPT", None, False))
    slices = evaluator.work_off()
    assert slices <= -(-SEARCHES // 3)


def test_one_predicate_that_would_keep_all_others_waiting_holds_the_job(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "PREDICATE_STEPS_MAX", 2 * TEXT)
    many = ["|", *(["=~", "comment", f"z{number}"] for number in range(3))]
    evaluator, _ = obey(stage, rule(predicates=[["opcode", many]]))
    evaluator.notify(JobsArrived(jobs=[job(1, LARGE)]))
    assert [shown(one) for one in judged(stage).jobs] == [(1, "PAUSE", UUID, True)]
    assert evaluator.work_off() == 0


# Priorities.

URGENT = rule(action="PAUSE", predicates=[["opcode", ["<", "priority", 0]]])


def test_after_a_change_of_its_priority_a_job_is_judged_anew(stage: Stage) -> None:
    evaluator, _ = obey(stage, URGENT)
    evaluator.notify(messages.JobReprioritised(id=1, priority=-5))
    stage.take_one(messages.JobReprioritised, to="scheduler")
    assert stage.take_one(messages.ReportJobs, to="job_queue").ids == [1]


def test_rules_that_look_at_ids_alone_judge_nothing_anew(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule(predicates=[["jobid", [">", "id", 5]]]))
    evaluator.notify(messages.JobReprioritised(id=1, priority=-5))
    assert stage.take(messages.ReportJobs) == []


def test_what_is_judged_in_slices_begins_anew_with_another_priority(stage: Stage) -> None:
    heavy = [["opcode", ["<", "priority", 0]], *LACKS]
    evaluator, _ = obey(stage, rule(action="PAUSE", predicates=heavy))
    evaluator.notify(JobsArrived(jobs=[job(1, {**LARGE, "priority": -5}, -5)]))
    evaluator.notify(messages.JobReprioritised(id=1, priority=0))
    evaluator.notify(JobsArrived(jobs=[job(1, {**LARGE, "priority": 0})], is_repeat=True))
    evaluator.work_off()
    *_, last = stage.take(messages.JobsJudged)
    assert [shown(one) for one in last.jobs] == [(1, "ACCEPT", None, True)]


def test_an_explanation_knows_the_priorities_that_rules_refuse(stage: Stage) -> None:
    urgent = rule(predicates=[["opcode", ["<", "priority", 0]]])
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(messages.RulesChanged(rules=[urgent], serial=1))
    evaluator.say(messages.ExplainPending(id=1, job=job(1, {**SMALL, "priority": 0})))
    asked = stage.take_one(messages.ExplainPending, to="scheduler")
    assert (asked.holding, asked.refused) == ([], [*range(-20, 0)])


def test_questions_wait_for_the_rules(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    explain = messages.ExplainPending(id=1, job=job(1, SMALL))
    evaluator.say(explain)
    assert stage.sent == []
    evaluator.notify(messages.RulesChanged(rules=[rule()], serial=1))
    assert stage.sent[-1] == ("filter_evaluator", explain)
    evaluator.say(explain)
    assert stage.take_one(messages.ExplainPending, to="scheduler").holding == [UUID]
