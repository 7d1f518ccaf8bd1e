"""Slot and locks of an ended job become free in one, whatever the scheduler hears first."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.scheduling.scheduler import Scheduler
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.prediction.lock_types import NO_LOCKS, LockForecast, exclusive, forecast_of
from ganger.storage.prediction.policy import Policy
from ganger.transport import messages
from ganger.transport.messages import (
    JobsChosen,
    JobsFinished,
    JobsJudged,
    JobVerdict,
    Message,
    OwnersChanged,
    PendingJob,
)

CHAIN = 7
A, B = (forecast_of(node=exclusive([name])) for name in "ab")
AB = forecast_of(node=exclusive(["a", "b"]))
HOLDER, OLDER, YOUNGER = 1, 2, 3


def process(job_id: int, place: int = 1) -> Owner:
    """The ``place``-th process of a job."""
    return Owner(job_id, f"job_{job_id:06d}_{place}_{job_id}.{place}.earlier", job_id)


def verdict(job_id: int, forecast: LockForecast | None = None, **fields: Any) -> JobVerdict:
    job = PendingJob(id=job_id, forecast=forecast, **({"priority": 0} | fields))
    return JobVerdict(job=job, chain=CHAIN)


OLDER_WANTS_A = verdict(OLDER, A, priority=-10)
YOUNGER_WANTS_B = verdict(YOUNGER, B, priority=10)
IS_OVER = JobsFinished(jobs=[(HOLDER, JobStatus.SUCCESS)])
HOLDS_A = OwnersChanged(owners=[(process(HOLDER), A)])
HAS_ENDED = OwnersChanged(owners=[(process(HOLDER), None)])


class Told:
    """A scheduler that is told something, turn by turn."""

    def __init__(self, stage: Stage, slots: int = 1, incarnation: int = 1) -> None:
        self.stage = stage
        self.scheduler: Staged[Scheduler] = stage.start(Scheduler, incarnation)
        self.tell(
            messages.RuleChainChanged(chain=CHAIN, serial=1, reads_opcodes=False),
            messages.PolicyChanged(policy=Policy(holds_back=True)),
            messages.LimitsChanged(running_jobs_max=slots),
        )

    def tell(self, *notices: Message) -> list[int]:
        """Tell it these in turns of their own; the jobs that it starts, in order."""
        for one in notices:
            self.scheduler.turn(one)
        return [job_id for chosen in self.stage.take(JobsChosen) for job_id in chosen.start]


def with_holder(stage: Stage, slots: int = 1) -> Told:
    """One whose job 1 has started, and taken node a; the two others wait."""
    told = Told(stage, slots)
    assert told.tell(JobsJudged(jobs=[verdict(HOLDER, A)], is_all=True, report=1)) == [HOLDER]
    told.tell(HOLDS_A)
    return told


@pytest.mark.parametrize("news", [(IS_OVER, HAS_ENDED), (HAS_ENDED, IS_OVER)])
def test_the_job_that_waited_for_its_locks_comes_first(
    stage: Stage, news: tuple[Message, ...]
) -> None:
    told = with_holder(stage)
    assert told.tell(JobsJudged(jobs=[OLDER_WANTS_A, YOUNGER_WANTS_B])) == []
    assert told.tell(*news) == [OLDER]


@pytest.mark.parametrize("news", [(IS_OVER, HAS_ENDED), (HAS_ENDED, IS_OVER)])
def test_no_start_is_decided_between_the_two_though_a_slot_is_free(
    stage: Stage, news: tuple[Message, ...]
) -> None:
    told = with_holder(stage, slots=3)
    # The most urgent job waits for the end, and for the same locks.
    dependant = verdict(4, A, priority=-20, depends=((HOLDER, ("success",)),))
    assert told.tell(JobsJudged(jobs=[verdict(OLDER, A), dependant])) == []
    assert told.tell(*news) == [4]


def test_what_was_foreseen_of_a_job_goes_with_its_slot(stage: Stage) -> None:
    told = Told(stage)
    told.tell(JobsJudged(jobs=[verdict(HOLDER, A)], is_all=True, report=1))
    told.tell(JobsJudged(jobs=[OLDER_WANTS_A, YOUNGER_WANTS_B]))
    assert told.tell(IS_OVER) == [OLDER]


def test_a_late_report_of_what_an_ended_job_held_holds_nothing_back(stage: Stage) -> None:
    told = Told(stage)
    told.tell(JobsJudged(jobs=[verdict(HOLDER, A)], is_all=True, report=1))
    assert told.tell(IS_OVER, HOLDS_A, JobsJudged(jobs=[OLDER_WANTS_A])) == [OLDER]


def test_what_a_running_job_gives_back_is_free_at_once(stage: Stage) -> None:
    told = with_holder(stage, slots=3)
    assert told.tell(JobsJudged(jobs=[verdict(OLDER, A)])) == []
    assert told.tell(OwnersChanged(owners=[(process(HOLDER), NO_LOCKS)])) == [OLDER]


def test_a_lock_manager_that_starts_anew_frees_no_locks_before_the_slot(stage: Stage) -> None:
    told = with_holder(stage, slots=3)
    told.tell(JobsJudged(jobs=[verdict(OLDER, A)]))
    assert told.tell(HAS_ENDED, OwnersChanged(owners=[], is_all=True)) == []
    assert told.tell(IS_OVER) == [OLDER]


def test_a_job_that_is_pending_again_has_no_locks(stage: Stage) -> None:
    told = with_holder(stage)
    told.tell(JobsJudged(jobs=[OLDER_WANTS_A, YOUNGER_WANTS_B]))
    assert told.tell(HAS_ENDED, JobsJudged(jobs=[verdict(HOLDER, B)])) == [OLDER]


def test_what_was_foreseen_of_a_former_process_is_not_expected_of_the_next_one(
    stage: Stage,
) -> None:
    told = Told(stage, slots=3)
    told.tell(JobsJudged(jobs=[verdict(HOLDER, A)], is_all=True, report=1))
    # Its next opcode wants no locks. It starts again.
    assert told.tell(JobsJudged(jobs=[verdict(HOLDER, NO_LOCKS)])) == [HOLDER]
    assert told.tell(JobsJudged(jobs=[verdict(YOUNGER, A, priority=19)])) == [YOUNGER]


def test_news_of_its_former_process_takes_nothing_from_a_job_that_starts_again(
    stage: Stage,
) -> None:
    told = with_holder(stage, slots=3)
    assert told.tell(JobsJudged(jobs=[verdict(HOLDER, A)])) == [HOLDER]
    assert told.tell(HAS_ENDED, JobsJudged(jobs=[OLDER_WANTS_A])) == [OLDER]
    # It outranks the job that has not got its locks yet. One that does not waits.
    assert told.tell(JobsJudged(jobs=[verdict(9, A, priority=19)])) == []


def test_a_new_scheduler_counts_the_locks_of_jobs_with_a_slot_alone(stage: Stage) -> None:
    owners: list[tuple[Owner, LockForecast | None]] = [(process(HOLDER), A), (process(9), B)]
    jobs, running = [verdict(2, A), verdict(3, B)], [verdict(9)]
    told = Told(stage, slots=3, incarnation=2)
    assert told.tell(OwnersChanged(owners=owners, is_all=True)) == []
    # Job 1 had ended when the queue was asked: the lock manager had not heard of it.
    assert told.tell(JobsJudged(jobs=jobs, running=running, is_all=True, report=1)) == [2]
    assert told.tell(HAS_ENDED, OwnersChanged(owners=[(process(9), NO_LOCKS)])) == [3]


def test_a_report_of_all_jobs_keeps_the_locks_of_those_that_run(stage: Stage) -> None:
    told = with_holder(stage)
    waiting = verdict(OLDER, A)
    report = JobsJudged(jobs=[waiting], running=[verdict(HOLDER)], is_all=True, report=2)
    assert told.tell(report, messages.LimitsChanged(running_jobs_max=3)) == []
    assert told.tell(HAS_ENDED) == []
    # A further report says what the news would have said.
    again = JobsJudged(jobs=[verdict(HOLDER, B), waiting], is_all=True, report=3)
    assert told.tell(again) == [HOLDER, OLDER]


def test_the_number_of_a_job_in_another_program_is_not_that_job(stage: Stage) -> None:
    """Another program that takes locks has a lock file of its own, and ends when it likes."""
    told = Told(stage, slots=3)
    other = Owner(HOLDER, "/elsewhere/job_000001_1", 77)
    told.tell(OwnersChanged(owners=[(other, A)], is_all=True))
    assert told.tell(JobsJudged(jobs=[verdict(HOLDER, B)], is_all=True, report=1)) == [HOLDER]
    assert told.tell(JobsJudged(jobs=[verdict(OLDER, A)]), IS_OVER) == []
    [asked] = [told.scheduler.ask(messages.ExplainPending(id=OLDER))]
    position = asked.answer_as(messages.PendingExplained).position
    assert position is not None
    [held] = position.held_back
    assert (held.jobs, held.others) == ([], ["1 (pid 77)"])
    assert told.tell(OwnersChanged(owners=[(other, None)])) == [OLDER]


def test_what_would_help_counts_with_jobs_that_no_locks_hold_back(stage: Stage) -> None:
    """The most urgent job waits for a slot alone: in it, it is the next to have its locks."""
    told = Told(stage, slots=2)
    first = [verdict(HOLDER, A), verdict(4)]
    assert told.tell(JobsJudged(jobs=first, is_all=True, report=1)) == [HOLDER, 4]
    told.tell(HOLDS_A, JobsJudged(jobs=[verdict(5), verdict(6, A, priority=-10)]))
    last, urgent = remedy(told, 5), remedy(told, 6)
    # Another one takes the slot of whichever job ends.
    assert (last.priority, last.needs_slots) == (-11, None)
    assert (urgent.locks, urgent.ends) == ([], [[HOLDER, 4]])
    assert told.tell(JobsFinished(jobs=[(4, JobStatus.SUCCESS)])) == [6]


def remedy(told: Told, job_id: int) -> messages.Remedy:
    asker = told.scheduler.ask(messages.ExplainPending(id=job_id))
    position = asker.answer_as(messages.PendingExplained).position
    assert position is not None
    return position.remedy


def test_why_knows_that_an_end_frees_more_than_locks(stage: Stage) -> None:
    """A more urgent job has waited for the place in a limit, and takes the lock."""
    told = Told(stage, slots=2)
    limits = (("1:x", 1),)
    holder = verdict(HOLDER, A, limits=limits)
    assert told.tell(JobsJudged(jobs=[holder], is_all=True, report=1)) == [HOLDER]
    urgent = verdict(3, A, priority=-10, limits=limits)
    assert told.tell(HOLDS_A, JobsJudged(jobs=[verdict(2, A), urgent])) == []
    found = remedy(told, 2)
    assert (found.locks, found.ends, found.priority) == ([HOLDER], [], -11)
    assert (remedy(told, 3).locks, remedy(told, 3).ends) == ([], [[HOLDER]])
    assert told.tell(IS_OVER) == [3]


def test_why_names_the_one_end_that_starts_a_job_behind_others(stage: Stage) -> None:
    """The end of any other one gives the slot to the job before it, which waits for a limit."""
    told = Told(stage, slots=2)
    limits = (("1:x", 1),)
    first = [verdict(1, limits=limits), verdict(2)]
    assert told.tell(JobsJudged(jobs=first, is_all=True, report=1)) == [1, 2]
    assert told.tell(JobsJudged(jobs=[verdict(3, limits=limits), verdict(4)])) == []
    assert remedy(told, 4).ends == [[2]]
    assert remedy(told, 4).priority is None
    assert told.tell(JobsFinished(jobs=[(2, JobStatus.SUCCESS)])) == [4]


def test_why_says_that_a_job_must_end_whose_locks_alone_are_not_enough(stage: Stage) -> None:
    """The only free slot goes to the more urgent job; the end of the holder frees another one."""
    told = Told(stage, slots=2)
    assert told.tell(JobsJudged(jobs=[verdict(HOLDER, AB)], is_all=True, report=1)) == [HOLDER]
    held = OwnersChanged(owners=[(process(HOLDER), AB)])
    assert told.tell(held, JobsJudged(jobs=[verdict(2, A), verdict(3, B)])) == []
    assert (remedy(told, 2).locks, remedy(told, 2).ends) == ([HOLDER], [])
    found = remedy(told, 3)
    assert (found.locks, found.ends, found.priority) == ([], [[HOLDER]], None)
    assert told.tell(IS_OVER) == [2, 3]


def test_locks_that_were_given_back_are_not_expected_any_more(stage: Stage) -> None:
    """The lock manager tells of what was taken and given back in one turn as of nothing held."""
    told = Told(stage, slots=3)
    told.tell(JobsJudged(jobs=[verdict(HOLDER, A)], is_all=True, report=1))
    assert told.tell(JobsJudged(jobs=[verdict(OLDER, A)])) == []
    assert told.tell(OwnersChanged(owners=[(process(HOLDER), NO_LOCKS)])) == [OLDER]
