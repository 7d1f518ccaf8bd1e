"""The job queue on a stage: submissions, hand-overs, ends, archive, and a disk that refuses."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.stage import Asker, Stage, Staged

from ganger.actors.job_queue import JobQueue
from ganger.storage import jobs, lock_files
from ganger.storage.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.addresses import Envelope
from ganger.transport.messages import JobSpec, SubmitJobs

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}
PID = 815
ENDED = 1_700_000_000.0


class Timer:
    """Stands for a timer: runs out when the test says so."""

    made: list[Timer]

    def __init__(self, _seconds: float, function: Callable[[], None]) -> None:
        self.run_out = function
        self.daemon = False
        Timer.made.append(self)

    def start(self) -> None:
        assert self.daemon


class Queue:
    """A job queue on the stage, and the executor's and the job processes' side of the talk."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.flushed: dict[Path, bytes] = {}
        monkeypatch.setattr("ganger.storage.journal.flush_file_system", self.flush_file_system)
        self.actor: Staged[JobQueue] = stage.start(JobQueue)
        self.processes: dict[int, lock_files.LockFile] = {}
        self.channels: dict[int, Asker] = {}

    def restart(self) -> None:
        """The daemon dies without a word, and its successor takes over."""
        self.actor.component._ledger._journal._close()
        self.actor = self.stage.start(JobQueue)

    def flush_file_system(self, _: object) -> None:
        """From now on, every file is as it is also after the loss of the machine."""
        self.flushed = {path: path.read_bytes() for path in self.files()}

    def files(self) -> list[Path]:
        return [path for path in self.stage.places.queue.rglob("job-*") if path.is_file()]

    def crash_machine(self) -> None:
        """As `restart`; what was not flushed is lost: files that are newer are torn, or gone."""
        self.kill_all()
        for path in self.files():
            path.write_bytes(b"")
        for path, data in self.flushed.items():
            path.write_bytes(data)
        self.restart()

    def kill_all(self) -> None:
        for held in self.processes.values():
            held.remove()
        self.processes.clear()

    # What others say.

    def submit(self, *specs: JobSpec, **fields: Any) -> Asker:
        return self.actor.ask(SubmitJobs(jobs=list(specs) or [spec()], **fields))

    def submitted(self, *specs: JobSpec, **fields: Any) -> list[int]:
        return self.submit(*specs, **fields).answer_as(messages.JobsSubmitted).ids

    def choose(self, *ids: int, seen_up_to: int = 0, **fields: Any) -> None:
        chosen = messages.JobsChosen(start=list(ids), seen_up_to=seen_up_to, **fields)
        self.actor.notify(chosen)
        self.actor.end_turn()

    def greet(self, job_id: int) -> str:
        """A child for the job holds its lock file and asks to go on; the turn goes on."""
        held = lock_files.create(self.stage.places.lock_files, f"job_{job_id:06d}_1")
        self.processes[job_id] = held
        self.channels[job_id] = Asker()
        self.ask_hand_over(job_id, held.path)
        return held.path

    def ask_hand_over(self, job_id: int, lock_file: str) -> None:
        asked = messages.HandOverAsked(job_id=job_id, lock_file=lock_file, process_id=PID)
        self.actor.handle(Envelope(asked, self.channels[job_id]))

    def start(self, job_id: int) -> str:
        """Through to the running process; its lock file."""
        self.choose(job_id)
        lock_file = self.greet(job_id)
        self.actor.end_turn()
        self.channels[job_id].answer_as(messages.JobGo)
        self.stage.told.clear()
        return lock_file

    def record(self, job_id: int, serial: int, *statuses: JobStatus, **fields: Any) -> Asker:
        """The process records its state; the turn goes on."""
        body = self.body_of_process(job_id, serial, *statuses)
        return self.actor.say(self.state(job_id, serial, *statuses, body=body, **fields))

    def state(
        self, job_id: int, serial: int, *statuses: JobStatus, body: bytes | None, **fields: Any
    ) -> messages.RecordState:
        status = jobs.job_status(list(statuses))
        fields.setdefault("ended", ENDED if status.is_final else None)
        return messages.RecordState(
            job_id=job_id,
            serial=serial,
            status=status,
            priority=0,
            log_serial=fields.pop("log_serial", 0),
            body=body,
            **fields,
        )

    def body_of_process(self, job_id: int, serial: int, *statuses: JobStatus) -> bytes:
        job = self.job(job_id)
        for op, status in zip(job.ops, statuses, strict=True):
            op.status = status
        job.extra[jobs.STATE_SERIAL_KEY] = serial
        if job.status.is_final:
            job.end_timestamp = jobs.timestamp(ENDED)
        return jobs.encode_job(job)

    def end_process(self, job_id: int, *, has_left: bool) -> None:
        """The process is gone, and the executor says so; the turn goes on."""
        held = self.processes.pop(job_id)
        held.remove()
        exited = messages.JobExited(job_id=job_id, lock_file=held.path, has_left=has_left)
        self.actor.notify(exited)

    def finish(self, job_id: int, status: JobStatus = SUCCESS) -> None:
        """Run a job to its end."""
        self.start(job_id)
        self.record(job_id, 10, status)
        self.actor.end_turn()
        self.write_as_process(job_id, self.body_of_process(job_id, 10, status))
        self.end_process(job_id, has_left=True)
        self.actor.end_turn()
        self.stage.told.clear()

    def write_as_process(self, job_id: int, body: bytes) -> None:
        (self.stage.places.queue / f"job-{job_id}").write_bytes(body)

    # What is to be seen.

    def job(self, job_id: int) -> jobs.Job:
        document = self.actor.say(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)
        return jobs.decode_job(document.body)

    def statuses(self, *, archived: bool = False) -> dict[int, str]:
        rows = self.actor.say(messages.ListJobs(archived=archived)).answer_as(messages.JobRows)
        return {row.id: str(row.status) for row in rows.rows}

    def file(self, job_id: int) -> Any:
        data = (self.stage.places.queue / f"job-{job_id}").read_bytes()
        return msgspec.json.decode(data)


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    Timer.made = []
    monkeypatch.setattr(threading, "Timer", Timer)
    made = Queue(stage, monkeypatch)
    yield made
    made.kill_all()
    made.actor.close()


