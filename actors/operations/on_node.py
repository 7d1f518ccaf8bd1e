"""A command on another host: the job's process has it run there, and follows it as if it ran here.

How it works. The daemon of the node runs the command as a job of its own, submitted under a key
that names this job, this opcode and when the job came: so the same task is never started twice,
whatever is sent again, and it goes on when this process cannot reach the node. Two calls are open
while it runs: for more of its output, and for its end.

Imported when a command has a node: a job without one must not pay for it.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...storage import errors, settings, wording
from ...storage.jobs import outcomes
from ...storage.jobs.jobs import JobStatus, decode_job
from ...storage.jobs.outcomes import Outcome
from ...storage.opcodes import KilledError, OperationError
from ...transport import frames, messages
from ...transport.client.reading_ahead import ReadingAhead
from .command_output import Output, OutputLog

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...storage.jobs.job_views import OutputChunk
    from ...storage.opcodes import OperationContext
    from ...storage.opcodes.catalogue import OpExec

    class NodeContext(OperationContext, Protocol):
        """The context of a job, which can reach nodes."""

        @property
        def task_key(self) -> str: ...
        def check_node(self, node: str) -> None: ...
        def call_node(self, node: str, request: messages.TaskRequest) -> int: ...
        def node_reply(
            self, numbers: Collection[int], timeout_seconds: float | None = None
        ) -> tuple[int, messages.Message] | None: ...
        def forget_call(self, number: int) -> None: ...
        def tell_silent(self, text: str) -> None: ...
        def mark_task(self, node: str) -> None: ...
        def keep_mark(self) -> None: ...
        def unmark_task(self) -> None: ...


_INPUT_BYTES = 1024 * 1024
_LOCAL = (
    "node",
    "lost_after",
    "locks",
    "lock_uuids",
    "depend",
    "depends",
    "comment",
    "reason",
    "priority",
    "debug_level",
)
"""Parameters that are of no concern to the node."""


def run_on_node(opcode: OpExec, context: NodeContext) -> dict[str, Any] | None:
    """Run the command on its node; the result is as `commands.run_command` has it."""
    assert opcode.node is not None
    try:
        context.check_node(opcode.node)
    except KilledError:
        text = f"command was killed on request before {opcode.node} had it"
        raise OperationError("OpExecError", text) from None
    try:
        return _Task(opcode, opcode.node, context).run()
    finally:
        context.keep_mark()


class _Task:
    """One command on one node."""

    def __init__(self, opcode: OpExec, node: str, context: NodeContext) -> None:
        self._opcode = opcode
        self._node = node
        self._context = context
        self._is_silent = False
        self._lost_at: float | None = None
        """When the silence has lasted too long, on the context's clock."""
        self._job_id = 0
        self._ended: messages.JobDocument | None = None
        self._slots: dict[str, tuple[int, messages.TaskRequest]] = {}
        """The open calls by what they are for, each with its number and its request."""
        self._log = OutputLog(context)
        self._outputs = {
            kind: Output(-1, kind, self._log, context) for kind in ("stdout", "stderr")
        }

    def run(self) -> dict[str, Any] | None:
        key = self._context.task_key
        self._context.mark_task(self._node)
        spec = messages.JobSpec(ops=[self._remote_opcode(key)], name=key)
        submitted = self._ask(messages.SubmitJobs(jobs=[spec], key=key))
        assert isinstance(submitted, messages.JobsSubmitted)
        if not submitted.ids:
            self._context.unmark_task()
            raise OperationError("OpExecError", f"{self._node}: {submitted.rejected.get(0, '')}")
        self._job_id = submitted.ids[0]
        self._follow()
        self._context.unmark_task()
        for output in self._outputs.values():
            output.finish()
        return self._result()

    def _remote_opcode(self, key: str) -> dict[str, Any]:
        fields = msgspec.to_builtins(self._opcode)
        kept = {
            name: value
            for name, value in fields.items()
            if name not in _LOCAL and value is not None
        }
        kept["OP_ID"] = self._opcode.op_id
        kept["env"] = {
            "GANGER_JOB_ID": str(self._context.job_id),
            "GANGER_OPCODE_INDEX": str(self._context.op_index),
            "GANGER_NODE": self._node,
            **self._opcode.env,
        }
        if self._opcode.stdin_file is not None:
            kept["stdin_file"] = self._send_input(self._opcode.stdin_file, key)
        if self._context.dry_run:
            kept["dry_run"] = True
        return kept

    def _send_input(self, name: str, key: str) -> str:
        """Send a large standard input there; under which name the opcode finds it."""
        token = hashlib.sha256(key.encode()).hexdigest()[:32]
        descriptor, place = self._context.open_input(name), 0
        try:
            size = os.fstat(descriptor).st_size
            while place < size:
                data = os.pread(descriptor, _INPUT_BYTES, place)
                is_last = place + len(data) >= size
                part = messages.StoreInput(token=token, offset=place, data=data, is_last=is_last)
                self._ask(part)
                place += len(data)
        finally:
            os.close(descriptor)
        return f"upload-{token}"

    # ------------------------------------------------------------ output and end

    def _follow(self) -> None:
        reading = ReadingAhead(self._job_id)
        self._call("end", messages.AwaitTask(id=self._job_id))
        while not reading.has_all:
            for request in reading.requests():
                self._call(f"page {request.offset}", request)
            try:
                slot, reply = self._reply()
            except KilledError:
                self._context.log("Killed on request, ending the command")
                self._call("kill", messages.CancelJob(id=self._job_id, kill=True))
                continue
            if isinstance(reply, messages.OutputPage):
                chunks = reading.take(int(slot.removeprefix("page ")), reply)
                for request in reading.requests():
                    # Before the output is written: the node works meanwhile.
                    self._call(f"page {request.offset}", request)
                self._take(chunks)
            elif isinstance(reply, messages.JobDocument):
                self._ended = reply
                # The open call may wait for output that will never come.
                for one in list(self._slots):
                    if one.startswith("page "):
                        self._forget(one)
                reading.end(is_whole=self._has_all_output())
        for slot in list(self._slots):
            self._forget(slot)

    def _has_all_output(self) -> bool:
        """Whether as much has come as the command has written: there is no further page."""
        assert self._ended is not None
        match decode_job(self._ended.body).ops[0].result:
            case dict() as result:
                pass
            case [_, [_, dict() as result]]:
                pass
            case _:
                return False
        sizes = {kind: result.get(f"{kind}_bytes") for kind in self._outputs}
        is_whole = sizes == {kind: output.size for kind, output in self._outputs.items()}
        return is_whole and result.get("truncated") is False

    def _take(self, chunks: list[OutputChunk]) -> None:
        for chunk in chunks:
            if chunk.stream:
                self._outputs[chunk.stream].take(chunk.data)
            elif chunk.missing:
                why = {"limit": "above its limit", "disk": "the disk refused them"}
                reason = why.get(chunk.gap, "they were damaged")
                count = wording.counted(chunk.missing, "byte")
                self._context.log(f"{self._node}: {count} of output are missing: {reason}")

    def _result(self) -> dict[str, Any] | None:
        assert self._ended is not None
        job = decode_job(self._ended.body)
        entry, ending = job.ops[0], outcomes.ending_of(job)
        if entry.status is JobStatus.SUCCESS:
            result: dict[str, Any] | None = entry.result
            return result
        if ending is not None and ending.outcome is Outcome.LOST:
            text = f"the command was lost on {self._node}: {ending.reason}"
            raise OperationError("OpExecError", text)
        match entry.result:
            case [str(name), [str(text), *details]]:
                raise OperationError(name, text, *details)
            case str(text):
                # The task's process left no result: the node's daemon has said why.
                raise OperationError("OpExecError", f"{self._node}: {text}")
        raise OperationError("OpExecError", f"{self._node}: the task was canceled there")

    # ------------------------------------------------------------ calls

    def _ask(self, request: messages.TaskRequest) -> messages.Message:
        """The reply to one request, while no other call is open."""
        self._call("ask", request)
        while True:
            try:
                return self._reply()[1]
            except KilledError:
                text = f"killed on request before {self._node} had answered; it is ended there"
                raise OperationError("OpExecError", text) from None

    def _call(self, slot: str, request: messages.TaskRequest) -> None:
        self._slots[slot] = self._context.call_node(self._node, request), request

    def _forget(self, slot: str) -> None:
        if (call := self._slots.pop(slot, None)) is not None:
            self._context.forget_call(call[0])

    def _reply(self) -> tuple[str, messages.Message]:
        """The next reply of the node's daemon, and the slot of its call."""
        while True:
            slots = {number: slot for slot, (number, _) in self._slots.items()}
            left = None if self._lost_at is None else self._lost_at - self._context.clock()
            found = self._context.node_reply(slots, left)
            if found is None:
                raise OperationError("OpExecError", self._lost_text())
            number, said = found
            if isinstance(said, messages.NodeSilent):
                self._note_silence(said.since or None)
                continue
            assert isinstance(said, messages.TaskAnswered)
            self._note_silence(None)
            slot = slots[number]
            request = self._slots.pop(slot)[1]
            reply = frames.decode(said.frame, messages.TaskReply).message
            if not isinstance(reply, messages.Failure):
                return slot, reply
            error = errors.from_wire(reply.error, reply.text)
            if isinstance(error, errors.TryAgainError):
                try:
                    self._wait_to_retry(error)
                finally:
                    self._call(slot, request)
            elif slot != "kill":
                raise OperationError("OpExecError", f"{self._node}: {error.text}") from error

    def _wait_to_retry(self, error: errors.TryAgainError) -> None:
        """Wait a moment if the node's daemon takes no work now; after a restart of a part, not."""
        if isinstance(error, errors.BusyError | errors.QueueDrainedError):
            self._is_silent = True
            self._context.tell_silent(f"node {self._node} takes no work now: {error.text}")
            self._context.poll([], settings.DISK_RETRY_SECONDS)

    def _note_silence(self, since: float | None) -> None:
        if since:
            if self._lost_at is None and self._opcode.lost_after is not None:
                self._lost_at = self._context.clock() + self._opcode.lost_after
            self._is_silent = True
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
            self._context.tell_silent(f"node {self._node} is silent since {when}")
        elif self._is_silent:
            self._is_silent = False
            self._lost_at = None
            self._context.tell_silent("")

    def _lost_text(self) -> str:
        assert self._opcode.lost_after is not None
        waited = f"{self._node} was silent for {self._opcode.lost_after:g} s"
        return f"{waited}: it is not known whether the command still runs on {self._node}"
