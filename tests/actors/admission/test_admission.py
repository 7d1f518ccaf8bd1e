"""The admission of jobs to a queue on a stage: checks, rules that reject, keys, the answer."""

from __future__ import annotations

import os
from unittest import mock

import msgspec
import pytest
from tests.actors.queue.queue_rules import REJECTION, REJECTS, UUID, command, take_rules
from tests.actors.queue.queue_stage import DELAY, Queue, spec
from tests.refusals import refusing

from ganger.storage import errors
from ganger.storage.jobs.jobs import decode_job
from ganger.transport import messages
from ganger.transport.messages import JobSpec, SubmitJobs


# Submission.
def test_ids_are_answered_after_the_flush_and_not_before(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queue.actor.say(SubmitJobs(jobs=[spec(), spec()]))
    second = queue.actor.say(SubmitJobs(jobs=[spec()]))
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: flushed.append(len(first.answers)))
    queue.actor.end_turn()
    # One flush for both, before any answer.
    assert flushed == [0]
    assert first.answer == messages.JobsSubmitted(ids=[1, 2])
    assert second.answer == messages.JobsSubmitted(ids=[3])


def test_new_jobs_are_announced_between_the_write_and_the_flush(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    queue.stage.take(messages.JobsArrived)
    order: list[object] = []
    write = os.pwrite

    def note(descriptor: int, data: bytes, offset: int) -> int:
        order.append(len(queue.stage.take(messages.JobsArrived)))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", note)
    monkeypatch.setattr(
        os, "fdatasync", lambda _: order.append(len(queue.stage.take(messages.JobsArrived)))
    )
    queue.actor.say(SubmitJobs(jobs=[spec()]))
    queue.actor.end_turn()
    assert order == [0, 1]


def test_acknowledged_jobs_survive_daemon_and_machine(queue: Queue) -> None:
    assert queue.submitted(spec(), spec()) == [1, 2]
    queue.restart()
    assert queue.statuses() == {1: "queued", 2: "queued"}
    queue.crash_machine()
    assert queue.statuses() == {1: "queued", 2: "queued"}
    assert queue.submitted(spec()) == [3]


def test_a_submission_that_was_not_acknowledged_is_not_there(queue: Queue) -> None:
    queue.submitted(spec())
    unanswered = queue.actor.say(SubmitJobs(jobs=[spec()]))
    queue.restart()
    assert unanswered.answers == []
    assert queue.statuses() == {1: "queued"}


def test_new_jobs_are_announced_when_they_are_durable(queue: Queue) -> None:
    queue.actor.say(SubmitJobs(jobs=[spec(), spec((-1, ["success"]), priority=-5)]))
    assert queue.stage.take(messages.JobsArrived) == []
    queue.actor.end_turn()
    arrived = queue.stage.take_one(messages.JobsArrived, to="filter_evaluator")
    told = [msgspec.structs.replace(one.job, forecast=None, question=None) for one in arrived.jobs]
    assert told == [
        messages.PendingJob(id=1, priority=0),
        messages.PendingJob(id=2, priority=-5, depends=((1, ("success",)),)),
    ]
    assert (arrived.is_all, [one.inputs for one in arrived.jobs]) == (False, [None, None])


def test_the_inputs_of_opcodes_are_announced_when_rules_read_them(queue: Queue) -> None:
    queue.submitted(spec())
    queue.stage.sent.clear()
    changed = messages.RuleChainChanged(chain=7, serial=1, reads_opcodes=True)
    queue.actor.notify(changed, messages.ReportAllJobs())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert everything.is_all
    # A long queue is not read for it: the scheduler asks for those that come to the front.
    assert [one.inputs for one in everything.jobs] == [None]
    queue.actor.notify(messages.ReportJobs(ids=[1]))
    asked_for = queue.stage.take_one(messages.JobsArrived)
    bodies = [one.body for one in asked_for.jobs if one.body is not None]
    assert [[op["OP_ID"] for op in decode_job(one).judged_inputs] for one in bodies] == [
        ["OP_TEST_DELAY"]
    ]
    queue.submitted(spec())
    new = queue.stage.take_one(messages.JobsArrived)
    assert [one.inputs is not None for one in new.jobs] == [True]


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (
            JobSpec(ops=[{"OP_ID": "QUITE_ANOTHER"}]),
            ("OpcodeError", "job 1 of the submission: unknown opcode 'QUITE_ANOTHER'"),
        ),
        (
            spec((7, [])),
            ("DependencyError", "job 1 of the submission: depends[0]: there is no job 7 (yet)"),
        ),
        (
            JobSpec(ops=[DELAY, DELAY | {"depends": [[2, []]]}]),
            (
                "DependencyError",
                "job 1 of the submission: opcode 1: depends[0]: there is no job 2",
            ),
        ),
    ],
)
def test_one_bad_job_fails_its_batch_and_stores_nothing(
    queue: Queue, bad: JobSpec, refusal: tuple[str, str]
) -> None:
    queue.submitted(spec())
    (queue.stage.places.queue / "serial").write_bytes(b"3\n")
    queue.restart()
    assert queue.submit(spec(), bad, spec()).refusal == refusal
    assert queue.statuses() == {1: "queued"}
    assert queue.stage.take(messages.JobsArrived) == []
    assert queue.submitted(spec()) == [4]


