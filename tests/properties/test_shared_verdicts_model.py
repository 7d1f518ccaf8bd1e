"""Jobs of one template get the verdicts that each would get from its own file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.actors.runtime.stage import Stage

from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.actors.store.job_classes import row_of
from ganger.actors.store.job_rows import JobClass, Phase
from ganger.actors.store.job_table import JobTable
from ganger.storage.filters.predicates import PREDICATES as PREDICATE_KINDS
from ganger.storage.filters.predicates import JobFacts, compile_predicate, looks_at
from ganger.storage.filters.rules import FilterRule, parse_rule
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import JobToJudge, PendingJob

TEMPLATES: list[list[dict[str, Any]]] = [
    [{"OP_ID": "OP_X", "size": 1}],
    [{"OP_ID": "OP_X", "size": 1.0}],
    [{"OP_ID": "OP_X", "size": 1}, {"OP_ID": "OP_Y", "os": {"deep": "a"}}],
    [{"OP_ID": "OP_EXEC", "argv": ["a"], "locks": {"node": {"shared": ["n1"]}}}],
    [{"OP_ID": "OP_EXEC", "argv": ["a"], "locks": {"node": {"exclusive": ["*"]}}}],
    [{"OP_ID": "OP_EXEC", "argv": ["a"]}],
]
REASONS = st.sampled_from([[], [("user", "a", 1)], [("user", "b", 2), ("batch", "a", 3)]])
EXPRESSIONS = [
    [">", "id", 4],
    ["<=", "id", "watermark"],
    ["=", "OP_ID", "OP_Y"],
    [">", "size", 0],
    ["=~", "os.deep", "a"],
    [">=", "priority", 5],
    ["!", ["=[]", "reason", "a"]],
    ["|", ["=", "size", 2], ["!", ["=", "reason", "a"]]],
    ["=", "source", "user"],
    ["=", "reason", "b"],
    ["<", "timestamp", 2],
    ["=", "touches", "node/n1"],
    ["!=", "touches", "node/n2"],
    ["&", ["=", "level", "node"], ["=", "mode", "shared"]],
]
PLAIN_PREDICATES = st.tuples(
    st.sampled_from(sorted(PREDICATE_KINDS)), st.sampled_from(EXPRESSIONS)
).map(list)
PREDICATES = PLAIN_PREDICATES | PLAIN_PREDICATES.map(lambda one: ["!", one])
"""Each predicate of the table, with expressions over every field that one of them knows."""

RULE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "uuid": st.uuids().map(str),
        "watermark": st.integers(1, 9),
        "priority": st.integers(0, 2),
        "predicates": st.lists(PREDICATES, min_size=1, max_size=2),
        "action": st.sampled_from(["ACCEPT", "PAUSE", "PAUSE", ["RATE_LIMIT", 2]]),
    }
)

SENT = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), REASONS, st.sampled_from([0, 0, 5])),
    min_size=2,
    max_size=10,
)
"""Jobs: the place of the template, the id, the reasons, the priority."""


def class_of(job: jobs.Job) -> JobClass | None:
    """The class of a job, if others are of it."""
    found = row_of(job, Phase.PENDING).whole_class
    return found if found.number else None


def stored(sent: list[tuple[int, int, Any, int]]) -> list[jobs.Job]:
    found = []
    for place, job_id, reason, priority in sent:
        ops = [
            jobs.OpcodeEntry(
                input={**opcode, "priority": priority, "reason": reason},
                status=JobStatus.QUEUED,
                priority=priority,
            )
            for opcode in TEMPLATES[place]
        ]
        found.append(jobs.Job(id=job_id, ops=ops))
    return found


def arrived(job: jobs.Job, *, is_shared: bool) -> JobToJudge:
    body = jobs.encode_job(job)
    found = class_of(jobs.decode_job(body)) if is_shared else None
    number, inputs = (0, None) if found is None else (found.number, found.inputs)
    return JobToJudge(
        job=PendingJob(id=job.id, priority=job.priority, job_class=number),
        inputs=None,
        body=body,
        class_inputs=inputs,
    )


def without_jobs(answers: list[object]) -> list[object]:
    """The answers; jobs in them are ids alone."""
    found: list[object] = []
    for one in answers:
        if isinstance(one, messages.SimulationJudged):
            found += [(each.job.id, each.action, each.rule, each.limit) for each in one.jobs]
        else:
            found.append(one)
    return found


class Evaluator:
    """A filter evaluator with some rules, and all that it says of jobs."""

    def __init__(self, stage: Stage, rules: list[dict[str, Any]]) -> None:
        self.stage = stage
        self.staged = stage.start(FilterEvaluator)
        self.staged.notify(
            messages.RulesChanged(rules=[parse_rule(raw) for raw in rules], serial=1)
        )

    def verdicts(self, found: list[JobToJudge], proposed: dict[str, Any]) -> list[object]:
        rule = messages.ReplaceFilter(
            priority=1, predicates=proposed["predicates"], action=proposed["action"]
        )
        self.stage.sent.clear()
        self.staged.notify(messages.JobsArrived(jobs=found))
        judged = self.stage.take_one(messages.JobsJudged).jobs
        answers: list[object] = [(one.action, one.rule, one.limit) for one in judged]
        for page in (found, found[::-1]):
            statuses = [JobStatus.QUEUED] * len(page)
            for asked in (
                messages.JudgeTest(
                    test=messages.TestFilters(rule=rule),
                    last_id=4,
                    jobs=page,
                    statuses=statuses,
                    next_after=None,
                ),
                messages.JudgeSimulation(
                    simulation=messages.Simulate(rule=rule, priorities={2: 7}),
                    last_id=4,
                    jobs=page,
                ),
            ):
                answer = self.staged.ask(asked).answer
                answers.append(answer)
        return answers


@settings(max_examples=200, deadline=None)
@given(st.lists(RULE, max_size=3), RULE, SENT)
def test_a_template_is_judged_as_each_of_its_jobs(
    rules: list[dict[str, Any]],
    proposed: dict[str, Any],
    sent: list[tuple[int, int, Any, int]],
) -> None:
    JobTable()
    found = stored(sent)
    said = []
    for is_shared in (True, False):
        with TemporaryDirectory() as folder:
            stage = Stage(Path(folder))
            evaluator = Evaluator(stage, rules)
            told = [arrived(job, is_shared=is_shared) for job in found]
            if any(one.job.job_class for one in told):
                event("jobs are of one class")
            said.append(evaluator.verdicts(told, proposed))
            stage.daemon_lock.remove()
    assert without_jobs(said[0]) == without_jobs(said[1])


def test_only_jobs_that_are_the_same_but_for_their_reasons_are_of_one_class() -> None:
    JobTable()

    def job(number: int, size: object = 1, priority: int = 0) -> jobs.Job:
        op = jobs.OpcodeEntry(
            input={"OP_ID": "OP_TEST", "size": size, "reason": [["a", f"job={number}", number]]},
            status=JobStatus.QUEUED,
            priority=priority,
        )
        return jobs.Job(id=number, ops=[op])

    # The first one may be the only one: its inputs are not kept in memory.
    assert class_of(job(1)) is None
    second, third = (class_of(job(number)) for number in (2, 3))
    assert second is not None
    assert third is not None
    assert second.number == third.number
    assert second.inputs is third.inputs
    assert second.inputs == [{"OP_ID": "OP_TEST", "size": 1}]
    for other in (job(4, 1.0), job(5, size=True), job(6, "1"), job(7, priority=5)):
        assert class_of(other) is None
    assert class_of(job(8, "x" * 5_000)) is None
    assert class_of(job(9, "x" * 5_000)) is None


def test_jobs_with_opcodes_of_several_priorities_are_of_no_class() -> None:
    JobTable()
    for _ in range(3):
        ops = [
            jobs.OpcodeEntry(input={"OP_ID": "OP_X"}, status=JobStatus.QUEUED, priority=priority)
            for priority in (0, 5)
        ]
        assert class_of(jobs.Job(id=1, ops=ops)) is None


def rule_with(predicate: list[Any]) -> FilterRule:
    uuid = "0" * 8 + "-0000-4000-8000-" + "0" * 12
    raw = {"uuid": uuid, "watermark": 1, "action": "PAUSE", "predicates": [predicate]}
    return parse_rule(raw)


@settings(max_examples=300, deadline=None)
@given(PREDICATES, SENT)
def test_a_predicate_looks_at_nothing_but_what_it_declares(
    raw: list[Any], sent: list[tuple[int, int, Any, int]]
) -> None:
    rule = rule_with(raw)
    declared, test = looks_at(rule.predicates), compile_predicate(rule.predicates[0], 3)
    for job in stored(sent):
        inputs = job.judged_inputs
        seen = [
            {
                name: value
                for name, value in each.items()
                if name in (declared.parameters or ())
                or (declared.locks and name not in {"reason", "priority"})
            }
            for each in inputs
        ]
        narrow = JobFacts.of(job.id if declared.id else 0, seen if declared.opcodes else ())
        assert test.matches(narrow) == test.matches(JobFacts.of(job.id, inputs))


@pytest.mark.parametrize("kind", sorted(PREDICATE_KINDS))
def test_verdicts_are_shared_by_what_a_predicate_declares_and_not_by_its_name(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    JobTable()
    monkeypatch.setitem(PREDICATE_KINDS, "another", PREDICATE_KINDS[kind])
    jobs_sent = [(0, number, [("user", str(number), 1)], 0) for number in range(1, 5)]
    told = [arrived(job, is_shared=True) for job in stored(jobs_sent)]
    assert told[1].job.job_class == told[3].job.job_class != 0
    holds = {
        "jobid": ["=", "id", 4],
        "reason": ["=", "reason", "4"],
        "lock": ["=", "touches", "node/n1"],
    }.get(kind, [">", "size", 0])
    evaluator = Evaluator(stage, [])
    rule = rule_with(["another", holds])
    evaluator.staged.notify(messages.RulesChanged(rules=[rule], serial=2))
    stage.sent.clear()
    evaluator.staged.notify(messages.JobsArrived(jobs=told))
    judged = stage.take_one(messages.JobsJudged).jobs
    assert [one.action for one in judged if one.job.id == 4] == ["PAUSE"]
    others = {one.action for one in judged if one.job.id != 4}
    assert others == {"PAUSE" if kind in {"opcode", "lock"} else "ACCEPT"}


@pytest.mark.parametrize(
    "predicate", [["opcode", ["!", ["=[]", "reason", "a"]]], ["reason", ["=", "reason", "b"]]]
)
def test_rules_that_look_at_reasons_see_each_job(stage: Stage, predicate: list[Any]) -> None:
    JobTable()
    rule = {"uuid": "0" * 8 + "-0000-4000-8000-" + "0" * 12, "watermark": 1, "action": "PAUSE"}
    evaluator = Evaluator(stage, [{**rule, "predicates": [predicate]}])
    found = stored([(0, number, [("user", text, 1)], 0) for number, text in enumerate("aab")])
    told = [arrived(job, is_shared=True) for job in found]
    assert told[1].job.job_class == told[2].job.job_class != 0
    stage.sent.clear()
    evaluator.staged.notify(messages.JobsArrived(jobs=told))
    judged = stage.take_one(messages.JobsJudged).jobs
    holds = predicate[0] == "reason"
    assert [one.action for one in judged] == ["ACCEPT", "ACCEPT", "PAUSE" if holds else "ACCEPT"]