def spec(*depends: tuple[int, list[str]], ops: int = 1, **fields: Any) -> JobSpec:
    return JobSpec(ops=[DELAY] * ops, depends=list(depends), **fields)


def refuse(patch: pytest.MonkeyPatch, *calls: str, number: int = errno.ENOSPC) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for call in calls:
        patch.setattr(os, call, fail)


# Submission.


def test_ids_are_answered_after_the_flush_and_not_before(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = queue.actor.say(SubmitJobs(jobs=[spec(), spec()]))
    second = queue.actor.say(SubmitJobs(jobs=[spec()]))
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: flushed.append(len(first.answers)))
    queue.actor.end_turn()
    # One flush for both, while nobody had an answer.
    assert flushed == [0]
    assert first.answer == messages.JobsSubmitted(ids=[1, 2])
    assert second.answer == messages.JobsSubmitted(ids=[3])


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
    assert [one.job for one in arrived.jobs] == [
        messages.PendingJob(id=1, priority=0),
        messages.PendingJob(id=2, priority=-5, depends=((1, ("success",)),)),
    ]
    assert (arrived.is_all, [one.inputs for one in arrived.jobs]) == (False, [None, None])


def test_the_inputs_of_opcodes_are_announced_when_rules_read_them(queue: Queue) -> None:
    queue.submitted(spec())
    queue.stage.told.clear()
    queue.actor.notify(messages.RuleChainChanged(reads_opcodes=True), messages.ReportQueue())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert everything.is_all
    assert [[op["OP_ID"] for op in one.inputs or ()] for one in everything.jobs] == [
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


def test_a_repeated_key_stores_nothing_and_answers_the_first_ids(queue: Queue) -> None:
    assert queue.submitted(spec(), spec(), key="k") == [1, 2]
    again = queue.submit(spec(), key="k").answer
    assert again == messages.JobsSubmitted(ids=[1, 2], is_repeat=True)
    queue.restart()
    assert queue.submit(spec(), key="k").answer == again
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


def test_the_files_of_pending_jobs_follow_when_the_scheduler_has_seen_them(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec())
    queue.choose(seen_up_to=2)
    assert sorted(path.name for path in queue.stage.places.queue.glob("job-*")) == [
        "job-1",
        "job-2",
    ]


# Start and hand-over.


def test_a_chosen_job_is_marked_as_being_forked_and_asked_for(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    assert queue.file(1)["livelock"] == queue.stage.daemon_lock.path
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
    queue.submitted(spec())
    lock_file = queue.start(1)
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
    queue.greet(1)
    queue.actor.end_turn()
    assert canceled.answer_as(messages.CancelOutcome).accepted
    assert queue.channels[1].answers == []
    assert len(queue.stage.take(messages.RefuseHandOver)) == 1
    queue.crash_machine()
    assert queue.statuses() == {1: "canceled"}


def test_a_job_canceled_in_the_turn_of_its_hand_over_hears_of_it(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.greet(1)
    canceled = queue.actor.say(messages.CancelJob(id=1))
    queue.actor.end_turn()
    assert canceled.answers == []
    told = queue.stage.take_one(messages.TellJob, to="executor")
    assert (told.job_id, type(told.message)) == (1, messages.CancelRequested)


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


def test_a_replaced_queue_takes_up_a_job_that_was_being_forked(queue: Queue) -> None:
    queue.submitted(spec())
    queue.choose(1)
    queue.restart()
    queue.actor.notify(messages.ReportQueue())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in everything.jobs] == [1]
    queue.start(1)


def test_a_process_that_could_not_be_made_fails_its_job(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.choose(1)
    queue.actor.notify(messages.StartFailed(job_id=1, text="no memory"))
    queue.actor.end_turn()
    job = queue.job(1)
    assert job.status is ERROR
    assert [op.result for op in job.ops] == ["job 1 failed to start: no memory"] * 2
    source, text, _ = job.ops[0].input["reason"][-1]
    assert (source, text) == ("gnt:daemon:luxid:startjobs", "job 1 failed to start: no memory")


def test_a_job_chosen_by_mistake_gives_its_run_slot_back(queue: Queue) -> None:
    # The word of its end went straight to the scheduler, and overtook the word of its arrival.
    queue.submitted(spec())
    queue.actor.ask(messages.CancelJob(id=1))
    queue.stage.told.clear()
    queue.choose(1, 77)
    reported = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert reported.jobs == [(1, CANCELED), (77, None)]
    assert queue.stage.take(messages.StartJobs) == []


# Running jobs.


def test_a_state_is_answered_and_told_after_the_flush(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1]), number=4)
    before = len(watcher.answers)
    asker = queue.record(1, 10, RUNNING)
    assert (asker.answers, len(watcher.answers)) == ([], before)
    queue.actor.end_turn()
    assert asker.answer == messages.StateRecorded(serial=10)
    changed = watcher.answers[before:]
    assert [c.job.status for c in changed if isinstance(c, messages.JobChanged)] == [RUNNING]


def test_a_recorded_state_survives_the_machine(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    queue.start(1)
    queue.record(1, 10, SUCCESS, RUNNING)
    queue.actor.end_turn()
    queue.crash_machine()
    # The machine died while the second opcode ran: the job ends in an error that says so.
    job = queue.job(1)
    assert [op.status for op in job.ops] == [ERROR, ERROR]
    assert "detected death of job 1" in job.ops[0].result


def test_an_older_state_does_not_win(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    for late in (
        queue.record(1, 9, QUEUED),
        queue.actor.say(queue.state(1, 9, QUEUED, body=None)),
    ):
        queue.actor.end_turn()
        assert late.answer == messages.StateRecorded(serial=9)
    assert queue.statuses() == {1: "running"}
    assert queue.job(1).serial == 10


def test_a_repeated_state_is_answered_again(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    again = queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    assert again.answer == messages.StateRecorded(serial=10)


def test_a_state_that_the_process_flushed_itself_is_believed(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    body = queue.body_of_process(1, 10, SUCCESS)
    queue.write_as_process(1, body)
    flushes = queue.actor.component._ledger.flushes
    asker = queue.actor.ask(queue.state(1, 10, SUCCESS, body=None, ended=5.0))
    assert asker.answer == messages.StateRecorded(serial=10)
    assert queue.actor.component._ledger.flushes == flushes
    assert queue.actor.say(messages.ReadJob(id=1)).answer_as(messages.JobDocument).body == body


def test_a_waiting_job_is_shown_so_without_a_flush(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    flushes = queue.actor.component._ledger.flushes
    waits = messages.JobWaits(job_id=1, serial=5, body=queue.body_of_process(1, 5, WAITING))
    queue.actor.notify(waits)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "waiting"}
    assert queue.actor.component._ledger.flushes == flushes


def test_the_end_of_a_job_is_told_to_all_whom_it_concerns(queue: Queue) -> None:
    queue.submitted(spec())
    lock_file = queue.start(1)
    queue.record(1, 10, SUCCESS)
    assert queue.stage.told == []
    queue.actor.end_turn()
    finished = queue.stage.take_one(messages.JobsFinished, to="scheduler")
    assert finished.jobs == [(1, SUCCESS)]
    ended = queue.stage.take_one(messages.OwnerEnded, to="lock_manager")
    assert ended.lock_file == lock_file


def test_log_lines_reach_watchers_at_once(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1], log=True), number=4)
    entries: list[jobs.LogEntry] = [(1, (5, 6), "stdout", "hello")]
    queue.actor.notify(messages.JobTold(job_id=1, op_index=0, entries=entries))
    expected = messages.JobLogged(id=1, op_index=0, entries=entries)
    assert watcher.answers[-1] == expected
    assert queue.job(1).ops[0].log == entries


@pytest.mark.parametrize("call", ["stop", "gone"])
def test_a_watch_can_be_given_up(queue: Queue, call: str) -> None:
    queue.submitted(spec())
    queue.start(1)
    watcher = queue.actor.say(messages.WatchJobs(ids=[1]), number=4, peer=b"p")
    stop = messages.StopWatch(request_id=4)
    if call == "stop":
        queue.actor.say(stop, peer=b"p")
    else:
        queue.actor.notify(messages.PeerGone(peer=b"p"))
    before = len(watcher.answers)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    assert len(watcher.answers) == before


# The end of a process.


def test_a_process_that_left_in_order_is_believed(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    assert queue.statuses() == {1: "success"}
    assert queue.actor.component._ledger.serial(1) is None


def test_a_process_killed_while_it_ran_fails_its_job(queue: Queue) -> None:
    queue.submitted(spec(ops=3))
    queue.start(1)
    queue.record(1, 10, SUCCESS, RUNNING, QUEUED)
    queue.actor.end_turn()
    queue.stage.told.clear()
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    job = queue.job(1)
    assert [op.status for op in job.ops] == [ERROR, ERROR, ERROR]
    assert job.ops[0].input["reason"][-1][0] == "gnt:daemon:luxid:deathdetection"
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, ERROR)]
    queue.crash_machine()
    assert queue.statuses() == {1: "error"}


def test_a_process_killed_before_anything_began_is_replaced(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    arrived = queue.stage.take_one(messages.JobsArrived)
    assert [one.job.id for one in arrived.jobs] == [1]
    assert queue.statuses() == {1: "queued"}
    queue.start(1)


def test_the_file_of_a_dead_process_is_believed_if_it_is_newer(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.write_as_process(1, queue.body_of_process(1, 12, SUCCESS))
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "success"}
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]


@pytest.mark.parametrize("has_left", [True, False])
def test_the_last_word_of_a_process_counts_though_it_is_gone(
    queue: Queue,
    has_left: bool,  # noqa: FBT001
) -> None:
    queue.submitted(spec())
    queue.start(1)
    asker = queue.record(1, 10, SUCCESS)
    queue.end_process(1, has_left=has_left)
    # Both came in one turn; nothing is told before the flush.
    assert queue.stage.take(messages.JobsFinished) == []
    queue.actor.end_turn()
    assert asker.answer == messages.StateRecorded(serial=10)
    assert queue.statuses() == {1: "success"}
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, SUCCESS)]
    queue.crash_machine()
    assert queue.statuses() == {1: "success"}


