"""Tasks of a job on other hosts: its process has them run there, and follows them as if here.

How it works. The daemon of the node runs a task as a job of its own, submitted under a key that
names this job, this opcode, the task's number and when the job came: so the same task is never
started twice, whatever is sent again, and it goes on when this process cannot reach the node. The
answer to the request is its end, if that comes soon. Else two calls are open while it runs: for
more of its output, and for its end.

Imported by the lean fork server, so it imports only what is cheap.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...storage import errors, settings, wording
from ...storage.jobs.jobs import decode_job
from ...storage.opcodes import KilledError, OperationError, targets
from ...transport import frames, messages
from ...transport.client.reading_ahead import ReadingAhead
from . import task_results
from .command_output import Output, OutputLog
from .task_results import results_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ...storage.jobs.job_views import OutputChunk
    from ...storage.opcodes import Opcode, OperationContext
    from ...storage.opcodes.catalogue import OpExec
    from .task_results import Failures

    class NodeContext(OperationContext, Protocol):
        """The context of a job, which can reach nodes."""

        def check_node(self, node: str) -> None: ...
        def joined_nodes(self) -> set[str]: ...
        def call_node(self, node: str, key: str, request: messages.TaskRequest) -> int: ...
        def node_reply(
            self, numbers: Collection[int], timeout_seconds: float | None = None
        ) -> tuple[int, messages.Message] | None: ...
        def forget_call(self, number: int) -> None: ...
        def tell_silent(self, text: str) -> None: ...
        def mark_task(self, node: str) -> str: ...
        def keep_mark(self) -> None: ...
        def unmark_task(self, key: str) -> None: ...


_INPUT_BYTES = 1024 * 1024
_INPUT_TRIES = 10
"""How often a large input is sent to a node whose daemon was restarted meanwhile."""

_FIRST_LOOK_SECONDS = 0.05
"""How long a command may run before the node answers, and its output is asked for: most are over by
then, and the end says whether there is any."""

_TURN_SECONDS = 0.1
"""How long the answer to a piece of input is waited for before other nodes get theirs."""

_OVER = object()

_LOCAL = (
    "node",
    "nodes",
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
    """Run the command on its node; the result is as `commands.run_command` has it.

    With several nodes it is that of each by its name.
    """
    source = None if opcode.stdin_file is None else context.open_input(opcode.stdin_file)
    tasks = {
        node: Task(
            context, node, command_fields(opcode, context, node), lost_after=opcode.lost_after
        )
        for node in targets(msgspec.structs.asdict(opcode))
    }
    try:
        if opcode.node is None:
            return results_of(*run_tasks(context, tasks, source))
        task = tasks[opcode.node]
        for _ in task.begin(source):
            pass
        result: dict[str, Any] | None = task.end()
    finally:
        if source is not None:
            os.close(source)
        context.keep_mark()
    return result


def command_fields(opcode: OpExec, context: OperationContext, node: str) -> dict[str, Any]:
    """The opcode that this node is given for a command."""
    names = {
        "GANGER_JOB_ID": str(context.job_id),
        "GANGER_OPCODE_INDEX": str(context.op_index),
        "GANGER_NODE": node,
    }
    return fields_of(opcode) | {"env": names | opcode.env}


def fields_of(opcode: Opcode) -> dict[str, Any]:
    """The opcode as the node is given it: without what is the master's concern alone."""
    fields = msgspec.to_builtins(opcode).items()
    kept = {name: value for name, value in fields if name not in _LOCAL and value is not None}
    return kept | {"OP_ID": opcode.op_id}


def run_all(
    context: NodeContext,
    nodes: Iterable[str],
    fields: Mapping[str, Any],
    *,
    lost_after: float | None = None,
) -> dict[str, Any]:
    """Run this opcode on each of these nodes at the same time: the results by node.

    Waits for all, also if one fails. `OperationError` tells each failure, and has the results.
    """
    return results_of(*try_all(context, nodes, fields, lost_after=lost_after))


