"""What a job's process asks of a node, and what it makes of the replies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ganger.actors.operations.local_context import LocalContext
from ganger.storage.jobs import outcomes
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry, encode_job
from ganger.storage.jobs.outcomes import Ending, Outcome
from ganger.storage.opcodes import KilledError, OperationError
from ganger.storage.queue_files.output_blocks import Packer, Segment
from ganger.transport import frames, messages

if TYPE_CHECKING:
    from collections.abc import Collection


class NodeContext(LocalContext):
    """A context with a node whose task has printed ``file``, and ends when all else is quiet."""

    def __init__(self, file: bytes = b"", end: messages.Message | None = None) -> None:
        super().__init__()
        self.file = file
        self.end = end
        self.is_quick = False
        """Whether the task ends before the node has answered."""
        self.asked: list[messages.Message] = []
        self.marks: list[str] = []
        self.silent: list[str] = []
        self.says: list[messages.NodeSilent | KilledError | None] = []
        """What comes before the replies: the hub's words of the node's silence, or a request to end
        the job; None: nothing."""
        self.refusals: list[messages.Failure] = []
        """What the node says to the first requests."""
        self.waited: list[float | None] = []
        self.patience: list[float | None] = []
        self._open: dict[int, messages.Message] = {}

    def check_node(self, node: str) -> None:
        assert node == "web1"

    def mark_task(self, node: str) -> str:
        assert not self.asked
        self.marks.append(node)
        return "task-1-0-5.000000"

    def keep_mark(self) -> None:
        if self.marks[-1:] != [""]:
            self.marks.append("kept")

    def unmark_task(self, key: str) -> None:
        assert key == "task-1-0-5.000000"
        self.marks.append("")

    def call_node(self, node: str, key: str, request: messages.TaskRequest) -> int:
        assert (node, key) == ("web1", "task-1-0-5.000000")
        self.asked.append(request)
        self._open[len(self.asked)] = request
        return len(self.asked)

    def node_reply(
        self, numbers: Collection[int], timeout_seconds: float | None = None
    ) -> tuple[int, messages.Message] | None:
        assert {*numbers} == {*self._open}
        assert self.marks == ["web1"]
        self.patience.append(timeout_seconds)
        if self.says:
            said = self.says.pop(0)
            if isinstance(said, KilledError):
                raise said
            return None if said is None else (min(numbers), said)
        number = min(numbers, key=lambda one: (self._is_end(one), one))
        reply = self._answer(self._open.pop(number))
        return number, messages.TaskAnswered(frame=frames.encode(reply, 1))

    def _is_end(self, number: int) -> bool:
        """Whether this call waits for the end; without output, one for more of it waits longer."""
        request = self._open[number]
        if isinstance(request, messages.ReadOutput):
            return request.wait_seconds > 0 and request.offset >= len(self.file)
        return isinstance(request, messages.AwaitTask)

    def poll(self, descriptors: object, timeout_seconds: float | None) -> list[int]:
        assert not descriptors
        self.waited.append(timeout_seconds)
        return []

    def _answer(self, request: messages.Message) -> messages.Message:
        if self.refusals:
            return self.refusals.pop(0)
        match request:
            case messages.CancelJob():
                return messages.CancelOutcome(accepted=True, text="")
            case messages.RunTask():
                assert request.seconds > 0
                if self.is_quick and self.end is not None:
                    return self.end
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


@pytest.mark.parametrize(
    ("size", "is_truncated", "more"), [(0, False, 0), (0, True, 1), (5, False, 1)]
)
def test_the_end_of_a_short_command_says_whether_there_is_output_to_ask_for(
    size: int, more: int, *, is_truncated: bool
) -> None:
    result = {"stdout_bytes": size, "stderr_bytes": 0, "truncated": is_truncated}
    context = NodeContext(end=ended(JobStatus.SUCCESS, result))
    context.is_quick = True
    assert run(context) == result
    assert context.marks == ["web1", ""]
    assert [type(one).__name__ for one in context.asked] == [
        "RunTask",
        *["ReadOutput"] * more,
    ]


def test_output_is_passed_on_whole_each_stream_for_itself() -> None:
    file = b""
    for number in range(40):
        file += Packer().pack(0, [Segment(1 + number % 2, bytes([number]) * 100_000)], len(file))
    file += Packer().pack(0, [Segment(1, random.Random(1).randbytes(200_000))], len(file))
    context = NodeContext(file, ended(JobStatus.SUCCESS, {}))
    run(context)
    assert len(context.written_to("stdout")) == 20 * 100_000 + 200_000
    assert len(context.written_to("stderr")) == 20 * 100_000


@pytest.mark.parametrize("lost", [0, 5])
def test_output_that_the_host_has_removed_is_told(lost: int) -> None:
    """As by a purge there, before all of it had come: the job ended as if there were none."""
    file = Packer().pack(0, [Segment(1, b"x" * 100)], 0)
    result = {"stdout_bytes": 100 + lost, "stderr_bytes": 0, "truncated": False}
    context = NodeContext(file, ended(JobStatus.SUCCESS, result))
    run(context)
    told = [text for text in context.lines() if "missing" in text]
    assert told == [f"web1: {lost} bytes of output are missing: the host has removed them"] * (
        lost > 0
    )


def test_what_the_node_says_of_a_failure_is_the_jobs_failure() -> None:
    details = {"exit_code": 3, "stderr_tail": "no\n"}
    failed = ended(JobStatus.ERROR, ["OpExecError", ["exit code 3", details]])
    with pytest.raises(OperationError) as caught:
        run(NodeContext(end=failed))
    assert (caught.value.name, caught.value.details) == ("OpExecError", ["exit code 3", details])
    missing = ["command cannot be started: 'x' not found", {"shell_code": 127}]
    with pytest.raises(OperationError) as caught:
        run(NodeContext(end=ended(JobStatus.ERROR, ["OpExecError", missing])))
    assert caught.value.details == ["web1: command cannot be started: 'x' not found", missing[1]]
    lost = ended(JobStatus.ERROR, "Job process died")
    with pytest.raises(OperationError, match="web1: Job process died"):
        run(NodeContext(end=lost))
    with pytest.raises(OperationError, match="web1: the disk is full"):
        run(NodeContext(end=messages.Failure("StorageError", "the disk is full")))


def test_a_task_that_was_lost_there_is_told_so() -> None:
    job = Job(id=7, ops=[OpcodeEntry(input={"OP_ID": "OP_EXEC"}, status=JobStatus.ERROR)])
    outcomes.note(job, Ending(Outcome.LOST, "its process ended without a result"))
    context = NodeContext(end=messages.JobDocument(id=7, body=encode_job(job)))
    with pytest.raises(OperationError, match="lost on web1: its process ended without a result"):
        run(context)
    assert context.marks == ["web1", ""]


def test_a_silence_that_lasts_too_long_ends_the_wait_and_leaves_the_mark() -> None:
    context = NodeContext()
    context.says = [messages.NodeSilent(since=5.0), None]
    with pytest.raises(OperationError, match="silent for 60 s: it is not known whether"):
        context.run({"OP_ID": "OP_EXEC", "argv": ["x"], "node": "web1", "lost_after": 60.0})
    first, second = context.patience
    assert first is None
    assert second is not None
    assert 50 < second <= 60
    assert context.marks == ["web1", "kept"]


def test_a_node_that_is_back_has_its_whole_time_again() -> None:
    context = NodeContext(end=ended(JobStatus.SUCCESS, {"exit_code": 0}))
    context.says = [messages.NodeSilent(since=5.0), messages.NodeSilent(since=0.0)]
    asked = {"OP_ID": "OP_EXEC", "argv": ["x"], "node": "web1", "lost_after": 60.0}
    assert context.run(asked) == {"exit_code": 0}
    assert [one is None for one in context.patience[:3]] == [True, False, True]
    assert context.silent == ["node web1 is silent since 1970-01-01T00:00:05Z", ""]
    assert context.marks == ["web1", ""]


def test_a_kill_before_the_node_has_answered_follows_the_task_to_its_end() -> None:
    context = NodeContext(end=ended(JobStatus.ERROR, ["OpExecError", ["killed by SIGTERM"]]))
    context.says = [KilledError()]
    with pytest.raises(OperationError, match="killed by SIGTERM"):
        run(context)
    assert messages.CancelJob(id=7, kill=True) in context.asked
    assert context.marks == ["web1", ""]


@pytest.mark.parametrize("is_silent_first", [True, False])
def test_a_kill_waits_for_no_silent_node_that_has_not_answered(*, is_silent_first: bool) -> None:
    context = NodeContext(end=ended(JobStatus.SUCCESS, {}))
    context.says = [messages.NodeSilent(since=5.0), KilledError()]
    if not is_silent_first:
        context.says.reverse()
    with pytest.raises(OperationError, match="killed on request before web1 had answered"):
        run(context)
    # The daemon has it ended on the node before the locks are free.
    assert context.marks == ["web1", "kept"]


def test_a_start_that_the_node_refuses_names_it_and_why() -> None:
    context = NodeContext()
    context.refusals = [messages.Failure("DiskFullError", "the disk is full")]
    with pytest.raises(OperationError, match=r"^web1: the disk is full$"):
        run(context)
    # Whether it has begun is for the node to say: the daemon asks it before the locks are free.
    assert context.marks == ["web1", "kept"]


def test_a_node_whose_queue_is_drained_is_asked_again_after_a_while() -> None:
    context = NodeContext(end=ended(JobStatus.SUCCESS, {"exit_code": 0}))
    context.refusals = [
        messages.Failure("QueueDrainedError", "it is drained"),
        messages.Failure("ComponentRestartedError", "it was restarted"),
    ]
    assert run(context) == {"exit_code": 0}
    assert context.waited == [1.0]
    assert context.silent == ["node web1 takes no work now: it is drained", ""]
