"""The job actor, with a link whose other end is written down here."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganger.actors.job import job_log
from ganger.actors.job.daemon_link import DaemonLink
from ganger.actors.job.job import JobActor
from ganger.storage import errors, opcodes, settings
from ganger.storage.disk import documents
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.queue_files import job_files
from ganger.transport import frames, messages
from ganger.transport.links.link import Link, Received

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
LOCKED = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001}


class FakeLink(DaemonLink):
    """Answers at once and twice, and keeps what was said."""

    def __init__(self) -> None:
        Link.__init__(self)
        self.breaks_at_end = False
        self._put_back = []
        self.said: list[messages.Message] = []
        self._answers: list[Received] = []

    def send(self, message: messages.Message, number: int) -> bool:
        is_end = isinstance(message, messages.RecordState) and message.status.is_final
        if self.breaks_at_end and is_end:
            self.is_up = False
        if not self.is_up:
            return False
        if (
            isinstance(message, messages.PrepareOpcode)
            and message.opcode["OP_ID"] == DELAY["OP_ID"]
        ):
            # In a configuration without nodes, locks have the names that the opcode gives.
            locks = opcodes.parse(message.opcode).lock_needs()
            plain = msgspec.to_builtins(locks)
            self._answers.append(Received(messages.OpcodePrepared(plain, serial_no=1), number))
            return True
        self.said.append(message)
        answer: messages.Message | None = None
        match message:
            case messages.RecordState():
                answer = messages.StateRecorded(serial=message.serial)
            case messages.RequestLocks():
                answer = messages.LocksGranted()
        if answer is not None:
            self._answers.append(Received(answer, number))
        return True

    def receive(self) -> list[Received]:
        answers, self._answers = self._answers, []
        # Whatever carries no number of its own may come twice, and changes nothing the second time.
        once = (messages.CancelRequested, messages.PriorityRequested)
        return [one for one in answers for _ in range(2 - isinstance(one.message, once))]

    def hear(self, message: messages.Message) -> None:
        self._answers.append(Received(message, 0))

    def wait(self, *_: object) -> list[int]:
        return []

    def states(self) -> list[messages.RecordState]:
        return [one for one in self.said if isinstance(one, messages.RecordState)]


def run(folder: Path, line: FakeLink, fields: dict[str, Any]) -> jobs.Job:
    """Run a job of one opcode; what its file says in the end."""
    actor(folder, line, fields).run()
    return file(folder)


def file(folder: Path) -> jobs.Job:
    return jobs.decode_job((folder / "job-5").read_bytes())


def actor(folder: Path, line: FakeLink, fields: dict[str, Any]) -> JobActor:
    entry = jobs.OpcodeEntry(input=opcodes.check_opcode(dict(fields)))
    body = jobs.encode_job(jobs.Job(id=5, ops=[entry], extra={jobs.STATE_SERIAL_KEY: 1}))
    (folder / "job-5").write_bytes(body)
    go = messages.JobGo(body=body, spares=[], secrets={}, queue=str(folder), socket="")
    owner = Owner(5, str(folder / "lock"), os.getpid())
    return JobActor(jobs.decode_job(body), line, owner, go)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that the file is written: whether it is flushed."""
    found: list[bool] = []
    real = documents.replace

    def replace(path: str, data: bytes, *, flush: bool) -> None:
        found.append(flush)
        real(path, data, flush=flush)

    monkeypatch.setattr(documents, "replace", replace)
    return found


