"""The job queue on a stage: nothing that was chosen starts under rules that are not in force."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker

from ganger.actors.queue.job_queue import JobQueue
from ganger.storage.jobs import JobStatus
from ganger.storage.rules import parse_rule
from ganger.transport import messages
from ganger.transport.messages import ChosenUnder, GateAnswered

QUEUED, WAITING, RUNNING = JobStatus.QUEUED, JobStatus.WAITING, JobStatus.RUNNING
SUCCESS, CANCELED = JobStatus.SUCCESS, JobStatus.CANCELED
UUID = "aaaaaaaa-0000-4000-8000-000000000000"
PAUSED = f"paused by filter rule {UUID} (priority 0)"
REJECTED = f"rejected by filter rule {UUID} (priority 0)"


def obey(queue: Queue, *actions: object, chain: int = 7) -> None:
    """Rules for all jobs are in force from now on."""
    rules = [parse_rule({"uuid": UUID, "watermark": 0, "action": action}) for action in actions]
    queue.actor.notify(
        messages.RuleChainChanged(chain=chain, serial=chain, reads_opcodes=True, rules=rules)
    )


def begin(queue: Queue, job_id: int, serial: int, *statuses: JobStatus, **chosen: Any) -> Asker:
    """The process wants to begin an opcode; the turn ends."""
    asker = queue.record(job_id, serial, *statuses, begins=ChosenUnder(**chosen))
    queue.actor.end_turn()
    return asker


def test_a_chosen_job_gets_no_process_under_a_new_rule_that_pauses_it(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1, chain=6)
    obey(queue, "PAUSE")
    lock_file = queue.greet(1)
    queue.actor.end_turn()
    assert queue.channels[1].answers == []
    refused = queue.stage.take_one(messages.RefuseHandOver, to="executor")
    assert refused == messages.RefuseHandOver(job_id=1, lock_file=lock_file)
    # The scheduler hears of it again, and so frees its run slot.
    [told] = [one for one in queue.stage.take(messages.JobsArrived) if not one.is_all][-1:]
    assert [one.job.id for one in told.jobs] == [1]
    assert queue.statuses() == {1: "queued"}
    # When the rule is gone it is chosen, and runs.
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    obey(queue, chain=8)
    queue.start(1)


def test_a_chosen_job_is_canceled_by_a_new_rule_that_rejects_it(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1, chain=6)
    obey(queue, "REJECT")
    queue.greet(1)
    queue.actor.end_turn()
    queue.stage.take_one(messages.RefuseHandOver, to="executor")
    job = queue.job(1)
    assert job.status is CANCELED
    assert job.ops[0].input["reason"][-1][:2] == ["ganger:filter", REJECTED]
    assert messages.JobsFinished(jobs=[(1, CANCELED)]) in queue.stage.take(messages.JobsFinished)


def test_a_job_chosen_under_the_rules_in_force_is_handed_over(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    obey(queue, ["RATE_LIMIT", 1])
    queue.choose(1, chain=7, limits={1: f"{UUID} 1"})
    queue.greet(1)
    queue.actor.end_turn()
    go = queue.channels[1].answer_as(messages.JobGo)
    assert go.chosen == ChosenUnder(7, f"{UUID} 1")


def test_a_job_chosen_without_the_limit_is_chosen_anew(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1, chain=6)
    obey(queue, ["RATE_LIMIT", 1])
    queue.greet(1)
    queue.actor.end_turn()
    assert queue.channels[1].answers == []
    assert queue.statuses() == {1: "queued"}


@pytest.mark.parametrize("action", ["PAUSE", "REJECT"])
def test_an_opcode_that_may_not_start_is_not_recorded(queue: Queue, action: str) -> None:
    queue.submitted(spec())
    queue.start(1)
    obey(queue, action)
    flushes = queue.actor.component.store.ledger.flushes
    text = PAUSED if action == "PAUSE" else REJECTED
    answer = begin(queue, 1, 10, RUNNING).answer
    assert answer == GateAnswered(is_open=False, text=text, is_rejected=action == "REJECT")
    assert queue.actor.component.store.ledger.flushes == flushes
    assert queue.statuses() == {1: "queued"}
    assert queue.job(1).status is QUEUED


def test_a_rejected_job_that_runs_goes_on_and_a_paused_one_does_not(queue: Queue) -> None:
    queue.submitted(spec(ops=2), spec(ops=2))
    for job_id in (1, 2):
        queue.start(job_id)
        assert begin(queue, job_id, 10, RUNNING, QUEUED).answer == messages.StateRecorded(serial=10)
    obey(queue, "REJECT")
    assert begin(queue, 1, 11, SUCCESS, RUNNING).answer == messages.StateRecorded(serial=11)
    obey(queue, "PAUSE", chain=8)
    answer = begin(queue, 2, 11, SUCCESS, RUNNING).answer
    assert answer == GateAnswered(is_open=False, text=PAUSED)


def test_what_was_recorded_already_is_only_told_again(queue: Queue) -> None:
    # The answer was lost with a queue that was replaced: the opcode runs.
    queue.submitted(spec())
    queue.start(1)
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)
    obey(queue, "PAUSE")
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)


def test_no_opcode_begins_before_a_new_queue_knows_the_rules(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.actor.close()
    queue.actor = queue.stage.make(JobQueue, incarnation=2)
    queue.actor.notify(messages.Boot())
    queue.actor.end_turn()
    asker = begin(queue, 1, 10, RUNNING, chain=6)
    assert asker.answers == []
    obey(queue, "PAUSE")
    queue.actor.end_turn()
    assert asker.answer == GateAnswered(is_open=False, text=PAUSED)


def test_with_each_change_of_the_rules_processes_ask_again(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec())
    queue.start(1)
    queue.start(2)
    queue.record(2, 10, SUCCESS)
    queue.actor.end_turn()
    queue.stage.told.clear()
    obey(queue, "PAUSE")
    told = queue.stage.take_one(messages.DeliverToJob, to="executor")
    assert told == messages.DeliverToJob(job_id=1, message=messages.GateChanged())


@pytest.mark.parametrize(
    ("action", "is_rejected"), [("PAUSE", False), ("REJECT", True), (["RATE_LIMIT", 1], False)]
)
def test_a_job_that_waits_for_locks_hears_that_it_must_not(
    queue: Queue, action: object, *, is_rejected: bool
) -> None:
    queue.submitted(spec())
    queue.start(1)
    waits = messages.JobWaits(job_id=1, serial=10, body=queue.body_of_process(1, 10, WAITING))
    queue.actor.notify(waits)
    obey(queue, action)
    answer = queue.actor.ask(messages.AskGate(job_id=1)).answer_as(GateAnswered)
    assert (answer.is_open, answer.is_rejected) == (False, is_rejected)


def test_a_disk_that_refuses_does_not_keep_a_rule_from_being_in_force(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    queue.start(1)
    obey(queue)
    queue.actor.notify(messages.RuleChainAcknowledged(serial=7))
    refused = queue.record(1, 10, RUNNING, begins=ChosenUnder())
    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", refuse_flush)
        queue.actor.end_turn()
    # The process begins by itself then, if the stored rules let it.
    assert refused.refusal[0] == "ReadOnlyError"
    queue.stage.take_one(messages.RulesInForce, to="config_store")


def refuse_flush(_: int) -> None:
    raise OSError(5, "the disk is gone")


# Priorities that rules look at.


def hold_urgent(queue: Queue, chain: int) -> None:
    rule = {
        "uuid": UUID,
        "watermark": 0,
        "action": "PAUSE",
        "predicates": [["opcode", ["<", "priority", 0]]],
    }
    queue.actor.notify(
        messages.RuleChainChanged(
            chain=chain, serial=chain, reads_opcodes=True, rules=[parse_rule(rule)]
        )
    )


@pytest.mark.parametrize("is_chosen_first", [True, False])
def test_a_choice_made_under_another_priority_is_looked_at(
    queue: Queue,
    is_chosen_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    queue.submitted(spec())
    hold_urgent(queue, 7)
    if is_chosen_first:
        queue.choose(1, chain=7)
    # The scheduler, which knows these rules, has not heard what they say of the new priority.
    queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    if not is_chosen_first:
        queue.choose(1, chain=7, priorities=1)
    queue.greet(1)
    queue.actor.end_turn()
    assert queue.channels[1].answers == []
    queue.stage.take_one(messages.RefuseHandOver, to="executor")


def test_a_choice_made_after_that_is_believed_again(queue: Queue) -> None:
    queue.submitted(spec())
    hold_urgent(queue, 7)
    queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    queue.choose(1, chain=7, priorities=1)
    queue.greet(1)
    queue.actor.end_turn()
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    # It was announced again, so that whoever chooses it now has judged it as it is.
    queue.choose(1, chain=7, priorities=1)
    queue.greet(1)
    queue.actor.end_turn()
    queue.channels[1].answer_as(messages.JobGo)


def test_between_opcodes_too_a_canceled_dependency_wins_over_a_failed_one(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec(ops=2))
    queue.finish(1, JobStatus.ERROR)
    queue.start(3)
    asked = messages.AskDependencies(job_id=3, depends=[(1, ["success"]), (2, [])])

    def outcome() -> str:
        return queue.actor.ask(asked).answer_as(messages.DependencyOutcome).verdict

    # It goes back to the queue, where the other one decides.
    assert outcome() == "open"
    queue.actor.ask(messages.CancelJob(id=2))
    assert outcome() == "canceled"


# Priorities by which the scheduler chooses.


def reprioritise(queue: Queue, job_id: int, priority: int) -> int:
    """It is acknowledged; the number under which the scheduler hears of it."""
    queue.stage.told.clear()
    asked = messages.ChangeJobPriority(id=job_id, priority=priority)
    assert queue.actor.ask(asked).answer_as(messages.PriorityOutcome).accepted
    return queue.stage.take_one(messages.JobReprioritised).number


def test_a_choice_by_older_priorities_does_not_start_what_newer_ones_put_behind(
    queue: Queue,
) -> None:
    queue.submitted(spec(), spec(), spec())
    number = reprioritise(queue, 2, -5)
    queue.choose(1, priorities=number - 1)
    assert queue.stage.take(messages.StartJobs) == []
    # The scheduler hears of it again, behind the new priority, and so frees its run slot.
    told = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in told.jobs] == [1]
    queue.choose(2, priorities=number)
    queue.choose(1, priorities=number)
    started = [job for one in queue.stage.take(messages.StartJobs) for job, _ in one.jobs]
    assert started == [2, 1]


def test_a_choice_that_newer_priorities_confirm_starts(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    reprioritise(queue, 2, 5)
    queue.choose(1)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(1, False)]


def test_after_a_report_of_the_queue_choices_go_by_what_it_said(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    reprioritise(queue, 2, -5)
    # A scheduler that starts afresh is told the priorities of now.
    queue.actor.notify(messages.ReportAllJobs())
    queue.choose(1)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(1, False)]


def test_a_chosen_job_without_a_process_makes_way_for_a_more_urgent_one(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec(), spec())
    queue.choose(1, 2, 3)
    number = reprioritise(queue, 4, -5)
    told = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in told.jobs] == [3]
    queue.greet(3)
    queue.actor.end_turn()
    queue.stage.take_one(messages.RefuseHandOver, to="executor")
    # One slot is enough for it: the others go on.
    queue.greet(1)
    queue.actor.end_turn()
    queue.channels[1].answer_as(messages.JobGo)
    queue.choose(4, priorities=number)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(4, False)]


def test_a_job_that_waits_for_others_makes_nobody_give_way(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    queue.choose(1)
    reprioritise(queue, 2, -5)
    assert queue.stage.take(messages.JobsArrived) == []


# Run slots.


def note_limit(queue: Queue, slots: int) -> None:
    """The scheduler has heard of the number of run slots; the turn ends."""
    queue.stage.told.clear()
    queue.actor.notify(messages.LimitAcknowledged(serial=3, running_jobs_max=slots))
    queue.actor.end_turn()


def test_chosen_jobs_beyond_a_new_limit_get_no_process(queue: Queue) -> None:
    queue.submitted(*[spec() for _ in range(5)])
    queue.start_running(1)
    queue.start_running(2)
    queue.record(2, 11, SUCCESS)
    queue.choose(4, 5, 3)
    note_limit(queue, 2)
    # One runs, one has ended: of those without a process the first in order may have one.
    told = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in told.jobs] == [4, 5]
    assert queue.stage.take_one(messages.LimitInForce, to="config_store").serial == 3
    queue.greet(4)
    queue.greet(3)
    queue.actor.end_turn()
    refused = queue.stage.take_one(messages.RefuseHandOver, to="executor")
    assert refused.job_id == 4
    queue.channels[3].answer_as(messages.JobGo)


def test_jobs_that_have_a_process_keep_it_under_a_lower_limit(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start(1)
    queue.start_running(2)
    note_limit(queue, 1)
    assert queue.stage.take(messages.JobsArrived) == []
    queue.stage.take_one(messages.LimitInForce)
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)


def test_a_limit_that_is_not_reached_takes_nothing_back(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.choose(1, 2)
    note_limit(queue, 2)
    assert queue.stage.take(messages.JobsArrived) == []