def try_all(
    context: NodeContext,
    nodes: Iterable[str],
    fields: Mapping[str, Any],
    *,
    lost_after: float | None = None,
) -> tuple[dict[str, Any], Failures]:
    """As `run_all`: the results by node, and the failures."""
    tasks = {
        node: Task(context, node, fields, lost_after=lost_after) for node in dict.fromkeys(nodes)
    }
    return run_tasks(context, tasks)


def run_tasks(
    context: NodeContext,
    tasks: Mapping[str, Task],
    source: int | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> tuple[dict[str, Any], Failures]:
    """Begin these tasks, and wait for all: results and failures by node.

    ``source``: what they find as their input, as in `Task.begin`. ``meanwhile`` is what this
    process itself has to do.
    """
    results: dict[str, Any] = {}
    failures: Failures = {}

    def kill_all() -> None:
        for task in tasks.values():
            task.kill()

    try:
        _begin_all(tasks, source, failures)
        if meanwhile is not None:
            meanwhile()
        for node, task in tasks.items():
            if node not in failures:
                with _noted(failures, node):
                    results[node] = task.end(kill_all)
    finally:
        context.keep_mark()
    return results, failures


def _begin_all(tasks: Mapping[str, Task], source: int | None, failures: Failures) -> None:
    """Begin them; a node that takes its input slowly, or not at all, holds up no other."""
    begun = {node: task.begin(source) for node, task in tasks.items()}
    while begun:
        for node, steps in list(begun.items()):
            tasks[node].patience = _TURN_SECONDS if len(begun) > 1 else None
            goes_on = False
            with _noted(failures, node):
                goes_on = next(steps, _OVER) is not _OVER
            if not goes_on:
                del begun[node]


@contextlib.contextmanager
def _noted(failures: Failures, node: str) -> Iterator[None]:
    try:
        yield
    except (OperationError, errors.GangerError) as error:
        failures[node] = error


class Task:
    """One opcode that runs on one node; ``fields`` is the opcode there.

    ``lost_after``: seconds of silence of the node after which its end is given up.
    """

    def __init__(
        self,
        context: NodeContext,
        node: str,
        fields: Mapping[str, Any],
        *,
        lost_after: float | None = None,
    ) -> None:
        self._context = context
        self._node = node
        self.fields = dict(fields)
        """The opcode there: `when_sent` may add to it."""
        self._lost_after = lost_after
        self._is_silent = False
        self._lost_at: float | None = None
        """When the silence has lasted too long, on the context's clock."""
        self._key = ""
        self._job_id = 0
        self._is_to_be_killed = False
        self._ended: messages.JobDocument | None = None
        self._slots: dict[str, tuple[int, messages.TaskRequest]] = {}
        """The open calls by what they are for, each with its number and its request."""
        self._log = OutputLog(context)
        self._outputs = {
            kind: Output(-1, kind, self._log, context) for kind in ("stdout", "stderr")
        }
        self._missing = 0
        """Bytes of output that were told to be missing."""
        self._source: int | None = None
        self.when_sent: Callable[[int, bytes, int], None] = lambda _place, _data, _size: None
        """Is told each piece that is sent to the node as its input: place, data, size of all."""
        self.patience: float | None = None
        """How many seconds `begin` waits for an answer before it yields; None: it does not."""

    def begin(self, source: int | None = None) -> Iterator[None]:
        """Ask the node to start it, and do not wait for the answer.

        ``source``: a file whose content the opcode there finds as its ``stdin_file``; it stays open
        until the end: a node that was restarted gets all of it again. Raises
        `OperationError`, and the error for which the node takes no commands.
        """
        try:
            self._context.check_node(self._node)
        except KilledError:
            text = f"command was killed on request before {self._node} had it"
            raise OperationError("OpExecError", text) from None
        self._key = self._context.mark_task(self._node)
        self._source = source
        if self._context.dry_run:
            self.fields["dry_run"] = True
        if source is not None:
            yield from self._send_input(source)
        self._submit()

    def _submit(self) -> None:
        spec = messages.JobSpec(ops=[self.fields], name=self._key)
        self._call("ask", messages.RunTask(spec=spec, key=self._key, seconds=_FIRST_LOOK_SECONDS))

    def _submitted(self, kill: Callable[[], None]) -> messages.Message | None:
        """The answer to the request to run. What the node has lost of the input is sent again."""
        for _ in range(_INPUT_TRIES):
            try:
                found = None
                while found is None:
                    self._check_kill()
                    found = self._reply_or_kill(kill)
                return found[1]
            except OperationError as error:
                if self._source is None or not isinstance(error.__cause__, errors.InputLostError):
                    raise
            self.patience = None
            for _ in self._send_input(self._source):
                pass
            self._submit()
        return self._answer()

    def end(self, when_killed: Callable[[], None] | None = None) -> Any:  # noqa: ANN401 - as the opcode has it
        """Follow it to its end: its result, or `OperationError`.

        ``when_killed``: kills all tasks that run beside this one, and this one, too.
        """
        kill = when_killed or self.kill
        answer = self._submitted(kill)
        if isinstance(answer, messages.JobDocument):
            self._job_id, self._ended = answer.id, answer
        else:
            assert isinstance(answer, messages.JobsSubmitted)
            if not answer.ids:
                self._context.unmark_task(self._key)
                raise OperationError("OpExecError", f"{self._node}: {answer.rejected.get(0, '')}")
            self._job_id = answer.ids[0]
            if self._is_to_be_killed:
                self.kill()
            self._call("end", messages.AwaitTask(id=self._job_id))
        self._follow(kill)
        self._context.unmark_task(self._key)
        for output in self._outputs.values():
            output.finish()
        assert self._ended is not None
        return task_results.result_of(decode_job(self._ended.body), self._node)

    def kill(self) -> None:
        """Have it ended on the node, now or when the node has said that it has it."""
        self._is_to_be_killed = True
        if self._job_id and self._ended is None:
            self._call("kill", messages.CancelJob(id=self._job_id, kill=True))

    def _send_input(self, source: int) -> Iterator[None]:
        """Send the content of a file there, from its beginning again if the node has lost it."""
        # For the few that have an input: it loads a library of ciphers.
        import hashlib  # noqa: PLC0415

        token, tries = hashlib.sha256(self._key.encode()).hexdigest()[:32], _INPUT_TRIES
        size, place, is_last = os.fstat(source).st_size, 0, False
        while not is_last:
            data = os.pread(source, _INPUT_BYTES, place)
            if not data and place < size:
                text = f"{self._node}: the file became shorter while it was sent"
                raise OperationError("OpExecError", text)
            is_last = place + len(data) >= size
            part = messages.StoreInput(token=token, offset=place, data=data, is_last=is_last)
            self._call("ask", part)
            self.when_sent(place, data, size)
            try:
                while self._answer(self.patience) is None:
                    yield
                place += len(data)
            except OperationError as error:
                tries -= 1
                if not tries or not isinstance(error.__cause__, errors.InputLostError):
                    raise
                # The node's daemon was restarted: it has deleted what no job has.
                place, is_last = 0, False
        self.fields["stdin_file"] = f"upload-{token}"

    # ------------------------------------------------------------ output and end

    def _follow(self, kill: Callable[[], None]) -> None:
        reading = ReadingAhead(self._job_id)
        if self._ended is not None:
            self._take_in(reading, "end", self._ended)
        while not reading.has_all:
            self._ask_for_pages(reading)
            if (found := self._reply_or_kill(kill)) is not None:
                self._take_in(reading, *found)
        for slot in list(self._slots):
            self._forget(slot)
        self._tell_lost_output()

    def _tell_lost_output(self) -> None:
        """Tell if the host has removed output (a purge there) before this process had it."""
        assert self._ended is not None
        written = task_results.written(decode_job(self._ended.body)) or {}
        lost = sum(size - self._outputs[kind].size for kind, size in written.items())
        if lost > 0 and not self._missing:
            self._tell_missing(lost, "the host has removed them")

    def _reply_or_kill(self, kill: Callable[[], None]) -> tuple[str, messages.Message] | None:
        """As `_reply_within`; None when the command is to be killed, which is sent."""
        try:
            return self._reply_within(None)
        except KilledError:
            self._context.log("Killed on request, ending the command")
            kill()
            return None

    def _ask_for_pages(self, reading: ReadingAhead) -> None:
        for request in reading.requests():
            self._call(f"page {request.offset}", request)

    def _take_in(self, reading: ReadingAhead, slot: str, reply: messages.Message) -> None:
        """Take in a page of output, or the end."""
        if isinstance(reply, messages.OutputPage):
            chunks = reading.take(int(slot.removeprefix("page ")), reply)
            # Before the output is written: the node works meanwhile.
            self._ask_for_pages(reading)
            self._take(chunks)
        elif isinstance(reply, messages.JobDocument):
            self._ended = reply
            # The open call may wait for output that will never come.
            for one in list(self._slots):
                if one.startswith("page "):
                    self._forget(one)
            reading.end(is_whole=self._has_all_output())

    def _has_all_output(self) -> bool:
        """Whether as much has come as the command has written: there is no further page."""
        assert self._ended is not None
        sizes = {kind: output.size for kind, output in self._outputs.items()}
        return task_results.written(decode_job(self._ended.body)) == sizes

    def _take(self, chunks: list[OutputChunk]) -> None:
        for chunk in chunks:
            if chunk.stream:
                self._outputs[chunk.stream].take(chunk.data)
            elif chunk.missing:
                why = {"limit": "above its limit", "disk": "the disk refused them"}
                self._tell_missing(chunk.missing, why.get(chunk.gap, "they were damaged"))

    def _tell_missing(self, size: int, reason: str) -> None:
        self._missing += size
        count = wording.counted(size, "byte")
        self._context.log(f"{self._node}: {count} of output are missing: {reason}")

    # ------------------------------------------------------------ calls

    def _answer(self, patience: float | None = None) -> messages.Message | None:
        """The reply to the one call that is open; None: it has not come within ``patience``."""
        try:
            found = self._reply_within(patience)
        except KilledError:
            raise self._killed_early() from None
        return None if found is None else found[1]

    def _check_kill(self) -> None:
        """Wait for no silent node that has not said that it has the task, if that is to end."""
        if self._is_to_be_killed and self._is_silent and not self._job_id:
            raise self._killed_early()

    def _killed_early(self) -> OperationError:
        text = f"killed on request before {self._node} had answered; it is ended there"
        return OperationError("OpExecError", text)

    def _call(self, slot: str, request: messages.TaskRequest) -> None:
        self._slots[slot] = self._context.call_node(self._node, self._key, request), request

    def _forget(self, slot: str) -> None:
        if (call := self._slots.pop(slot, None)) is not None:
            self._context.forget_call(call[0])

    def _reply_within(self, patience: float | None) -> tuple[str, messages.Message] | None:
        """The next reply of the node's daemon, and the slot of its call.

        None: nothing has come for this many seconds.
        """
        while True:
            slots = {number: slot for slot, (number, _) in self._slots.items()}
            left = None if self._lost_at is None else self._lost_at - self._context.clock()
            is_short = patience is not None and (left is None or patience < left)
            found = self._context.node_reply(slots, patience if is_short else left)
            if found is None and is_short:
                return None
            if found is None:
                raise OperationError("OpExecError", self._lost_text())
            number, said = found
            if isinstance(said, messages.NodeSilent):
                self._note_silence(said.since or None, said.why)
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

    def _note_silence(self, since: float | None, why: str = "") -> None:
        if since:
            if self._lost_at is None and self._lost_after is not None:
                self._lost_at = self._context.clock() + self._lost_after
            self._is_silent = True
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
            reason = f"; {why}" if why else ""
            self._context.tell_silent(f"node {self._node} is silent since {when}{reason}")
            self._check_kill()
        elif self._is_silent:
            self._is_silent = False
            self._lost_at = None
            self._context.tell_silent("")

    def _lost_text(self) -> str:
        assert self._lost_after is not None
        waited = f"{self._node} was silent for {self._lost_after:g} s"
        return f"{waited}: it is not known whether the command still runs on {self._node}"