def test_a_job_whose_process_said_that_it_runs_and_died_is_not_started_again(
    queue: Queue,
) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.end_process(1, has_left=False)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "error"}
    assert queue.stage.take(messages.JobsArrived) == []


def test_the_end_of_an_earlier_process_does_not_matter(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    exited = messages.JobExited(job_id=1, lock_file="/l/of-another", has_left=False)
    queue.actor.notify(exited)
    queue.actor.end_turn()
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "running"}


def test_running_jobs_go_on_through_a_restart(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    lock_file = queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    queue.restart()
    queue.actor.notify(messages.ReportRunning(), messages.ReportQueue())
    adopted = queue.stage.take_one(messages.AdoptJobs, to="executor")
    assert [(job_id, path) for job_id, path, _ in adopted.jobs] == [(1, lock_file)]
    everything = queue.stage.take_one(messages.JobsArrived)
    assert (everything.is_all, everything.running) == (True, [1])
    assert [one.job.id for one in everything.jobs] == [2]
    queue.record(1, 11, SUCCESS)
    queue.actor.end_turn()
    assert queue.statuses() == {1: "success", 2: "queued"}


def test_jobs_that_died_with_the_daemon_are_final_when_it_is_ready(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    queue.kill_all()
    queue.restart()
    assert queue.statuses() == {1: "error"}
    queue.restart()
    assert queue.statuses() == {1: "error"}


# Dependencies.


def test_a_job_waits_until_the_scheduler_says_that_it_is_eligible(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, ["success"])))
    watcher = queue.actor.say(messages.WatchJobs(ids=[2]), number=4)
    assert queue.statuses() == {1: "queued", 2: "waiting"}
    queue.restart()
    assert queue.statuses() == {1: "queued", 2: "waiting"}
    assert queue.file(2)["ops"][0]["status"] == "queued"
    queue.choose(eligible=[2])
    assert queue.statuses() == {1: "queued", 2: "queued"}
    assert len(watcher.answers) == 1