@pytest.mark.parametrize("fields", [DELAY, LOCKED])
def test_the_process_leaves_when_its_end_is_in_the_journal(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    line = FakeLink()
    job = run(tmp_path, line, fields)
    assert job.status is JobStatus.SUCCESS
    running, ended = line.states()
    assert running.status is JobStatus.RUNNING
    assert (ended.status, ended.has_locks) == (JobStatus.SUCCESS, fields is LOCKED)
    assert ended.body is not None
    assert jobs.decode_job(ended.body) == job
    left = messages.JobLeft(job_id=5, has_locks=fields is LOCKED, has_group=False)
    assert line.said[-1] == left


def test_an_end_that_the_daemon_does_not_get_is_flushed(
    tmp_path: Path, flushed: list[bool]
) -> None:
    line = FakeLink()
    line.breaks_at_end = True
    assert run(tmp_path, line, DELAY).status is JobStatus.SUCCESS
    assert flushed == [False, True]


def test_an_end_whose_file_cannot_be_written_waits_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise errors.StorageError("the disk is full")

    monkeypatch.setattr(documents, "replace", refuse)
    line = FakeLink()
    run(tmp_path, line, DELAY)
    # The journal alone has it: the process does not claim that the file has it too.
    assert [state.status for state in line.states()] == [JobStatus.RUNNING, JobStatus.SUCCESS]
    assert not any(isinstance(one, messages.JobLeft) for one in line.said)


@pytest.mark.parametrize("how", ["reconnected", "asked"])
def test_a_new_component_finds_the_log_in_the_file_and_gets_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(job_log, "RESENT_MAX", 2)
    line = FakeLink()
    job = actor(tmp_path, line, DELAY)
    job._prepare(job._job.ops[0])
    line.is_up = how == "asked"
    job.context.log_lines(["one", "two", "three"], "stdout")
    assert file(tmp_path).ops[0].log == []
    line.said.clear()
    line.is_up, line.has_changed = True, how == "reconnected"
    if how == "asked":
        line.hear(messages.ResendRequested())
    job._daemon.take_messages()
    assert [entry[3] for entry in file(tmp_path).ops[0].log] == ["one", "two", "three"]
    logged = line.said[-1]
    assert isinstance(logged, messages.JobLogAppended)
    assert [entry[3] for entry in logged.entries] == ["two", "three"]


def test_a_log_is_not_written_with_a_state_that_is_still_on_its_way(tmp_path: Path) -> None:
    line = FakeLink()
    job = actor(tmp_path, line, DELAY)
    job._prepare(job._job.ops[0])
    job.context.log("one")
    job._job.advance_serial()
    line.hear(messages.ResendRequested())
    job._daemon.take_messages()
    assert file(tmp_path).ops[0].log == []


class ClosingGate(FakeLink):
    """Locks have to be waited for; then the opcode may not start; perhaps it is canceled first."""

    _wanted = 0
    is_canceled = False
    folder = Path()
    in_file: jobs.Job | None = None

    def send(self, message: messages.Message, number: int) -> bool:
        match message:
            case messages.RequestLocks():
                self._wanted = number
                self._answers.append(Received(messages.LocksPending(blockers=[]), number))
            case messages.JobWaits():
                self._answers.append(Received(messages.LocksGranted(), self._wanted))
            case messages.RecordState() if message.begins is not None:
                closed = messages.GateAnswered(is_open=False, text="paused by a rule")
                self._answers.append(Received(closed, number))
            case messages.ReleaseLocks():
                if self.is_canceled:
                    self.hear(messages.CancelRequested(token=1))
                else:
                    self._answers.append(Received(messages.Done(), number))
            case messages.JobReturns():
                self.in_file = file(self.folder)
            case _:
                return super().send(message, number)
        self.said.append(message)
        return True


def test_a_job_that_is_canceled_while_it_goes_back_to_the_queue_is_canceled(
    tmp_path: Path,
) -> None:
    line = ClosingGate()
    line.is_canceled = True
    job = run(tmp_path, line, LOCKED)
    assert job.status is JobStatus.CANCELED
    assert line.states()[-1].status is JobStatus.CANCELED
    assert [one.accepted for one in line.said if isinstance(one, messages.CancelAnswered)] == [True]
    assert not any(isinstance(one, messages.JobReturns) for one in line.said)


def test_a_process_that_returns_a_job_writes_its_file_last_before_that(
    tmp_path: Path, flushed: list[bool]
) -> None:
    line = ClosingGate()
    line.folder = tmp_path
    job = run(tmp_path, line, LOCKED)
    assert (job.status, job.livelock) == (JobStatus.QUEUED, None)
    assert line.in_file == job
    assert flushed[-1]
    given, left = line.said[-2:]
    assert isinstance(given, messages.JobReturns)
    assert given.body is not None
    assert jobs.decode_job(given.body) == job
    assert isinstance(left, messages.JobLeft)


def refuse_first(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[], None], count: int = 1
) -> list[int]:
    """The disk refuses so many writes; the serials of those that it takes."""
    real = documents.replace
    written: list[int] = []
    refused: list[str] = []

    def replace(path: str, data: bytes, *, flush: bool) -> None:
        if len(refused) < count:
            refused.append(path)
            then()
            raise errors.StorageError("the disk is full")
        written.append(jobs.decode_job(data).serial)
        real(path, data, flush=flush)

    monkeypatch.setattr(documents, "replace", replace)
    monkeypatch.setattr(job_files, "is_queue_of", lambda _: True)
    return written


