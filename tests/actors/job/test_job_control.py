"""What the job actor does about words that arrive in the middle of something, and with secrets."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.actors.job.test_job import DELAY, LOCKED, FakeLink, actor, file, refuse_first
from tests.actors.operations.unlock import PIN, OpUnlock

from ganger.actors.job.conversation import Conversation
from ganger.actors.job.job import JobActor
from ganger.storage import errors, opcodes
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.opcodes import catalogue
from ganger.storage.queue_files import output_blocks, spool
from ganger.transport import frames, messages
from ganger.transport.links.link import Received

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


class OpStubborn(opcodes.Opcode, kw_only=True):
    """Ends well although it was asked to end."""

    op_id = "OP_STUBBORN"

    def run(self, context: opcodes.OperationContext) -> str:
        try:
            context.poll([], 0.0)
        except opcodes.KilledError:
            return "done all the same"
        return "not asked for"


class OpTalkative(opcodes.Opcode, kw_only=True):
    """Prints in two pieces, the second of which waits a moment to be written."""

    op_id = "OP_TALKATIVE"

    def run(self, context: opcodes.OperationContext) -> None:
        for piece in (b"one ", b"two"):
            context.output(piece)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for opcode in (OpStubborn, OpTalkative, OpUnlock):
        monkeypatch.setitem(catalogue._from_users, opcode.op_id, opcode)


def add_opcode(job: JobActor, fields: dict[str, Any]) -> None:
    job._job.ops.append(jobs.OpcodeEntry(input=opcodes.check_opcode(dict(fields))))


class Killing(FakeLink):
    """As soon as the first opcode runs, a client asks to kill the job."""

    def send(self, message: messages.Message, number: int) -> bool:
        sent = super().send(message, number)
        if isinstance(message, messages.RecordState) and message.status is RUNNING:
            self.hear(messages.CancelRequested(token=1, kill=True))
        return sent


def test_after_a_kill_the_next_opcode_does_not_begin_though_the_first_ended_well(
    tmp_path: Path,
) -> None:
    line = Killing()
    job = actor(tmp_path, line, {"OP_ID": "OP_STUBBORN"})
    add_opcode(job, DELAY)
    job.run()
    first, second = file(tmp_path).ops
    assert (first.status, first.result) == (SUCCESS, "done all the same")
    assert (second.status, second.exec_timestamp) == (CANCELED, None)
    [answer] = [one for one in line.said if isinstance(one, messages.CancelAnswered)]
    assert answer.accepted


class CanceledTwice(FakeLink):
    """The job waits for its locks, and two requests to cancel it are read together."""

    def send(self, message: messages.Message, number: int) -> bool:
        if not isinstance(message, messages.RequestLocks):
            return super().send(message, number)
        self.said.append(message)
        self._answers.append(Received(messages.LocksPending(blockers=[]), number))
        for token in (1, 2):
            self.hear(messages.CancelRequested(token=token))
        return True


def test_a_second_cancel_that_is_read_with_the_first_is_accepted_too(tmp_path: Path) -> None:
    line = CanceledTwice()
    actor(tmp_path, line, LOCKED).run()
    answers = [one for one in line.said if isinstance(one, messages.CancelAnswered)]
    assert [(one.token, one.accepted) for one in answers] == [(1, True), (2, True)]
    assert {one.text for one in answers} == {"Job 5 will be canceled"}
    assert file(tmp_path).status is CANCELED


class CancelWithGate(FakeLink):
    """The answer of the gate and a request to cancel arrive together."""

    def send(self, message: messages.Message, number: int) -> bool:
        if not isinstance(message, messages.AskGate):
            return super().send(message, number)
        self.said.append(message)
        self._answers.append(Received(messages.GateAnswered(is_open=True), number))
        self.hear(messages.CancelRequested(token=1))
        return True


def test_a_cancel_that_arrives_with_the_answer_of_the_gate_holds(tmp_path: Path) -> None:
    line = CancelWithGate()
    job = actor(tmp_path, line, DELAY)
    # Without locks the record of its start asks for it.
    add_opcode(job, LOCKED)
    job.run()
    first, second = file(tmp_path).ops
    assert (first.status, second.status, second.exec_timestamp) == (SUCCESS, CANCELED, None)
    assert any(isinstance(one, messages.AskGate) for one in line.said)
    [answer] = [one for one in line.said if isinstance(one, messages.CancelAnswered)]
    assert answer.accepted


class DyingDaemon(FakeLink):
    """The job waits for locks. The daemon asks it to end, and is replaced."""

    def send(self, message: messages.Message, number: int) -> bool:
        if isinstance(message, messages.RequestLocks):
            self._answers.append(Received(messages.LocksPending(blockers=[]), number))
            return True
        if isinstance(message, messages.JobWaits) and message not in self.said:
            self.hear(messages.CancelRequested(token=1))
            self.has_changed = not self.waits()
        return super().send(message, number)

    def waits(self) -> list[JobStatus]:
        """The states of the job of which nothing has to be durable."""
        said = [one for one in self.said if isinstance(one, messages.JobWaits)]
        return [jobs.decode_job(one.body or b"").status for one in said]


def test_a_successor_of_the_daemon_hears_that_a_waiting_job_was_asked_to_end(
    tmp_path: Path,
) -> None:
    line = DyingDaemon()
    actor(tmp_path, line, LOCKED).run()
    # The predecessor may have gone before it stored the second state.
    assert line.waits() == [WAITING, CANCELING]
    assert file(tmp_path).status is CANCELED


@pytest.mark.parametrize("comes", ["a kill", "a successor of the daemon"])
def test_what_comes_while_the_disk_refuses_the_log_is_not_left_lying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    line = FakeLink()
    job = actor(tmp_path, line, DELAY)
    job._prepare(job._job.ops[0])
    job.context.log("one")
    kill = messages.CancelRequested(token=1, kill=True)

    def come() -> None:
        if comes == "a kill":
            line.hear(kill)
        else:
            line.has_changed = True

    def wait(_: object, timeout_seconds: float | None) -> list[int]:
        if timeout_seconds is None:
            assert line._answers, "it waits, and nothing more comes"
            # The successor knows the job.
            line.hear(kill)
        return []

    refuse_first(monkeypatch, come, count=1)
    monkeypatch.setattr(line, "wait", wait)
    # No journal has the newest state, and it is time to write the log.
    job._file.is_only_copy = True
    job._file._tried_at = 0.0
    with pytest.raises(opcodes.KilledError):
        job.context.poll([], None)
    assert not line.has_changed


def test_what_was_postponed_comes_before_what_came_while_the_disk_refused() -> None:
    line, heard = FakeLink(), list[messages.Message]()
    daemon = Conversation(line, heard.append, lambda: None)
    asked = [messages.PriorityRequested(token=token, priority=token) for token in (1, 2, 3)]
    daemon.postpone_control()
    for one in asked[:2]:
        line.hear(one)
    daemon.take_messages()
    line.hear(asked[2])
    daemon.rest()
    daemon.resume_control()
    daemon.take_messages()
    assert heard == asked


class Quiet(FakeLink):
    """Answers nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def send(self, message: messages.Message, number: int) -> bool:
        del message
        self.numbers.append(number)
        return True

    def answer(self, message: messages.Message, number: int) -> None:
        """The reply to a request comes."""
        self._answers.append(Received(message, number))