def test_a_doomed_job_ends_without_a_process(queue: Queue) -> None:
    queue.submitted(spec(), spec((-1, [])), spec((-2, []), ops=2))
    queue.choose(doomed=[(2, "canceled", ""), (3, "failed", "no luck")])
    assert queue.statuses() == {1: "queued", 2: "canceled", 3: "error"}
    assert [op.result for op in queue.job(3).ops] == [
        ["OpExecError", ["no luck"]],
        ["OpExecError", ["Preceding opcode failed"]],
    ]
    assert queue.job(2).ops[0].result == "Job canceled by request"
    finished = [job for told in queue.stage.take(messages.JobsFinished) for job in told.jobs]
    assert finished == [(2, CANCELED), (3, ERROR)]


def test_a_running_job_hears_when_its_dependencies_are_final(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.start(2)
    waiting = queue.actor.say(messages.AwaitDependencies(job_id=2, depends=[(1, ["success"])]))
    assert waiting.answers == []
    queue.finish(1)
    assert waiting.answer == messages.DependencyOutcome(verdict="satisfied")
    at_once = queue.actor.say(messages.AwaitDependencies(job_id=2, depends=[(1, ["error"])]))
    assert at_once.answer_as(messages.DependencyOutcome).verdict == "failed"
    missing = queue.actor.say(messages.AwaitDependencies(job_id=2, depends=[(9, [])]))
    assert missing.answer == messages.DependencyOutcome(
        verdict="failed", text="Dependency error: Job 9 not found"
    )


def test_statuses_are_reported_live_archived_or_missing(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec())
    queue.finish(1, ERROR)
    queue.finish(2)
    queue.actor.ask(messages.ArchiveJob(id=2))
    queue.stage.told.clear()
    queue.actor.notify(messages.ReportStatuses(ids=[1, 2, 3, 9]))
    reported = queue.stage.take_one(messages.StatusesReported, to="scheduler")
    assert reported.jobs == [(1, ERROR), (2, SUCCESS), (3, QUEUED), (9, None)]


def test_a_torn_file_in_the_archive_does_not_stop_the_queue(queue: Queue) -> None:
    (queue.stage.places.archive / "0").mkdir()
    (queue.stage.places.archive / "0" / "job-1").write_bytes(b"torn")
    queue.actor.notify(messages.ReportStatuses(ids=[1]))
    assert queue.stage.take_one(messages.StatusesReported).jobs == [(1, None)]
    assert "archived job cannot be read" in queue.stage.log_stream.getvalue()


# Cancel and priority.


def test_a_pending_job_is_canceled_durably(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    asker = queue.actor.say(messages.CancelJob(id=1))
    assert asker.answers == []
    queue.actor.end_turn()
    assert asker.answer == messages.CancelOutcome(accepted=True, text="Dequeued job 1")
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, CANCELED)]
    queue.crash_machine()
    job = queue.job(1)
    assert [(op.status, op.result) for op in job.ops] == [(CANCELED, None)] * 2


