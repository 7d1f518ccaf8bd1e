"""The scheduler on a stage: one pass for each turn in which something could have changed."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.scheduling.scheduler import Scheduler
from ganger.storage import settings
from ganger.storage.jobs import JobStatus
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
    scheduler.notify(messages.RuleChainChanged(chain=CHAIN, serial=1, reads_opcodes=False))
    scheduler.end_turn()
    stage.sent.clear()
    return scheduler


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
    ):
        schedule = scheduler.component._schedule
        with mock.patch.object(schedule, "decide", wraps=schedule.decide) as decide:
            scheduler.notify(news)
            scheduler.end_turn()
        decide.assert_called_once()
    # Nothing came of it, and nothing is sent.
    assert stage.take(JobsChosen) == []


def test_a_free_slot_is_used_in_the_turn_in_which_it_is_freed(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=1))
    scheduler.notify(JobsJudged(jobs=[verdict(1), verdict(2), verdict(3, priority=-1)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [3]
    scheduler.notify(JobsFinished(jobs=[(3, SUCCESS)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [1]
    scheduler.notify(messages.LimitsChanged(running_jobs_max=2))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [2]


def test_without_a_configuration_there_are_slots_all_the_same(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(JobsJudged(jobs=[verdict(n) for n in range(1, 100)]))
    scheduler.end_turn()
    assert len(stage.take_one(JobsChosen).start) == settings.RUNNING_JOBS_MAX


def test_unknown_dependencies_are_asked_for(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(JobsJudged(jobs=[verdict(8, 3), verdict(9, 4)]))
    scheduler.end_turn()
    assert stage.take_one(messages.ReportStatuses, to="job_queue").ids == [3, 4]
    stage.sent.clear()
    scheduler.notify(messages.StatusesReported(jobs=[(3, SUCCESS), (4, None)]))
    scheduler.end_turn()
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
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [1]
    scheduler.notify(JobsFinished(jobs=[(1, SUCCESS), (2, CANCELED)]))
    scheduler.end_turn()
    chosen = stage.take_one(JobsChosen)
    assert chosen.start == [3]
    assert chosen.unsatisfiable == [(4, "canceled", "")]
    scheduler.notify(JobsFinished(jobs=[(3, SUCCESS)]), JobsJudged(jobs=[verdict(6, 1)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [5]
    scheduler.notify(messages.StatusesReported(jobs=[(1, SUCCESS)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).eligible == [6]


def test_a_report_of_the_whole_queue_replaces_what_was_known(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.LimitsChanged(running_jobs_max=2))
    scheduler.notify(JobsJudged(jobs=[verdict(1), verdict(2), verdict(3)]))
    scheduler.end_turn()
    stage.sent.clear()
    scheduler.notify(JobsJudged(jobs=[verdict(4), verdict(5)], running=[verdict(2)], is_all=True))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen) == JobsChosen(start=[4], chain=7)
    # Whether the running one still runs is asked for: word of its end may have been overtaken.
    assert stage.take_one(messages.ReportStatuses).ids == [2]
    scheduler.notify(messages.StatusesReported(jobs=[(2, ERROR)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [5]


# Rules.


def test_a_job_that_was_not_judged_does_not_start(stage: Stage) -> None:
    # The scheduler was replaced, and has not heard of the rules yet; the evaluator could not
    # judge without the inputs of the opcodes.
    scheduler = stage.start(Scheduler)
    scheduler.notify(JobsJudged(jobs=[verdict(1, chain=0)], is_all=True))
    scheduler.end_turn()
    assert stage.take(JobsChosen) == []


def test_after_other_rules_the_first_in_order_are_judged_anew_before_any_starts(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    scheduler.notify(messages.RuleChainChanged(chain=8, serial=2, reads_opcodes=False))
    scheduler.notify(JobsJudged(jobs=[verdict(1), verdict(2, priority=-1)]))
    scheduler.end_turn()
    assert stage.take_one(messages.ReportJobs, to="job_queue").ids == [2, 1]
    assert stage.take(JobsChosen) == []
    anew = [verdict(1, chain=8), verdict(2, chain=8, action="PAUSE", rule="r")]
    scheduler.notify(JobsJudged(jobs=anew, is_repeat=True))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [1]


def test_rules_are_acknowledged_after_all_choices_made_under_older_ones(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    scheduler.notify(JobsJudged(jobs=[verdict(1)]))
    scheduler.end_turn()
    scheduler.notify(messages.RuleChainChanged(chain=8, serial=2, reads_opcodes=False))
    scheduler.notify(JobsJudged(jobs=[verdict(2)]))
    scheduler.end_turn()
    kinds = [type(message) for name, message in stage.sent if name == "job_queue"]
    assert kinds == [JobsChosen, messages.RuleChainAcknowledged, messages.ReportJobs]
    assert stage.take_one(JobsChosen).start == [1]
    assert stage.take_one(messages.RuleChainAcknowledged).serial == 2


def test_a_limit_is_acknowledged_after_all_choices_made_with_other_slots(
    stage: Stage,
) -> None:
    scheduler = start(stage)
    scheduler.notify(JobsJudged(jobs=[verdict(1)]))
    scheduler.end_turn()
    scheduler.notify(messages.LimitsChanged(running_jobs_max=1, serial=4))
    scheduler.notify(JobsJudged(jobs=[verdict(2)]))
    scheduler.end_turn()
    kinds = [type(message) for name, message in stage.sent if name == "job_queue"]
    assert kinds == [JobsChosen, messages.LimitAcknowledged]
    assert stage.take_one(messages.LimitAcknowledged) == messages.LimitAcknowledged(
        serial=4, running_jobs_max=1
    )


def test_rejected_jobs_are_reported_with_the_rule(stage: Stage) -> None:
    scheduler = start(stage)
    scheduler.notify(JobsJudged(jobs=[verdict(1, action="REJECT", rule="r"), verdict(2)]))
    scheduler.end_turn()
    chosen = stage.take_one(JobsChosen)
    assert chosen.start == [2]
    assert chosen.unsatisfiable == [(1, "rejected", "rejected by filter rule r")]


def test_running_jobs_that_are_reported_again_count_in_their_buckets(stage: Stage) -> None:
    scheduler = start(stage)
    limited: dict[str, Any] = {"action": "RATE_LIMIT", "rule": "r", "limit": 1}
    jobs = [verdict(2, **limited), verdict(3)]
    scheduler.notify(JobsJudged(jobs=jobs, running=[verdict(1, **limited)], is_all=True))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [3]
    scheduler.notify(JobsFinished(jobs=[(1, SUCCESS)]))
    scheduler.end_turn()
    assert stage.take_one(JobsChosen).start == [2]
