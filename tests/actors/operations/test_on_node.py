"""What a job's process asks of a node, and what it makes of the replies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ganger.actors.operations.local_context import LocalContext
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry, encode_job
from ganger.storage.opcodes import OperationError
from ganger.storage.queue_files.output_blocks import Packer, Segment
from ganger.transport import frames, messages

if TYPE_CHECKING:
    from collections.abc import Collection


class NodeContext(LocalContext):
    """A context with a node whose task has printed ``file``, and ends when all else is quiet."""

    task_key = "task-1-0-5.000000"

    def __init__(self, file: bytes = b"", end: messages.Message | None = None) -> None:
        super().__init__()
        self.file = file
        self.end = end
        self.asked: list[messages.Message] = []
        self.marks: list[str] = []
        self.silent: list[str] = []
        self._open: dict[int, messages.Message] = {}

    def check_node(self, node: str) -> None:
        assert node == "web1"

    def mark_task(self, node: str) -> None:
        assert not self.asked
        self.marks.append(node)

    def unmark_task(self) -> None:
        self.marks.append("")

    def call_node(self, node: str, request: messages.TaskRequest) -> int:
        assert node == "web1"
        self.asked.append(request)
        self._open[len(self.asked)] = request
        return len(self.asked)

    def node_reply(self, numbers: Collection[int]) -> tuple[int, messages.Message]:
        assert {*numbers} == {*self._open}
        number = min(numbers, key=lambda one: (self._is_end(one), one))
        reply = self._answer(self._open.pop(number))
        return number, messages.TaskAnswered(frame=frames.encode(reply, 1))

    def _is_end(self, number: int) -> bool:
        """Whether this call waits for the end; without output, one for more of it waits longer."""
        request = self._open[number]
        if isinstance(request, messages.ReadOutput):
            return request.wait_seconds > 0 and request.offset >= len(self.file)
        return isinstance(request, messages.AwaitTask)

    def _answer(self, request: messages.Message) -> messages.Message:
        match request:
            case messages.SubmitJobs():
                return messages.JobsSubmitted(ids=[7])
            case messages.ReadOutput():
                page = self.file[request.offset : request.offset + 1024 * 1024]
                return messages.OutputPage(data=page, size=len(self.file))
        assert self.end is not None
        return self.end

    def forget_call(self, number: int) -> None:
        del self._open[number]

    def tell_silent(self, text: str) -> None:
        self.silent.append(text)


def ended(status: JobStatus, result: object) -> messages.JobDocument:
    entry = OpcodeEntry(input={"OP_ID": "OP_EXEC", "argv": ["x"]}, status=status, result=result)
    return messages.JobDocument(id=7, body=encode_job(Job(id=7, ops=[entry])))


def run(context: NodeContext) -> object:
    return context.run({"OP_ID": "OP_EXEC", "argv": ["x"], "node": "web1"})


def test_a_command_without_output_takes_four_requests() -> None:
    context = NodeContext(end=ended(JobStatus.SUCCESS, {"exit_code": 0}))
    assert run(context) == {"exit_code": 0}
    assert context.marks == ["web1", ""]
    assert [type(one).__name__ for one in context.asked] == [
        "SubmitJobs", "AwaitTask", "ReadOutput", "ReadOutput",
    ]  # fmt: skip


def test_output_is_passed_on_whole_each_stream_for_itself() -> None:
    file = b""
    for number in range(40):
        file += Packer().pack(0, [Segment(1 + number % 2, bytes([number]) * 100_000)], len(file))
    file += Packer().pack(0, [Segment(1, random.Random(1).randbytes(200_000))], len(file))
    context = NodeContext(file, ended(JobStatus.SUCCESS, {}))
    run(context)
    assert len(context.written_to("stdout")) == 20 * 100_000 + 200_000
    assert len(context.written_to("stderr")) == 20 * 100_000


def test_what_the_node_says_of_a_failure_is_the_jobs_failure() -> None:
    details = {"exit_code": 3, "stderr_tail": "no\n"}
    failed = ended(JobStatus.ERROR, ["OpExecError", ["exit code 3", details]])
    with pytest.raises(OperationError) as caught:
        run(NodeContext(end=failed))
    assert (caught.value.name, caught.value.details) == ("OpExecError", ["exit code 3", details])
    lost = ended(JobStatus.ERROR, "Job process died")
    with pytest.raises(OperationError, match="web1: Job process died"):
        run(NodeContext(end=lost))
    with pytest.raises(OperationError, match="web1: the disk is full"):
        run(NodeContext(end=messages.Failure("StorageError", "the disk is full")))
