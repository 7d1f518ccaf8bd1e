"""From choice to process in a queue on a stage, and choices taken back."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from tests.actors.queue.queue_rules import REJECTS, UUID, begin, take_rules
from tests.actors.queue.queue_stage import DELAY, Queue, spec

from ganger.storage.filters.rules import parse_rule
from ganger.storage.jobs import jobs, outcomes
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


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
    queue: Queue, *, is_chosen_first: bool
) -> None:
    queue.submitted(spec())
    hold_urgent(queue, 7)
    if is_chosen_first:
        queue.choose(1, chain=7)
    # The scheduler, which knows these rules, has not heard what they say of the new priority.
    queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    if not is_chosen_first:
        queue.choose(1, chain=7, priorities=1)
    queue.hand_over(1)
    assert queue.channels[1].answers == []
    queue.stage.take_one(messages.RefuseHandOver, to="executor")


def test_a_choice_made_after_that_is_believed_again(queue: Queue) -> None:
    queue.submitted(spec())
    hold_urgent(queue, 7)
    queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    queue.choose(1, chain=7, priorities=1)
    queue.hand_over(1)
    queue.lose_process(1)
    # It was announced again, so that the next choice follows a judgement of it as it is now.
    queue.choose(1, chain=7, priorities=1)
    queue.hand_over(1)
    queue.channels[1].answer_as(messages.JobGo)


def reprioritise(queue: Queue, job_id: int, priority: int) -> int:
    """It is acknowledged; the number under which the scheduler hears of it."""
    queue.stage.sent.clear()
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
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in sent.jobs] == [1]
    queue.choose(2, priorities=number)
    queue.choose(1, priorities=number)
    started = [job for one in queue.stage.take(messages.StartJobs) for job, _ in one.jobs]
    assert started == [2, 1]


def test_a_choice_that_newer_priorities_confirm_starts(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    reprioritise(queue, 2, 5)
    queue.choose(1)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(1, False)]


def test_after_a_report_of_the_queue_older_choices_do_not_count(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    reprioritise(queue, 2, -5)
    # A scheduler that starts afresh gets the priorities of now.
    queue.actor.notify(messages.ReportAllJobs())
    queue.choose(1)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(1, False)]


def test_a_chosen_job_without_a_process_makes_way_for_a_more_urgent_one(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec(), spec())
    queue.choose(1, 2, 3)
    number = reprioritise(queue, 4, -5)
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in sent.jobs] == [3]
    queue.hand_over(3)
    queue.stage.take_one(messages.RefuseHandOver, to="executor")
    # One slot is enough for it: the others go on.
    queue.hand_over(1)
    queue.channels[1].answer_as(messages.JobGo)
    queue.choose(4, priorities=number)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(4, False)]


def test_a_job_that_waits_for_others_takes_no_choice_back(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    queue.choose(1)
    reprioritise(queue, 2, -5)
    assert queue.stage.take(messages.JobsArrived) == []


def note_limit(queue: Queue, slots: int) -> None:
    """The scheduler has heard of the number of run slots; the turn ends."""
    queue.stage.sent.clear()
    queue.actor.turn(messages.LimitAcknowledged(serial=3, running_jobs_max=slots))


def test_chosen_jobs_beyond_a_new_limit_get_no_process(queue: Queue) -> None:
    queue.submitted(*[spec() for _ in range(5)])
    queue.start_running(1)
    queue.start_running(2)
    queue.record(2, 11, SUCCESS)
    queue.choose(4, 5, 3)
    note_limit(queue, 2)
    # One runs, one has ended: of those without a process the first in order may have one.
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert [one.job.id for one in sent.jobs] == [4, 5]
    assert queue.stage.take_one(messages.LimitApplied, to="config_store").serial == 3
    queue.greet(4)
    queue.hand_over(3)
    refused = queue.stage.take_one(messages.RefuseHandOver, to="executor")
    assert refused.job_id == 4
    queue.channels[3].answer_as(messages.JobGo)


def test_jobs_that_have_a_process_keep_it_under_a_lower_limit(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start(1)
    queue.start_running(2)
    note_limit(queue, 1)
    assert queue.stage.take(messages.JobsArrived) == []
    queue.stage.take_one(messages.LimitApplied)
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)


def test_a_limit_that_is_not_reached_takes_nothing_back(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.choose(1, 2)
    note_limit(queue, 2)
    assert queue.stage.take(messages.JobsArrived) == []


# Start and hand-over.
def test_a_process_is_asked_for_once_and_the_file_says_meanwhile_that_the_job_is_pending(
    queue: Queue,
) -> None:
    queue.submitted(spec())
    queue.rest()
    before = queue.file(1)
    queue.choose(1)
    assert queue.file(1) == before
    assert before["livelock"] is None
    started = queue.stage.take_one(messages.StartJobs, to="executor")
    assert started.jobs == [(1, False)]
    queue.choose(1)
    assert queue.stage.take(messages.StartJobs) == []


def test_the_lock_file_is_in_the_job_file_before_the_child_may_go_on(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    lock_file = queue.greet(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    assert queue.file(1)["livelock"] == lock_file
    assert msgspec.json.decode(go.body) == queue.file(1)
    assert go.queue == os.fspath(queue.stage.places.queue)
    confirmed = queue.stage.take_one(messages.HandOverConfirmed, to="executor")
    assert confirmed == messages.HandOverConfirmed(job_id=1, lock_file=lock_file)


def test_a_lost_confirmation_is_repeated_for_the_same_child_only(queue: Queue) -> None:
    lock_file = queue.start_new()
    queue.ask_hand_over(1, lock_file)
    assert len(queue.channels[1].answers) == 2
    queue.ask_hand_over(1, "/l/of-another")
    assert len(queue.channels[1].answers) == 2


@pytest.mark.parametrize("job_id", [1, 9])
def test_a_child_for_a_job_that_is_not_being_started_is_refused(queue: Queue, job_id: int) -> None:
    queue.submitted(spec())
    lock_file = queue.greet(job_id)
    assert queue.channels[job_id].answers == []
    refused = queue.stage.take_one(messages.RefuseHandOver, to="executor")
    assert refused == messages.RefuseHandOver(job_id=job_id, lock_file=lock_file)


def test_a_job_canceled_before_its_hand_over_is_never_handed_over(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    canceled = queue.actor.say(messages.CancelJob(id=1))
    queue.hand_over(1)
    assert canceled.answer_as(messages.CancelOutcome).accepted
    assert queue.channels[1].answers == []
    assert len(queue.stage.take(messages.RefuseHandOver)) == 1
    queue.crash_machine()
    assert queue.statuses() == {1: "canceled"}


def test_a_job_canceled_in_the_turn_of_its_hand_over_gets_the_request(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.greet(1)
    canceled = queue.actor.ask(messages.CancelJob(id=1))
    assert canceled.answers == []
    sent = queue.stage.take_one(messages.DeliverToJob, to="executor")
    assert (sent.job_id, type(sent.message)) == (1, messages.CancelRequested)


def test_a_hand_over_does_not_lose_a_priority_of_the_same_turn(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    changed = queue.actor.say(messages.ChangeJobPriority(id=1, priority=-5))
    lock_file = queue.greet(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    job = jobs.decode_job(go.body)
    assert ([op.priority for op in job.ops], job.livelock) == ([-5], lock_file)
    # From here on the file is the process's, and the flush must not go back behind it.
    job.extra[jobs.STATE_SERIAL_KEY] = 10
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.end_turn()
    assert changed.answer_as(messages.PriorityOutcome).accepted
    assert queue.file(1)["ganger_serial"] == 10
    queue.restart()
    assert queue.job(1).livelock == lock_file


def test_a_job_chosen_by_mistake_gives_its_run_slot_back(queue: Queue) -> None:
    # The word of its end went straight to the scheduler, and overtook the word of its arrival.
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    queue.stage.sent.clear()
    queue.choose(1, 77)
    reported = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert reported.jobs == [(1, CANCELED), (77, None)]
    assert queue.stage.take(messages.StartJobs) == []


# Dependencies.
def test_a_job_waits_until_the_scheduler_reports_it_as_eligible(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    watcher = queue.actor.say(messages.WatchJobs(ids=[2]), number=4)
    assert queue.statuses() == {1: "queued", 2: "waiting"}
    queue.restart()
    assert queue.statuses() == {1: "queued", 2: "waiting"}
    assert queue.file(2)["ops"][0]["status"] == "queued"
    queue.choose(eligible=[2])
    assert queue.statuses() == {1: "queued", 2: "queued"}
    assert len(watcher.answers) == 1


def test_a_pending_job_does_not_end_for_a_reason_that_is_unknown(queue: Queue) -> None:
    queue.submitted(spec())
    odd: Any = "delayed"
    with pytest.raises(AssertionError):
        queue.actor.component.store.end_pending(1, odd, "later")
    assert queue.statuses() == {1: "queued"}


def test_an_unsatisfiable_job_ends_without_a_process(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, [])), spec((-2, []), ops=2))
    queue.choose(unsatisfiable=[(2, "canceled", ""), (3, "failed", "no luck")])
    assert queue.statuses() == {1: "queued", 2: "canceled", 3: "error"}
    assert [op.result for op in queue.job(3).ops] == [
        ["OpExecError", ["no luck"]],
        ["OpExecError", ["Preceding opcode failed"]],
    ]
    assert queue.job(2).ops[0].result == "Job canceled by request"
    finished = [job for sent in queue.stage.take(messages.JobsFinished) for job in sent.jobs]
    assert finished == [(2, CANCELED), (3, ERROR)]


def _why(queue: Queue, job_id: int) -> str:
    ending = outcomes.ending_of(queue.job(job_id))
    return "" if ending is None else ending.reason


def test_jobs_that_the_scheduler_finds_rejected_are_canceled(queue: Queue) -> None:
    take_rules(queue)
    queue.submitted(spec(), spec(), spec())
    # The rule has gone since.
    queue.choose(2, unsatisfiable=[(1, "rejected", UUID)])
    assert queue.statuses() == {1: "canceled", 2: "queued", 3: "queued"}
    assert _why(queue, 1) == f"rejected by filter rule {UUID}"
    take_rules(queue, {**REJECTS, "name": "hold node/n7"})
    queue.choose(unsatisfiable=[(3, "rejected", UUID)])
    assert _why(queue, 3) == "rejected by the rule 'hold node/n7' (closed)"
    assert [op["OP_ID"] for op in (queue.job(1).ops[0].input,)] == [DELAY["OP_ID"]]


@pytest.mark.parametrize("may_reuse", [True, False])
def test_the_executor_and_the_process_hear_which_jobs_may_share_one(
    queue: Queue, *, may_reuse: bool
) -> None:
    queue.actor.component.hand_over._may_reuse = may_reuse
    keeps = {"OP_ID": "OP_EXEC", "argv": ["true"], "leave_running": True}
    queue.submitted(spec(), messages.JobSpec(ops=[keeps]))
    queue.choose(1, 2)
    assert queue.stage.take_one(messages.StartJobs).reusing == ([1] if may_reuse else [])
    for job_id, reuses in ((1, may_reuse), (2, False)):
        queue.hand_over(job_id)
        assert queue.channels[job_id].answer_as(messages.JobGo).reuses is reuses


def test_a_job_that_starts_may_be_given_the_priority_that_it_has(queue: Queue) -> None:
    """Its file is all there is of it: a campaign of power losses has ended the queue so."""
    queue.submitted(spec())
    queue.choose(1)
    ledger = queue.actor.component.store.ledger
    ledger.files.write_file(1)
    assert ledger.in_memory(1) is None
    reprioritise(queue, 1, 0)
    assert ledger.in_memory(1) is None