def test_a_dependency_may_be_live_or_archived(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.finish(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    assert queue.submitted(spec((1, []), (2, []))) == [3]
    assert queue.statuses() == {2: "queued", 3: "waiting"}


def test_a_dry_run_checks_everything_and_stores_nothing(queue: Queue) -> None:
    assert queue.submitted(spec(), spec((-1, [])), dry_run=True, key="k") == []
    assert queue.submit(spec((9, [])), dry_run=True).refusal[0] == "DependencyError"
    assert queue.statuses() == {}
    assert queue.submitted(spec(), key="k") == [1]


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_drain_whose_flush_fails_may_be_in_force(queue: Queue, *, is_drained: bool) -> None:
    queue.actor.ask(messages.SetDrain(is_drained=not is_drained))
    with refusing("fsync"):
        refused = queue.actor.ask(messages.SetDrain(is_drained=is_drained))
    assert refused.refusal[0] == "OutcomeUnknownError"
    assert queue.actor.component.admission.is_drained is is_drained
    with refusing("open", "unlink"):
        refused = queue.actor.ask(messages.SetDrain(is_drained=not is_drained))
    assert refused.refusal[0] == "StorageError"
    assert queue.actor.component.admission.is_drained is is_drained


def test_a_repeated_key_stores_nothing_and_answers_the_first_ids(queue: Queue) -> None:
    assert queue.submitted(spec(), spec(), key="k") == [1, 2]
    again = queue.submit(spec(), spec(), key="k").answer
    assert again == messages.JobsSubmitted(ids=[1, 2], is_repeat=True)
    queue.restart()
    assert queue.submit(spec(), spec(), key="k").answer == again
    assert queue.submitted(spec(), key="other") == [3]


def test_a_key_repeated_before_the_flush_waits_for_it(queue: Queue) -> None:
    first = queue.actor.say(SubmitJobs(jobs=[spec()], key="k"))
    again = queue.actor.say(SubmitJobs(jobs=[spec()], key="k"))
    assert again.answers == []
    queue.actor.end_turn()
    assert first.answer == messages.JobsSubmitted(ids=[1])
    assert again.answer == messages.JobsSubmitted(ids=[1], is_repeat=True)
    assert queue.statuses() == {1: "queued"}


def test_a_key_is_free_again_when_its_jobs_are_archived(queue: Queue) -> None:
    queue.submitted(spec(), key="k")
    queue.finish(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    assert queue.submitted(spec(), key="k") == [2]


def test_a_rejected_job_is_refused_and_nothing_is_stored(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    assert queue.submit(spec()).answer == messages.JobsSubmitted(ids=[], rejected={0: REJECTION})
    assert queue.statuses() == {}
    assert queue.stage.take(messages.JobsArrived) == []


def test_of_a_batch_only_the_rejected_jobs_are_left_out(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    reply = queue.submit(command(), spec(), command()).answer_as(messages.JobsSubmitted)
    assert reply.rejected == {1: REJECTION}
    assert list(queue.statuses()) == reply.ids
    assert len(reply.ids) == 2
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in arrived.jobs] == reply.ids
    # The answer stays true after a restart, and no id is given twice.
    queue.crash_machine()
    assert list(queue.statuses()) == reply.ids
    take_rules(queue)
    [new] = queue.submitted(command())
    assert new > max(reply.ids)


def hits(queue: Queue, of_scheduler: dict[str, int]) -> dict[str, int]:
    asker = queue.actor.say(messages.ReadRuleHits())
    [request] = queue.stage.take_requests(messages.ReportRuleHits)
    request.reply(messages.RuleHits(hits=of_scheduler))
    queue.actor.handle_mail()
    return asker.answer_as(messages.RuleHits).hits


def test_rejections_count_as_hits_of_the_rule_and_the_scheduler_adds_its_own(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    queue.submit(command(), spec(), spec())
    assert hits(queue, {UUID: 3, "other": 1}) == {UUID: 5, "other": 1}


def test_a_dry_run_is_no_hit(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    queue.actor.say(messages.SubmitJobs(jobs=[spec()], dry_run=True))
    assert hits(queue, {}) == {}


def test_the_id_of_a_rejected_job_is_written_again_if_the_disk_refused_it_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_rules(queue, REJECTS)
    full = errors.StorageError("serial: no space left")
    with monkeypatch.context() as patch:
        directory = queue.actor.component.store.ledger.directory
        patch.setattr(directory, "write_serial", mock.Mock(side_effect=full))
        assert queue.submitted(command(), spec()) == [1]
    queue.rest()
    queue.restart()
    take_rules(queue)
    assert queue.submitted(command()) == [3]


def test_the_id_of_a_rejected_job_is_not_given_again_after_the_daemon_was_killed(
    queue: Queue,
) -> None:
    take_rules(queue, REJECTS)
    assert queue.submitted(command(), spec()) == [1]
    queue.restart()
    take_rules(queue)
    assert queue.submitted(command()) == [3]


def test_relative_dependencies_are_right_around_a_rejected_job(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    first, third = queue.submitted(command(), spec(), command(depends=[(-2, ["success"])]))
    assert queue.job(third).ops[0].input["depends"] == [[first, ["success"]]]


def test_a_batch_of_which_nothing_is_left_is_refused_whole(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    reply = queue.submit(spec(), command(depends=[(-1, [])])).answer_as(messages.JobsSubmitted)
    assert (reply.ids, list(reply.rejected)) == ([], [0, 1])
    assert reply.rejected[0] == REJECTION
    assert reply.rejected[1].startswith("not stored, because it depends on job 0 of the submission")
    assert queue.statuses() == {}


def test_a_dry_run_reports_the_jobs_that_would_be_rejected(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    reply = queue.submit(command(), spec(), dry_run=True).answer
    assert reply == messages.JobsSubmitted(ids=[], rejected={1: REJECTION})
    whole = queue.submit(spec(), dry_run=True).answer
    assert whole == messages.JobsSubmitted(ids=[], rejected={0: REJECTION})
    assert queue.statuses() == {}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_repeated_key_reports_the_rejected_jobs_again(
    queue: Queue, *, is_restarted: bool
) -> None:
    # The client never saw the first answer: without this it would take the ids of two jobs
    # for those of three.
    take_rules(queue, REJECTS)
    first = queue.submit(command(), spec(), command(), key="k").answer_as(messages.JobsSubmitted)
    if is_restarted:
        queue.restart()
        take_rules(queue, REJECTS)
    again = queue.submit(command(), spec(), command(), key="k").answer_as(messages.JobsSubmitted)
    assert again.is_repeat
    assert again.ids == first.ids
    assert list(again.rejected) == [1]


def test_a_key_whose_jobs_were_all_rejected_is_free(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    refused = queue.submit(spec(), key="k").answer
    assert refused == messages.JobsSubmitted(ids=[], rejected={0: REJECTION})
    take_rules(queue)
    assert len(queue.submitted(spec(), key="k")) == 1
