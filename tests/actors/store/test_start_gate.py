"""The gate of a queue on a stage: no opcode starts under rules that are not in force."""

from __future__ import annotations

import errno

import pytest
from tests.actors.queue.queue_rules import REJECTION, REJECTS, UUID, begin, take_rules
from tests.actors.queue.queue_stage import Queue, spec
from tests.refusals import refusing

from ganger.actors.queue.job_queue import JobQueue
from ganger.storage.filters.rules import parse_rule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Outcome
from ganger.transport import messages
from ganger.transport.messages import ChosenUnder, GateAnswered

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus
PAUSED = f"paused by filter rule {UUID} (priority 0)"
REJECTED = f"rejected by filter rule {UUID} (priority 0)"


def obey(queue: Queue, *actions: object, chain: int = 7) -> None:
    """Rules for all jobs are in force from now on."""
    rules = [parse_rule({"uuid": UUID, "watermark": 0, "action": action}) for action in actions]
    queue.actor.notify(
        messages.RuleChainChanged(chain=chain, serial=chain, reads_opcodes=True, rules=rules)
    )


def test_a_chosen_job_gets_no_process_under_a_new_rule_that_pauses_it(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1, chain=6)
    obey(queue, "PAUSE")
    lock_file = queue.hand_over(1)
    assert queue.channels[1].answers == []
    refused = queue.stage.take_one(messages.RefuseHandOver, to="executor")
    assert refused == messages.RefuseHandOver(job_id=1, lock_file=lock_file)
    # The scheduler hears of it again, and so frees its run slot.
    [sent] = [one for one in queue.stage.take(messages.JobsArrived) if not one.is_all][-1:]
    assert [one.job.id for one in sent.jobs] == [1]
    assert queue.statuses() == {1: "queued"}
    # When the rule is gone it is chosen, and runs.
    queue.lose_process(1)
    obey(queue, chain=8)
    queue.start(1)


def test_a_chosen_job_is_canceled_by_a_new_rule_that_rejects_it(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1, chain=6)
    obey(queue, "REJECT")
    queue.hand_over(1)
    queue.stage.take_one(messages.RefuseHandOver, to="executor")
    job = queue.job(1)
    assert job.status is CANCELED
    assert job.ops[0].input["reason"][-1][:2] == ["ganger:filter", REJECTED]
    finished = messages.JobsFinished(jobs=[(1, CANCELED)], outcomes={1: Outcome.REJECTED})
    assert finished in queue.stage.take(messages.JobsFinished)