def running(folder: Path, line: FakeLink) -> JobActor:
    """A job of two opcodes whose first one runs."""
    job = actor(folder, line, DELAY)
    job._job.ops.append(jobs.OpcodeEntry(input=dict(job._job.ops[0].input)))
    job._prepare(job._job.ops[0])
    return job


class PriorityFirst(FakeLink):
    """While the first state is on its way another priority is asked for; the link may end then."""

    ends = False

    def send(self, message: messages.Message, number: int) -> bool:
        if isinstance(message, messages.RecordState) and not self.states():
            self.hear(messages.PriorityRequested(token=1, priority=7))
        return super().send(message, number)

    def receive(self) -> list[Received]:
        answers = super().receive()
        self.is_up &= not (self.ends and answers)
        return answers


class Succeeded(FakeLink):
    """With each new state the daemon is replaced, before it has stored the state."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = 0
        self.told: list[bool] = []
        """Of each state that the successor hears of without its text: whether it is stored."""

    def send(self, message: messages.Message, number: int) -> bool:
        if isinstance(message, messages.RecordState):
            if message.body is None:
                self.told.append(message.serial <= self.stored)
            elif message not in self.said:
                self.said.append(message)
                self.has_changed = True
                return True
            else:
                self.stored = message.serial
        return super().send(message, number)


def test_a_successor_of_the_daemon_hears_of_no_state_before_it_is_stored(tmp_path: Path) -> None:
    line = Succeeded()
    assert run(tmp_path, line, DELAY).status is JobStatus.SUCCESS
    assert line.told == [True]


@pytest.mark.parametrize("ends", [True, False])
def test_a_priority_that_came_before_the_answer_to_a_state_is_in_the_file_after_that(
    tmp_path: Path, *, ends: bool
) -> None:
    line = PriorityFirst()
    line.ends = ends
    job = running(tmp_path, line)
    assert file(tmp_path).ops[1].priority == 7
    assert file(tmp_path).serial == job._job.serial
    # Without the link the journal does not get it: the file alone has it, flushed.
    assert job._file.is_only_copy == ends


def test_requests_that_come_while_the_disk_refuses_are_done_after_it_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = FakeLink()
    job = running(tmp_path, line)
    tokens = iter(range(2_000))

    def wish() -> None:
        token = next(tokens)
        line.hear(messages.PriorityRequested(token=token, priority=token % 20))
        line.hear(messages.ResendRequested())

    written = refuse_first(monkeypatch, wish, count=1_000)
    job._file.is_only_copy = True
    job.context.log("one")
    line.hear(messages.ResendRequested())
    job._daemon.take_messages()
    answered = [one.token for one in line.said if isinstance(one, messages.PriorityAnswered)]
    assert answered == list(range(1_000))
    assert written == sorted(written)
    assert file(tmp_path).ops[1].priority == 999 % 20


@pytest.mark.parametrize(
    ("number", "text"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "refused")]
)
def test_a_process_that_cannot_store_the_end_says_so_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, text: str
) -> None:
    line = FakeLink()
    job = running(tmp_path, line)
    real, left = documents.replace, 3

    def replace(path: str, data: bytes, *, flush: bool) -> None:
        nonlocal left
        if left:
            left -= 1
            raise errors.StorageError("refused") from OSError(number, "refused")
        real(path, data, flush=flush)

    monkeypatch.setattr(documents, "replace", replace)
    monkeypatch.setattr(job_files, "is_queue_of", lambda _: True)
    for op in job._job.ops:
        op.status = JobStatus.SUCCESS
    # A large state goes past the log.
    job._job.ops[0].result = "x" * settings.JOURNALED_STATE_BYTES_MAX
    job._recorder.record()
    told = [one for one in line.said if isinstance(one, messages.StateHeldUp)]
    assert told == 3 * [messages.StateHeldUp(job_id=5, is_end=True, text=text)]
    assert file(tmp_path).status is JobStatus.SUCCESS


def test_a_log_that_the_disk_refuses_is_not_tried_with_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []

    def refuse(*_: object, **__: object) -> None:
        tries.append(None)
        raise errors.StorageError("the disk is full")

    line = FakeLink()
    job = running(tmp_path, line)
    with monkeypatch.context() as patch:
        patch.setattr(documents, "replace", refuse)
        patch.setattr(job._file, "_tried_at", 0.0)
        for number in range(1_000):
            job.context.log(str(number))
            job.context.poll([], 0)
    assert len(tries) < 100
    # A wait for output ends in time to try again.
    waits: list[float | None] = []

    def wait(_: object, seconds: float | None) -> list[int]:
        waits.append(seconds)
        return [0]

    monkeypatch.setattr(line, "wait", wait)
    job._file._tried_at = time.monotonic()
    job.context.poll([0], None)
    (seconds,) = waits
    assert seconds is not None
    assert 0 < seconds <= settings.LOG_WRITE_INTERVAL_SECONDS


def test_between_two_opcodes_the_file_has_the_log(tmp_path: Path) -> None:
    line = FakeLink()
    job = running(tmp_path, line)
    op = job._job.ops[0]
    op.status = JobStatus.QUEUED
    line.is_up = False

    def operate(_: object) -> None:
        job.context.log_lines(["one", "two"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_operate", operate)
        assert job._run_opcode(op)
    assert [entry[3] for entry in file(tmp_path).ops[0].log] == ["one", "two"]
    assert file(tmp_path).ops[0].status is JobStatus.RUNNING


def test_a_job_that_was_given_back_is_not_written_again_when_it_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        # The daemon was started anew, and a client has canceled the job.
        canceled = file(tmp_path)
        canceled.ops[0].status = JobStatus.CANCELED
        canceled.advance_serial()
        (tmp_path / "job-5").write_bytes(jobs.encode_job(canceled))
        raise OSError(errno.EIO, "the directory cannot be flushed")

    monkeypatch.setattr(documents, "flush_directory", fail)
    monkeypatch.setattr(job_files, "is_queue_of", lambda _: True)
    line = ClosingGate()
    line.folder = tmp_path
    assert run(tmp_path, line, LOCKED).status is JobStatus.CANCELED
    assert isinstance(line.said[-1], messages.JobLeft)


def test_the_return_of_a_job_is_sent_after_its_file_is_written(tmp_path: Path) -> None:
    line = ClosingGate()
    line.folder = tmp_path
    run(tmp_path, line, LOCKED)
    logged, given = line.said[-3:-1]
    assert isinstance(logged, messages.JobLogAppended)
    assert isinstance(given, messages.JobReturns)
    assert line.in_file is not None
    assert line.in_file.ops[0].log == logged.entries


def test_resent_log_fits_into_a_frame_and_goes_back_over_opcodes(tmp_path: Path) -> None:
    line = FakeLink()
    job = running(tmp_path, line)
    job.context.log("first")
    job._job.ops[0].apply(jobs.OpcodeEvent.SUCCEED)
    job._running.index = 1
    for number in range(20):
        job.context.log(f"{number:02}" + 49_998 * "x")
    line.said.clear()
    job._log.resend()
    (cut,) = [one for one in line.said if isinstance(one, messages.JobLogAppended)]
    assert [entry[0] for entry in cut.entries] == list(range(2, 22))
    assert frames.encode(cut)
    job._job.ops[1].log = job._job.ops[1].log[:2]
    line.said.clear()
    job._log.resend()
    logged = [one for one in line.said if isinstance(one, messages.JobLogAppended)]
    assert [(one.op_index, len(one.entries)) for one in logged] == [(0, 1), (1, 2)]


def test_an_operation_that_never_waits_has_its_log_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = FakeLink()
    job = running(tmp_path, line)
    job.context.log("one")
    assert file(tmp_path).ops[0].log == []
    monkeypatch.setattr(settings, "LOG_WRITE_INTERVAL_SECONDS", 0.0)
    job.context.log("two")
    assert [entry[3] for entry in file(tmp_path).ops[0].log] == ["one", "two"]
