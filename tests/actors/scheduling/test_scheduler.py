"""The scheduler on a stage: one pass for each turn in which something could have changed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.runtime.mailbox import TURN_ENDED
from ganger.actors.scheduling.scheduler import Scheduler
from ganger.storage import errors, settings
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.prediction.lock_types import (
    NO_LOCKS,
    UNKNOWN_EXCLUSIVE,
    JobForecast,
    exclusive,
    forecast_of,
)
from ganger.storage.prediction.policy import Policy
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import JobsChosen, JobsFinished, JobsJudged, JobVerdict, PendingJob

SUCCESS, ERROR, CANCELED = JobStatus.SUCCESS, JobStatus.ERROR, JobStatus.CANCELED
CHAIN = 7


def verdict(job_id: int, *depends: int, priority: int = 0, **fields: Any) -> JobVerdict:
    waits = tuple((target, ("success",)) for target in depends)
    job = PendingJob(id=job_id, priority=priority, depends=waits)
    return JobVerdict(job=job, **({"chain": CHAIN} | fields))


def start(stage: Stage) -> Staged[Scheduler]:
    """A scheduler that has heard of the rules."""
    scheduler = stage.start(Scheduler)
    scheduler.turn(messages.RuleChainChanged(chain=CHAIN, serial=1, reads_opcodes=False))
    stage.sent.clear()
    return scheduler


def newly_chosen(stage: Stage, scheduler: Staged[Scheduler]) -> list[int]:
    """The jobs that it chooses at the end of the turn."""
    scheduler.end_turn()
    return stage.take_one(JobsChosen).start


def test_a_new_scheduler_asks_for_everything(stage: Stage) -> None:
    stage.make(Scheduler, incarnation=1).actor.handle(Envelope(messages.Boot()))
    stage.take_one(messages.ReportConfiguration, to="config_store")
    stage.take_one(messages.ReportAllJobs, to="job_queue")


def test_a_turn_ends_with_one_pass_for_all_that_it_brought(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(JobsJudged(jobs=[verdict(1)]), JobsJudged(jobs=[verdict(2), verdict(3)]))
    assert stage.sent == []
    scheduler.end_turn()
    assert stage.sent == [("job_queue", JobsChosen(start=[1, 2, 3], chain=7))]


def test_a_choice_names_the_newest_priority_that_the_scheduler_knows(stage: Stage) -> None:
    scheduler = start(stage)
    # That of a running job has no number.
    changes = [messages.JobReprioritised(id=9, priority=1, number=number) for number in (4, 5, 0)]
    scheduler.notify(*changes, JobsJudged(jobs=[verdict(1)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).priorities == 5


def test_a_turn_that_brought_nothing_ends_without_a_pass(stage: Stage) -> None:
    scheduler = stage.start(Scheduler)
    scheduler.end_turn()
    assert stage.sent == []


def test_every_kind_of_news_leads_to_a_pass(stage: Stage) -> None:
    scheduler = stage.start(Scheduler)
    for news in (
        JobsJudged(jobs=[]),
        JobsFinished(jobs=[]),
        messages.StatusesReported(jobs=[]),
        messages.JobReprioritised(id=1, priority=0),
        messages.LimitsChanged(running_jobs_max=5),
        messages.RuleChainChanged(chain=8, serial=2, reads_opcodes=False),
        messages.PolicyChanged(policy=Policy()),
        messages.OwnersChanged(owners=[]),
        messages.WeightDue(),
    ):
        schedule = scheduler.component._schedule
        with mock.patch.object(schedule, "decide", wraps=schedule.decide) as decide:
            scheduler.turn(news)
        decide.assert_called_once()
    # Nothing came of it, and nothing is sent.
    assert stage.take(JobsChosen) == []


def test_a_free_slot_is_used_in_the_turn_in_which_it_is_freed(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=1))
    scheduler.notify(JobsJudged(jobs=[verdict(1), verdict(2), verdict(3, priority=-1)]))
    assert newly_chosen(stage, scheduler) == [3]
    scheduler.notify(JobsFinished(jobs=[(3, SUCCESS)]))
    assert newly_chosen(stage, scheduler) == [1]
    scheduler.notify(messages.LimitsChanged(running_jobs_max=2))
    assert newly_chosen(stage, scheduler) == [2]


def test_without_a_configuration_there_are_slots_all_the_same(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.turn(JobsJudged(jobs=[verdict(n) for n in range(1, 100)]))
    assert len(stage.take_one(JobsChosen).start) == settings.RUNNING_JOBS_MAX


def test_unknown_dependencies_are_asked_for(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.turn(JobsJudged(jobs=[verdict(8, 3), verdict(9, 4)]))
    assert stage.take_one(messages.ReportStatuses, to="job_queue").ids == [3, 4]
    stage.sent.clear()
    scheduler.turn(messages.StatusesReported(jobs=[(3, SUCCESS), (4, None)]))
    chosen = stage.take_one(JobsChosen)
    assert chosen.start == [8]
    assert chosen.unsatisfiable == [(9, "failed", "Dependency error: Job 4 not found")]
    assert stage.sent == []


def test_unsatisfiable_and_eligible_jobs_are_sent(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=1))
    scheduler.notify(
        JobsJudged(jobs=[verdict(1), verdict(2, 1), verdict(3, 1), verdict(4, 2), verdict(5)])
    )
    assert newly_chosen(stage, scheduler) == [1]
    scheduler.turn(JobsFinished(jobs=[(1, SUCCESS), (2, CANCELED)]))
    chosen = stage.take_one(JobsChosen)
    assert chosen.start == [3]
    assert chosen.unsatisfiable == [(4, "canceled", "")]
    scheduler.notify(JobsFinished(jobs=[(3, SUCCESS)]), JobsJudged(jobs=[verdict(6, 1)]))
    assert newly_chosen(stage, scheduler) == [5]
    scheduler.turn(messages.StatusesReported(jobs=[(1, SUCCESS)]))
    assert stage.take_one(JobsChosen).eligible == [6]


def test_a_report_of_the_whole_queue_replaces_what_was_known(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=2))
    scheduler.turn(JobsJudged(jobs=[verdict(1), verdict(2), verdict(3)]))
    stage.sent.clear()
    scheduler.turn(JobsJudged(jobs=[verdict(4), verdict(5)], running=[verdict(2)], is_all=True))
    assert stage.take_one(JobsChosen) == JobsChosen(start=[4], chain=7)
    # Whether the running one still runs is asked for: word of its end may have been overtaken.
    assert stage.take_one(messages.ReportStatuses).ids == [2]
    scheduler.notify(messages.StatusesReported(jobs=[(2, ERROR)]))
    assert newly_chosen(stage, scheduler) == [5]


def test_nothing_starts_before_the_last_page_of_a_report(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=1))
    scheduler.turn(JobsJudged(jobs=[verdict(9)]))
    stage.sent.clear()
    page = JobsJudged(jobs=[verdict(1), verdict(2)], is_all=True, report=5, has_more=True)
    scheduler.turn(page)
    scheduler.turn(JobsJudged(jobs=[verdict(3)], is_rest=True, report=5, has_more=True))
    assert stage.take(JobsChosen) == []
    urgent = msgspec.structs.replace(verdict(4), job=PendingJob(id=4, priority=-10))
    last = JobsJudged(jobs=[urgent], is_rest=True, report=5)
    scheduler.turn(last)
    assert stage.take_one(JobsChosen).start == [4]
    # A page that comes once more would take the choice back.
    scheduler.turn(last, JobsFinished(jobs=[(4, SUCCESS)]))
    assert stage.take_one(JobsChosen).start == [1]


def test_a_page_of_an_older_report_counts_no_longer(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=9))
    scheduler.turn(JobsJudged(jobs=[verdict(1)], is_all=True, report=5, has_more=True))
    scheduler.turn(JobsJudged(jobs=[verdict(1)], is_all=True, report=6, has_more=True))
    scheduler.turn(JobsJudged(jobs=[verdict(2)], is_rest=True, report=5))
    assert stage.take(JobsChosen) == []
    scheduler.turn(JobsJudged(jobs=[verdict(3)], is_rest=True, report=6))
    assert stage.take_one(JobsChosen).start == [1, 3]


# Rules.


def test_a_job_that_was_not_judged_does_not_start(stage: Stage) -> None:
    # The scheduler was replaced, and has not heard of the rules yet; the evaluator could not
    # judge without the inputs of the opcodes.
    scheduler = stage.start(Scheduler)
    scheduler.turn(JobsJudged(jobs=[verdict(1, chain=0)], is_all=True))
    assert stage.take(JobsChosen) == []


def test_after_other_rules_the_first_in_order_are_judged_anew_before_any_starts(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.RuleChainChanged(chain=8, serial=2, reads_opcodes=False))
    scheduler.turn(JobsJudged(jobs=[verdict(1), verdict(2, priority=-1)]))
    assert stage.take_one(messages.ReportJobs, to="job_queue").ids == [2, 1]
    assert stage.take(JobsChosen) == []
    anew = [verdict(1, chain=8), verdict(2, chain=8, action="PAUSE", rule="r")]
    scheduler.notify(JobsJudged(jobs=anew, is_repeat=True))
    assert newly_chosen(stage, scheduler) == [1]


def test_rules_are_acknowledged_after_all_choices_made_under_older_ones(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    scheduler.turn(JobsJudged(jobs=[verdict(1)]))
    scheduler.notify(messages.RuleChainChanged(chain=8, serial=2, reads_opcodes=False))
    scheduler.turn(JobsJudged(jobs=[verdict(2)]))
    kinds = [type(message) for name, message in stage.sent if name == "job_queue"]
    assert kinds == [JobsChosen, messages.RuleChainAcknowledged, messages.ReportJobs]
    assert stage.take_one(JobsChosen).start == [1]
    assert stage.take_one(messages.RuleChainAcknowledged).serial == 2


def test_a_limit_is_acknowledged_after_all_choices_made_with_other_slots(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    scheduler.turn(JobsJudged(jobs=[verdict(1)]))
    scheduler.notify(messages.LimitsChanged(running_jobs_max=1, serial=4))
    scheduler.turn(JobsJudged(jobs=[verdict(2)]))
    kinds = [type(message) for name, message in stage.sent if name == "job_queue"]
    assert kinds == [JobsChosen, messages.LimitAcknowledged]
    assert stage.take_one(messages.LimitAcknowledged) == messages.LimitAcknowledged(
        serial=4, running_jobs_max=1
    )


def test_rejected_jobs_are_reported_with_the_rule(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.turn(JobsJudged(jobs=[verdict(1, action="REJECT", rule="r"), verdict(2)]))
    chosen = stage.take_one(JobsChosen)
    assert chosen.start == [2]
    assert chosen.unsatisfiable == [(1, "rejected", "r")]


def test_running_jobs_that_are_reported_again_count_in_their_buckets(stage: Stage) -> None:
    scheduler = start(stage)
    limited: dict[str, Any] = {"action": "RATE_LIMIT", "rule": "r", "limit": 1}
    jobs = [verdict(2, **limited), verdict(3)]
    scheduler.notify(JobsJudged(jobs=jobs, running=[verdict(1, **limited)], is_all=True))
    assert newly_chosen(stage, scheduler) == [3]
    scheduler.notify(JobsFinished(jobs=[(1, SUCCESS)]))
    assert newly_chosen(stage, scheduler) == [2]


# Questions.

ONE_SLOT = messages.LimitsChanged(running_jobs_max=1)
TWO_JOBS = JobsJudged(jobs=[verdict(1), verdict(2)], is_all=True, report=1)


def position(asker: Asker) -> messages.QueuePosition:
    found = asker.answer_as(messages.PendingExplained).position
    assert found is not None
    return found


def test_a_question_is_answered_after_the_pass(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(ONE_SLOT, TWO_JOBS)
    first, second = (scheduler.say(messages.ExplainPending(id=one)) for one in (1, 2))
    simulation = messages.Simulate(running_jobs_max=2)
    what_if = scheduler.say(
        messages.RunSimulation(simulation=simulation, jobs=[verdict(2)], running=[])
    )
    assert first.answers == []
    scheduler.end_turn()
    assert first.answer == messages.PendingExplained(position=None)
    assert position(second).running == [1]
    assert what_if.answer_as(messages.Simulated).start == [2]


def test_a_rule_that_begins_to_apply_to_a_job_is_a_hit_and_one_that_goes_on_is_none(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    held = msgspec.structs.replace(verdict(1), action="PAUSE", rule="a")
    other = msgspec.structs.replace(verdict(1), action="PAUSE", rule="b")
    scheduler.turn(JobsJudged(jobs=[verdict(2)], is_all=True, report=1), JobsJudged(jobs=[held]))
    scheduler.turn(JobsJudged(jobs=[held, verdict(2)], is_repeat=True))
    scheduler.turn(JobsJudged(jobs=[other], is_repeat=True))
    scheduler.turn(JobsJudged(jobs=[held], is_repeat=True))
    asker = scheduler.say(messages.ReportRuleHits())
    assert asker.answer_as(messages.RuleHits).hits == {"a": 2, "b": 1}


def test_a_long_answer_takes_more_than_one_turn(stage: Stage) -> None:
    scheduler = start(stage)
    jobs = [verdict(job_id) for job_id in range(1, 1_201)]
    scheduler.turn(
        messages.LimitsChanged(running_jobs_max=0), JobsJudged(jobs=jobs, is_all=True, report=1)
    )
    simulation = messages.Simulate(running_jobs_max=700)
    what_if = scheduler.say(messages.RunSimulation(simulation=simulation, jobs=jobs, running=[]))
    plan = scheduler.say(messages.ReportOrder(limit=1_100))
    scheduler.end_turn()
    assert what_if.answers == plan.answers == []
    # A job that comes meanwhile is looked at, too, and may start.
    scheduler.turn(ONE_SLOT, JobsJudged(jobs=[verdict(1_201)]))
    assert stage.take_one(JobsChosen).start == [1]
    assert scheduler.work_off() > 1_200 / settings.LOOKED_AT_ONCE
    assert what_if.answer_as(messages.Simulated).start == [*range(1, 701)]
    order = plan.answer_as(messages.OrderReported)
    assert [job_id for job_id, _, _ in order.pending] == [*range(2, 1_101)], "the first one runs"
    assert order.count == 1_200


@pytest.mark.parametrize("last", range(3))
def test_a_new_scheduler_answers_when_it_knows_rules_slots_and_jobs(
    stage: Stage, last: int
) -> None:
    scheduler = stage.make(Scheduler, incarnation=2)
    scheduler.notify(messages.Boot())
    asker = scheduler.ask(messages.ExplainPending(id=2))
    chain = messages.RuleChainChanged(chain=CHAIN, serial=1, reads_opcodes=False)
    news = [ONE_SLOT, chain, TWO_JOBS]
    for one in (*news[:last], *news[last + 1 :], news[last]):
        assert asker.answers == []
        scheduler.ask(one)
    assert (position(asker).running, position(asker).slots) == ([1], 1)


def test_a_job_is_explained_when_it_is_judged_under_the_rules_in_force(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(ONE_SLOT)
    scheduler.ask(TWO_JOBS)
    scheduler.ask(messages.RuleChainChanged(chain=8, serial=2, reads_opcodes=False))
    scheduler.ask(JobsJudged(jobs=[], running=[verdict(1, chain=8)], is_repeat=True))
    stage.sent.clear()
    askers = [scheduler.ask(messages.ExplainPending(id=2)) for _ in range(2)]
    # No run slot is free, so that a pass alone would not ask for it.
    assert stage.take_one(messages.ReportJobs, to="job_queue").ids == [2]
    scheduler.ask(JobsJudged(jobs=[verdict(2, chain=8, action="PAUSE")], is_repeat=True))
    assert [position(asker).action for asker in askers] == ["PAUSE"] * 2


def test_a_question_over_which_the_scheduler_fails_is_not_repeated(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(TWO_JOBS)
    asker = scheduler.say(messages.ExplainPending(id=1))
    with mock.patch.object(scheduler.component._schedule, "position", side_effect=ValueError):
        scheduler.actor.handle(TURN_ENDED)
    assert asker.refusal[0] == "RequestFatalError"


HOT = forecast_of(node=exclusive(["a"]))
HOLDS_BACK = messages.PolicyChanged(policy=Policy(holds_back=True))
OWNER, SECOND = (Owner("somebody", f"lock_file_{n}", n) for n in (1, 2))
PROCESS = Owner(5, "job_000005_1_77.88.earlier", 77)


def predicted(job_id: int, **fields: Any) -> JobVerdict:
    job = PendingJob(id=job_id, priority=0, forecast=HOT)
    return JobVerdict(job=job, chain=CHAIN, **fields)


def test_a_new_scheduler_asks_for_the_locks_that_are_held(stage: Stage) -> None:
    stage.make(Scheduler, incarnation=1).actor.handle(Envelope(messages.Boot()))
    assert stage.take_one(messages.ReportOwners, to="lock_manager").is_wanted


def test_real_locks_hold_a_job_back_until_they_are_given_back(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(HOLDS_BACK, messages.OwnersChanged(owners=[(PROCESS, HOT)], is_all=True))
    scheduler.ask(JobsJudged(jobs=[predicted(1)], running=[verdict(5)], is_all=True, report=1))
    assert stage.take(JobsChosen) == []
    asker = scheduler.ask(messages.ExplainPending(id=1))
    held = position(asker).held_back
    assert held == [messages.HoldingBack(lock="node/a", mode="exclusive", jobs=[5])]
    assert position(asker).remedy.locks == [5]
    scheduler.notify(messages.OwnersChanged(owners=[(PROCESS, NO_LOCKS)]))
    assert newly_chosen(stage, scheduler) == [1]


def test_two_owners_of_one_name_count_until_both_have_given_back(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(HOLDS_BACK, JobsJudged(jobs=[], is_all=True, report=1))
    scheduler.ask(messages.OwnersChanged(owners=[(OWNER, HOT), (SECOND, HOT)]))
    scheduler.ask(JobsJudged(jobs=[predicted(1)]))
    scheduler.ask(messages.OwnersChanged(owners=[(OWNER, NO_LOCKS)]))
    assert stage.take(JobsChosen) == []
    scheduler.notify(messages.OwnersChanged(owners=[(SECOND, NO_LOCKS)]))
    assert newly_chosen(stage, scheduler) == [1]


def test_a_complete_report_of_locks_replaces_what_was_known(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.ask(HOLDS_BACK)
    scheduler.ask(messages.OwnersChanged(owners=[(OWNER, HOT)]))
    scheduler.ask(JobsJudged(jobs=[predicted(1)]))
    scheduler.notify(messages.OwnersChanged(owners=[], is_all=True))
    assert newly_chosen(stage, scheduler) == [1]


def test_a_job_that_is_held_back_starts_at_its_age_and_needs_one_alarm(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(HOLDS_BACK, messages.OwnersChanged(owners=[(OWNER, HOT)], is_all=True))
    jobs = [predicted(n) for n in range(1, 21)]
    scheduler.ask(JobsJudged(jobs=jobs, is_all=True, report=1))
    stage.now += 100.0
    scheduler.ask(JobsJudged(jobs=[verdict(30)]))
    assert stage.take_one(JobsChosen).start == [30]
    [timer] = stage.timers
    assert timer.seconds == pytest.approx(900.0)
    stage.now += 800.0
    stage.sent.clear()
    stage.run_timers()
    [(to, due)] = stage.sent
    assert (to, due) == ("scheduler", messages.WeightDue())
    scheduler.notify(messages.WeightDue())
    assert newly_chosen(stage, scheduler)[0] == 1


def test_a_wall_clock_that_jumps_lets_no_job_pass_another(stage: Stage) -> None:
    """Reliability, D10."""
    scheduler = start(stage)
    scheduler.notify(messages.PolicyChanged(policy=Policy(holds_back=False)))
    scheduler.notify(messages.OwnersChanged(owners=[(OWNER, HOT)], is_all=True), ONE_SLOT)
    scheduler.ask(JobsJudged(jobs=[verdict(9), predicted(10)], is_all=True, report=1))
    stage.today += 100_000.0
    scheduler.ask(JobsJudged(jobs=[verdict(11), predicted(12)]))
    stage.today -= 200_000.0
    scheduler.ask(JobsJudged(jobs=[verdict(13)]))
    stage.sent.clear()
    order = []
    for ended in (9, 11, 13, 10):
        scheduler.notify(JobsFinished(jobs=[(ended, SUCCESS)]))
        order += newly_chosen(stage, scheduler)
    # Free ones first, then those with locks, each by id.
    assert order == [11, 13, 10, 12]


def test_the_lock_manager_reports_only_while_somebody_predicts(stage: Stage) -> None:
    scheduler = start(stage)
    wanted = []
    for is_predictive in (True, False, False, True):
        scheduler.ask(messages.PolicyChanged(policy=Policy(is_predictive=is_predictive)))
        wanted += [one.is_wanted for one in stage.take(messages.ReportOwners)]
    assert wanted == [False, True]


def test_another_policy_is_in_force_at_once(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(HOLDS_BACK, messages.OwnersChanged(owners=[(OWNER, HOT)], is_all=True))
    scheduler.ask(JobsJudged(jobs=[predicted(1)], is_all=True, report=1))
    assert stage.take(JobsChosen) == []
    scheduler.notify(messages.PolicyChanged(policy=Policy(holds_back=False)))
    assert newly_chosen(stage, scheduler) == [1]


def test_names_that_a_forecast_lacks_come_from_the_configuration_store(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(HOLDS_BACK, messages.OwnersChanged(owners=[(OWNER, HOT)], is_all=True))
    unknown = forecast_of(node=UNKNOWN_EXCLUSIVE)
    job = PendingJob(id=2, priority=0, forecast=unknown, question="x")
    scheduler.ask(ONE_SLOT)
    stage.sent.clear()
    scheduler.ask(JobsJudged(jobs=[verdict(1)], is_all=True, report=1))
    scheduler.ask(JobsJudged(jobs=[JobVerdict(job=job, chain=CHAIN)]))
    [asked] = stage.take_requests(messages.ResolveForecasts)
    assert asked.message == messages.ResolveForecasts(questions=["x"])
    answer = messages.ForecastsResolved(forecasts=[JobForecast(HOT, HOT)], serial_no=3)
    asked.reply(answer)
    scheduler.handle_mail()
    scheduler.notify(JobsFinished(jobs=[(1, SUCCESS)]))
    stage.sent.clear()
    scheduler.end_turn()
    # Without the names it would have started.
    assert stage.take(JobsChosen) == []
    scheduler.ask(messages.ForecastsOutdated(serial_no=4))
    assert len(stage.take_requests(messages.ResolveForecasts)) == 1


def asking(job_id: int) -> JobsJudged:
    """A new job whose locks the configuration store knows."""
    unknown = forecast_of(node=UNKNOWN_EXCLUSIVE)
    job = PendingJob(id=job_id, priority=0, forecast=unknown, question="x")
    return JobsJudged(jobs=[JobVerdict(job=job, chain=CHAIN)])


def start_with_names_to_come(stage: Stage) -> Staged[Scheduler]:
    """A scheduler that may start jobs 1 and 5, and asks for the locks of 2 and 3. 4 has one."""
    scheduler = start(stage)
    scheduler.notify(HOLDS_BACK, messages.LimitsChanged(running_jobs_max=20))
    scheduler.notify(JobsJudged(jobs=[], is_all=True, report=1))
    others = JobsJudged(jobs=[verdict(1), predicted(4), verdict(5)])
    scheduler.notify(asking(2), asking(3), others)
    # Job 4 wants the same lock as it turns out.
    assert newly_chosen(stage, scheduler) == [1, 5]
    return scheduler


def test_nothing_starts_before_the_locks_of_an_earlier_job_are_known(stage: Stage) -> None:
    scheduler = start_with_names_to_come(stage)
    [asked] = stage.take_requests(messages.ResolveForecasts)
    asked.reply(messages.ForecastsResolved(forecasts=[JobForecast(HOT, HOT)], serial_no=3))
    scheduler.handle_mail()
    # The others are held back: job 2 takes their lock.
    assert newly_chosen(stage, scheduler) == [2]


def test_a_store_that_is_silent_stops_no_job_for_long(stage: Stage) -> None:
    scheduler = start_with_names_to_come(stage)
    [asked] = stage.take_requests(messages.ResolveForecasts)
    assert asked.deadline == stage.now + settings.FORECAST_SECONDS
    asked.refuse(errors.DeadlineError("no reply"))
    scheduler.handle_mail()
    assert sorted(newly_chosen(stage, scheduler)) == [2, 3, 4]


def test_who_holds_nothing_back_waits_for_no_names(stage: Stage) -> None:
    scheduler = start_with_names_to_come(stage)
    scheduler.notify(messages.PolicyChanged(policy=Policy(holds_back=False)))
    assert sorted(newly_chosen(stage, scheduler)) == [2, 3, 4]


def test_nothing_is_asked_while_nobody_predicts(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.ask(messages.PolicyChanged(policy=Policy(is_predictive=False)))
    job = PendingJob(id=1, priority=0, forecast=HOT, question="x")
    scheduler.ask(JobsJudged(jobs=[JobVerdict(job=job, chain=0)], is_all=True, report=1))
    assert stage.take_requests(messages.ResolveForecasts) == []
    scheduler.ask(messages.PolicyChanged(policy=Policy()))
    assert len(stage.take_requests(messages.ResolveForecasts)) == 1
