"""The job queue on a stage, under filter rules: the door, jobs to be judged, rules in force."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from tests.actors.queue.queue_stage import DELAY, Queue, spec

from ganger.actors.queue.job_queue import JobQueue
from ganger.storage import errors, settings
from ganger.storage.jobs import JobStatus
from ganger.storage.queue_files import job_files
from ganger.storage.rules import parse_rule
from ganger.transport import messages
from ganger.transport.messages import JobSpec

RUNNING, SUCCESS = JobStatus.RUNNING, JobStatus.SUCCESS
UUID = "aaaaaaaa-0000-4000-8000-000000000000"
EXEC: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}
REJECTS = {
    "uuid": UUID,
    "watermark": 0,
    "action": "REJECT",
    "predicates": [["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]],
    "reason_trail": [["gnt:user", "closed", 1]],
}
TOLD = f"rejected by filter rule {UUID} (priority 0, reason: closed)"


def obey(queue: Queue, *rules: dict[str, Any], serial: int = 4, reads: bool = True) -> None:
    changed = messages.RuleChainChanged(
        chain=7, serial=serial, reads_opcodes=reads, rules=[parse_rule(rule) for rule in rules]
    )
    queue.actor.notify(changed)


def command(**fields: Any) -> JobSpec:
    return JobSpec(ops=[EXEC], **fields)


# The door.


def test_a_rejected_job_is_refused_and_nothing_is_stored(queue: Queue) -> None:
    obey(queue, REJECTS)
    assert queue.submit(spec()).answer == messages.JobsSubmitted(ids=[], rejected={0: TOLD})
    assert queue.statuses() == {}
    assert queue.stage.take(messages.JobsArrived) == []


def test_of_a_batch_only_the_rejected_jobs_are_left_out(queue: Queue) -> None:
    obey(queue, REJECTS)
    reply = queue.submit(command(), spec(), command()).answer_as(messages.JobsSubmitted)
    assert reply.rejected == {1: TOLD}
    assert list(queue.statuses()) == reply.ids
    assert len(reply.ids) == 2
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in arrived.jobs] == reply.ids
    # What was told stays true after a restart, and no id is given twice.
    queue.crash_machine()
    assert list(queue.statuses()) == reply.ids
    obey(queue)
    [new] = queue.submitted(command())
    assert new > max(reply.ids)


def test_the_id_of_a_rejected_job_is_written_again_if_the_disk_refused_it_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    obey(queue, REJECTS)
    full = errors.StorageError("serial: no space left")
    with monkeypatch.context() as patch:
        directory = queue.actor.component.store.ledger.directory
        patch.setattr(directory, "write_serial", mock.Mock(side_effect=full))
        assert queue.submitted(command(), spec()) == [1]
    queue.rest()
    queue.restart()
    obey(queue)
    assert queue.submitted(command()) == [3]


def test_the_id_of_a_rejected_job_is_not_given_again_after_the_daemon_was_killed(
    queue: Queue,
) -> None:
    obey(queue, REJECTS)
    assert queue.submitted(command(), spec()) == [1]
    queue.restart()
    obey(queue)
    assert queue.submitted(command()) == [3]


def test_relative_dependencies_are_right_around_a_rejected_job(queue: Queue) -> None:
    obey(queue, REJECTS)
    first, third = queue.submitted(command(), spec(), command(depends=[(-2, ["success"])]))
    assert queue.job(third).ops[0].input["depends"] == [[first, ["success"]]]


def test_a_batch_of_which_nothing_is_left_is_refused_whole(queue: Queue) -> None:
    obey(queue, REJECTS)
    reply = queue.submit(spec(), command(depends=[(-1, [])])).answer_as(messages.JobsSubmitted)
    assert (reply.ids, list(reply.rejected)) == ([], [0, 1])
    assert reply.rejected[0] == TOLD
    assert reply.rejected[1].startswith("not stored, because it depends on job 0 of the submission")
    assert queue.statuses() == {}


def test_a_dry_run_tells_what_would_be_rejected(queue: Queue) -> None:
    obey(queue, REJECTS)
    reply = queue.submit(command(), spec(), dry_run=True).answer
    assert reply == messages.JobsSubmitted(ids=[], rejected={1: TOLD})
    whole = queue.submit(spec(), dry_run=True).answer
    assert whole == messages.JobsSubmitted(ids=[], rejected={0: TOLD})
    assert queue.statuses() == {}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_repeated_key_tells_again_what_was_rejected(queue: Queue, *, is_restarted: bool) -> None:
    # The client never saw the first answer: without this it would take the ids of two jobs
    # for those of three.
    obey(queue, REJECTS)
    first = queue.submit(command(), spec(), command(), key="k").answer_as(messages.JobsSubmitted)
    if is_restarted:
        queue.restart()
        obey(queue, REJECTS)
    again = queue.submit(command(), spec(), command(), key="k").answer_as(messages.JobsSubmitted)
    assert again.is_repeat
    assert again.ids == first.ids
    assert list(again.rejected) == [1]


def test_a_key_whose_jobs_were_all_rejected_is_free(queue: Queue) -> None:
    obey(queue, REJECTS)
    refused = queue.submit(spec(), key="k").answer
    assert refused == messages.JobsSubmitted(ids=[], rejected={0: TOLD})
    obey(queue)
    assert len(queue.submitted(spec(), key="k")) == 1


# In force.


def test_rules_are_in_force_when_the_scheduler_goes_by_them_too(queue: Queue) -> None:
    obey(queue, REJECTS, serial=5)
    assert queue.stage.take(messages.RulesInForce) == []
    queue.actor.notify(messages.RuleChainAcknowledged(serial=5))
    # Opcodes whose start is being recorded were let through by older rules.
    assert queue.stage.take(messages.RulesInForce) == []
    queue.actor.end_turn()
    assert queue.stage.take_one(messages.RulesInForce, to="config_store").serial == 5


def test_whoever_hears_first_the_last_one_decides(queue: Queue) -> None:
    queue.actor.notify(messages.RuleChainAcknowledged(serial=5))
    assert queue.stage.take(messages.RulesInForce) == []
    obey(queue, serial=5)
    queue.actor.end_turn()
    assert queue.stage.take_one(messages.RulesInForce).serial == 5


def test_of_changes_that_overlap_the_newest_is_in_force_last(queue: Queue) -> None:
    obey(queue, serial=5)
    obey(queue, serial=6)
    queue.actor.notify(messages.RuleChainAcknowledged(serial=5))
    queue.actor.end_turn()
    assert queue.stage.take(messages.RulesInForce) == []
    queue.actor.notify(messages.RuleChainAcknowledged(serial=6))
    queue.actor.end_turn()
    assert queue.stage.take_one(messages.RulesInForce).serial == 6


def test_a_new_queue_lets_nobody_in_before_it_knows_the_rules(queue: Queue) -> None:
    queue.actor.close()
    queue.actor = queue.stage.make(JobQueue, incarnation=2)
    queue.actor.notify(messages.Boot())
    queue.stage.take_one(messages.ReportChain, to="filter_evaluator")
    asker = queue.submit(spec())
    assert asker.answers == []
    obey(queue, REJECTS)
    queue.actor.end_turn()
    assert asker.answer == messages.JobsSubmitted(ids=[], rejected={0: TOLD})
    assert queue.statuses() == {}


def test_the_last_id_is_told_with_the_question(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    assert queue.actor.say(messages.ReadLastId()).answer == messages.LastId(last_id=2)


# Jobs to be judged.


def test_pending_and_running_jobs_are_sent_to_be_judged_anew(queue: Queue) -> None:
    obey(queue)
    queue.submitted(spec(), spec(), spec())
    queue.start(2)
    queue.record(2, 10, RUNNING)
    queue.finish(3)
    queue.actor.notify(messages.ReportJobs(ids=[1, 2, 3, 99]))
    sent = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    assert (sent.is_repeat, sent.is_all, sent.sweep) == (True, False, None)
    assert [one.job.id for one in sent.jobs] == [1]
    assert [one.job.id for one in sent.running] == [2]
    assert all(one.inputs is not None for one in (*sent.jobs, *sent.running))


def test_inputs_are_sent_only_where_rules_read_them(queue: Queue) -> None:
    obey(queue, reads=False)
    queue.submitted(spec())
    queue.actor.notify(messages.ReportJobs(ids=[1]))
    for sent in queue.stage.take(messages.JobsArrived):
        assert [one.inputs for one in sent.jobs] == [None]


def test_ad_hoc_limits_are_told_with_each_job_also_after_a_restart(queue: Queue) -> None:
    obey(queue, reads=False)
    reason = [("gnt:user", "rate-limit:3:moves", 1)]
    queue.submitted(spec(reason=reason))
    limits = [one.job.limits for one in queue.stage.take_one(messages.JobsArrived).jobs]
    assert limits == [(("3:moves", 3),)]
    queue.crash_machine()
    queue.actor.notify(messages.ReportAllJobs())
    limits = [one.job.limits for one in queue.stage.take_one(messages.JobsArrived).jobs]
    assert limits == [(("3:moves", 3),)]


def test_the_queue_is_sent_page_by_page_pending_jobs_only(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SWEEP_JOBS", 2)
    obey(queue)
    queue.submitted(*[spec()] * 6)
    queue.start(2)
    queue.stage.told.clear()
    pages = []
    after: int | None = 0
    while after is not None:
        queue.actor.notify(messages.SweepJobs(after=after, chain=7))
        page = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
        assert (page.sweep, page.is_repeat) == (7, True)
        pages.append([one.job.id for one in page.jobs])
        after = page.next_after
    assert pages == [[1, 3], [4, 5], [6]]


def test_an_empty_queue_is_one_empty_page(queue: Queue) -> None:
    obey(queue)
    queue.actor.notify(messages.SweepJobs(after=0, chain=7))
    page = queue.stage.take_one(messages.JobsArrived)
    assert (page.jobs, page.next_after) == ([], None)


def test_pending_jobs_that_a_rule_rejects_are_canceled_and_no_others(queue: Queue) -> None:
    obey(queue)
    queue.submitted(spec(), spec(), spec())
    queue.start(2)
    queue.record(2, 10, RUNNING)
    rejected = [(1, TOLD), (2, TOLD), (99, TOLD)]
    queue.actor.notify(messages.JobsRejected(jobs=rejected))
    assert queue.stage.take(messages.JobsFinished) == []
    queue.actor.end_turn()
    assert queue.statuses() == {1: "canceled", 2: "running", 3: "queued"}
    finished = queue.stage.take_one(messages.JobsFinished, to="filter_evaluator")
    assert finished.jobs == [(1, JobStatus.CANCELED)]
    assert TOLD in queue.stage.log_stream.getvalue()
    queue.crash_machine()
    assert queue.statuses()[1] == "canceled"
    # It says itself why, and who repeats it does not repeat that.
    assert queue.job(1).ops[0].input["reason"][-1][:2] == ["ganger:filter", TOLD]
    again = queue.actor.ask(messages.RetryJob(id=1)).answer_as(messages.JobsSubmitted)
    sources = [source for source, *_ in queue.job(again.ids[0]).ops[0].input["reason"]]
    assert "ganger:retry" in sources
    assert "ganger:filter" not in sources


def test_jobs_that_the_scheduler_finds_rejected_are_canceled(queue: Queue) -> None:
    obey(queue)
    queue.submitted(spec(), spec())
    queue.choose(2, unsatisfiable=[(1, "rejected", TOLD)])
    assert queue.statuses() == {1: "canceled", 2: "queued"}
    assert [op["OP_ID"] for op in (queue.job(1).ops[0].input,)] == [DELAY["OP_ID"]]


# What if.


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"without": "no-such-rule"}, "without: there is no rule no-such-rule"),
        ({"priorities": {1: 20}}, "priorities[1]: expected -20 to 19, got 20"),
        ({"ended": {1: RUNNING}}, "ended[1]: expected a final status, not running"),
        ({"ended": {9: SUCCESS}}, "there is no live job 9"),
    ],
)
def test_what_cannot_be_so_is_not_simulated(queue: Queue, asked: Any, told: str) -> None:
    queue.submitted(command())
    obey(queue, REJECTS)
    assert queue.actor.ask(messages.Simulate(**asked)).refusal[1] == told
    assert queue.stage.take(messages.JudgeSimulation) == []
    queue.actor.say(messages.Simulate(without=UUID, priorities={1: 19}, ended={1: SUCCESS}))
    assert len(queue.stage.take(messages.JudgeSimulation)) == 1


def test_nothing_is_simulated_before_the_rules_are_known(queue: Queue) -> None:
    queue.actor.component.gate.rules = None
    asker = queue.actor.say(messages.TestFilters(without=UUID))
    assert asker.answers == []
    obey(queue, REJECTS)
    assert len(queue.stage.take(messages.JudgeTest)) == 1


# What takes long to be judged, and priorities.

HOLDS_URGENT = {
    "uuid": UUID,
    "watermark": 0,
    "action": "PAUSE",
    "predicates": [["opcode", ["<", "priority", 0]]],
}


def test_a_job_is_judged_by_the_priority_that_it_has_now(queue: Queue) -> None:
    obey(queue, HOLDS_URGENT)
    [job_id] = queue.submitted(JobSpec(ops=[EXEC, {**EXEC, "priority": -3}]))
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert arrived.jobs[0].inputs is not None
    assert [op["priority"] for op in arrived.jobs[0].inputs] == [0, -3]
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=7))
    queue.actor.notify(messages.ReportJobs(ids=[job_id]))
    [one] = queue.stage.take_one(messages.JobsArrived).jobs
    assert one.is_in_file
    inputs = job_files.read_inputs(queue.stage.places.queue, job_id)
    assert [op["priority"] for op in inputs] == [7, 7]


def test_the_file_of_a_job_is_judged_by_the_priorities_of_now(queue: Queue) -> None:
    [job_id] = queue.submitted(spec())
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=-5))
    queue.rest()
    [op] = job_files.read_inputs(queue.stage.places.queue, job_id)
    assert op["priority"] == -5


def test_the_evaluator_hears_of_a_new_priority_of_a_running_job_too(queue: Queue) -> None:
    [job_id] = queue.submitted(spec())
    queue.start_running(job_id)
    queue.actor.ask(messages.ChangeJobPriority(id=job_id, priority=-5))
    [told] = queue.stage.take(messages.DeliverToJob)
    assert isinstance(told.message, messages.PriorityRequested)
    answer = messages.PriorityAnswered(
        job_id=job_id, token=told.message.token, priority=-5, accepted=True, text="done"
    )
    queue.actor.ask(answer)
    changed = queue.stage.take_one(messages.JobReprioritised, to="filter_evaluator")
    assert (changed.id, changed.priority) == (job_id, -5)


def test_a_simulation_that_failed_is_refused(queue: Queue) -> None:
    asker = queue.actor.ask(messages.Simulate())
    page = queue.stage.take_one(messages.JudgeSimulation)
    queue.actor.notify(messages.SimulationFailed(token=page.token, text="too much"))
    assert asker.refusal == ("BadRequestError", "too much")
    queue.actor.notify(messages.SimulationFailed(token=page.token, text="too much"))
    assert len(asker.answers) == 1