def test_what_cannot_be_canceled_is_told_with_the_text_of_ganeti(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    for job_id in (1, 9):
        text = f"Job {job_id} not found in queue"
        answer = queue.actor.ask(messages.CancelJob(id=job_id)).answer
        assert answer == messages.CancelOutcome(accepted=False, text=text)


def test_a_running_job_answers_for_itself(queue: Queue) -> None:
    queue.submitted(spec())
    lock_file = queue.start(1)
    cancel = queue.actor.ask(messages.CancelJob(id=1))
    change = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    asked = [told.message for told in queue.stage.take(messages.TellJob, to="executor")]
    assert [type(one) for one in asked] == [messages.CancelRequested, messages.PriorityRequested]
    assert cancel.answers == change.answers == []
    queue.actor.notify(
        messages.CancelAnswered(job_id=1, token=asked[0].token, accepted=False, text="too late"),
        messages.PriorityAnswered(
            job_id=1, token=asked[1].token, priority=-5, accepted=True, text="changed"
        ),
    )
    assert cancel.answer == messages.CancelOutcome(accepted=False, text="too late")
    assert change.answer == messages.PriorityOutcome(accepted=True, text="changed")
    told = queue.stage.take_one(messages.LockPriorityChanged, to="lock_manager")
    assert (told.priority, told.owner.lock_file) == (-5, lock_file)


def test_an_answer_nobody_waits_for_is_ignored(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.actor.notify(messages.CancelAnswered(job_id=1, token=99, accepted=True, text=""))


def test_the_priority_of_a_pending_job_changes_durably(queue: Queue) -> None:
    queue.submitted(spec(ops=2))
    asker = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=-5))
    text = "Priorities of pending opcodes for job 1 have been changed to -5"
    assert asker.answer == messages.PriorityOutcome(accepted=True, text=text)
    # The way of its arrival, so that it cannot come before it.
    told = queue.stage.take_one(messages.JobReprioritised, to="filter_evaluator")
    assert told == messages.JobReprioritised(id=1, priority=-5)
    queue.crash_machine()
    assert [op.priority for op in queue.job(1).ops] == [-5, -5]


