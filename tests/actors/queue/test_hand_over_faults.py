"""The hand-over and the ends of processes at their edges: words that come late, twice or never."""

from __future__ import annotations

import errno
import functools
import time
from typing import Any

import msgspec
import pytest
from tests.actors.operations.unlock import PIN, OpUnlock
from tests.actors.queue.queue_stage import ENDED, Queue, listed, spec
from tests.actors.runtime.stage import Asker, Stage
from tests.refusals import refusing

from ganger.actors.store import recovery
from ganger.actors.store.job_rows import Phase
from ganger.actors.supervision.supervisor import Shutdown, Supervisor
from ganger.storage import settings
from ganger.storage.alive import lock_files
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import Journal
from ganger.storage.opcodes import catalogue
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import JobSpec

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


def give_back(queue: Queue, job_id: int, serial: int, *statuses: JobStatus) -> None:
    """The process gives the job back between two opcodes, and leaves."""
    job = jobs.decode_job(queue.body_of_process(job_id, serial, *statuses))
    job.livelock = job.process_id = None
    body = jobs.encode_job(job)
    queue.write_as_process(job_id, body)
    queue.actor.notify(messages.JobReturns(job_id=job_id, serial=serial, body=body))
    queue.lose_process(job_id, has_left=True)


# The hand-over.


def test_a_job_that_was_given_back_and_handed_over_again_may_lose_its_process_before_it_begins(
    queue: Queue,
) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.recorded(1, 10, RUNNING, QUEUED)
    give_back(queue, 1, 20, SUCCESS, QUEUED)
    queue.start(1)
    # The second process has written nothing: of the second opcode nothing has begun.
    queue.lose_process(1)
    assert queue.statuses() == {1: "queued"}
    assert [op.status for op in queue.job(1).ops] == [SUCCESS, QUEUED]
    queue.start(1)


def test_a_job_may_be_given_back_before_it_begins_as_often_as_rules_change(queue: Queue) -> None:
    queue.submitted(spec())
    for attempt in range(1, settings.START_ATTEMPTS_MAX + 3):
        queue.start(1)
        give_back(queue, 1, 100 * attempt, QUEUED)
        assert queue.statuses() == {1: "queued"}
    queue.start(1)


def test_a_choice_made_before_the_queue_reported_anew_is_not_obeyed(queue: Queue) -> None:
    queue.submitted(spec())
    before = queue.actor.component.store.announcements.report
    queue.actor.notify(messages.ReportAllJobs())
    queue.stage.sent.clear()
    queue.choose(1, report=before)
    assert queue.stage.sent == []
    assert queue.statuses() == {1: "queued"}
    queue.choose(1)
    assert queue.stage.take_one(messages.StartJobs).jobs == [(1, False)]


# Ends of processes.
def test_a_cancel_asked_of_a_process_that_died_before_it_began_is_answered(queue: Queue) -> None:
    queue.start_new()
    asker = queue.actor.ask(messages.CancelJob(id=1))
    assert asker.answers == []
    queue.lose_process(1)
    assert asker.answer_as(messages.CancelOutcome).accepted
    assert queue.statuses() == {1: "canceled"}


def test_a_death_that_cannot_be_judged_for_want_of_a_descriptor_is_judged_later(
    queue: Queue,
) -> None:
    queue.run_new()
    with refusing("open", number=errno.EMFILE):
        queue.lose_process(1)
    assert queue.statuses() == {1: "running"}
    queue.stage.timers[-1].run_out()
    queue.actor.turn(queue.stage.take_one(messages.JobExited))
    assert queue.statuses() == {1: "error"}


def test_a_priority_asked_of_a_process_that_died_before_it_began_is_answered(queue: Queue) -> None:
    queue.start_new()
    asker = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-3))
    assert asker.answers == []
    queue.lose_process(1)
    assert asker.answer_as(messages.PriorityOutcome).accepted
    assert queue.job(1).priority == -3


def test_a_priority_that_a_process_took_before_it_died_is_never_refused_for_certain(
    queue: Queue,
) -> None:
    queue.start_new()
    asker = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-3))
    job = jobs.decode_job(queue.body_of_process(1, 10, QUEUED))
    job.ops[0].priority = -3
    queue.actor.ask(queue.state(1, 10, QUEUED, body=jobs.encode_job(job)))
    with refusing("fdatasync"):
        queue.lose_process(1)
    assert asker.refusal[0] == "OutcomeUnknownError"
    queue.restart()
    assert queue.job(1).priority == -3