@pytest.mark.parametrize(
    ("reply", "is_repeated"),
    [
        (messages.Failure("LockRequestError", "no such lock"), False),
        (messages.LocksGranted(), False),
        (messages.LocksPending(blockers=[]), True),
        (messages.Failure("ComponentRestartedError", "it is restarted"), True),
    ],
    ids=["refused", "granted", "pending", "restarted"],
)
@pytest.mark.parametrize("is_taken", [False, True])
def test_what_has_its_last_reply_is_never_sent_again(
    reply: messages.Message, *, is_repeated: bool, is_taken: bool
) -> None:
    line = Quiet()
    daemon = Conversation(line, lambda _: None, lambda: None)
    number = daemon.send(messages.RequestLocks(Owner(5, "/l", 7), 0, [("node/a", "shared")]))
    line.answer(reply, number)
    daemon.take_messages()
    if is_taken:
        with contextlib.suppress(errors.LockRequestError):
            daemon.take_reply(number)
    daemon.move_in_line(-5)
    daemon.resend()
    assert line.numbers == [number] * (3 if is_repeated else 1)
    assert [one.priority for one in line.open.values()] == [-5] * is_repeated  # type: ignore[attr-defined]


def test_all_output_is_stored_when_the_opcode_has_ended(tmp_path: Path) -> None:
    actor(tmp_path, FakeLink(), {"OP_ID": "OP_TALKATIVE"}).run()
    stored = Path(spool.output_path(tmp_path, 5)).read_bytes()
    blocks = output_blocks.find_blocks(stored, 0).blocks
    assert b"".join(one.data for block in blocks for one in block.segments()) == b"one two"


def test_a_secret_reaches_the_operation_and_no_file_or_message(
    tmp_path: Path,
) -> None:
    line = FakeLink()
    job = actor(tmp_path, line, {"OP_ID": "OP_UNLOCK", "pin": opcodes.REDACTED})
    job._secrets = {0: {"pin": PIN}}
    job.run()
    ended = file(tmp_path)
    assert (ended.status, ended.ops[0].result) == (SUCCESS, len(PIN))
    assert PIN.encode() not in (tmp_path / "job-5").read_bytes()
    for said in line.said:
        assert PIN.encode() not in frames.encode(said)


def test_an_operation_whose_secret_was_lost_does_not_run(tmp_path: Path) -> None:
    job = actor(tmp_path, FakeLink(), {"OP_ID": "OP_UNLOCK", "pin": opcodes.REDACTED})
    job.run()
    ended = file(tmp_path)
    assert ended.status is ERROR
    assert "submit it again" in str(ended.ops[0].result)


def test_a_job_that_a_test_plays_ends_none_of_its_children(tmp_path: Path) -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with child:
        actor(tmp_path, FakeLink(), {"OP_ID": "OP_UNLOCK", "pin": PIN}).run()
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(timeout=10) == 0
