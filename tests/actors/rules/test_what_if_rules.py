"""Tests of filter rules and simulations, as the filter evaluator answers them."""

from __future__ import annotations

import pytest
from tests.actors.rules.test_filter_evaluator import UUID, obey
from tests.actors.rules.test_filter_evaluator_slices import (  # noqa: F401 - a fixture
    LARGE,
    SMALL,
    TEXT,
    few_steps,
    job,
    judged,
    rule,
)
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.storage import settings
from ganger.storage.jobs import jobs
from ganger.transport import messages
from ganger.transport.messages import JobsArrived, JobToJudge, PendingJob


def asked_to_test(
    evaluator: Staged[FilterEvaluator], *jobs: JobToJudge, next_after: int | None
) -> Asker:
    test = messages.TestFilters()
    judge = messages.JudgeTest(
        test=test,
        last_id=100,
        jobs=list(jobs),
        statuses=["queued"] * len(jobs),  # type: ignore[list-item]
        next_after=next_after,
    )
    return evaluator.say(judge)


def test_a_test_of_rules_is_answered_after_several_slices(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule())
    asker = asked_to_test(evaluator, job(1, LARGE), job(2, SMALL), next_after=None)
    assert asker.answers == []
    evaluator.notify(JobsArrived(jobs=[job(3, SMALL)]))
    assert len(judged(stage).jobs) == 1
    evaluator.work_off()
    rows = asker.answer_as(messages.FiltersTested).rows
    assert [(row.id, row.now) for row in rows] == [(1, None), (2, (UUID, "REJECT"))]


def test_a_slice_reads_few_files(stage: Stage) -> None:
    rejects = rule(predicates=[["opcode", ["=", "comment", "y"]]])
    evaluator, _ = obey(stage, rejects)
    stage.places.queue.mkdir(exist_ok=True)
    for number in range(1, 6):
        entry = jobs.OpcodeEntry(input={**SMALL, "comment": "xy"[number % 2]})
        data = jobs.encode_job(jobs.Job(id=number, ops=[entry]))
        (stage.places.queue / f"job-{number}").write_bytes(data)
    there = [
        JobToJudge(job=PendingJob(id=number, priority=0), inputs=None, is_in_file=True)
        for number in range(1, 6)
    ]
    asker = asked_to_test(evaluator, *there, next_after=None)
    assert evaluator.work_off() >= 2
    rows = asker.answer_as(messages.FiltersTested).rows
    assert [row.id for row in rows if row.now is not None] == [1, 3, 5]


def test_a_page_of_a_test_ends_when_it_has_cost_enough(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JUDGE_STEPS_MAX", 110 * TEXT)
    evaluator, _ = obey(stage, rule())
    large = [job(number, LARGE) for number in (1, 2, 3, 4)]
    asker = asked_to_test(evaluator, *large, next_after=4)
    evaluator.work_off()
    reply = asker.answer_as(messages.FiltersTested)
    assert [row.id for row in reply.rows] == [1, 2]
    assert reply.next_after == 2


def test_a_simulation_that_takes_too_much_work_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JUDGE_STEPS_MAX", 60 * TEXT)
    evaluator, _ = obey(stage, rule())
    large = [job(number, LARGE) for number in (1, 2, 3)]
    page = messages.JudgeSimulation(simulation=messages.Simulate(), last_id=100, jobs=large)
    asker = evaluator.say(page)
    evaluator.work_off()
    text = "simulate: the filter rules would take too much work to be tried on all jobs"
    assert asker.refusal == ("BadRequestError", text)


def test_a_simulation_judges_by_the_priorities_that_it_supposes(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule(action="PAUSE", predicates=[["opcode", ["<", "priority", 0]]]))
    simulation = messages.Simulate(priorities={1: -5})
    jobs = [job(1, {**SMALL, "priority": 0}), job(2, {**SMALL, "priority": 0})]
    page = messages.JudgeSimulation(
        simulation=simulation, last_id=100, jobs=jobs[:1], running=jobs[1:]
    )
    judged = evaluator.say(page).answer_as(messages.SimulationJudged)
    assert [one.action for one in judged.jobs] == ["PAUSE"]
    assert [one.action for one in judged.running] == ["ACCEPT"]
