"""A job whose opcode the configuration store carries out: what it asks, locks and ends with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.actors.job.test_job import FakeLink, actor, file, run
from tests.core_alone import NEEDS_HIDDEN

from ganger.storage import opcodes
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.links.link import Received

pytestmark = NEEDS_HIDDEN


TAG: dict[str, Any] = {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "node0", "tags": ["a"]}
NEEDS: messages.PlainLocks = {"node": {"exclusive": ("u1",)}}
LOCKS = [("cluster/BGL", "shared"), ("node/u1", "exclusive")]


class StoreLink(FakeLink):
    """A daemon whose configuration store answers so; ``loses`` replies before it does."""

    def __init__(
        self,
        prepared: messages.Message | None = None,
        ran: messages.Message | None = None,
        *,
        loses: int = 0,
    ) -> None:
        super().__init__()
        self.prepared = prepared or messages.OpcodePrepared(locks=NEEDS, serial_no=3)
        self.ran = ran or messages.OpcodeRan()
        self.loses = loses

    def send(self, message: messages.Message, number: int) -> bool:
        match message:
            case messages.PrepareOpcode():
                self.answer(self.prepared, number)
            case messages.RunOpcode():
                self.answer(self.ran, number)
            case messages.ReleaseLocks():
                self._answers.append(Received(messages.Done(), number))
            case messages.AskGate():
                self._answers.append(Received(messages.GateAnswered(is_open=True), number))
        return super().send(message, number)

    def answer(self, message: messages.Message, number: int) -> None:
        if self.loses:
            self.loses -= 1
            self.hear(messages.ResendRequested())
        else:
            self._answers.append(Received(message, number))

    def of(self, *kinds: type[messages.Message]) -> list[messages.Message]:
        return [one for one in self.said if isinstance(one, kinds)]


def texts(job: jobs.Job) -> list[Any]:
    return [entry[3] for entry in job.ops[0].log]


def test_the_store_names_the_locks_and_carries_the_opcode_out_when_they_are_held(
    tmp_path: Path,
) -> None:
    line = StoreLink(ran=messages.OpcodeRan(result={"a": 1}, log=["one", "two"]))
    job = run(tmp_path, line, TAG)
    assert (job.status, job.ops[0].result) == (JobStatus.SUCCESS, {"a": 1})
    assert texts(job) == ["one", "two"]
    asked, locks, ran = line.of(messages.PrepareOpcode, messages.RequestLocks, messages.RunOpcode)
    assert isinstance(asked, messages.PrepareOpcode)
    assert isinstance(locks, messages.RequestLocks)
    assert isinstance(ran, messages.RunOpcode)
    assert locks.changes == LOCKS
    assert (ran.locks, ran.since) == (NEEDS, 3)
    for one in (asked, ran):
        assert (one.job_id, one.op_index, one.opcode) == (5, 0, job.ops[0].input)
    assert asked.new_uuid == ran.new_uuid
    # The opcode runs, durably, before the store changes anything.
    [begun, *_] = line.states()
    assert begun.status is JobStatus.RUNNING
    assert line.said.index(locks) < line.said.index(begun) < line.said.index(ran)


def test_an_opcode_without_locks_takes_none(tmp_path: Path) -> None:
    line = StoreLink(messages.OpcodePrepared(locks={}, serial_no=3))
    assert run(tmp_path, line, TAG).status is JobStatus.SUCCESS
    assert not line.of(messages.RequestLocks)


def test_an_error_of_the_preparation_ends_the_job_before_it_takes_locks(tmp_path: Path) -> None:
    error = ("OpPrereqError", ["Node 'node0' not known", "unknown_entity"])
    line = StoreLink(messages.OpcodePrepared(locks={}, serial_no=3, error=error))
    job = run(tmp_path, line, TAG)
    assert job.ops[0].status is JobStatus.ERROR
    assert job.ops[0].result == ["OpPrereqError", ["Node 'node0' not known", "unknown_entity"]]
    assert not line.of(messages.RequestLocks, messages.RunOpcode)


def test_an_error_of_the_operation_is_its_result(tmp_path: Path) -> None:
    ran = messages.OpcodeRan(error=("TagError", ["Tags cannot be empty"]), log=["before"])
    job = run(tmp_path, StoreLink(ran=ran), TAG)
    assert job.ops[0].status is JobStatus.ERROR
    assert job.ops[0].result == ["TagError", ["Tags cannot be empty"]]
    assert texts(job) == ["before"]


def test_an_error_of_the_daemon_ends_the_job_too(tmp_path: Path) -> None:
    ran = messages.Failure("StorageError", "the disk is full")
    job = run(tmp_path, StoreLink(ran=ran), TAG)
    assert job.ops[0].result == ["GenericError", ["the disk is full"]]


@pytest.mark.parametrize("loses", [1, 2, 3])
def test_requests_are_repeated_until_they_are_answered(tmp_path: Path, loses: int) -> None:
    line = StoreLink(loses=loses)
    assert run(tmp_path, line, TAG).status is JobStatus.SUCCESS
    asked = line.of(messages.PrepareOpcode, messages.RunOpcode)
    assert len(asked) >= 2 + loses
    assert len(set(map(repr, asked))) == 2


def test_a_request_whose_answer_has_come_is_not_repeated(tmp_path: Path) -> None:
    # Else a store that refused the opcode could change something after the job has failed.
    class Replaced(StoreLink):
        def answer(self, message: messages.Message, number: int) -> None:
            super().answer(message, number)
            self.hear(messages.ResendRequested())

    line = Replaced()
    assert run(tmp_path, line, TAG).status is JobStatus.SUCCESS
    assert len(line.of(messages.RunOpcode)) == 1


def test_a_cancellation_that_comes_while_the_opcode_runs_is_too_late(tmp_path: Path) -> None:
    class Canceling(StoreLink):
        def answer(self, message: messages.Message, number: int) -> None:
            if isinstance(message, messages.OpcodeRan):
                self.hear(messages.CancelRequested(token=1))
            super().answer(message, number)

    line = Canceling()
    assert run(tmp_path, line, TAG).status is JobStatus.SUCCESS
    [answer] = line.of(messages.CancelAnswered)
    assert isinstance(answer, messages.CancelAnswered)
    assert not answer.accepted


def test_a_job_that_is_to_be_killed_records_what_the_store_has_done(tmp_path: Path) -> None:
    # The change is made or not, whatever becomes of the process: the answer says which.
    class Killing(StoreLink):
        def answer(self, message: messages.Message, number: int) -> None:
            if isinstance(message, messages.OpcodeRan):
                self.hear(messages.CancelRequested(token=1, kill=True))
            super().answer(message, number)

    line = Killing(ran=messages.OpcodeRan(result=[1]))
    job = run(tmp_path, line, TAG)
    assert (job.ops[0].status, job.ops[0].result) == (JobStatus.SUCCESS, [1])


def test_each_opcode_of_a_job_has_a_new_uuid_of_its_own(tmp_path: Path) -> None:
    line = StoreLink()
    job = actor(tmp_path, line, TAG)
    job._job.ops.append(jobs.OpcodeEntry(input=opcodes.check_opcode(dict(TAG))))
    job.run()
    assert file(tmp_path).status is JobStatus.SUCCESS
    by_index: dict[int, set[str]] = {0: set(), 1: set()}
    for one in line.of(messages.PrepareOpcode, messages.RunOpcode):
        assert isinstance(one, messages.PrepareOpcode | messages.RunOpcode)
        by_index[one.op_index].add(one.new_uuid)
    assert [len(found) for found in by_index.values()] == [1, 1]
    assert by_index[0] != by_index[1]


def test_the_template_of_lean_jobs_imports_no_operations_of_the_store() -> None:
    lines = (
        "import sys; from ganger.actors.execution import template;"
        "print([name for name in sys.modules if name.startswith('ganger.storage.cluster')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, check=True, timeout=60
    )
    assert "operations" not in done.stdout