@pytest.mark.parametrize("priority", [-21, 20, 100])
def test_a_priority_out_of_range_is_refused(queue: Queue, priority: int) -> None:
    queue.submitted(spec())
    refusal = queue.actor.ask(messages.ChangeJobPriority(id=1, priority=priority)).refusal
    assert refusal == ("BadRequestError", f"priority: expected -20 to 19, got {priority}")


def test_several_changes_in_one_turn_all_count(queue: Queue) -> None:
    queue.submitted(spec())
    changed = [
        queue.actor.say(messages.ChangeJobPriority(id=1, priority=priority)) for priority in (5, 7)
    ]
    canceled = queue.actor.say(messages.CancelJob(id=1))
    late = queue.actor.say(messages.ChangeJobPriority(id=1, priority=9))
    queue.actor.end_turn()
    assert all(one.answer_as(messages.PriorityOutcome).accepted for one in changed)
    assert canceled.answer_as(messages.CancelOutcome).accepted
    assert not late.answer_as(messages.PriorityOutcome).accepted
    for loss in (queue.restart, queue.crash_machine):
        loss()
        job = queue.job(1)
        assert (job.status, job.ops[0].priority) == (CANCELED, 7)


# Archive.


def test_a_final_job_is_archived(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.finish(1)
    before = queue.job(1)
    assert queue.actor.ask(messages.ArchiveJob(id=1)).answer == messages.ArchiveOutcome(
        archived=[1]
    )
    assert queue.statuses() == {2: "queued"}
    assert queue.statuses(archived=True) == {1: "success", 2: "queued"}
    assert queue.job(1) == before
    assert (queue.stage.places.archive / "0" / "job-1").exists()


def test_only_final_live_jobs_can_be_archived(queue: Queue) -> None:
    queue.submitted(spec())
    expected = "job 1 has status queued: only a final job can be archived"
    assert queue.actor.ask(messages.ArchiveJob(id=1)).refusal == ("JobStateError", expected)
    assert queue.actor.ask(messages.ArchiveJob(id=9)).refusal == (
        "UnknownJobError",
        "there is no live job 9",
    )


def test_the_file_of_a_job_is_moved_when_its_process_is_gone(queue: Queue) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, SUCCESS)
    queue.actor.end_turn()
    askers = [queue.actor.ask(messages.ArchiveJob(id=1)) for _ in range(2)]
    assert [asker.answers for asker in askers] == [[], []]
    queue.write_as_process(1, queue.body_of_process(1, 10, SUCCESS))
    queue.end_process(1, has_left=True)
    queue.actor.end_turn()
    expected = messages.ArchiveOutcome(archived=[1])
    assert [asker.answer for asker in askers] == [expected, expected]
    assert queue.statuses(archived=True) == {1: "success"}