def test_a_job_chosen_under_the_rules_in_force_is_handed_over(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    obey(queue, ["RATE_LIMIT", 1])
    queue.choose(1, chain=7, limits={1: f"{UUID} 1"})
    queue.hand_over(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    assert go.chosen == ChosenUnder(7, f"{UUID} 1")


def test_a_job_chosen_without_the_limit_is_chosen_anew(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1, chain=6)
    obey(queue, ["RATE_LIMIT", 1])
    queue.hand_over(1)
    assert queue.channels[1].answers == []
    assert queue.statuses() == {1: "queued"}


@pytest.mark.parametrize("action", ["PAUSE", "REJECT"])
def test_an_opcode_that_may_not_start_is_not_recorded(queue: Queue, action: str) -> None:
    queue.start_new()
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


def test_a_state_that_is_recorded_already_is_only_confirmed_again(queue: Queue) -> None:
    # The answer was lost with a queue that was replaced: the opcode runs.
    queue.start_new()
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)
    obey(queue, "PAUSE")
    assert begin(queue, 1, 10, RUNNING).answer == messages.StateRecorded(serial=10)


def test_a_copy_of_a_state_that_was_refused_is_refused_under_all_later_rules(queue: Queue) -> None:
    # The process sent it twice, and gives the job back after the first answer.
    queue.start_new()
    obey(queue, "PAUSE")
    closed = begin(queue, 1, 10, RUNNING).answer
    obey(queue, "ACCEPT", chain=8)
    assert begin(queue, 1, 10, RUNNING).answer == closed
    assert queue.statuses() == {1: "queued"}
    assert begin(queue, 1, 11, RUNNING).answer == messages.StateRecorded(serial=11)
    assert queue.statuses() == {1: "running"}


def test_no_opcode_begins_before_a_new_queue_has_the_rules(queue: Queue) -> None:
    queue.start_new()
    queue.actor.close()
    queue.actor = queue.stage.make(JobQueue, incarnation=2)
    queue.actor.turn(messages.Boot())
    asker = begin(queue, 1, 10, RUNNING, chain=6)
    assert asker.answers == []
    obey(queue, "PAUSE")
    queue.actor.end_turn()
    assert asker.answer == GateAnswered(is_open=False, text=PAUSED)


def test_with_each_change_of_the_rules_processes_ask_again(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec())
    queue.start(1)
    queue.start(2)
    queue.recorded(2, 10, SUCCESS)
    queue.stage.sent.clear()
    obey(queue, "PAUSE")
    sent = queue.stage.take_one(messages.DeliverToJob, to="executor")
    assert sent == messages.DeliverToJob(job_id=1, message=messages.GateChanged())


@pytest.mark.parametrize(
    ("action", "is_rejected"), [("PAUSE", False), ("REJECT", True), (["RATE_LIMIT", 1], False)]
)
def test_a_job_that_waits_for_locks_is_notified_that_its_gate_is_closed(
    queue: Queue, action: object, *, is_rejected: bool
) -> None:
    queue.start_new()
    waits = messages.JobWaits(job_id=1, serial=10, body=queue.body_of_process(1, 10, WAITING))
    queue.actor.notify(waits)
    obey(queue, action)
    answer = queue.actor.ask(messages.AskGate(job_id=1)).answer_as(GateAnswered)
    assert (answer.is_open, answer.is_rejected) == (False, is_rejected)


def test_a_disk_that_refuses_does_not_keep_a_rule_from_being_in_force(queue: Queue) -> None:
    queue.start_new()
    obey(queue)
    queue.actor.notify(messages.RuleChainAcknowledged(serial=7))
    refused = queue.record(1, 10, RUNNING, begins=ChosenUnder())
    with refusing("fdatasync", number=errno.EIO):
        queue.actor.end_turn()
    # The process begins by itself then, if the stored rules let it.
    assert refused.refusal[0] == "OutcomeUnknownError"
    queue.stage.take_one(messages.RulesApplied, to="config_store")


def test_rules_are_in_force_when_the_scheduler_has_acknowledged_them(queue: Queue) -> None:
    take_rules(queue, REJECTS, serial=5)
    assert queue.stage.take(messages.RulesApplied) == []
    queue.actor.notify(messages.RuleChainAcknowledged(serial=5))
    # Opcodes whose start is being recorded were let through by older rules.
    assert queue.stage.take(messages.RulesApplied) == []
    queue.actor.end_turn()
    assert queue.stage.take_one(messages.RulesApplied, to="config_store").serial == 5


def test_rules_are_in_force_when_the_last_of_both_has_them(queue: Queue) -> None:
    queue.actor.notify(messages.RuleChainAcknowledged(serial=5))
    assert queue.stage.take(messages.RulesApplied) == []
    take_rules(queue, serial=5)
    queue.actor.end_turn()
    assert queue.stage.take_one(messages.RulesApplied).serial == 5


def test_of_changes_that_overlap_the_newest_is_in_force_last(queue: Queue) -> None:
    take_rules(queue, serial=5)
    take_rules(queue, serial=6)
    queue.actor.turn(messages.RuleChainAcknowledged(serial=5))
    assert queue.stage.take(messages.RulesApplied) == []
    queue.actor.turn(messages.RuleChainAcknowledged(serial=6))
    assert queue.stage.take_one(messages.RulesApplied).serial == 6


def test_a_new_queue_takes_no_submission_before_it_has_the_rules(queue: Queue) -> None:
    queue.actor.close()
    queue.actor = queue.stage.make(JobQueue, incarnation=2)
    queue.actor.notify(messages.Boot())
    queue.stage.take_one(messages.ReportChain, to="filter_evaluator")
    asker = queue.submit(spec())
    assert asker.answers == []
    take_rules(queue, REJECTS)
    queue.actor.end_turn()
    assert asker.answer == messages.JobsSubmitted(ids=[], rejected={0: REJECTION})
    assert queue.statuses() == {}


@pytest.mark.parametrize(
    "asked",
    [
        messages.RetryJob(id=1),
        messages.TestFilters(without=UUID),
        messages.Simulate(without=UUID),
        messages.AskGate(job_id=1, chosen=ChosenUnder()),
    ],
)
def test_what_depends_on_the_rules_waits_until_a_new_queue_has_them(
    queue: Queue, asked: messages.Message
) -> None:
    queue.finish_new(ERROR)
    queue.actor.close()
    queue.actor = queue.stage.make(JobQueue, incarnation=2)
    queue.actor.turn(messages.Boot())
    asker = queue.actor.ask(asked)
    assert (asker.answers, queue.stage.requests) == ([], [])
    take_rules(queue, REJECTS)
    queue.actor.end_turn()
    # Some of these the filter evaluator answers.
    assert asker.answers or queue.stage.requests


def test_the_queue_and_the_filter_evaluator_decide_windows_by_one_clock(queue: Queue) -> None:
    opens = queue.stage.today + 10.0
    window = {"valid_from": opens, "valid_until": opens + 10.0}
    take_rules(queue, {**REJECTS, **window})
    outcomes = []
    for moment in (opens - 0.1, opens, opens + 9.9, opens + 10.0):
        queue.stage.today = moment
        outcomes.append(queue.submit(spec()).answer)
    rejected = [getattr(one, "rejected", None) for one in outcomes]
    assert rejected == [{}, {0: REJECTION}, {0: REJECTION}, {}]
    queue.stage.today = opens - 0.1
    take_rules(queue, {**REJECTS, **window, "action": "PAUSE"})
    first, last = (ids[0] for one in outcomes if (ids := getattr(one, "ids", None)))
    queue.start(first)
    queue.start(last)
    assert isinstance(begin(queue, first, 10, RUNNING).answer, messages.StateRecorded)
    queue.stage.today = opens
    assert not begin(queue, last, 10, RUNNING).answer_as(messages.GateAnswered).is_open