def test_a_job_whose_process_has_not_left_is_not_archived_by_its_age(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.finish(1)
    queue.start(2)
    queue.recorded(2, 10, SUCCESS)
    assert queue.statuses() == {1: "success", 2: "success"}
    outcome = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1)).answer
    # Its process may still write its file.
    assert outcome == messages.ArchiveOutcome(archived=[1], left=0)
    queue.write_as_process(2, queue.body_of_process(2, 10, SUCCESS))
    queue.lose_process(2, has_left=True)
    outcome = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1)).answer
    assert outcome == messages.ArchiveOutcome(archived=[2], left=0)


@pytest.mark.parametrize("is_archived", [False, True])
def test_the_end_of_an_ended_job_does_not_move(queue: Queue, *, is_archived: bool) -> None:
    queue.finish_new()
    assert row_of_listing(queue).ended == ENDED
    queue.restart()
    assert row_of_listing(queue).ended == ENDED
    if is_archived:
        queue.actor.ask(messages.ArchiveJob(id=1))
        assert row_of_listing(queue, archived=True).ended == ENDED


def row_of_listing(queue: Queue, *, archived: bool = False) -> Any:
    (row,) = listed(queue.actor, archived=archived)
    return row


# What a start finds.
def test_what_a_process_wrote_while_the_queue_was_read_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = QueueDirectory(stage.places)
    directory.prepare()
    lock = lock_files.create(stage.places.lock_files, "job_000001_1")
    body = functools.partial(written, livelock=lock.path)
    directory.write(1, body(5, RUNNING), flush=False)
    real = lock_files.is_dead

    def end_and_ask(path: str) -> bool:
        # The process writes its end and leaves between the reading of its file and this look.
        if path == lock.path:
            directory.write(1, body(6, SUCCESS), flush=False)
            lock.remove()
        return real(path)

    monkeypatch.setattr(lock_files, "is_dead", end_and_ask)
    journal = Journal(stage.places.journal)
    found = recovery.load(directory, journal, stage.daemon_lock.path)
    assert {row.id: (row.phase, row.status) for row in found.table} == {1: (Phase.ENDED, SUCCESS)}
    assert found.died == []
    journal.close()


def written(serial: int, status: JobStatus, *, livelock: str) -> bytes:
    op = jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY", "duration": 1.0}, status=status)
    extra = {jobs.STATE_SERIAL_KEY: serial}
    return jobs.encode_job(jobs.Job(id=1, ops=[op], livelock=livelock, extra=extra))


# Incarnations.
def test_a_failure_of_an_earlier_incarnation_does_not_restart_the_present_one(
    stage: Stage,
) -> None:
    supervisor = stage.make(Supervisor, Shutdown(), lambda: None, incarnation=0)
    subject = supervisor.component
    supervisor.begin()
    subject._is_up = True
    subject._incarnations["scheduler"] = 2
    late = messages.ComponentFailed(component="scheduler", incarnation=1, text="it failed")
    supervisor.notify(late)
    assert (stage.timers, subject._records) == ([], {})
    assert stage.sent == []


# Secrets.