def test_old_final_jobs_are_archived_together(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec(), spec())
    for job_id in (1, 2):
        queue.finish(job_id)
    row = queue.actor.component._table.find(2)
    assert row is not None
    row.ended = 2_000_000_000.0
    monkeypatch.setattr("time.time", lambda: 2_000_000_100.0)
    old = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=3_600.0)).answer
    assert old == messages.ArchiveOutcome(archived=[1])
    rest = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0)).answer
    assert rest == messages.ArchiveOutcome(archived=[2])
    assert queue.statuses() == {3: "queued"}


def test_archiving_many_has_a_limit(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.storage.settings.AUTOARCHIVE_JOBS_MAX", 2)
    queue.submitted(*[spec() for _ in range(3)])
    for job_id in (1, 2, 3):
        queue.actor.ask(messages.CancelJob(id=job_id))
    outcome = queue.actor.ask(messages.AutoArchiveJobs(age_seconds=-1.0)).answer
    assert outcome == messages.ArchiveOutcome(archived=[1, 2], left=1)


def test_an_archived_job_stays_so_after_a_crash(queue: Queue) -> None:
    queue.submitted(spec())
    queue.finish(1)
    job = queue.job(1)
    queue.actor.ask(messages.ArchiveJob(id=1))
    for loss in (queue.crash_machine, queue.restart):
        loss()
        assert queue.statuses(archived=True) == {1: "success"}
        assert queue.statuses() == {}
        assert queue.job(1) == job


# A disk that refuses.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_refused_flush_refuses_and_the_queue_lives_on(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    queue.submitted(spec(), spec())
    queue.start(2)
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync", number=number)
        refused = [
            queue.actor.say(SubmitJobs(jobs=[spec()])),
            queue.actor.say(SubmitJobs(jobs=[spec()], key="k")),
            queue.actor.say(SubmitJobs(jobs=[spec()], key="k")),
            queue.actor.say(messages.CancelJob(id=1)),
            queue.record(2, 10, RUNNING),
        ]
        queue.actor.end_turn()
        for asker in refused:
            assert asker.refusal[0] == "ReadOnlyError"
            assert os.strerror(number) in asker.refusal[1]
        # Now without trying; what only reads goes on.
        assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
        assert queue.actor.ask(messages.ChangeJobPriority(id=1, priority=1)).refusal[0] == (
            "ReadOnlyError"
        )
        assert queue.statuses() == {1: "queued", 2: "queued"}
        [timer] = Timer.made
        timer.run_out()
        [retried] = queue.stage.take(messages.DiskRetried)
        queue.actor.notify(retried)
        assert len(Timer.made) == 2
    queue.stage.told.clear()
    queue.actor.notify(messages.DiskRetried())
    queue.actor.end_turn()
    assert len(Timer.made) == 2
    assert queue.stage.take_one(messages.JobsArrived).is_all
    ids = queue.submitted(spec(), key="k")
    queue.crash_machine()
    assert set(queue.statuses()) == {1, 2, *ids}


def test_the_queue_says_that_it_is_read_only(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync")
        queue.submit(spec())
        queue.actor.notify(messages.ReportCounts(token=5))
    report = queue.stage.take_one(messages.QueueReport, to="supervisor")
    assert (report.token, report.is_read_only) == (5, True)


def test_a_job_file_that_cannot_be_written_makes_the_queue_try_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    with monkeypatch.context() as patch:
        refuse(patch, "ftruncate")
        queue.choose(1)
        queue.greet(1)
        queue.actor.end_turn()
        # Its lock file's name could not be written: the child may not go on.
        assert queue.channels[1].answers == []
        assert len(queue.stage.take(messages.RefuseHandOver)) == 1
        assert len(Timer.made) == 1
    queue.end_process(1, has_left=False)
    queue.actor.notify(messages.DiskRetried())
    queue.actor.end_turn()
    everything = queue.stage.take(messages.JobsArrived)[-1]
    assert [one.job.id for one in everything.jobs] == [1]
    queue.start(1)


def test_jobs_chosen_while_the_disk_refuses_start_when_it_works(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync")
        queue.submit(spec())
        queue.choose(1)
        assert queue.stage.take(messages.StartJobs) == []
    queue.stage.told.clear()
    queue.actor.notify(messages.DiskRetried())
    everything = queue.stage.take_one(messages.JobsArrived)
    assert ([one.job.id for one in everything.jobs], everything.running) == ([1], [])


def test_a_job_that_died_while_the_disk_refused_is_never_started_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync")
        queue.submit(spec())
        queue.end_process(1, has_left=False)
        queue.actor.end_turn()
        assert queue.statuses() == {1: "running"}
    queue.stage.told.clear()
    queue.actor.notify(messages.DiskRetried())
    queue.actor.end_turn()
    assert queue.statuses() == {1: "error"}
    for arrived in queue.stage.take(messages.JobsArrived):
        assert arrived.jobs == []
    assert queue.stage.take_one(messages.JobsFinished).jobs == [(1, ERROR)]


def test_a_queue_that_boots_on_a_full_disk_ends_the_dead_later(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec(), spec())
    queue.start(1)
    queue.record(1, 10, RUNNING)
    queue.actor.end_turn()
    queue.kill_all()
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync", "ftruncate")
        queue.restart()
        assert queue.statuses() == {1: "running", 2: "queued"}
        assert queue.submit(spec()).refusal[0] == "ReadOnlyError"
    queue.actor.notify(messages.DiskRetried())
    queue.actor.end_turn()
    assert queue.statuses() == {1: "error", 2: "queued"}


def test_nothing_is_archived_while_the_disk_refuses(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submitted(spec())
    queue.finish(1)
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync")
        queue.submit(spec())
        for request in (messages.ArchiveJob(id=1), messages.AutoArchiveJobs(age_seconds=-1.0)):
            assert queue.actor.ask(request).refusal[0] == "ReadOnlyError"
    queue.actor.notify(messages.DiskRetried())
    queue.restart()
    assert queue.statuses() == {1: "success"}


def test_an_id_that_was_refused_is_not_given_to_another_job_by_a_crash(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, "fdatasync")
        queue.submit(spec())
    queue.actor.notify(messages.DiskRetried())
    [job_id] = queue.submitted(spec())
    queue.crash_machine()
    assert list(queue.statuses()) == [job_id]


# What the queue finds and tells of itself.


def test_quarantined_files_are_named(queue: Queue) -> None:
    (queue.stage.places.queue / "job-7").write_bytes(b"torn")
    queue.restart()
    queue.actor.notify(messages.ReportCounts(token=5))
    report = queue.stage.take_one(messages.QueueReport)
    [quarantined] = report.quarantined
    assert quarantined.startswith("job-7: not a job: ")
    assert report.counts["last_id"] == 7
    assert queue.submitted(spec()) == [8]
    assert (queue.stage.places.queue / "job-7").read_bytes() == b"torn"


def test_jobs_are_counted(queue: Queue) -> None:
    queue.submitted(spec(), spec(), spec((-1, [])))
    queue.actor.ask(messages.CancelJob(id=1))
    queue.actor.notify(messages.ReportCounts(token=5))
    counts = queue.stage.take_one(messages.QueueReport).counts
    assert (counts["queued"], counts["waiting"], counts["canceled"]) == (1, 1, 1)


def test_an_unknown_job_is_an_error_and_not_the_end(queue: Queue) -> None:
    assert queue.actor.ask(messages.ReadJob(id=9)).refusal == (
        "UnknownJobError",
        "there is no job 9",
    )
    assert queue.actor.ask(messages.WatchJobs(ids=[9])).refusal[0] == "UnknownJobError"
    queue.actor.notify(
        messages.JobTold(job_id=9, op_index=0, entries=[]),
        messages.JobWaits(job_id=9, serial=1, body=b"{}"),
        messages.JobExited(job_id=9, lock_file="/l/x", has_left=False),
        messages.StartFailed(job_id=9, text="x"),
        messages.JobsChosen(start=[9], seen_up_to=9, doomed=[(9, "failed", "")], eligible=[9]),
    )
    queue.actor.end_turn()
    unknown = queue.actor.ask(queue.state(9, 1, RUNNING, body=b"{}"))
    assert unknown.answer == messages.StateRecorded(serial=1)


def test_an_orderly_end_writes_every_file(queue: Queue) -> None:
    queue.submitted(spec(), spec())
    queue.actor.close()
    assert (queue.file(1)["id"], queue.file(2)["id"]) == (1, 2)
