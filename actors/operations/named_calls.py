"""``OP_NODE_CALL``: a call that a host answers by name, here or on nodes.

How it works. On the host the task's process forks a child for the answer, which may hang, crash or
print whatever it likes: the child ends at the call's time limit. What it prints is output of the
task; its reply comes through a pipe, and must have the type that the call declares.

Imported when there is such an opcode.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from ...storage import errors, settings
from ...storage.alive import process_identity
from ...storage.jobs import job_bounds
from ...storage.nodes import named_calls
from ...storage.opcodes import KilledError, OperationError
from ...storage.opcodes.node_opcodes import OpNodeCall
from .command_output import Output, OutputLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...storage.nodes.named_calls import NodeCall
    from ...storage.opcodes import OperationContext
    from .on_node import NodeContext

    class HostContext(OperationContext, Protocol):
        """The context of a job, which knows where its daemon's data is."""

        @property
        def data_directory(self) -> str: ...


_END_SECONDS = 5.0
"""How long a killed child may take to end."""

_READ_BYTES = 64 * 1024
_WAIT_SECONDS_MAX = 3600.0


def run_call(opcode: OpNodeCall, context: HostContext) -> object:
    """Answer the call: the reply, or with ``nodes`` the reply of each node by its name."""
    if nodes := opcode.targets():
        from . import on_node  # noqa: PLC0415 - not on the node itself

        fields, lost_after = on_node.fields_of(opcode), opcode.lost_after
        found = on_node.run_all(context, nodes, fields, lost_after=lost_after)  # type: ignore[arg-type]
        return found if opcode.node is None else found[opcode.node]
    try:
        kind = named_calls.find(opcode.call)
        call = named_calls.with_arguments(kind, opcode.arguments)
    except errors.BadRequestError as error:
        raise OperationError("OpPrereqError", error.text) from error
    if context.dry_run:
        return None
    limit = call.time_limit() if opcode.timeout is None else opcode.timeout
    answer = _Answer(call, context, limit).wait()
    try:
        named_calls.checked_reply(kind, answer)
    except errors.BadRequestError as error:
        raise OperationError("OpResultError", error.text) from error
    return answer


def delay(
    nodes: Iterable[str], duration: float, context: NodeContext, here: Callable[[], object] | None
) -> None:
    """Wait for ``duration`` seconds on these nodes, and ``here`` meanwhile."""
    from . import on_node, task_results  # noqa: PLC0415 - not on the node itself

    call = named_calls.TestDelay(duration=duration)
    opcode = OpNodeCall(call=call.call, arguments=named_calls.arguments_of(call))
    fields = on_node.fields_of(opcode)
    tasks = {node: on_node.Task(context, node, fields) for node in nodes}
    task_results.results_of(*on_node.run_tasks(context, tasks, meanwhile=here))