@pytest.fixture
def unlocking(monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    monkeypatch.setitem(catalogue._from_users, "OP_UNLOCK", OpUnlock)
    return JobSpec(ops=[{"OP_ID": "OP_UNLOCK", "pin": PIN}])


def everything_stored(queue: Queue) -> bytes:
    found = [path for path in queue.stage.places.data.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in found)


def test_secrets_go_to_the_process_alone_and_are_forgotten_with_the_job(
    queue: Queue, unlocking: JobSpec
) -> None:
    queue.submitted(unlocking, unlocking, unlocking)
    subject: Any = queue.actor.component
    assert set(subject.store._secrets) == {1, 2, 3}
    queue.choose(1)
    queue.greet(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    assert go.secrets == {0: {"pin": PIN}}
    assert PIN.encode() not in go.body
    queue.actor.end_turn()
    queue.recorded(1, 10, SUCCESS)
    queue.write_as_process(1, queue.body_of_process(1, 10, SUCCESS))
    queue.lose_process(1, has_left=True)
    # One ended in its process, one in the queue, and one lost its process.
    queue.actor.ask(messages.CancelJob(id=2))
    queue.start(3)
    queue.record(3, 10, RUNNING)
    queue.lose_process(3)
    assert queue.statuses() == {1: "success", 2: "canceled", 3: "error"}
    assert subject.store._secrets == {}
    assert subject.hand_over._starting == {}
    assert PIN.encode() not in everything_stored(queue)
    assert PIN not in queue.stage.log_stream.getvalue()


def test_a_secret_is_in_no_refusal_and_no_log(
    queue: Queue, unlocking: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = msgspec.structs.replace(unlocking, ops=[{"OP_ID": "OP_UNLOCK", "pin": [PIN]}])
    error, text = queue.submit(wrong).refusal
    assert (error, PIN in text) == ("OpcodeError", False)
    # Nor when the queue fails over it.
    monkeypatch.setattr(queue.actor.component, "receive", lambda envelope: envelope.nothing)
    asker = Asker()
    queue.actor.actor.handle(Envelope(messages.SubmitJobs([unlocking]), asker))
    assert (asker.refusal[0], PIN in asker.refusal[1]) == ("RequestFatalError", False)
    assert "component failed" in queue.stage.log_stream.getvalue()
    assert PIN not in queue.stage.log_stream.getvalue()
    assert PIN.encode() not in everything_stored(queue)


def test_the_file_of_a_job_keeps_its_times_over_a_restart(queue: Queue) -> None:
    queue.finish_new()
    first = queue.file(1)["end_timestamp"]
    queue.restart()
    assert time.time() > ENDED
    assert queue.file(1)["end_timestamp"] == first


# Serials, and words for a queue that was replaced.
def test_a_state_does_not_go_back_behind_one_recorded_in_the_same_turn(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.record(1, 10, RUNNING, QUEUED)
    waits = queue.body_of_process(1, 11, SUCCESS, WAITING)
    queue.actor.turn(messages.JobWaits(job_id=1, serial=11, body=waits))
    assert queue.statuses() == {1: "waiting"}
    late = queue.recorded(1, 10, RUNNING, QUEUED)
    assert late.answer == messages.StateRecorded(serial=10)
    assert queue.statuses() == {1: "waiting"}


def test_a_job_that_stands_in_line_again_names_no_dead_process(queue: Queue) -> None:
    queue.start_new()
    before = queue.file(1)["ganger_serial"]
    queue.lose_process(1)
    assert queue.file(1)["livelock"] is None
    assert queue.file(1)["ganger_serial"] > before
    queue.crash_machine()
    assert queue.job(1).livelock is None


@pytest.mark.parametrize("status", [QUEUED, SUCCESS])
def test_spare_files_come_back_from_a_process_that_is_gone(queue: Queue, status: JobStatus) -> None:
    queue.start_new()
    ledger = queue.actor.component.store.ledger
    assert set(ledger.files._lent) == {1}
    if status is SUCCESS:
        queue.recorded(1, 10, SUCCESS)
    queue.end_process(1, has_left=status is SUCCESS)
    queue.actor.end_turn()
    assert ledger.files._lent == {}


def test_an_answer_to_a_queue_that_was_replaced_answers_no_other_request(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start(1)
    queue.actor.ask(messages.CancelJob(id=1))
    (before,) = queue.stage.take(messages.DeliverToJob)
    queue.restart()
    queue.start(2)
    asker = queue.actor.ask(messages.CancelJob(id=2))
    assert len(queue.stage.take(messages.DeliverToJob)) == 1
    assert isinstance(before.message, messages.CancelRequested)
    late = messages.CancelAnswered(
        job_id=1, token=before.message.token, accepted=True, text="it will be canceled"
    )
    queue.actor.turn(late)
    assert asker.answers == []


def test_a_choice_made_for_a_queue_that_was_replaced_is_not_obeyed(queue: Queue) -> None:
    queue.submitted(spec())
    before = queue.actor.component.store.announcements.report
    queue.restart(incarnation=2)
    queue.choose(1, report=before)
    assert queue.stage.sent == []


def test_processes_that_were_refused_their_job_are_not_held_against_it(queue: Queue) -> None:
    queue.submitted(spec())
    for _ in range(settings.START_ATTEMPTS_MAX + 3):
        # The disk refuses for a moment; its process ends when another is asked for already.
        queue.choose(1)
        held = lock_files.create(queue.stage.places.lock_files, "job_000001_of_the_refused")
        held.remove()
        exited = messages.JobExited(job_id=1, lock_file=held.path, has_left=False)
        queue.actor.turn(exited)
        assert queue.statuses() == {1: "queued"}
    queue.start(1)
