"""The filter evaluator on a stage: what arrives goes on to the scheduler, judged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.storage import settings
from ganger.storage.filters.rules import FilterRule, parse_rule
from ganger.storage.jobs import jobs
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import JobsArrived, JobToJudge, JobVerdict, PendingJob, RulesChanged

UUID = "aaaaaaaa-0000-4000-8000-000000000000"
OTHER = "bbbbbbbb-0000-4000-8000-000000000000"
DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}


def rule(uuid: str = UUID, **fields: Any) -> FilterRule:
    return parse_rule({"uuid": uuid, "watermark": 100, "action": "PAUSE"} | fields)


ON_IDS = rule(predicates=[["jobid", [">", "id", 5]]], action=["RATE_LIMIT", 3])
ON_OPCODES = rule(predicates=[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]])
REJECTS = rule(
    predicates=[["jobid", [">", "id", 5]]],
    action="REJECT",
    reason_trail=[["gnt:user", "closed", 1], ["luxid", "", 2]],
    priority=3,
)


def arrived(*ids: int, inputs: list[dict[str, Any]] | None = None, **fields: Any) -> JobsArrived:
    found = [JobToJudge(job=PendingJob(id=n, priority=0), inputs=inputs) for n in ids]
    return JobsArrived(jobs=found, **fields)


def judged(stage: Stage) -> list[JobVerdict]:
    return stage.take_one(messages.JobsJudged, to="scheduler").jobs


def obey(stage: Stage, *rules: FilterRule) -> tuple[Staged[FilterEvaluator], int]:
    """An evaluator that has these rules, and the number of their chain."""
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=list(rules), serial=4))
    chain = stage.take_one(messages.RuleChainChanged, to="scheduler").chain
    stage.sent.clear()
    return evaluator, chain


def test_a_new_evaluator_asks_for_the_rules_and_then_for_the_queue(stage: Stage) -> None:
    actor = stage.make(FilterEvaluator).actor
    actor.handle(Envelope(messages.Boot()))
    stage.take_one(messages.ReportConfiguration, to="config_store")
    assert stage.take(messages.ReportAllJobs) == []
    actor.handle(Envelope(RulesChanged(rules=[], serial=1)))
    stage.take_one(messages.ReportAllJobs, to="job_queue")
    actor.handle(Envelope(RulesChanged(rules=[], serial=2)))
    assert stage.take(messages.ReportAllJobs) == []
    actor.on_stop()


def test_without_rules_every_job_may_start(stage: Stage) -> None:
    evaluator, chain = obey(stage)
    evaluator.notify(arrived(1, 2))
    assert judged(stage) == [
        JobVerdict(job=PendingJob(id=n, priority=0), action="ACCEPT", chain=chain, is_common=True)
        for n in (1, 2)
    ]


def test_before_it_has_heard_of_rules_it_gives_no_verdicts(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(arrived(1))
    # It comes again: the queue is asked for all of it when the rules are known.
    assert stage.take(messages.JobsJudged) == []
    evaluator.notify(RulesChanged(rules=[], serial=4))
    stage.take_one(messages.ReportAllJobs, to="job_queue")
    evaluator.notify(arrived(1))
    assert len(judged(stage)) == 1


def test_the_next_page_of_a_report_is_asked_for(stage: Stage) -> None:
    evaluator, _ = obey(stage)
    evaluator.notify(arrived(1, 2, is_all=True, report=5, next_after=2))
    sent = stage.take_one(messages.JobsJudged)
    assert (sent.is_all, sent.is_rest, sent.has_more, sent.report) == (True, False, True, 5)
    asked = stage.take_one(messages.ReportRest, to="job_queue")
    assert asked == messages.ReportRest(report=5, after=2)
    evaluator.notify(arrived(3, is_rest=True, report=5))
    sent = stage.take_one(messages.JobsJudged)
    assert (sent.is_all, sent.is_rest, sent.has_more, sent.report) == (False, True, False, 5)
    assert stage.take(messages.ReportRest) == []


def test_running_jobs_are_judged_too_and_the_rest_of_the_word_goes_on_as_it_is(
    stage: Stage,
) -> None:
    evaluator, chain = obey(stage, ON_IDS)
    running = [JobToJudge(job=PendingJob(id=n, priority=0), inputs=None) for n in (5, 6)]
    evaluator.notify(arrived(7, is_all=True, running=running))
    sent = stage.take_one(messages.JobsJudged)
    assert (sent.is_all, sent.is_repeat) == (True, False)
    assert [(one.job.id, one.action, one.chain) for one in sent.running] == [
        (5, "ACCEPT", chain),
        (6, "RATE_LIMIT", chain),
    ]
    evaluator.notify(arrived(7, is_repeat=True))
    sent = stage.take_one(messages.JobsJudged)
    assert (sent.is_all, sent.is_repeat) == (False, True)


def test_a_job_gets_the_verdict_of_the_rule_that_applies(stage: Stage) -> None:
    evaluator, chain = obey(stage, ON_IDS)
    evaluator.notify(arrived(5, 6))
    first, second = judged(stage)
    assert (first.action, first.rule, first.chain) == ("ACCEPT", None, chain)
    assert (second.action, second.rule, second.limit) == ("RATE_LIMIT", UUID, 3)


def test_verdicts_of_many_jobs_share_their_texts(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule(predicates=[]))
    evaluator.notify(arrived(6, 7))
    one, other = judged(stage)
    assert type(one.action) is str
    assert one.action is other.action
    assert one.rule is other.rule


def test_inputs_that_only_the_file_has_are_read_there(stage: Stage) -> None:
    evaluator, chain = obey(stage, ON_OPCODES)
    stage.places.queue.mkdir(exist_ok=True)
    for job_id, op in ((6, DELAY), (7, {"OP_ID": "OP_EXEC"})):
        job = jobs.Job(id=job_id, ops=[jobs.OpcodeEntry(input=op)])
        (stage.places.queue / f"job-{job_id}").write_bytes(jobs.encode_job(job))
    pending = [PendingJob(id=n, priority=0) for n in (6, 7, 8)]
    there = [JobToJudge(job=job, inputs=None, is_in_file=True) for job in pending]
    evaluator.notify(JobsArrived(jobs=there))
    assert [(one.action, one.rule, one.chain) for one in judged(stage)] == [
        ("PAUSE", UUID, chain),
        ("ACCEPT", None, chain),
        # Its file is gone: no rule can look at it, and it delays no other job.
        ("PAUSE", None, chain),
    ]
    assert stage.take(messages.ReportJobs) == [messages.ReportJobs(ids=[8], are_read=True)]


@pytest.fixture
def evaluator(stage: Stage) -> Staged[FilterEvaluator]:
    """It obeys a rule that reads opcodes. The file of job 6 is damaged."""
    evaluator, _ = obey(stage, ON_OPCODES)
    stage.places.queue.mkdir(exist_ok=True)
    (stage.places.queue / "job-6").write_bytes(bytes(50))
    return evaluator


@pytest.mark.parametrize("is_running", [False, True])
def test_a_job_that_the_queue_cannot_read_either_is_not_asked_for_again(
    evaluator: Staged[FilterEvaluator], stage: Stage, *, is_running: bool
) -> None:
    read = [JobToJudge(job=PendingJob(id=6, priority=0), inputs=None, body=b"")]
    stage.sent.clear()
    both: list[list[JobToJudge]] = [[], read] if is_running else [read, []]
    evaluator.notify(JobsArrived(jobs=both[0], running=both[1], is_repeat=True))
    [(_, found)] = stage.sent
    assert isinstance(found, messages.JobsJudged)
    [one] = found.running if is_running else found.jobs
    # A running job goes on; the verdict on a pending one says what keeps it.
    assert (one.action, one.chain > 0) == (("ACCEPT", False) if is_running else ("PAUSE", True))
    assert "job cannot be judged" in stage.log_stream.getvalue()


def test_questions_about_an_unreadable_job_take_it_for_held(
    evaluator: Staged[FilterEvaluator], stage: Stage
) -> None:
    there = JobToJudge(job=PendingJob(id=6, priority=0), inputs=None, is_in_file=True)
    good = JobToJudge(job=PendingJob(id=7, priority=0), inputs=[{"OP_ID": "OP_EXEC"}])
    page = messages.JudgeSimulation(
        simulation=messages.Simulate(), last_id=9, jobs=[there, good], running=[]
    )
    simulated = evaluator.say(page).answer_as(messages.SimulationJudged)
    assert [one.action for one in simulated.jobs] == ["PAUSE", "ACCEPT"]
    trial = messages.JudgeTest(
        test=messages.TestFilters(), last_id=9, jobs=[there, good],
        statuses=[jobs.JobStatus.QUEUED] * 2, next_after=None,
    )  # fmt: skip
    # What the rules would do with it is not known: it is left out.
    tested = evaluator.say(trial).answer_as(messages.FiltersTested)
    assert [row.id for row in tested.rows] == [7]
    assert [one.ids for one in stage.take(messages.ReportJobs)] == [[6], [6]]
    evaluator.say(messages.ExplainPending(id=6, job=there))
    [asked] = stage.take_requests(messages.ExplainPending)
    assert isinstance(asked.message, messages.ExplainPending)
    then = asked.message.then
    assert then is not None
    assert (then.action, then.rule, asked.message.holding) == ("PAUSE", None, [])


def test_new_rules_go_to_the_scheduler_and_then_to_the_queue(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[ON_OPCODES], serial=4))
    [(first, changed), (second, again), _] = stage.sent
    assert (first, second, changed) == ("scheduler", "job_queue", again)
    assert isinstance(changed, messages.RuleChainChanged)
    assert (changed.serial, changed.reads_opcodes) == (4, True)
    assert changed.rules == [ON_OPCODES]
    stage.sent.clear()
    evaluator.notify(RulesChanged(rules=[ON_IDS], serial=5))
    newer = stage.take_one(messages.RuleChainChanged, to="job_queue")
    assert (newer.serial, newer.reads_opcodes) == (5, False)
    assert newer.chain != changed.chain


def test_a_rule_may_read_the_opcodes(stage: Stage) -> None:
    evaluator, _ = obey(stage, ON_OPCODES)
    evaluator.notify(arrived(1, inputs=[DELAY]))
    [paused] = judged(stage)
    assert (paused.action, paused.rule) == ("PAUSE", UUID)
    evaluator.notify(arrived(2, inputs=[DELAY | {"OP_ID": "OP_OTHER"}]))
    [accepted] = judged(stage)
    assert accepted.action == "ACCEPT"
    assert stage.sent == []


def test_jobs_that_came_without_what_the_rules_read_are_not_judged(stage: Stage) -> None:
    # The scheduler asks for them, with their inputs, when they come to the front.
    evaluator, _ = obey(stage, ON_OPCODES)
    evaluator.notify(arrived(1, is_all=True))
    assert [verdict.chain for verdict in judged(stage)] == [0]
    assert stage.sent == []


def test_a_new_priority_goes_the_way_of_the_jobs(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    changed = messages.JobReprioritised(id=1, priority=-5)
    evaluator.notify(changed)
    assert stage.sent == [("scheduler", changed)]


# What rules reject is looked for in the whole queue.


@pytest.mark.parametrize("rules", [[], [ON_IDS], [ON_OPCODES], [rule(action="CONTINUE")]])
def test_the_queue_is_not_looked_through_for_rules_that_reject_nothing(
    stage: Stage, rules: list[FilterRule]
) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=rules))
    assert stage.take(messages.SweepJobs) == []


def test_the_queue_is_looked_through_page_by_page_for_what_a_rule_rejects(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[REJECTS]))
    asked = [message for name, message in stage.sent if name == "job_queue"]
    assert [type(message) for message in asked] == [
        messages.RuleChainChanged,
        messages.SweepJobs,
        messages.ReportAllJobs,
    ]
    sweep = stage.take_one(messages.SweepJobs, to="job_queue")
    assert sweep.after == 0
    evaluator.notify(arrived(4, 6, 7, sweep=sweep.chain, next_after=7, is_repeat=True))
    text = f"rejected by filter rule {UUID} (priority 3, reason: closed)"
    assert stage.take_one(messages.JobsRejected, to="job_queue").jobs == [(6, text), (7, text)]
    assert stage.take_one(messages.SweepJobs) == messages.SweepJobs(after=7, chain=sweep.chain)
    assert stage.take_one(messages.JobsJudged, to="scheduler").is_repeat
    evaluator.notify(arrived(3, sweep=sweep.chain, is_repeat=True))
    assert stage.take(messages.JobsRejected) == []
    assert stage.take(messages.SweepJobs) == []


def test_a_page_that_was_asked_for_under_older_rules_leads_to_nothing(stage: Stage) -> None:
    evaluator = stage.start(FilterEvaluator)
    evaluator.notify(RulesChanged(rules=[REJECTS]))
    old = stage.take_one(messages.SweepJobs).chain
    evaluator.notify(RulesChanged(rules=[REJECTS], serial=1))
    new = stage.take_one(messages.SweepJobs).chain
    assert new != old
    stage.sent.clear()
    evaluator.notify(arrived(6, sweep=old, next_after=6, is_repeat=True))
    assert stage.sent == []
    evaluator.notify(arrived(6, sweep=new, is_repeat=True))
    assert len(stage.take_one(messages.JobsRejected).jobs) == 1


# Windows.


TODAY = 1_700_000_000.0


def waits(stage: Stage) -> list[float]:
    return [timer.seconds for timer in stage.timers]


def test_without_windows_no_alarm_is_set(stage: Stage) -> None:
    obey(stage, ON_IDS, REJECTS)
    assert waits(stage) == []


def test_a_rule_begins_and_ends_with_its_window(stage: Stage) -> None:
    evaluator, before = obey(stage, rule(valid_from=TODAY + 10, valid_until=TODAY + 20))
    chains = [before]
    for now, action in ((TODAY + 10, "PAUSE"), (TODAY + 20, "ACCEPT")):
        assert waits(stage)[-1] == 10.0
        stage.today = now
        stage.timers[-1].run_out()
        stage.take_one(messages.WindowDue, to="filter_evaluator")
        evaluator.notify(messages.WindowDue())
        chains.append(stage.take_one(messages.RuleChainChanged, to="scheduler").chain)
        stage.sent.clear()
        evaluator.notify(arrived(1))
        [verdict] = judged(stage)
        assert (verdict.action, verdict.chain) == (action, chains[-1])
    assert len(set(chains)) == 3
    assert len(waits(stage)) == 2


def test_a_distant_window_is_compared_with_the_clock_from_time_to_time(stage: Stage) -> None:
    # The operator may set the clock.
    evaluator, _ = obey(stage, rule(valid_from=stage.today + 86_400))
    assert waits(stage) == [settings.WINDOW_LOOK_SECONDS]
    evaluator.notify(messages.WindowDue())
    assert waits(stage) == [settings.WINDOW_LOOK_SECONDS] * 2
    assert stage.sent == []


def test_a_window_that_opens_may_reject_what_is_in_the_queue(stage: Stage) -> None:
    evaluator, _ = obey(stage, msgspec.structs.replace(REJECTS, valid_from=TODAY + 10))
    stage.today = TODAY + 10
    evaluator.notify(messages.WindowDue())
    assert stage.take_one(messages.SweepJobs, to="job_queue").after == 0


def test_new_rules_cancel_the_alarm(stage: Stage) -> None:
    evaluator, _ = obey(stage, rule(valid_from=TODAY + 10))
    evaluator.notify(RulesChanged(rules=[rule(valid_from=TODAY + 20)]))
    canceled = [timer.alarm is not None and timer.alarm.is_canceled for timer in stage.timers]
    assert (canceled, waits(stage)) == ([True, False], [10.0, 20.0])