class _Answer:
    """The child that answers a call."""

    def __init__(self, call: NodeCall[Any], context: HostContext, limit: float) -> None:
        self._name = call.call
        self._context = context
        self._limit = limit
        self._reply = bytearray()
        self._open: dict[int, Output | None] = {}
        reads, writes = zip(*(os.pipe() for _ in range(3)), strict=True)
        self._pid = os.fork()
        if self._pid == 0:
            _answer(call, Path(context.data_directory), writes)
        for descriptor in writes:
            os.close(descriptor)
        self._pidfd = process_identity.open_pidfd(self._pid)
        log = OutputLog(context)
        self._outputs = [
            Output(descriptor, kind, log, context)
            for descriptor, kind in zip(reads[1:], ("stdout", "stderr"), strict=True)
        ]
        os.set_blocking(reads[0], False)
        self._open = {reads[0]: None, **{output.descriptor: output for output in self._outputs}}

    def wait(self) -> object:
        """The reply; `OperationError` if there is none in time."""
        deadline = self._context.clock() + self._limit
        try:
            self._follow(deadline)
        finally:
            status = self._end()
        if self._context.clock() >= deadline and not self._reply:
            text = f"call {self._name!r} has not answered within {self._limit:g} s, and was ended"
            raise OperationError("OpExecError", text)
        if not self._reply:
            code = os.waitstatus_to_exitcode(status)
            how = f"code {code}" if code >= 0 else signal.Signals(-code).name
            raise OperationError("OpExecError", f"call {self._name!r} gave no reply: {how}")
        match msgspec.json.decode(self._reply):
            case {"error": [str(name), str(text)]}:
                raise OperationError(name, text)
            case {"reply": reply}:
                return reply
        raise AssertionError(self._reply[:100])

    def _follow(self, deadline: float) -> None:
        """Take what the child says until it has ended."""
        while (left := deadline - self._context.clock()) > 0:
            try:
                ready = self._context.poll([self._pidfd, *self._open], min(left, _WAIT_SECONDS_MAX))
            except KilledError:
                text = f"call {self._name!r} was killed on request"
                raise OperationError("OpExecError", text) from None
            self._take(ready)
            if self._pidfd in ready:
                # All that it has written is there, as far as it is the child's own.
                self._take([*self._open])
                return

    def _take(self, ready: list[int]) -> None:
        for descriptor in ready:
            if descriptor not in self._open:
                continue
            output = self._open[descriptor]
            is_open = self._read_reply(descriptor) if output is None else output.read()
            if not is_open:
                del self._open[descriptor]
                os.close(descriptor)

    def _read_reply(self, descriptor: int) -> bool:
        while True:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._reply += data
            if len(self._reply) > settings.JOB_BYTES_MAX:
                text = f"call {self._name!r}: its reply is larger than a job may be"
                raise OperationError("OpResultError", text)

    def _end(self) -> int:
        """Kill what is left of the child, and close everything; its wait status."""
        status = 0
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # It has ended, or not made its group yet.
            os.kill(self._pid, signal.SIGKILL)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if poll.poll(int(_END_SECONDS * 1000)):
            # Else it waits in the kernel for a device, and ends with that.
            _, status = os.waitpid(self._pid, 0)
        for descriptor in (self._pidfd, *self._open):
            os.close(descriptor)
        for output in self._outputs:
            output.finish()
        return status


def _answer(call: NodeCall[Any], data: Path, writes: tuple[int, ...]) -> NoReturn:
    """In the child: answer, and end."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for new, own in ((1, writes[1]), (2, writes[2])):
            os.dup2(own, new)
        with (
            open(1, "w", errors="backslashreplace", closefd=False) as stdout,
            open(2, "w", errors="backslashreplace", closefd=False) as stderr,
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            answered = _answered(call, data)
        _write_all(writes[0], answered)
        code = 0
    finally:
        os._exit(code)


def _answered(call: NodeCall[Any], data: Path) -> bytes:
    """The reply or the error as JSON."""
    from . import host_answers  # noqa: PLC0415 - not in the parent

    try:
        reply = host_answers.answer(call, data)
        # What JSON cannot hold fails here.
        encoded = msgspec.json.encode({"reply": reply})
        job_bounds.check_depth(msgspec.json.decode(encoded))
    except OperationError as error:
        return msgspec.json.encode({"error": [error.name, str(error)]})
    except errors.GangerError as error:
        return msgspec.json.encode({"error": [error.luxi_name, error.text]})
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        _print_traceback()
        text = f"call {call.call!r}: {type(error).__name__}: {error}"
        return msgspec.json.encode({"error": ["OpExecError", text]})
    except BaseException as error:  # noqa: BLE001 - whatever a package raises
        _print_traceback()
        text = f"call {call.call!r} failed: {type(error).__name__}: {error}"
        return msgspec.json.encode({"error": ["OpExecError", " ".join(text.split())]})
    return encoded


def _print_traceback() -> None:
    os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
